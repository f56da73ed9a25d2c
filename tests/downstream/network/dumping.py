"""A server over HTTP that remembers every header of every request it gets, in either era."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes.client import MODERN
from tests.fakes.loopback_site import loopback_site


@dataclass
class Dumping:
    url: str = ""
    tools: list[dict[str, Any]] = field(default_factory=lambda: [{"name": "look", "inputSchema": {"type": "object"}}])
    requests: list[tuple[dict[str, str], Any]] = field(default_factory=list)
    """Headers, names in lower case, and the message."""

    @property
    def calls(self) -> list[dict[str, str]]:
        """The headers of every request that acts on something."""
        acts = ("tools/call", "resources/read", "prompts/get", "completion/complete")
        return [headers for headers, message in self.requests if message.get("method") in acts]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            self.requests.append(({name.lower(): value for name, value in request.headers.items()}, {}))
            return web.Response(status=405)
        message = await request.json()
        self.requests.append(({name.lower(): value for name, value in request.headers.items()}, message))
        if "id" not in message:
            return web.Response(status=202)
        modern = request.headers.get("mcp-protocol-version") == MODERN
        result, headers = self.result(message, modern), {}
        if message["method"] == "initialize":
            headers["mcp-session-id"] = "of-the-upstream"
        if result is None:
            error = {"code": -32601, "message": "Method not found"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)

    def result(self, message: dict[str, Any], modern: bool) -> dict[str, Any] | None:
        method = message["method"]
        complete: dict[str, Any] = {"resultType": "complete"} if modern else {}
        info = {"name": "dumping", "version": "1"}
        if method == "initialize" and not modern:
            version = message["params"]["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}, "prompts": {}}, "serverInfo": info}
        if method == "server/discover" and modern:
            facts = {"supportedVersions": [MODERN], "capabilities": {"tools": {}, "prompts": {}}}
            return {**complete, **facts, "ttlMs": 0, "cacheScope": "private"}
        caching = {"ttlMs": 0, "cacheScope": "private"} if modern else {}
        if method == "tools/list":
            return {**complete, **caching, "tools": self.tools}
        if method == "prompts/list":
            return {**complete, **caching, "prompts": [{"name": "greet"}]}
        if method == "tools/call":
            return {**complete, "content": [{"type": "text", "text": "seen"}]}
        if method == "prompts/get":
            return {**complete, "messages": []}
        return {} if method == "ping" else None


@contextlib.asynccontextmanager
async def dumping() -> AsyncIterator[Dumping]:
    server = Dumping()
    async with loopback_site(server.answer, "/mcp") as port:
        server.url = f"http://127.0.0.1:{port}/mcp"
        yield server
