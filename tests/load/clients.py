"""Many clients on real sockets without an SDK: each writes bytes, reads answers, and remembers what it got."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from mcp_hub.protocol import era as eras

Era = Literal["handshake", "modern"]

PATIENCE = 120.0
"""Seconds for one answer; a bound against hangs, not a figure."""
ENVELOPE = {eras.VERSION_KEY: eras.LATEST_MODERN, eras.CAPABILITIES_KEY: {}}
_HEAD = (
    "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    "Accept: application/json, text/event-stream\r\n"
)


@dataclass
class Tally:
    """The outcomes of all calls. Each call counts in exactly one of `outcomes`."""

    outcomes: Counter[str] = field(default_factory=Counter)
    """`own`: the nonce that was sent; a code of the hub's; `foreign`: another's nonce; `lost`: no answer."""
    seconds: list[float] = field(default_factory=list)
    """Of the calls that came back with their own nonce."""
    refused: list[float] = field(default_factory=list)
    """Of those that came back with a code."""

    def quantile(self, part: float, of: list[float] | None = None) -> float:
        ordered = sorted(self.seconds if of is None else of)
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else float("nan")


class Client:
    """One connection, one client of one era. All clients use the same ids."""

    def __init__(self, port: int, era: Era) -> None:
        self._port = port
        self._era = era
        self.session = ""
        """The header line with the session id; `""` in the modern era."""
        self.first_id = 1
        self._head = _HEAD.format(host=f"127.0.0.1:{port}")
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def open(self) -> None:
        """Connects and, in the handshake era, initializes the session."""
        async with asyncio.timeout(PATIENCE):
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
            if self._era == "modern":
                return
            info = {"name": "load", "version": "1"}
            params = {"protocolVersion": eras.LATEST_HANDSHAKE, "capabilities": {}, "clientInfo": info}
            headers, _ = await self.post("initialize", params, 0)
            self.session = f"Mcp-Session-Id: {headers['mcp-session-id']}\r\n"
            await self.post("notifications/initialized", None, None)

    async def post(self, method: str, params: dict[str, Any] | None, request_id: Any) -> tuple[dict[str, str], Any]:
        """Sends one POST, and returns the headers and the message of its answer."""
        self.send(method, params, request_id)
        async with asyncio.timeout(PATIENCE):
            return await self.answer()

    def send(self, method: str, params: dict[str, Any] | None, request_id: Any, *, keep: int = 0) -> bytes:
        """Write one POST; its last `keep` bytes are returned instead."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        lines = self.session
        if request_id is not None:
            message["id"] = request_id
        if params is not None:
            message["params"] = params
        if self._era == "modern":
            message["params"] = {**(params or {}), "_meta": ENVELOPE}
            lines = f"MCP-Protocol-Version: {eras.LATEST_MODERN}\r\nMcp-Method: {method}\r\n"
            lines += f"Mcp-Name: {params['name']}\r\n" if params and "name" in params else ""
        body = json.dumps(message).encode()
        data = f"{self._head}{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body
        self.writer.write(data[: len(data) - keep])
        return data[len(data) - keep :]

    async def answer(self) -> tuple[dict[str, str], Any]:
        """One HTTP response: its headers and the JSON-RPC answer in it, None if there is none."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        if headers.get("transfer-encoding") != "chunked":
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
            return headers, json.loads(body) if body else None
        body = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)
        response = None
        for line in body.split(b"\n"):
            if line.startswith(b"data: {"):
                message = json.loads(line[6:])
                response = message if "id" in message and "method" not in message else response
        return headers, response

    async def call(self, tool: str, nonce: str, request_id: int, tally: Tally, **arguments: Any) -> None:
        """Makes one call with a unique nonce, and counts its outcome."""
        began = time.perf_counter()
        try:
            _, answer = await self.post(
                "tools/call", {"name": tool, "arguments": {"text": nonce, **arguments}}, request_id
            )
        except (OSError, EOFError, TimeoutError, ValueError):
            tally.outcomes["lost"] += 1
            return
        took = time.perf_counter() - began
        outcome = verdict(answer, request_id, nonce)
        tally.outcomes[outcome] += 1
        (tally.seconds if outcome == "own" else tally.refused).append(took)

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


def verdict(answer: Any, request_id: int, nonce: str) -> str:
    """`own`, `foreign`, or the code of the error."""
    if not isinstance(answer, dict) or answer.get("id") != request_id:
        return "foreign"
    if "error" in answer:
        return str(answer["error"]["code"])
    result = answer["result"]
    if result.get("isError"):
        return str(result["_meta"]["mcp-hub/error"]["code"])
    return "own" if result["content"][0]["text"] == nonce else "foreign"


async def opened(port: int, era: Era, count: int) -> list[Client]:
    """Opens `count` clients at the same time."""
    clients = [Client(port, era) for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.open())
    return clients


async def closed(clients: list[Client]) -> None:
    await asyncio.gather(*(client.close() for client in clients))


async def calling(clients: list[Client], calls: int, tool: str, **arguments: Any) -> Tally:
    """All clients call at the same time, each of them `calls` times in a row; the ids are the same for all."""
    tally = Tally()

    async def run(number: int, client: Client) -> None:
        for request_id in range(client.first_id, client.first_id + calls):
            await client.call(tool, f"{tool}/{number}/{request_id}", request_id, tally, **arguments)

    async with asyncio.TaskGroup() as group:
        for number, client in enumerate(clients):
            group.create_task(run(number, client))
    return tally
