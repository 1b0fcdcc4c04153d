// A client of an MCP endpoint, made with the official TypeScript SDK, for the
// e2e tests.
//
//   node client.mjs URL [STEPS]
//
// STEPS is a JSON array; without it, each line of standard input is one step or
// an array of steps, done as it comes. For each step one line of JSON goes to
// standard output: {"op":...,"result":...} or {"op":...,"error":{"code":...,
// "message":...,"data":...}}. The exit code is 0, and 1 when there was no
// connection (a line with the op "connect" tells why) or a line was not JSON.
//
// Steps: {"op":"connect"} shows what initialize gave (the connection is made
// before the first step in any case), "ping", "listTools", "callTool" (name,
// args; progress: true adds the notifications to the result), "listPrompts",
// "getPrompt" (name, args), "listResources", "listResourceTemplates",
// "readResource", "subscribe" and "unsubscribe" (uri), "complete" (ref, argument,
// context), "setLevel" (level), "rootsChanged", "waitToolListChanged", "waitFor"
// (method of a notification, match: a text in it; gives its params; one that came
// since the last such step counts), "arrived" (method; all that no step has waited
// for), "asked" (the server's requests since the last such step),
// "terminate" (DELETE). Every step may have "timeoutMs", 30000 by default. Lists
// are read to their last page.
//
// MCP_SDK=2 in the environment takes version 2 of the SDK instead of 1.
// MCP_CAPABLE=1 declares elicitation, sampling and roots; what the server then
// asks gets the answers below ("elicit" in a step changes the action).
import { createInterface } from 'node:readline';

const version = process.env.MCP_SDK === '2' ? 2 : 1;
const capable = process.env.MCP_CAPABLE === '1';
const sdk = version === 2
  ? await import('@modelcontextprotocol/client')
  : {
      ...(await import('@modelcontextprotocol/sdk/client/index.js')),
      ...(await import('@modelcontextprotocol/sdk/client/streamableHttp.js')),
      ...(await import('@modelcontextprotocol/sdk/types.js')),
    };

const client = new sdk.Client(
  { name: `patchbay-e2e-ts${version}`, version: '1.0.0' },
  { capabilities: capable ? { elicitation: { form: {}, url: {} }, sampling: { tools: {} }, roots: { listChanged: true } } : {} },
);
const transport = new sdk.StreamableHTTPClientTransport(new URL(process.argv[2]));

const arrived = new Map(); // method to params of notifications that no step has waited for
let onArrival = () => {};
for (const [method, schema] of [
  ['notifications/tools/list_changed', sdk.ToolListChangedNotificationSchema],
  ['notifications/resources/updated', sdk.ResourceUpdatedNotificationSchema],
  ['notifications/message', sdk.LoggingMessageNotificationSchema],
  ['notifications/elicitation/complete', sdk.ElicitationCompleteNotificationSchema],
]) {
  client.setNotificationHandler(version === 2 ? method : schema, (n) => {
    arrived.set(method, [...(arrived.get(method) ?? []), n.params ?? {}]);
    onArrival();
  });
}

const asked = []; // requests of the server that no step "asked" has shown
let elicit = 'accept';
if (capable) {
  for (const [method, schema, answer] of [
    ['elicitation/create', sdk.ElicitRequestSchema, (params) =>
      elicit === 'accept' && params.mode !== 'url' ? { action: 'accept', content: { name: 'Ada' } } : { action: elicit }],
    ['sampling/createMessage', sdk.CreateMessageRequestSchema, () =>
      ({ role: 'assistant', model: 'none', content: { type: 'text', text: 'sampled by the client' }, stopReason: 'endTurn' })],
    ['roots/list', sdk.ListRootsRequestSchema, () => ({ roots: [{ uri: 'file:///home/ada', name: 'home' }] })],
  ]) {
    client.setRequestHandler(version === 2 ? method : schema, (request) => {
      asked.push({ method, params: request.params });
      return answer(request.params);
    });
  }
}

/** Reads all pages of a list. */
async function pages(key, list) {
  const items = [];
  let cursor;
  do {
    const page = await list(cursor === undefined ? {} : { cursor });
    items.push(...page[key]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return { [key]: items };
}

/** Waits for a notification that contains the text; with all, takes the others too. */
function waitFor(method, timeout, match, all) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      onArrival = () => {}; // what comes later is for the next step
      reject(new Error(`no ${method} in ${timeout} ms`));
    }, timeout);
    onArrival = () => {
      const waiting = arrived.get(method) ?? [];
      const found = waiting.findIndex((params) => JSON.stringify(params).includes(match));
      if (found < 0) return;
      const [first] = waiting.splice(found, 1);
      if (all) waiting.length = 0;
      onArrival = () => {};
      clearTimeout(timer);
      resolve(first);
    };
    onArrival();
  });
}

async function callTool(step, options) {
  elicit = step.elicit ?? 'accept';
  const progress = [];
  const params = { name: step.name, arguments: step.args ?? {} };
  const all = step.progress ? { ...options, onprogress: (p) => { progress.push(p); } } : options;
  const result = await (version === 2 ? client.callTool(params, all) : client.callTool(params, undefined, all));
  return step.progress ? { ...result, progress } : result;
}

function perform(step) {
  const timeout = step.timeoutMs ?? 30000;
  const options = { timeout };
  switch (step.op) {
    case 'connect':
      return {
        serverInfo: client.getServerVersion(),
        capabilities: client.getServerCapabilities(),
        instructions: client.getInstructions(),
        protocolVersion: transport.protocolVersion,
        sessionId: transport.sessionId,
      };
    case 'ping': return client.ping(options);
    case 'listTools': return pages('tools', (p) => client.listTools(p, options));
    case 'callTool': return callTool(step, options);
    case 'listPrompts': return pages('prompts', (p) => client.listPrompts(p, options));
    case 'getPrompt': return client.getPrompt({ name: step.name, arguments: step.args ?? {} }, options);
    case 'listResources': return pages('resources', (p) => client.listResources(p, options));
    case 'listResourceTemplates': return pages('resourceTemplates', (p) => client.listResourceTemplates(p, options));
    case 'readResource': return client.readResource({ uri: step.uri }, options);
    case 'subscribe': return client.subscribeResource({ uri: step.uri }, options);
    case 'unsubscribe': return client.unsubscribeResource({ uri: step.uri }, options);
    case 'complete':
      return client.complete({
        ref: step.ref, argument: step.argument, ...(step.context && { context: { arguments: step.context } }),
      }, options);
    case 'setLevel': return client.setLoggingLevel(step.level, options);
    case 'rootsChanged': return client.sendRootsListChanged();
    case 'waitToolListChanged': return waitFor('notifications/tools/list_changed', timeout, '', true);
    case 'waitFor': return waitFor(step.method, timeout, step.match ?? '', false);
    case 'arrived': return { params: (arrived.get(step.method) ?? []).splice(0) };
    case 'asked': return { requests: asked.splice(0) };
    case 'terminate': return transport.terminateSession().then(() => ({}));
    default: throw new Error(`unknown op ${JSON.stringify(step.op)}`);
  }
}

function print(line) {
  return new Promise((resolve) => { process.stdout.write(JSON.stringify(line) + '\n', resolve); });
}

async function run(op, action) {
  const start = performance.now();
  const ms = () => Math.round(performance.now() - start);
  try {
    const result = (await action()) ?? {};
    await print({ op, ms: ms(), result });
    return true;
  } catch (e) {
    await print({ op, ms: ms(), error: { code: Number.isInteger(e.code) ? e.code : undefined, message: String(e.message ?? e), data: e.data, cause: e.cause && String(e.cause) } });
    return false;
  }
}

async function* steps() {
  if (process.argv[3] !== undefined) {
    yield* JSON.parse(process.argv[3]);
    return;
  }
  for await (const line of createInterface({ input: process.stdin })) {
    if (line.trim() !== '') yield* [JSON.parse(line)].flat();
  }
}

try {
  await client.connect(transport);
} catch (e) {
  await run('connect', () => { throw e; });
  process.exit(1);
}
for await (const step of steps()) await run(step.op, () => perform(step));
await client.close();
process.exit(0);
