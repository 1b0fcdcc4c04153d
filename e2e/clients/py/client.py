"""A client of an MCP endpoint, made with the official Python SDK, for the e2e tests.

    python client.py URL [STEPS]

STEPS is a JSON array; without it, each line of standard input is one step or an
array of steps, done as it comes. For each step one line of JSON goes to standard
output: {"op":...,"result":...} or {"op":...,"error":{"code":...,"message":...}}.
The exit code is 0, and 1 when there was no connection (a line with the op
"connect" tells why) or a line was not JSON.

Steps: {"op":"connect"} shows what initialize gave (the connection is made before
the first step in any case), "ping", "listTools", "callTool" (name, args),
"listPrompts", "getPrompt" (name, args), "listResources",
"listResourceTemplates", "readResource" (uri), "waitToolListChanged" (one that
came since the last such step counts). Every step may have "timeoutMs", 30000 by
default. Lists are read to their last page. The session is ended with a DELETE
unless PATCHBAY_KEEP_SESSION is set in the environment.
"""

import json
import os
import sys
from datetime import timedelta

import anyio
from mcp import ClientSession, McpError, types
from mcp.client.streamable_http import streamable_http_client


class Steps:
    """The steps on one session. The SDK calls on_message from its own task."""

    def __init__(self):
        self.session = None
        self.initialized = None
        self.session_id = lambda: None
        self.changes = 0  # list_changed notifications that no step has waited for
        self.changed = anyio.Event()

    async def on_message(self, message):
        if isinstance(message, types.ServerNotification) and isinstance(message.root, types.ToolListChangedNotification):
            self.changes += 1
            self.changed.set()

    async def wait_tool_list_changed(self):
        while self.changes == 0:
            self.changed = anyio.Event()
            await self.changed.wait()
        self.changes = 0
        return {}

    async def perform(self, step):
        op, s = step.get("op"), self.session
        if op == "connect":
            return {**dump(self.initialized), "sessionId": self.session_id()}
        if op == "ping":
            return await s.send_ping()
        if op == "listTools":
            return await pages("tools", s.list_tools)
        if op == "callTool":
            limit = timedelta(milliseconds=step.get("timeoutMs", 30000))
            return await s.call_tool(step["name"], step.get("args") or {}, read_timeout_seconds=limit)
        if op == "listPrompts":
            return await pages("prompts", s.list_prompts)
        if op == "getPrompt":
            return await s.get_prompt(step["name"], step.get("args") or {})
        if op == "listResources":
            return await pages("resources", s.list_resources)
        if op == "listResourceTemplates":
            return await pages("resourceTemplates", s.list_resource_templates)
        if op == "readResource":
            return await s.read_resource(step["uri"])
        if op == "waitToolListChanged":
            return await self.wait_tool_list_changed()
        raise ValueError(f"unknown op {op!r}")

    async def run(self, step):
        try:
            with anyio.fail_after(step.get("timeoutMs", 30000) / 1000 + 1):
                result = await self.perform(step)
        except Exception as e:  # every failure is a line, the next step goes on
            show({"op": step.get("op"), "error": describe(e)})
        else:
            show({"op": step.get("op"), "result": dump(result)})


async def pages(key, fetch):
    """Reads all pages of a list."""
    items, params = [], None
    while True:
        page = dump(await fetch(params=params))
        items += page[key]
        if page.get("nextCursor") is None:
            return {key: items}
        params = types.PaginatedRequestParams(cursor=page["nextCursor"])


def dump(result):
    if isinstance(result, dict):
        return result
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def describe(e):
    while isinstance(e, BaseExceptionGroup) and len(e.exceptions) == 1:
        e = e.exceptions[0]
    if isinstance(e, McpError):
        return {"code": e.error.code, "message": e.error.message, "data": e.error.data}
    return {"message": f"{type(e).__name__}: {e}"}


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


async def main():
    todo = Steps()
    keep = "PATCHBAY_KEEP_SESSION" in os.environ
    connected = False
    try:
        async with streamable_http_client(sys.argv[1], terminate_on_close=not keep) as (read, write, session_id):
            info = types.Implementation(name="patchbay-e2e-py", version="1.0.0")
            async with ClientSession(read, write, message_handler=todo.on_message, client_info=info) as session:
                todo.session, todo.session_id = session, session_id
                todo.initialized = await session.initialize()
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
