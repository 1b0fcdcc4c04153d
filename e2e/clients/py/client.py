"""A client of an MCP endpoint, made with the official Python SDK, for the e2e tests.

    python client.py URL [STEPS]

STEPS is a JSON array; without it, each line of standard input is one step or an
array of steps, done as it comes. For each step one line of JSON goes to standard
output: {"op":...,"result":...} or {"op":...,"error":{"code":...,"message":...}}.
The exit code is 0, and 1 when there was no connection (a line with the op
"connect" tells why) or a line was not JSON.

Steps: {"op":"connect"} shows what initialize gave (the connection is made before
the first step in any case), "ping", "listTools", "callTool" (name, args;
progress: true adds the notifications to the result), "listPrompts", "getPrompt"
(name, args), "listResources", "listResourceTemplates", "readResource", "subscribe"
and "unsubscribe" (uri), "complete" (ref, argument, context), "setLevel" (level),
"rootsChanged", "waitToolListChanged", "waitFor" (method of a notification, match: a
text in it; gives its params; one that came since the last such step counts),
"arrived" (method; all that no step has waited for), "asked" (the server's requests
since the last such step). Every step may have "timeoutMs", 30000 by
default. Lists are read to their last page. The session is ended with a DELETE
unless PATCHBAY_KEEP_SESSION is set in the environment.

Versions 1 and 2 of the SDK both do: the one that is installed. MCP_CAPABLE=1 in
the environment declares elicitation, sampling and roots; what the server then
asks gets the answers below ("elicit" in a step changes the action).
"""

import json
import os
import sys
import time
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import mcp
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client

VERSION = 2 if hasattr(mcp, "MCPError") else 1
ProtocolError = mcp.MCPError if VERSION == 2 else mcp.McpError
CAPABLE = os.environ.get("MCP_CAPABLE") == "1"
LISTS = {
    "listTools": ("list_tools", "tools"),
    "listPrompts": ("list_prompts", "prompts"),
    "listResources": ("list_resources", "resources"),
    "listResourceTemplates": ("list_resource_templates", "resourceTemplates"),
}


class Steps:
    """The steps on one session. The SDK calls the on_ methods from its own tasks."""

    def __init__(self):
        self.session = None
        self.initialized = None
        self.session_id = lambda: None
        self.arrived = {}  # method to params of notifications that no step has waited for
        self.arrival = anyio.Event()
        self.asked = []  # requests of the server that no step "asked" has shown
        self.elicit = "accept"

    def handlers(self):
        """The SDK's callbacks; those for requests declare the capabilities."""
        known = {"message_handler": self.on_message}
        if CAPABLE:
            known["elicitation_callback"] = self.on_elicitation
            known["sampling_callback"] = self.on_sampling
            known["list_roots_callback"] = self.on_roots
            known["sampling_capabilities"] = types.SamplingCapability(tools=types.SamplingToolsCapability())
        return known

    async def on_message(self, message):
        message = getattr(message, "root", message)
        method = getattr(message, "method", None)
        if isinstance(method, str) and method.startswith("notifications/"):
            self.arrived.setdefault(method, []).append(dump(message.params) if message.params else {})
            self.arrival.set()

    async def on_elicitation(self, _context, params):
        self.asked.append({"method": "elicitation/create", "params": dump(params)})
        if self.elicit == "accept" and getattr(params, "mode", "form") != "url":
            return types.ElicitResult(action="accept", content={"name": "Ada"})
        return types.ElicitResult(action=self.elicit)

    async def on_sampling(self, _context, params):
        self.asked.append({"method": "sampling/createMessage", "params": dump(params)})
        text = types.TextContent(type="text", text="sampled by the client")
        return types.CreateMessageResult.model_validate(
            {"role": "assistant", "model": "none", "content": text, "stopReason": "endTurn"}
        )

    async def on_roots(self, _context):
        self.asked.append({"method": "roots/list"})
        return types.ListRootsResult.model_validate({"roots": [{"uri": "file:///home/ada", "name": "home"}]})

    async def wait_for(self, method, match="", every=False):
        """Waits for a notification that contains the text; with every, takes the others too."""
        waiting = self.arrived.setdefault(method, [])
        while (found := next((p for p in waiting if match in json.dumps(p)), None)) is None:
            self.arrival = anyio.Event()
            await self.arrival.wait()
        waiting.remove(found)
        if every:
            waiting.clear()
        return found

    async def call_tool(self, step):
        self.elicit = step.get("elicit", "accept")
        seconds = step.get("timeoutMs", 30000) / 1000
        limit = seconds if VERSION == 2 else timedelta(seconds=seconds)
        progress = []

        async def on_progress(done, total, message):
            progress.append({"progress": done, "total": total, "message": message})

        more = {"progress_callback": on_progress} if step.get("progress") else {}
        result = await self.session.call_tool(step["name"], step.get("args") or {}, read_timeout_seconds=limit, **more)
        return {**dump(result), "progress": progress} if more else result

    async def complete(self, step):
        prompt = step["ref"]["type"] == "ref/prompt"
        kind = types.PromptReference if prompt else types.ResourceTemplateReference
        return await self.session.complete(kind.model_validate(step["ref"]), step["argument"], step.get("context"))

    async def perform(self, step):
        op, s = step.get("op"), self.session
        if op == "connect":
            return {**dump(self.initialized), "sessionId": self.session_id()}
        if op in LISTS:
            method, key = LISTS[op]
            return await pages(key, getattr(s, method))
        if op == "ping":
            return await s.send_ping()
        if op == "callTool":
            return await self.call_tool(step)
        if op == "getPrompt":
            return await s.get_prompt(step["name"], step.get("args") or {})
        if op == "readResource":
            return await s.read_resource(step["uri"])
        if op == "subscribe":
            return await s.subscribe_resource(step["uri"])
        if op == "unsubscribe":
            return await s.unsubscribe_resource(step["uri"])
        if op == "complete":
            return await self.complete(step)
        if op == "setLevel":
            return await s.set_logging_level(step["level"])
        if op == "rootsChanged":
            return await s.send_roots_list_changed() or {}
        if op == "waitToolListChanged":
            return await self.wait_for("notifications/tools/list_changed", every=True)
        if op == "waitFor":
            return await self.wait_for(step["method"], step.get("match", ""))
        if op == "arrived":
            return {"params": self.arrived.pop(step["method"], [])}
        if op == "asked":
            asked, self.asked = self.asked, []
            return {"requests": asked}
        raise ValueError(f"unknown op {op!r}")

    async def run(self, step):
        start = time.monotonic()
        try:
            with anyio.fail_after(step.get("timeoutMs", 30000) / 1000 + 1):
                result = await self.perform(step)
        except Exception as e:  # every failure is a line, the next step goes on
            show({"op": step.get("op"), "ms": since(start), "error": describe(e)})
        else:
            show({"op": step.get("op"), "ms": since(start), "result": dump(result)})


async def pages(key, fetch):
    """Reads all pages of a list."""
    items, cursor = [], None
    while True:
        where = {"cursor": cursor} if VERSION == 2 else {"params": types.PaginatedRequestParams(cursor=cursor)}
        page = dump(await fetch(**where))
        items += page[key]
        if (cursor := page.get("nextCursor")) is None:
            return {key: items}


def dump(result):
    if isinstance(result, dict):
        return result
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def describe(e):
    while isinstance(e, BaseExceptionGroup) and len(e.exceptions) == 1:
        e = e.exceptions[0]
    if isinstance(e, ProtocolError):
        return {"code": e.error.code, "message": e.error.message, "data": e.error.data}
    return {"message": f"{type(e).__name__}: {e}"}


def since(start):
    return round((time.monotonic() - start) * 1000)


def show(line):
    print(json.dumps(line), flush=True)


async def steps():
    if len(sys.argv) > 2:
        for step in json.loads(sys.argv[2]):
            yield step
        return
    while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        if line.strip():
            read = json.loads(line)
            for step in read if isinstance(read, list) else [read]:
                yield step


@asynccontextmanager
async def connect(todo):
    """The connection as the version's documentation shows it."""
    info = types.Implementation(name=f"patchbay-e2e-py{VERSION}", version="1.0.0")
    keep = "PATCHBAY_KEEP_SESSION" in os.environ
    transport = streamable_http_client(sys.argv[1], terminate_on_close=not keep)
    if VERSION == 2:
        async with mcp.Client(transport, client_info=info, **todo.handlers()) as client:
            todo.session = client
            todo.initialized = {
                "serverInfo": dump(client.server_info) if client.server_info else None,
                "capabilities": dump(client.server_capabilities),
                "protocolVersion": client.protocol_version,
            }
            yield
        return
    async with transport as (read, write, session_id):
        async with ClientSession(read, write, client_info=info, **todo.handlers()) as session:
            todo.session, todo.session_id = session, session_id
            todo.initialized = await session.initialize()
            yield


async def main():
    todo = Steps()
    connected = False
    try:
        async with connect(todo):
            connected = True
            async for step in steps():
                await todo.run(step)
    except Exception as e:
        if connected:
            raise
        show({"op": "connect", "error": describe(e)})
        return 1
    return 0


sys.exit(anyio.run(main))
