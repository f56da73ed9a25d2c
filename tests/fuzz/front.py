"""One app in front of one hub in front of one process that records its requests."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp_hub.downstream.app import App
from mcp_hub.downstream.dispatcher import Dispatcher
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import load_config
from mcp_hub.transport.http1.exchange import HttpReply, HttpRequest
from mcp_hub.transport.http1.heads import RequestHead
from tests.fakes.client import PATIENCE, fake, write_config

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
ARGUMENTS = {"name": "up__echo", "arguments": {"text": "x"}}
JSON = [
    (b"host", b"localhost"),
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
]
SETTLING = "settling"
OPEN_TOOLS = ["echo", "meta", "add"]


class Front:
    """One app in front of one hub in front of one process, and a loop for all three."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.directory = tempfile.TemporaryDirectory()
        self.record = Path(self.directory.name, "record")
        servers = {"up": fake("--record", str(self.record), enable_tools=OPEN_TOOLS)}
        config = load_config(write_config(Path(self.directory.name), servers))
        self.hub = Engine(config)
        self.app = App(Dispatcher(self.hub), config.listen, sse=True)
        self.session = b""
        self._read = 0
        self.runner.run(self._begin())
        atexit.register(self.close)

    async def _begin(self) -> None:
        await self.hub.__aenter__()
        await self.handshake()
        answer = await self.exchange(
            "POST", "/mcp", self.in_session(), [json.dumps({**CALL, "params": ARGUMENTS}).encode()]
        )
        assert b'"x"' in answer.body, answer.body
        self.calls()

    async def settled(self) -> None:
        """Makes a last call over the same pipe, so that everything sent before is in the record of the process."""
        body = {**CALL, "params": {**ARGUMENTS, "arguments": {"text": SETTLING}}}
        answer = await self.exchange("POST", "/mcp", self.in_session(), [json.dumps(body).encode()])
        assert SETTLING.encode() in answer.body

    async def handshake(self) -> None:
        """Opens a session of the revision that has batches."""
        params = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        body = json.dumps({**CALL, "method": "initialize", "params": params}).encode()
        answer = await self.exchange("POST", "/mcp", JSON, [body])
        self.session = dict(answer.headers)[b"mcp-session-id"]

    def in_session(self) -> list[tuple[bytes, bytes]]:
        return [*JSON, (b"mcp-session-id", self.session)]

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.runner.run(self.hub.close())
            self.runner.close()

    def calls(self) -> list[dict[str, Any]]:
        """Returns the `params` of every call that the process has received since the last query."""
        with self.record.open("rb") as file:
            file.seek(self._read)
            messages = [json.loads(line) for line in file]
            self._read = file.tell()
        calls = [message["params"] for message in messages if message.get("method") == "tools/call"]
        return [params for params in calls if params.get("arguments") != {"text": SETTLING}]

    async def exchange(self, method: str, path: str, headers: list[tuple[bytes, bytes]], body: list[bytes]) -> Answer:
        request = HttpRequest(answer := Answer(), RequestHead(method, path.encode(), headers))
        answer.leaves = request.lose
        for piece in filter(None, body[1:]):
            asyncio.get_running_loop().call_soon(request.feed, piece)
        if body and body[0]:
            request.feed(body[0])
        asyncio.get_running_loop().call_soon(request.end)
        reply = HttpReply(answer, bodiless=method == "HEAD")
        async with asyncio.timeout(PATIENCE):
            await self.app(request, reply)
        return answer


class Answer:
    """The wire of one exchange, which records what the app sends; its client leaves as soon as a stream has begun."""

    port = 8808
    peer = "127.0.0.1"
    proven = None
    paused = False
    stranger = False

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.ended = False
        self.leaves: Callable[[], None] = lambda: None

    def write(self, data: bytes) -> None:
        assert not self.ended, "something was sent after the end"
        if not self.status:
            head, _, data = data.partition(b"\r\n\r\n")
            line, *lines = head.split(b"\r\n")
            self.status = int(line.split()[1])
            self.headers = [(name, value) for name, _, value in (each.partition(b": ") for each in lines)]
            if self.streams:
                asyncio.get_running_loop().call_soon(self.leaves)
        while self.streams and data:
            size, _, remainder = data.partition(b"\r\n")
            self.body += remainder[: int(size, 16)]
            data = remainder[int(size, 16) + 2 :]
        self.body += data

    async def writable(self) -> None:
        """Returns at once: there is always room."""

    def regulate(self) -> None:
        """Does nothing: no flow control is needed."""

    def stream_begun(self) -> None:
        """Does nothing: the written head shows it."""

    def answered(self, *, keep: bool) -> None:
        assert not self.ended, "two answers to one request"
        self.ended = True

    def let_in(self) -> None:
        """Does nothing: there is no admission limit."""

    def abort(self) -> None:
        self.leaves()

    @property
    def streams(self) -> bool:
        return (b"content-type", b"text/event-stream") in self.headers


_front: list[Front] = []


def front() -> Front:
    if not _front:
        _front.append(Front())
    return _front[0]
