"""A FastMCP server over the transport its first argument names; over a network on the port $PORT."""

import os
import sys

from fastmcp import FastMCP

server = FastMCP("fastmcp of the tests")


@server.tool
def echo(text: str) -> str:
    """Say it again."""
    return f"fastmcp heard {text}"


@server.tool
def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


if __name__ == "__main__":
    transport = sys.argv[1]
    if transport == "stdio":
        server.run("stdio", show_banner=False)
    else:
        server.run(transport, show_banner=False, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="error")
