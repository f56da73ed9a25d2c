"""A client of raw bytes that comes through a balancer, in either era."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from mcp_hub.protocol import era as eras
from tests.downstream.balancers.proxies import NAME, TOKENS, Balancer
from tests.downstream.raw_http import BOTH, ENVELOPE, Connection, Response


class Guest:
    """One connection of one client. `session` has the header lines that identify its session."""

    def __init__(self, connection: Connection, name: str = "guest0") -> None:
        self.connection = connection
        self.name = name
        self.session: list[tuple[str, str]] = []

    def send(self, method: str, lines: list[tuple[str, str]], body: bytes = b"") -> None:
        head = [f"{method} /mcp HTTP/1.1", f"Host: {NAME}", f"Authorization: Bearer {TOKENS[self.name]}"]
        head += [f"{name}: {value}" for name, value in lines]
        head += [f"Content-Length: {len(body)}"] if method == "POST" else []
        self.connection.send("\r\n".join(head).encode() + b"\r\n\r\n" + body)

    def post(self, message: dict[str, Any]) -> None:
        self.send("POST", [*BOTH, *self.session], json.dumps({"jsonrpc": "2.0", **message}).encode())

    def call(self, tool: str, arguments: dict[str, Any], **meta: Any) -> None:
        params = {"name": tool, "arguments": arguments, **({"_meta": meta} if meta else {})}
        self.post({"id": 1, "method": "tools/call", "params": params})

    async def shake_hands(self, **capabilities: Any) -> None:
        info = {"name": "guest", "version": "1"}
        params = {"protocolVersion": eras.LATEST_HANDSHAKE, "capabilities": capabilities, "clientInfo": info}
        self.post({"id": 0, "method": "initialize", "params": params})
        answer = await self.connection.response()
        assert answer.status == 200, answer
        self.session = [("Mcp-Session-Id", answer.headers["mcp-session-id"])]
        self.post({"method": "notifications/initialized"})
        assert (await self.connection.response()).status == 202

    async def modern_call(self, tool: str, arguments: dict[str, Any], *extra_headers: tuple[str, str]) -> Response:
        """The answer to one call of the modern era, which needs no session."""
        params = {"name": tool, "arguments": arguments, "_meta": ENVELOPE}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        lines = [("MCP-Protocol-Version", eras.LATEST_MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", tool)]
        accept = [("Content-Type", "application/json"), ("Accept", "application/json")]
        self.send("POST", [*accept, *lines, *extra_headers], body)
        return await self.connection.response()


@contextlib.asynccontextmanager
async def guest(balancer: Balancer, name: str = "guest0") -> AsyncIterator[Guest]:
    reader, writer = await balancer.connect()
    try:
        yield Guest(Connection(reader, writer), name)
    finally:
        writer.transport.abort()


def result_text(answer: dict[str, Any]) -> str:
    """The text of a result."""
    return str(answer["result"]["content"][0]["text"])
