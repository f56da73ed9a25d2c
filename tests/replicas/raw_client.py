"""A client over HTTP that writes every request itself, to whichever replica it is told, and remembers event ids."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import aiohttp

from tests.fakes.client import ENVELOPE, MODERN, PATIENCE

REVISION = "2025-11-25"
ACCEPT = "application/json, text/event-stream"
Json = dict[str, Any]


class Unanswered(Exception):
    """The connection ended, or was refused, before there was an answer. `last`: the last event's id, to resume from."""

    def __init__(self, last: str | None = None, status: int = 0, text: str = "") -> None:
        super().__init__(f"unanswered: status {status}, last event {last} {text}")
        self.last = last
        self.status = status


def text_of(answer: Json) -> str:
    """Returns the text of a tool's result."""
    result = answer["result"]
    assert not result.get("isError"), result
    return str(result["content"][0]["text"])


def code_of(answer: Json) -> str | None:
    """The code of an error of the hub, as a result of a tool or as an error; None for a result."""
    if "error" in answer:
        return str(answer["error"].get("data", {}).get("code", answer["error"]["code"]))
    result = answer["result"]
    if not result.get("isError"):
        return None
    return str(next(value["code"] for value in result["_meta"].values() if isinstance(value, dict) and "code" in value))


class RawClient:
    """A client of either era. A request without a URL of its own goes to `url`."""

    def __init__(
        self, http: aiohttp.ClientSession, url: str, token: str | None = None, revision: str = REVISION
    ) -> None:
        self.url = url
        self.revision = revision
        self.session: str | None = None
        self.asked: list[Json] = []
        """The messages that arrived before answers: notifications and requests of the hub."""
        self._http = http
        self._ids = itertools.count(1)
        self._head = {"Accept": ACCEPT, **({"Authorization": f"Bearer {token}"} if token else {})}

    def of(self, session: str | None) -> RawClient:
        """Returns a client like this one with another session."""
        client = RawClient(self._http, self.url)
        client.session, client._ids, client._head = session, self._ids, self._head
        return client

    def _headers(self, **extra_headers: str) -> dict[str, str]:
        session = {"Mcp-Session-Id": self.session, "Mcp-Protocol-Version": self.revision} if self.session else {}
        return {**self._head, **session, **extra_headers}

    async def begin(self, url: str | None = None, **capabilities: Any) -> None:
        """Opens a session of the handshake era."""
        params = {
            "protocolVersion": self.revision,
            "capabilities": capabilities,
            "clientInfo": {"name": "raw", "version": "1"},
        }
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": "initialize", "params": params}
        async with asyncio.timeout(PATIENCE):
            async with self._http.post(f"{url or self.url}/mcp", json=message, headers=self._headers()) as response:
                assert response.status == 200, await response.text()
                self.session = response.headers["Mcp-Session-Id"]
        await self.notify("notifications/initialized", url=url)

    async def notify(self, method: str, params: Json | None = None, url: str | None = None) -> int:
        """Sends a notification, and returns the status."""
        return await self.post({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}, url)

    async def post(self, message: Json | list[Json], url: str | None = None) -> int:
        """Sends a message or a batch, and returns the status. Raises Unanswered."""
        try:
            async with asyncio.timeout(PATIENCE):
                async with self._http.post(f"{url or self.url}/mcp", json=message, headers=self._headers()) as response:
                    return response.status
        except (aiohttp.ClientError, OSError):
            raise Unanswered from None

    async def request(self, method: str, params: Json | None = None, url: str | None = None) -> Json:
        """The answer to a request. Raises Unanswered."""
        message: Json = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params or {}}
        async with contextlib.aclosing(self.events(message, url)) as events:
            async for _, got in events:
                if got.get("id") == message["id"] and "method" not in got:
                    return got
                self.asked.append(got)
        raise AssertionError("a stream without an answer raises")

    async def call(self, name: str, arguments: Json | None = None, url: str | None = None) -> Json:
        """The answer to a call of a tool. Raises Unanswered."""
        return await self.request("tools/call", {"name": name, "arguments": arguments or {}}, url)

    async def modern(self, method: str, params: Json, url: str | None = None, **capabilities: Any) -> Json:
        """The answer to a request of the modern era. Raises Unanswered."""
        async with contextlib.aclosing(self.modern_events(method, params, url, **capabilities)) as messages:
            async for got in messages:
                if "id" in got and "method" not in got:
                    return got
        raise AssertionError("a stream without an answer raises")

    async def modern_events(
        self, method: str, params: Json, url: str | None = None, **capabilities: Any
    ) -> AsyncGenerator[Json]:
        """The messages that answer a request of the modern era. Raises Unanswered."""
        meta = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": capabilities}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": meta}}
        headers = {**self._head, "Mcp-Protocol-Version": MODERN, "Mcp-Method": method}
        if (named := params.get("name") or params.get("uri") or params.get("taskId")) is not None:
            headers["Mcp-Name"] = named
        async with contextlib.aclosing(self._answers(message, headers, url)) as events:
            async for _, got in events:
                yield got

    def events(self, message: Json, url: str | None = None) -> AsyncGenerator[tuple[str | None, Json]]:
        """The messages that answer a request, each with the id of its event. Raises Unanswered."""
        return self._answers(message, self._headers(), url)

    async def _answers(
        self, message: Json, headers: dict[str, str], url: str | None
    ) -> AsyncGenerator[tuple[str | None, Json]]:
        last_event_id = None
        try:
            async with asyncio.timeout(PATIENCE):
                async with self._http.post(f"{url or self.url}/mcp", json=message, headers=headers) as response:
                    if "json" in response.headers.get("Content-Type", ""):
                        yield None, json.loads(await response.text())
                        return
                    if response.status != 200:
                        raise Unanswered(status=response.status)
                    async for last_event_id, answer in events_of(response):
                        if answer is not None:
                            yield last_event_id, answer
        except (aiohttp.ClientError, OSError):
            raise Unanswered(last_event_id) from None
        raise Unanswered(last_event_id)

    async def stream(
        self, last: str | None = None, url: str | None = None
    ) -> AsyncGenerator[tuple[str | None, Json | None]]:
        """The events of the standing stream, or of the one that goes on after event `last`. Raises Unanswered."""
        headers = self._headers(**({"Last-Event-ID": last} if last else {}), Accept="text/event-stream")
        try:
            async with self._http.get(f"{url or self.url}/mcp", headers=headers) as response:
                if response.status != 200:
                    raise Unanswered(last, response.status, await response.text())
                async for event in events_of(response):
                    yield event
        except (aiohttp.ClientError, OSError):
            raise Unanswered(last) from None

    async def end(self, url: str | None = None) -> int:
        """Ends the session, and returns the status."""
        async with self._http.delete(f"{url or self.url}/mcp", headers=self._headers()) as response:
            return response.status


async def events_of(response: aiohttp.ClientResponse) -> AsyncGenerator[tuple[str | None, Json | None]]:
    """The events of a response: id and message, None for one without a message."""
    id: str | None = None
    data = b""
    while line := await response.content.readline():
        line = line.rstrip(b"\r\n")
        if line.startswith(b"id:"):
            id = line[3:].strip().decode()
        elif line.startswith(b"data:"):
            data += line[5:].strip()
        elif not line and (id is not None or data):
            yield id, json.loads(data) if data else None
            data = b""


@contextlib.asynccontextmanager
async def raw(url: str, token: str | None = None, revision: str = REVISION) -> AsyncIterator[RawClient]:
    """A client without a session yet."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as http:
        yield RawClient(http, url, token, revision)
