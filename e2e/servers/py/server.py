"""An MCP server made with version 1 of the official Python SDK, for the e2e tests.

    python server.py PORT

It serves streamable HTTP at 127.0.0.1:PORT/mcp, with sessions, and offers all
that the SDK does: tools, resources, a resource template, prompts,
completion, subscriptions, progress, logging, and requests to the client in the middle of a call.
"""

import sys

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.session import ServerSession
from mcp.types import Completion, SamplingMessage, TextContent
from pydantic import AnyUrl, BaseModel

server = FastMCP("python", host="127.0.0.1", port=int(sys.argv[1]), log_level="WARNING")
Ctx = Context[ServerSession, None]


class Person(BaseModel):
    name: str


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers, and says so in structured content too."""
    return a + b


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("it fails")


@server.tool()
async def work(steps: int, ctx: Ctx) -> str:
    """Tells its progress, and logs at two levels."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    await ctx.debug("debug of work")
    await ctx.warning("warning of work")
    return f"{steps} steps"


@server.tool()
async def wait(ctx: Ctx) -> str:
    """Says that it has begun and waits until it is cancelled."""
    await ctx.warning("waiting")
    await anyio.sleep_forever()
    return "never"


@server.tool()
async def greet(ctx: Ctx) -> str:
    """Asks the user for a name."""
    answer = await ctx.elicit("Who are you?", Person)
    return f"hello {answer.data.name}" if answer.action == "accept" else answer.action


@server.tool()
async def visit(ctx: Ctx) -> str:
    """Asks the user to open a page."""
    answer = await ctx.elicit_url("Please open the page.", "https://page.example/", "visit-1")
    await ctx.session.send_elicit_complete("visit-1", related_request_id=ctx.request_id)
    return answer.action


@server.tool()
async def think(about: str, ctx: Ctx) -> str:
    """Asks the client's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=about))
    answer = await ctx.session.create_message([message], max_tokens=10, related_request_id=ctx.request_id)
    return answer.content.text if answer.content.type == "text" else answer.content.type


@server.tool()
async def roots(ctx: Ctx) -> str:
    """Asks for the client's roots, on the GET stream."""
    return " ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


@server.resource("file:///readme.txt", name="readme", mime_type="text/plain")
def readme() -> str:
    return "read me"


@server.resource("file:///users/{name}", name="user", mime_type="text/plain")
def user(name: str) -> str:
    return f"user {name}"


@server.prompt()
def review(language: str) -> str:
    """A review in a language."""
    return f"Review this {language} code."


@server.completion()
async def complete(ref, argument, context):
    choices = ["go", "gopher", "python"] if ref.type == "ref/prompt" else ["ada", "alan"]
    return Completion(values=[c for c in choices if c.startswith(argument.value)], hasMore=False)


# FastMCP has no subscriptions, so they are added to the server that it wraps.
wrapped = server._mcp_server
subscribers = {}  # URI to sessions


def capabilities(*args):
    offered = type(wrapped).get_capabilities(wrapped, *args)
    offered.resources.subscribe = True
    return offered


wrapped.get_capabilities = capabilities


@wrapped.subscribe_resource()
async def subscribe(uri):
    subscribers.setdefault(str(uri), set()).add(wrapped.request_context.session)


@wrapped.unsubscribe_resource()
async def unsubscribe(uri):
    subscribers.get(str(uri), set()).discard(wrapped.request_context.session)


@server.tool()
async def touch(uri: str) -> str:
    """Tells all subscribers that a resource has changed."""
    told = list(subscribers.get(uri, ()))
    for session in told:
        await session.send_resource_updated(AnyUrl(uri))
    return f"told {len(told)}"


server.run("streamable-http")
