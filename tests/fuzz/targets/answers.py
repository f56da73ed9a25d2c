"""Bytes of a server over HTTP: its client gets what a strict reader finds there, and no answer to another request.

The connection has no wire: the target calls it as a loop would.
"""

from __future__ import annotations

import asyncio
from typing import Any

from mcp_hub.transport.http1 import MAX_FIELDS
from mcp_hub.transport.http1.client_connection import ClientConnection
from mcp_hub.transport.http1.client_response import HttpFailure, HttpResponse
from tests.fuzz import strict_http
from tests.fuzz.supply import Supply, split

OK = b"HTTP/1.1 200 OK\r\n"
SIZED = OK + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n2;x\r\n[]\r\n0\r\nTrailer: 1\r\n\r\n"
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
TOKENS = (
    *(b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"content-length:5\r\n", b"Content-Length : 5\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding:\tchunked\r\n"),
    *(b"transfer-encoding: chunked, chunked\r\n", b"Connection: close\r\n", b"Connection: keep-alive\r\n"),
    *(
        b"Upgrade: websocket\r\nConnection: upgrade\r\n",
        b"Content-Encoding: gzip\r\n",
        b" folded\r\n",
        b"Trailer: x\r\n",
    ),
    *(
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 X\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 X\r\n",
    ),
    *(b"0\r\n\r\n", b"5\r\n", b"5;x=y\r\n", b"0x5\r\n", b"+5\r\n", b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b"\xff"),
    *(b"HTTP/1.0 200 OK\r\n", b"HTTP/2 200\r\n", OK, SIZED, CHUNKED, EARLY),
)
SEEDS = (
    b"\x00\x00\x00" + SIZED,
    b"\x00\x00\x01\x00" + bytes([len(SIZED)]) + SIZED + CHUNKED,
    b"\x00\x01\x02\x00\x30\x00\x60" + EARLY + CHUNKED + SIZED,
    b"\x00\x00\x01\x00\x10" + OK + b"Connection: close\r\n\r\nto the end",
    b"\x01\x00\x00" + OK + b"\r\ncut",
)
PATIENCE = 60.0
MAX_CUTS = 6


class Wire(asyncio.Transport):
    """A transport that accepts everything and sends nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.closing = False

    def write(self, data: Any) -> None:
        assert not self.closing, "written to a connection that was closed"

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = close

    def pause_reading(self) -> None:
        raise AssertionError("so little needs no pause")


class Exchange:
    """A request, the position in the text at which its answer can begin, and its outcomes."""

    def __init__(self, connection: ClientConnection, start: int, *, at_once: bool) -> None:
        self.start = start
        self.outcomes: list[HttpResponse | HttpFailure] = []
        self.read: tuple[int, bytes] | HttpFailure | None = None
        self._at_once = at_once
        self._reading: asyncio.Task[None] | None = None
        connection.begin(b"GET / HTTP/1.1\r\n\r\n", self._record)

    def _record(self, outcome: HttpResponse | HttpFailure) -> None:
        self.outcomes.append(outcome)
        if isinstance(outcome, HttpFailure):
            self.read = outcome
        else:
            self._reading = asyncio.ensure_future(self._read(outcome))

    async def _read(self, response: HttpResponse) -> None:
        complete_body = response.arrived_body() if self._at_once else None
        if complete_body is not None:
            self.read = response.status, complete_body
            return
        body = b""
        try:
            while piece := await response.chunk():
                body += piece
            self.read = response.status, body
        except HttpFailure as failure:
            self.read = failure

    async def over(self) -> None:
        if self._reading is not None:
            await asyncio.wait_for(self._reading, PATIENCE)


class Keeper:
    """Records the callbacks that a pool would get."""

    def __init__(self) -> None:
        self.free = False
        self.lost_of = 0

    def released(self, connection: ClientConnection) -> None:
        assert not self.free, "given back twice"
        self.free = True

    def lost(self, connection: ClientConnection) -> None:
        self.lost_of += 1


async def _run(data: bytes) -> None:
    supply = Supply(data)
    breaks, at_once = bool(supply.below(2)), bool(supply.below(2))
    cuts, text = supply.cuts(MAX_CUTS), supply.rest()
    wire, keeper = Wire(), Keeper()
    connection = ClientConnection(keeper)
    connection.connection_made(wire)
    exchanges = [Exchange(connection, 0, at_once=at_once)]
    position = 0
    for piece in split(text, cuts):
        if not piece or wire.closing:
            continue
        if keeper.free and connection.alive:
            keeper.free = False
            exchanges.append(Exchange(connection, position, at_once=at_once))
        connection.data_received(piece)
        position += len(piece)
        for _ in range(3):
            await asyncio.sleep(0)
    eof = not wire.closing and not breaks
    connection.connection_lost(ConnectionResetError() if breaks else None)
    for exchange in exchanges:
        await exchange.over()
    _check(text[:position], exchanges, eof)
    assert keeper.lost_of == 1
    assert not connection.alive


def _check(text: bytes, exchanges: list[Exchange], eof: bool) -> None:
    for number, exchange in enumerate(exchanges):
        following = exchanges[number + 1].start if number + 1 < len(exchanges) else None
        assert len(exchange.outcomes) == 1, f"told {exchange.outcomes}"
        assert exchange.read is not None
        sound = strict_http.answer(text, exchange.start, ended=eof and following is None)
        if sound is None or len(sound.fields) > MAX_FIELDS or b"content-encoding" in dict(sound.fields):
            continue
        assert exchange.read == (sound.status, sound.body), f"{exchange.read!r} is not what a strict reader finds"
        if following is not None:
            assert not sound.last, "used again behind its last answer"
            assert not text[sound.end : following].strip(b"\r\n"), "what nobody asked for was passed over"


_runner = asyncio.Runner()


def target(data: bytes) -> None:
    _runner.run(_run(data))
