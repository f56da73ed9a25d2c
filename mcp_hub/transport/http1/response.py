"""One answer: its head, and its body as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from mcp_hub.transport.http1.content_coding import Inflating, inflating
from mcp_hub.transport.http1.failures import BrokenOff, HttpFailure

BUFFER: Final = 256 * 1024
"""Bytes of a body that wait for their reader before reading from the connection is paused."""


class Source(Protocol):
    """Where a body comes from, while it comes."""

    def pause(self) -> None:
        """Read no more for now."""

    def resume(self) -> None:
        """Read on."""

    def abort(self) -> None:
        """Let nothing come any more, of this body or of anything."""

    def done(self) -> None:
        """The body came whole, and its reader has seen its end."""


class HttpResponse:
    """What a request is answered. Its reader must read to the end or `close` it.

    `fields`: names in lower case and values, in their order. `first`: the first value of each.
    """

    __slots__ = (
        "_ended",
        "_failure",
        "_fields",
        "_inflating",
        "_pieces",
        "_size",
        "_source",
        "_waiter",
        "first",
        "status",
    )

    def __init__(self, status: int, fields: Sequence[tuple[bytes, bytes]], source: Source) -> None:
        self.status = status
        self._fields = fields
        self.first = dict(reversed(fields))
        self._source: Source | None = source
        self._pieces: list[bytes] = []
        self._size = 0
        self._ended = False
        self._failure: HttpFailure | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._inflating: Inflating | None = None
        if b"content-encoding" in self.first:
            self._inflating = inflating(", ".join(self.all("content-encoding")))

    def get(self, name: str) -> str | None:
        """The first header of this name (in lower case), if there is one."""
        value = self.first.get(name.encode())
        return None if value is None else _text(value)

    def all(self, name: str) -> list[str]:
        """All headers of this name (in lower case)."""
        wanted = name.encode()
        return [_text(value) for field, value in self._fields if field == wanted]

    # What the connection tells.

    def feed(self, piece: bytes) -> None:
        """A piece of the body has come."""
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > BUFFER and self._source is not None:
            self._source.pause()
        self._wake()

    def end(self) -> None:
        """The body is whole."""
        self._ended = True
        self._wake()

    def fail(self, failure: HttpFailure) -> None:
        """Nothing more comes, and the body is not whole. What has come can still be read."""
        self._source = None
        self._failure = self._failure or failure
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # What its reader asks.

    @property
    def size(self) -> int:
        """Bytes that have come and were not taken yet."""
        return self._size

    def whole(self) -> bytes | None:
        """All that is left of the body if it is here and plain, else None: then ask for chunks."""
        if not self._ended or self._inflating is not None:
            return None
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._pieces, self._size = [], 0
        self._done()
        return body

    async def chunk(self) -> bytes:
        """What has come of the body, decompressed; `b""` at its end. Raises HttpFailure where it broke off."""
        if self._inflating is None:
            return await self._piece()
        while True:
            if not self._inflating.busy:
                piece = await self._piece()
                if not piece:
                    self._inflating.end()
                    return b""
                self._inflating.put(piece)
            given = self._inflating.step()
            if self._inflating.busy:
                await asyncio.sleep(0)  # little can become much: others get their turn between the steps
            if given:
                return given

    async def _piece(self) -> bytes:
        while not self._pieces:
            if self._ended:
                self._done()
                return b""
            if self._failure is not None:
                raise self._failure
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        pieces, size = self._pieces, self._size
        self._pieces, self._size = [], 0
        if size > BUFFER and self._source is not None:
            self._source.resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _done(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.done()

    def close(self) -> None:
        """Be done with it. A connection on which the rest is still to come ends. Idempotent."""
        if self._ended:
            self._done()
        else:
            self.refuse()

    def refuse(self) -> None:
        """Be done with it and with its connection, if that was not given back yet."""
        source = self._source
        if source is not None:
            self._pieces, self._size, self._ended = [], 0, False
            self.fail(BrokenOff("closed by its reader"))
            source.abort()


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape").strip(" \t")
