"""Raw clients of both eras over stdio and HTTP: what they are answered, decoded and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from aiohttp import ClientSession, ClientTimeout

from mcp_hub.protocol.routing_headers import emit
from tests.fakes.client import ENVELOPE, MODERN, PATIENCE, spawned

Json = dict[str, Any]
BOTH: Final = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


class Talk:
    """One client's conversation; a request gives the notifications it caused, and its `result` or `error`."""

    def __init__(self, modern: bool) -> None:
        self.modern = modern
        self._last = 0

    async def send(self, message: Json) -> list[Json]:
        """Everything that came because of a message."""
        raise NotImplementedError

    async def ask(self, method: str, params: Json, token: Any = None) -> tuple[list[Json], Json]:
        """`token` is that for progress."""
        self._last += 1
        meta = {**params.get("_meta", {}), **({"progressToken": token} if token is not None else {})}
        meta |= ENVELOPE if self.modern else {}
        params = {
            **{key: value for key, value in params.items() if key != "_meta"},
            **({"_meta": meta} if meta else {}),
        }
        async with asyncio.timeout(PATIENCE):
            messages = await self.send({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        *notified, last = messages
        assert last.pop("id") == self._last
        return notified, last

    async def shake_hands(self) -> None:
        """Shake hands, where that is done."""
        if not self.modern:
            info = {"name": "raw", "version": "1"}
            await self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
            await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})


class Lines(Talk):
    """Over stdio."""

    def __init__(self, process: asyncio.subprocess.Process, modern: bool) -> None:
        super().__init__(modern)
        self._process = process

    async def send(self, message: Json) -> list[Json]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
        messages: list[Json] = []
        while "id" in message and (not messages or "id" not in messages[-1]):
            line = await self._process.stdout.readline()
            assert line, "the server has ended"
            messages.append(json.loads(line))
            if messages[-1].get("method", "").endswith("list_changed"):
                messages.pop()
        return messages


class Posts(Talk):
    """Over streamable HTTP."""

    def __init__(self, http: ClientSession, url: str, modern: bool) -> None:
        super().__init__(modern)
        self._http = http
        self._url = url
        self._headers = {"MCP-Protocol-Version": MODERN if modern else "2025-11-25"}

    async def send(self, message: Json) -> list[Json]:
        headers = {**BOTH, **self._headers}
        if self.modern:
            headers |= emit(message["method"], message["params"])
        body = json.dumps(message, ensure_ascii=False).encode()
        async with self._http.post(self._url, data=body, headers=headers) as answer:
            if "Mcp-Session-Id" in answer.headers:
                self._headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
            data = (await answer.read()).decode()
            if answer.content_type != "text/event-stream":
                return [json.loads(data)] if data else []
        events = [line.removeprefix("data: ") for line in data.split("\n") if line.startswith("data: ")]
        return [json.loads(event) for event in events if event]


@contextlib.asynccontextmanager
async def over_stdio(command: Sequence[str], modern: bool) -> AsyncIterator[Talk]:
    """A client of a program it starts."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, limit=2**26
    )
    try:
        talk = Lines(process, modern)
        await talk.shake_hands()
        yield talk
    finally:
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(PATIENCE):
            await process.wait()


@contextlib.asynccontextmanager
async def over_http(url: str, modern: bool) -> AsyncIterator[Talk]:
    """A client of a server on a network."""
    async with ClientSession(timeout=ClientTimeout(total=PATIENCE)) as http:
        talk = Posts(http, url, modern)
        await talk.shake_hands()
        yield talk


__all__ = ["Talk", "over_http", "over_stdio", "spawned"]
