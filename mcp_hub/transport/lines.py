"""Bytes in any pieces to whole lines: linear, bounded, and a line that is too long costs only itself."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

_MANY = 64
"""Line ends in one chunk from which on it is taken in pieces."""
_PIECE = 4096
_KEPT = 4096
"""Bytes kept of each end of an oversized line, enough to find its id in."""


class Oversized(msgspec.Struct, frozen=True):
    """A line above the limit; its middle was thrown away as it came."""

    size: int
    head: bytes
    tail: bytes


class LineReader(msgspec.Struct):
    """Splits at `\\n`. `limit` is in bytes, without the line end."""

    limit: int
    _parts: list[bytes] = msgspec.field(default_factory=list)
    _size: int = 0
    _head: bytes | None = None
    _tail: bytes = b""

    def feed(self, data: bytes) -> list[bytes | Oversized]:
        """The lines that `data` completes, in order."""
        if not self._size and len(data) <= self.limit and data.find(b"\n") == len(data) - 1 >= 0:
            return [data[:-1]]  # one whole line, as nearly always
        lines: list[bytes | Oversized] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._take(data[start:end])
            lines.append(self._finish())
            start = end + 1
        if start < len(data):
            self._take(data[start:] if start else data)
        return lines

    @property
    def partial(self) -> int:
        """Bytes of the line that has begun and not ended."""
        return self._size

    def rest(self) -> bytes | Oversized | None:
        """What stood behind the last line end when the input ended; None if nothing."""
        return self._finish() if self._size else None

    def _take(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._head is not None:
            self._head = (self._head + piece[:_KEPT])[:_KEPT]
            self._tail = (self._tail + piece)[-_KEPT:]
            return
        self._parts.append(piece)
        if self._size > self.limit:
            whole = b"".join(self._parts)
            self._head, self._tail, self._parts = whole[:_KEPT], whole[-_KEPT:], []

    def _finish(self) -> bytes | Oversized:
        if self._head is not None:
            line: bytes | Oversized = Oversized(self._size, self._head, self._tail)
        else:
            line = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size, self._head, self._tail = [], 0, None, b""
        return line


def pieces(chunk: bytes) -> Sequence[bytes]:
    """The chunk, or parts of it where it has so many lines that others should have a turn in between."""
    if chunk.count(b"\n") + chunk.count(b"\r") <= _MANY:
        return (chunk,)
    return [chunk[start : start + _PIECE] for start in range(0, len(chunk), _PIECE)]


class Turns:
    """Gives `take` the lines of what is read, the pieces of a chunk each in a round of the loop of its own.

    What is read meanwhile waits; `hold(True)` asks to read nothing until `hold(False)`.
    """

    def __init__(
        self, limit: int, take: Callable[[bytes | Oversized], None], hold: Callable[[bool], None] = lambda held: None
    ) -> None:
        self._reader = LineReader(limit)
        self._take = take
        self._hold = hold
        self._waiting: deque[bytes] = deque()
        self._next: asyncio.Handle | None = None

    def feed(self, chunk: bytes) -> None:
        """Take in a chunk."""
        if self._next is None and chunk.count(b"\n") <= _MANY:
            for line in self._reader.feed(chunk):
                self._take(line)
            return
        self._waiting.extend(pieces(chunk))
        if self._next is None:
            self._hold(True)
            self._go_on()

    def _go_on(self) -> None:
        self._next = asyncio.get_running_loop().call_soon(self._go_on) if len(self._waiting) > 1 else None
        self._lines(self._waiting.popleft())
        if self._next is None:
            self._hold(False)

    def _lines(self, piece: bytes) -> None:
        for line in self._reader.feed(piece):
            self._take(line)

    def hurry(self) -> None:
        """Take what waits now."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        while self._waiting:
            self._lines(self._waiting.popleft())

    def end(self) -> None:
        """No more comes: take what waits, and what stands behind the last line end."""
        self.hurry()
        rest = self._reader.rest()
        if rest is not None:
            self._take(rest)
