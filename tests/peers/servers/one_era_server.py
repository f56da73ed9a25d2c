"""A server of one era over the transport its first argument names; over a network on the port $PORT.

On the Python SDK 1.x it can only shake hands; on 2.x it refuses to, and so speaks the modern era alone. It has one of
everything: $NAME stands in its URIs and answers, so that two of them are told apart.
"""

from __future__ import annotations

import os
import sys
from typing import Any

NAME = os.environ.get("NAME", "one_era")
PORT = int(os.environ.get("PORT", "0"))
try:
    from mcp.server.mcpserver import Context, MCPServer
except ImportError:
    from mcp.server.fastmcp import Context, FastMCP

    server: Any = FastMCP(NAME, host="127.0.0.1", port=PORT, log_level="ERROR")
    address: dict[str, Any] = {}
else:
    from mcp import MCPError
    from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    async def refuse_the_handshake(context: Any, call_next: Any) -> Any:
        if context.method == "initialize":
            raise MCPError(
                code=UNSUPPORTED_PROTOCOL_VERSION,
                message="Unsupported protocol version",
                data={
                    "supported": list(MODERN_PROTOCOL_VERSIONS),
                    "requested": (context.params or {}).get("protocolVersion"),
                },
            )
        return await call_next(context)

    server = MCPServer(NAME, log_level="ERROR")
    server.middleware.append(refuse_the_handshake)
    address = {"host": "127.0.0.1", "port": PORT}


@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    return f"{NAME} heard {text}"


@server.tool()
def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


@server.tool()
async def countdown(steps: int, context: Context) -> str:
    """Count down and report every step."""
    for remaining in range(steps - 1, -1, -1):
        await context.report_progress(steps - remaining, steps, f"{remaining} to go")
    return f"{NAME} counted {steps}"


@server.resource(f"fixture://{NAME}/greeting")
def greeting() -> str:
    """A resource."""
    return f"{NAME} greets"


@server.resource(f"fixture://{NAME}/items/{{number}}")
def item(number: str) -> str:
    """A template."""
    return f"{NAME} has item {number}"


@server.prompt()
def greet(who: str) -> str:
    """A prompt."""
    return f"{NAME} says: greet {who}"


if __name__ == "__main__":
    transport = sys.argv[1]
    if transport == "stdio":
        server.run("stdio")
    else:
        server.run("sse" if transport == "sse" else "streamable-http", **address)
