"""The MCP server of the examples, over stdio: small tools, and with `--scrape` one that reads pages."""

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
    found = [f"{query} {number}" for number in range(1, limit + 1)]
    return ToolResult(content='{"key": "%s", "found": ["%s"]}' % (key, '", "'.join(found)))


@server.tool(output_schema=None)
def say(text: str) -> ToolResult:
    """Say something in plain words."""
    return ToolResult(content=f"The server says: {text}")


@server.tool(output_schema=None)
def show() -> ToolResult:
    """Show something of every kind."""
    shown = types.TextResourceContents(uri="demo://page", mime_type="text/plain", text="a page")
    return ToolResult(
        content=[
            types.TextContent(type="text", text="a text"),
            types.ImageContent(type="image", data="aW1hZ2U=", mime_type="image/png"),
            types.AudioContent(type="audio", data="c291bmQ=", mime_type="audio/wav"),
            types.EmbeddedResource(type="resource", resource=shown),
            types.ResourceLink(type="resource_link", name="more", uri="demo://more"),
        ]
    )


def scrape(url: str) -> ToolResult:
    """Read a page."""
    return ToolResult(content=f"This is what {url} says.")


if __name__ == "__main__":
    if "--scrape" in sys.argv:
        server.tool(scrape, output_schema=None)
    server.run(show_banner=False)
