"""A hub as a process on a port, and a client with a token, by raw HTTP in either era."""

from __future__ import annotations

import contextlib
import json
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2

from tests.fakes.client import ENVELOPE, HUB, MODERN, PATIENCE, StdioClient, spawned, write_config

ERAS = ("handshake", "modern")
TOKENS = {name: f"{name}-" + "0123456789abcdef" * 2 for name in ("alice", "bob", "carol", "dora")}
ACCEPT = {"accept": "application/json", "content-type": "application/json"}


@contextlib.asynccontextmanager
async def network_hub(
    directory: Path,
    servers: dict[str, Any],
    listen: dict[str, Any],
    *options: str,
    before: tuple[str, ...] = (),
    **root: Any,
) -> AsyncIterator[tuple[StdioClient, str]]:
    """The process and its base URL, as it announces it. `before` is put in front of its command."""
    directory.mkdir(exist_ok=True)
    config = write_config(directory, servers, listen={"port": 0, **listen}, **root)
    async with spawned([*before, *HUB, "serve", "--sse", "--config", str(config), *options]) as process:
        await process.until(lambda: b"Serving" in process.stderr or process.process.returncode is not None)
        match = re.search(rb"(https?://[^ /]+:\d+)/mcp", process.stderr)
        assert match is not None, process.stderr.decode()
        try:
            yield process, match[1].decode()
        finally:
            if process.process.returncode is None:
                process.process.terminate()


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


class Visitor:
    """`era` of its requests; a session is opened where the era has them."""

    def __init__(self, http: httpx2.AsyncClient, era: str) -> None:
        self.http = http
        self.era = era
        self.id = 7
        """The id of every request: always the same, so that responses can be compared."""
        self.session: dict[str, str] = {}
        self.negotiated: dict[str, Any] = {}
        """The result of `initialize` or `server/discover`."""

    async def post(self, message: Any, headers: dict[str, str] | None = None) -> httpx2.Response:
        return await self.http.post("/mcp", json=message, headers={**self.session, **(headers or {})})

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The whole answer to one request."""
        params, headers = dict(params or {}), {}
        if self.era == "modern":
            params["_meta"] = ENVELOPE
            headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
            if isinstance(target := params.get("name", params.get("uri")), str):
                headers["mcp-name"] = target
        answer = await self.post({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}, headers)
        body: dict[str, Any] = answer.json()
        return body

    async def call(self, name: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        return await self.ask("tools/call", {"name": name, "arguments": arguments or {}})

    async def text(self, name: str, arguments: dict[str, Any] | None = None) -> str:
        answer = await self.call(name, arguments)
        assert "result" in answer, answer
        return str(answer["result"]["content"][0]["text"])

    async def names(self, method: str, key: str = "name") -> list[str]:
        (entries,) = [entry for entry in (await self.ask(method))["result"].values() if isinstance(entry, list)]
        return [entry[key] for entry in entries]

    async def begin(self, capabilities: dict[str, Any] | None = None) -> None:
        """A session, another one if there is one already."""
        if self.era == "modern":
            self.negotiated = (await self.ask("server/discover"))["result"]
            return
        info = {"name": "v", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities or {}, "clientInfo": info}
        self.session = {}
        answer = await self.post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        assert answer.status_code == 200, answer.text
        self.negotiated = answer.json()["result"]
        self.session = {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        accepted = await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert accepted.status_code == 202


@contextlib.asynccontextmanager
async def visiting(
    base: str, era: str, token: str | None = None, verify: ssl.SSLContext | bool = True
) -> AsyncIterator[Visitor]:
    headers = {**ACCEPT, **bearer(token)}
    async with httpx2.AsyncClient(base_url=base, headers=headers, timeout=PATIENCE, verify=verify) as http:
        visitor = Visitor(http, era)
        await visitor.begin()
        yield visitor


def spelled(answer: dict[str, Any]) -> str:
    """An answer as text, to compare it byte for byte."""
    return json.dumps(answer, ensure_ascii=False)
