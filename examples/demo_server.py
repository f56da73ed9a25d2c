"""The MCP server of the examples: five small tools, over stdio."""

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
def scrape(url: str) -> ToolResult:
    """Read a page."""
    return ToolResult(content=f"This is what {url} says.")


if __name__ == "__main__":
    server.run(show_banner=False)
