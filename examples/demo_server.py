"""The MCP server of the examples, over stdio: small tools.

With `--scrape` one that reads pages, with `--kinds` one for each kind of content, and with `--sse PORT` it is a search
engine over SSE instead.
"""

import sys

import mcp_types as types
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools.base import ToolResult

server = FastMCP("demo")


@server.tool(tags={"sums"})
def multiply(a: int, b: int = 2) -> int:
    """The product of two numbers."""
    return a * b


@server.tool
def divide(a: float, b: float) -> float:
    """One number divided by another."""
    if b == 0:
        raise ToolError("nothing can be divided by zero")
    return a / b


@server.tool(output_schema=None)
def search(query: str, limit: int, key: str = "none") -> ToolResult:
    """Look something up; the answer is JSON in a text."""
    results = [f"{query} {number}" for number in range(1, limit + 1)]
    return ToolResult(content='{"key": "%s", "found": ["%s"]}' % (key, '", "'.join(results)))


@server.tool(output_schema=None)
def say(text: str) -> ToolResult:
    """Say something in plain words."""
    return ToolResult(content=f"The server says: {text}")


PAGE = types.TextResourceContents(uri="demo://page", mime_type="text/plain", text="a page")
KINDS = {
    "text": types.TextContent(type="text", text="a text"),
    "image": types.ImageContent(type="image", data="aW1hZ2U=", mime_type="image/png"),
    "audio": types.AudioContent(type="audio", data="c291bmQ=", mime_type="audio/wav"),
    "embedded": types.EmbeddedResource(type="resource", resource=PAGE),
    "link": types.ResourceLink(type="resource_link", name="more", uri="demo://more"),
}


@server.tool(output_schema=None)
def show() -> ToolResult:
    """Show something of every kind."""
    return ToolResult(content=list(KINDS.values()))


def show_one(kind: str) -> ToolResult:
    """Show something of one kind, or nothing."""
    return ToolResult(content=[KINDS[kind]] if kind in KINDS else [])


def scrape(url: str) -> ToolResult:
    """Read a page."""
    return ToolResult(content=f"This is what {url} says.")


def search_engine() -> FastMCP:
    engine = FastMCP("search")

    @engine.tool(output_schema=None)
    def google_search(q: str) -> ToolResult:
        """Search the web."""
        return ToolResult(content=f"The best page about {q}.")

    @engine.tool
    def debug_tool() -> str:
        """What nobody but its author should call."""
        return "secret"

    return engine


if __name__ == "__main__":
    if "--sse" in sys.argv:
        port = int(sys.argv[sys.argv.index("--sse") + 1])
        search_engine().run("sse", show_banner=False, host="127.0.0.1", port=port)
        sys.exit()
    for flag, tool in (("--scrape", scrape), ("--kinds", show_one)):
        if flag in sys.argv:
            server.tool(tool, output_schema=None)
    server.run(show_banner=False)
