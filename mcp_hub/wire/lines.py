"""Bytes in any pieces to whole lines: linear, bounded, and a line that is too long costs only itself."""

from __future__ import annotations

import msgspec

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
