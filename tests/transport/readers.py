"""What readers of HTTP/1.1 find in bytes: the hub's listener and client, h11, and both protocols of uvicorn.

Each takes pieces, says what messages are in them and how its connection stands then. No sockets: a transport that
writes down what it is told.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from mcp_hub.transport.http1.client_connection import ClientConnection
from mcp_hub.transport.http1.client_response import HttpFailure, HttpResponse
from mcp_hub.transport.http1.exchange import ClientGone, HttpReply, HttpRequest
from mcp_hub.transport.http1.listener import Listener
from mcp_hub.transport.http1.server_connection import ServerConnection

MAX_BODY_BYTES = 1 << 20
"""The largest body that is read, in bytes."""
QUIET = 4
"""Idle turns of the event loop after which a reader counts as finished."""
PATIENCE = 60
REQUEST_HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"

Headers = list[tuple[str, str]]
"""Names in lower case and stripped values, in their order, without Content-Length: the hub keeps it apart."""


@dataclass
class Message:
    """A request or a response. `body` is None if it has not arrived completely."""

    start: tuple[str, str] | int
    """Method and target, or the status."""
    headers: Headers
    body: bytes | None = None

    def header(self, name: str) -> list[str]:
        return [value.lower() for field, value in self.headers if field == name]


@dataclass
class Reading:
    """`end`: as in `corpora.Case`. `status`: of the refusal."""

    messages: list[Message] = field(default_factory=list)
    end: str = "open"
    status: int | None = None

    @property
    def whole(self) -> list[Message]:
        return [message for message in self.messages if message.body is not None]


def headers_of(lines: Any) -> Headers:
    pairs = [
        (bytes(name).lower().decode("latin-1"), bytes(value).strip(b" \t").decode("latin-1")) for name, value in lines
    ]
    return [pair for pair in pairs if pair[0] != "content-length"]


class Wire(asyncio.Transport):
    """The transport of a connection."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 80), "peername": ("127.0.0.1", 1)})
        self.written = b""
        self.closed = False
        self.paused = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Does nothing: this transport has no buffer."""

    async def takes(self, protocol: asyncio.Protocol, pieces: Sequence[bytes], busy: Callable[[], object]) -> None:
        """Feeds the protocol the pieces while it reads, until nothing changes any more."""
        for piece in filter(None, pieces):
            if self.closed or self.paused:
                break
            protocol.data_received(piece)
            await self.quiet(busy)

    async def quiet(self, busy: Callable[[], object]) -> None:
        before, turns = None, 0
        async with asyncio.timeout(PATIENCE):
            while turns < QUIET:
                turns = turns + 1 if (now := (len(self.written), self.closed, busy())) == before else 0
                before = now
                await asyncio.sleep(0)


STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def refusal(written: bytes) -> int | None:
    """Returns the status of the first refusal in the written responses, or None. No body contains a status line."""
    return next((int(status) for status in STATUS.findall(written) if status not in (b"100", b"200")), None)


# --- requests -------------------------------------------------------------------------------------------------------


async def listener(pieces: Sequence[bytes]) -> Reading:
    """The hub's listener, with a handler that reads each body and answers 200."""
    reading, wire = Reading(), Wire()

    async def handler(request: HttpRequest, reply: HttpReply) -> None:
        head = request.head
        message = Message((head.method, head.target.decode("latin-1")), headers_of(head.lines))
        reading.messages.append(message)
        try:
            message.body = await request.body(MAX_BODY_BYTES)
        except ClientGone:
            return
        await reply.send(200, b"ok")

    shared = Listener(handler, 1)
    connection = ServerConnection(shared)
    connection.connection_made(wire)
    await wire.takes(connection, pieces, lambda: len(shared.tasks))
    reading.status = refusal(wire.written)
    if reading.status is not None:
        reading.end = "refused"
    elif wire.closed:
        reading.end = "closed"
    elif connection._machine.under_way:
        reading.end = "pending"
    connection.connection_lost(None)
    if shared.tasks:
        await asyncio.wait(shared.tasks, timeout=PATIENCE)
    return reading


def h11_server(pieces: Sequence[bytes]) -> Reading:
    connection, reading = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 16), Reading()
    body: list[bytes] = []
    for piece in pieces:
        if piece:
            connection.receive_data(piece)
    try:
        while (event := connection.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Request):
                target = event.target.decode("latin-1")
                reading.messages.append(Message((event.method.decode("latin-1"), target), headers_of(event.headers)))
                body = []
            elif isinstance(event, h11.Data):
                body.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                reading.messages[-1].body = b"".join(body)
                connection.send(h11.Response(status_code=404, headers=[("content-length", "0")]))  # so no tunnel begins
                connection.send(h11.EndOfMessage())
                if connection.our_state is not h11.DONE:
                    reading.end = "closed"
                    return reading
                connection.start_next_cycle()
    except h11.RemoteProtocolError as refusal:
        reading.end, reading.status = "refused", refusal.error_status_hint
        return reading
    if connection.their_state is not h11.IDLE or connection.trailing_data[0]:
        reading.end = "pending"
    return reading


async def uvicorn_httptools(pieces: Sequence[bytes]) -> Reading:
    return await _uvicorn(HttpToolsProtocol, pieces)


async def uvicorn_h11(pieces: Sequence[bytes]) -> Reading:
    return await _uvicorn(H11Protocol, pieces)


async def _uvicorn(kind: Any, pieces: Sequence[bytes]) -> Reading:
    """Reads with a protocol of uvicorn, which does not distinguish a cut request from an open connection."""
    reading, wire, state = Reading(), Wire(), ServerState()
    protocol = kind(_config(), state, {"found": reading})
    protocol.connection_made(wire)
    await wire.takes(protocol, pieces, lambda: (len(state.tasks), len(reading.messages)))
    reading.status = refusal(wire.written)
    if reading.status is not None:
        reading.end = "refused"
    elif wire.closed:
        reading.end = "closed"
    protocol.connection_lost(None)
    if state.tasks:
        await asyncio.wait(state.tasks, timeout=PATIENCE)
    return reading


async def _app(scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
    """Reads each body and answers 200."""
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    message = Message((scope["method"], target.decode("latin-1")), headers_of(scope["headers"]))
    scope["state"]["found"].messages.append(message)
    body = b""
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            return
        body += event["body"]
        if not event["more_body"]:
            break
    message.body = body
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@cache
def _config() -> Config:
    config = Config(_app, http="h11", ws="none", lifespan="off", interface="asgi3", log_config=None, access_log=False)
    config.load()
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    return config


# --- responses ------------------------------------------------------------------------------------------------------


class Pool:
    """Takes back a connection when its exchange is over."""

    def __init__(self) -> None:
        self.is_released = False

    def released(self, connection: ClientConnection) -> None:
        self.is_released = True

    def lost(self, connection: ClientConnection) -> None:
        """Does nothing: the connection is closed already."""


async def client(pieces: Sequence[bytes]) -> Reading:
    """Reads with the hub's client, which has sent a GET; the server closes the connection after the pieces."""
    reading, wire, pool = Reading(end="pending"), Wire(), Pool()
    news: list[HttpResponse | HttpFailure] = []
    connection = ClientConnection(pool)
    connection.connection_made(wire)
    connection.begin(REQUEST_HEAD, news.append)
    for piece in pieces:
        if piece and not wire.closed:
            connection.data_received(piece)
    refused = wire.closed
    response = news[0] if news and isinstance(news[0], HttpResponse) else None
    read = response is not None and not _waits(response) and await _read(response, reading)
    if pool.is_released and not wire.closed:
        reading.end = "open"
    connection.connection_lost(None)
    response = news[0] if news and isinstance(news[0], HttpResponse) else None
    if response is not None and not reading.messages:
        read = await _read(response, reading)
    if reading.messages and reading.messages[0].start == 101:
        reading.end = "switched"
    elif read and reading.end != "open":
        reading.end = "closed"
    elif not read and refused:
        reading.end = "refused"
    return reading


def _waits(response: HttpResponse) -> bool:
    return not response._complete and response._failure is None


async def _read(response: HttpResponse, reading: Reading) -> bool:
    """Reads a response from a connection that sends no more; returns whether it is complete."""
    message = Message(response.status, headers_of(response._fields))
    reading.messages.append(message)
    body = b""
    try:
        while piece := await response.chunk():
            body += piece
    except HttpFailure:
        return False
    message.body = body
    return True


def h11_client(pieces: Sequence[bytes]) -> Reading:
    connection, reading = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 16), Reading(end="pending")
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    connection.send(h11.EndOfMessage())
    body: list[bytes] = []
    try:
        for piece in [*filter(None, pieces), b""]:
            connection.receive_data(piece)
            while not isinstance(event := connection.next_event(), type) and not isinstance(
                event, h11.ConnectionClosed
            ):
                if isinstance(event, h11.Response):
                    reading.messages.append(Message(event.status_code, headers_of(event.headers)))
                elif isinstance(event, h11.Data):
                    body.append(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    reading.messages[-1].body = b"".join(body)
                    reading.end = "open" if connection.their_state is h11.DONE else "closed"
                    return reading
    except h11.RemoteProtocolError as refusal:
        cut = not piece and connection.their_state is not h11.ERROR
        reading.end = "pending" if cut or "closed connection" in str(refusal) else "refused"
    return reading
