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
// args), "listPrompts", "getPrompt" (name, args), "listResources",
// "listResourceTemplates", "readResource" (uri), "waitToolListChanged" (one
// that came since the last such step counts), "terminate" (DELETE). Every step
// may have "timeoutMs", 30000 by default. Lists are read to their last page.
//
// MCP_SDK=2 in the environment takes version 2 of the SDK instead of 1.
import { createInterface } from 'node:readline';

const version = process.env.MCP_SDK === '2' ? 2 : 1;
const sdk = version === 2
  ? await import('@modelcontextprotocol/client')
  : {
      ...(await import('@modelcontextprotocol/sdk/client/index.js')),
      ...(await import('@modelcontextprotocol/sdk/client/streamableHttp.js')),
      ...(await import('@modelcontextprotocol/sdk/types.js')),
    };

let changes = 0; // list_changed notifications that no step has waited for
let onChange = () => {};

const client = new sdk.Client({ name: `patchbay-e2e-ts${version}`, version: '1.0.0' });
client.setNotificationHandler(
  version === 2 ? 'notifications/tools/list_changed' : sdk.ToolListChangedNotificationSchema,
  () => { changes++; onChange(); },
);
const transport = new sdk.StreamableHTTPClientTransport(new URL(process.argv[2]));

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

function waitToolListChanged(timeout) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      onChange = () => {}; // what comes later is for the next step
      reject(new Error(`no list_changed in ${timeout} ms`));
    }, timeout);
    onChange = () => {
      if (changes === 0) return;
      changes = 0;
      onChange = () => {};
      clearTimeout(timer);
      resolve({});
    };
    onChange();
  });
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
    case 'callTool':
      return version === 2
        ? client.callTool({ name: step.name, arguments: step.args ?? {} }, options)
        : client.callTool({ name: step.name, arguments: step.args ?? {} }, undefined, options);
    case 'listPrompts': return pages('prompts', (p) => client.listPrompts(p, options));
    case 'getPrompt': return client.getPrompt({ name: step.name, arguments: step.args ?? {} }, options);
    case 'listResources': return pages('resources', (p) => client.listResources(p, options));
    case 'listResourceTemplates': return pages('resourceTemplates', (p) => client.listResourceTemplates(p, options));
    case 'readResource': return client.readResource({ uri: step.uri }, options);
    case 'waitToolListChanged': return waitToolListChanged(timeout);
    case 'terminate': return transport.terminateSession().then(() => ({}));
    default: throw new Error(`unknown op ${JSON.stringify(step.op)}`);
  }
}

function print(line) {
  return new Promise((resolve) => { process.stdout.write(JSON.stringify(line) + '\n', resolve); });
}

async function run(op, action) {
  try {
    await print({ op, result: (await action()) ?? {} });
    return true;
  } catch (e) {
    await print({ op, error: { code: e.code, message: String(e.message ?? e), data: e.data, cause: e.cause && String(e.cause) } });
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
