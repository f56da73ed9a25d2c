"""A client of raw bytes: requests of both eras, whole responses and streams of them, and connections as they are."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp_hub.protocol import era as eras
from tests.downstream.fronts import HANG_BOUND
from tests.downstream.scripted import Served


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        return self.json["error"]["code"]


@dataclass
class Connection:
    """One connection; every wait is bounded."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    buffer: bytearray = field(default_factory=bytearray)
    last_id: str = ""

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def response(self) -> Response:
        """A complete response, chunked or with a length."""
        response = await self.head()
        async with asyncio.timeout(HANG_BOUND):
            if response.headers.get("transfer-encoding") == "chunked":
                while chunk := await self.chunk():
                    response.body += chunk
            else:
                response.body = await self.reader.readexactly(int(response.headers.get("content-length", 0)))
        return response

    async def head(self) -> Response:
        async with asyncio.timeout(HANG_BOUND):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in head[1:] if line)
        return Response(int(head[0].split()[1]), {name.lower(): value.strip() for name, _, value in pairs})

    async def chunk(self) -> bytes:
        async with asyncio.timeout(HANG_BOUND):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def event(self) -> tuple[str, Any]:
        """The next event of a stream: its name and data, decoded if it is JSON; comments have the name `comment`.

        `last_id` is that of the last event, also of those without a message, which are passed over.
        """
        while True:
            name, data = await self._event()
            if (name, data) != ("message", ""):
                return name, json.loads(data) if name == "message" else data

    async def _event(self) -> tuple[str, Any]:
        end = self.buffer.find(b"\n\n")
        while end < 0:
            chunk = await self.chunk()
            if not chunk:
                return "end", None
            start = max(0, len(self.buffer) - 1)
            self.buffer += chunk
            end = self.buffer.find(b"\n\n", start)
        block = bytes(self.buffer[:end])
        del self.buffer[: end + 2]
        if block.startswith(b":"):
            return "comment", None
        fields = dict(line.split(": ", 1) for line in block.decode().split("\n"))
        self.last_id = fields.get("id", self.last_id)
        return fields.get("event", "message"), fields["data"]

    async def ended(self) -> bool:
        """True once the server has ended the connection, however it did."""
        async with asyncio.timeout(HANG_BOUND):
            with contextlib.suppress(ConnectionError):
                await self.reader.read()
        return True


@contextlib.asynccontextmanager
async def connected(target: Served | Path) -> AsyncIterator[Connection]:
    """A connection to a port of this machine, or to a Unix socket."""
    if isinstance(target, Path):
        reader, writer = await asyncio.open_unix_connection(target)
    else:
        reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


Lines = Iterable[tuple[str, str]]

BOTH = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")]


def request(
    served: Served, method: str, path: str, headers: Lines = (), body: bytes = b"", *, host: str | None = "own"
) -> bytes:
    """The bytes of a request; `host` None leaves the header out."""
    lines = [f"{method} {path} HTTP/1.1"]
    if host is not None:
        lines.append(f"Host: {f'127.0.0.1:{served.port}' if host == 'own' else host}")
    lines += [f"{name}: {value}" for name, value in headers]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


async def fetch(
    served: Served, method: str, path: str, headers: Lines = (), body: bytes = b"", **options: Any
) -> Response:
    async with connected(served) as connection:
        connection.send(request(served, method, path, headers, body, **options))
        return await connection.response()


def message(method: str, params: Any = None, request_id: Any = 1) -> bytes:
    """JSON text of a request, or of a notification with an id of None."""
    value: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        value["params"] = params
    if request_id is not None:
        value["id"] = request_id
    return json.dumps(value).encode()


# --- the handshake era -----------------------------------------------------------------------------------------


async def initialized(
    served: Served, headers: Lines = (), version: str = eras.LATEST_HANDSHAKE
) -> list[tuple[str, str]]:
    """The headers of a session that is ready."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}
    answer = await fetch(served, "POST", "/mcp", [*BOTH, *headers], message("initialize", params))
    assert answer.status == 200, answer
    lines = [*BOTH, *headers, ("Mcp-Session-Id", answer.headers["mcp-session-id"])]
    accepted = await fetch(served, "POST", "/mcp", lines, message("notifications/initialized", request_id=None))
    assert accepted.status == 202
    return lines


def call(name: str, arguments: dict[str, Any] | None = None, request_id: Any = 1) -> bytes:
    return message("tools/call", {"name": name, "arguments": arguments or {}}, request_id)


# --- the modern era --------------------------------------------------------------------------------------------

ENVELOPE = {eras.VERSION_KEY: eras.LATEST_MODERN, eras.CAPABILITIES_KEY: {}}


def modern(
    method: str, params: dict[str, Any] | None = None, request_id: Any = 1
) -> tuple[list[tuple[str, str]], bytes]:
    """Headers and body of a sound modern request."""
    params = {**(params or {}), "_meta": ENVELOPE}
    lines = [*BOTH, ("MCP-Protocol-Version", eras.LATEST_MODERN), ("Mcp-Method", method)]
    if "name" in params:
        lines.append(("Mcp-Name", params["name"]))
    return lines, message(method, params, request_id)


def get(path: str = "/healthz", head: str = "", version: str = "1.1") -> bytes:
    return f"GET {path} HTTP/{version}\r\nHost: localhost\r\n{head}\r\n".encode()


async def read_to_end(connection: Connection) -> bytes:
    """Everything up to the end of the connection."""
    async with asyncio.timeout(HANG_BOUND):
        return await connection.reader.read()


class Line(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = True
        self.written = b""
        self.closed = False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
