"""A server that wants to be signed in to and names whatever addresses a test tells it to; it counts who is asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit


class Leading:
    """Answers `/mcp` with 401, everything else with what `responses` has for its path: JSON, or (status, headers)."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.responses: dict[str, Any] = {}
        self.challenge = "Bearer"
        self.requests: list[str] = []
        self.bodies: list[str] = []

    def metadata(self, **changed: str) -> dict[str, Any]:
        """Sound metadata of an authorization server here, some of it changed."""
        endpoints = {
            f"{name}_endpoint": f"{self.base}/{name}"
            for name in ("authorization", "token", "registration", "revocation")
        }
        methods = {"code_challenge_methods_supported": ["S256"], "response_types_supported": ["code"]}
        return {"issuer": self.base, **endpoints, **methods, **changed}

    def resource(self, server: str) -> dict[str, Any]:
        """Metadata of the resource that name an authorization server."""
        return {"resource": f"{self.base}/mcp", "authorization_servers": [server]}

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(
                (int(line.partition(":")[2]) for line in head.lower().splitlines() if "content-length" in line), 0
            )
            self.bodies.append((await reader.readexactly(length)).decode())
            method, path = head.split()[:2]
            path = urlsplit(path).path
            self.requests.append(f"{method} {path}")
            reply = self.responses.get(path, (404, ""))
            status, headers, body = (200, "", json.dumps(reply)) if not isinstance(reply, tuple) else (*reply, "{}")[:3]
            if path == "/mcp":
                status, headers = 401, f"WWW-Authenticate: {self.challenge}\r\n"
            head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}{headers}Connection: close\r\n\r\n{body}".encode())
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def leading() -> AsyncIterator[Leading]:
    """One on a port of its own."""
    server: Leading

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server._answer(reader, writer)

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    server = Leading(listening.sockets[0].getsockname()[1])
    async with listening:
        yield server
