"""Lines over pipes: splits input into bounded lines without blocking the event loop, and batches output."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from mcp_hub.protocol.frames import large_heap

LARGE: Final = 256 * 1024
"""Bytes above which pieces are no longer kept in a list: joining them at the end would take too long."""
HUGE: Final = 8 * 1024 * 1024
"""Bytes above which the memory is mapped at once for the whole message. Growing memory is copied when the allocator
moves it, at 32 MiB for 20 ms; mapped pages take up no memory until they are written."""


class ByteBuffer:
    """Gathers at most `max_size` bytes: in a list, then in a bytearray, then in mapped memory, by its size."""

    __slots__ = ("_long", "_map", "_max_size", "_parts", "size")

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._parts: list[bytes] = []
        self._long: bytearray | None = None
        self._map: Any = None
        self.size = 0
        """Bytes that were added and not taken."""

    def add(self, piece: bytes | memoryview) -> None:
        """Adds a piece behind the others. `size` must not become more than `max_size`."""
        end = self.size + len(piece)
        if self._map is None and self._long is not None and end > HUGE:
            self._map = self._map_memory(self._long)
        if self._map is not None:
            self._map[self.size : end] = piece
        elif self._long is not None:
            self._long += piece
        else:
            self._parts.append(bytes(piece))
            if end > LARGE:
                large_heap()
                self._long, self._parts = bytearray(b"".join(self._parts)), []
        self.size = end

    def _map_memory(self, content: bytearray) -> Any:
        """Returns mapped memory of `max_size` bytes that begins with `content`; None if there is not enough memory."""
        if self._max_size <= HUGE:
            return None
        import mmap

        try:
            if sys.platform == "win32":
                mapped = mmap.mmap(-1, self._max_size)
            else:
                mapped = mmap.mmap(-1, self._max_size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError, ValueError):
            self._max_size = 0  # the system does not have that much memory: do not try again
            return None
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # a kernel without huge pages
                mapped.madvise(mmap.MADV_HUGEPAGE)
        mapped[: len(content)] = content
        self._long = None
        return mapped

    def take(self) -> bytes | memoryview:
        """Returns the bytes; the buffer is empty then."""
        parts, long, mapped, size = self._parts, self._long, self._map, self.size
        self._parts, self._long, self._map, self.size = [], None, None, 0
        if mapped is not None:
            return memoryview(mapped)[:size]
        if long is not None:
            return memoryview(long)
        return parts[0] if len(parts) == 1 else b"".join(parts)


_MANY = 64
"""Line ends in one chunk above which it is handled in pieces."""
_PIECE = 4096
_AT_ONCE = 128
"""Lines that are handled in one round of the event loop, however short they are."""
_KEPT = 4096
"""Bytes kept of each end of an oversized line; a message's id is usually found there."""

_BLANK: Final = 4096
"""Bytes up to which a line of white space counts as blank; checking longer lines would take too long."""
Line = bytes | memoryview
"""A line without its line end; a long one is a view of the buffer in which it was gathered."""


def is_blank(line: Line) -> bool:
    """Returns whether a line is empty or only white space, so that it can be ignored."""
    return not line or (len(line) <= _BLANK and bytes(line).isspace())


class OversizedLine(msgspec.Struct, frozen=True):
    """A line of `size` bytes, which is above the limit. Only its `head` and `tail` were kept."""

    size: int
    head: bytes
    tail: bytes


class LineReader(msgspec.Struct):
    r"""Splits bytes into lines, in linear time. `limit` is the most bytes of a line, without its `\n`."""

    limit: int
    _buffer: ByteBuffer | None = None
    """The incomplete line; None before its first piece."""
    _past: int = 0
    """All bytes of the incomplete line, once it exceeds the limit; 0 before."""
    _head: bytes = b""
    _tail: bytes = b""

    @property
    def partial(self) -> int:
        """Bytes of the incomplete line."""
        return self._past or (self._buffer.size if self._buffer is not None else 0)

    def feed(self, data: bytes) -> list[Line | OversizedLine]:
        """Returns the lines that `data` completes, in order."""
        lines: list[Line | OversizedLine] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            if self._buffer is None and not self._past and end - start <= self.limit:
                lines.append(data[start:end])
            else:
                self._take(data[start:end])
                lines.append(self._finish())
            start = end + 1
        if start < len(data):
            self._take(data[start:] if start else data)
        return lines

    def rest(self) -> Line | OversizedLine | None:
        """Returns the incomplete line after the last line end, when the input has ended; None if there is none."""
        return self._finish() if self.partial else None

    def _take(self, piece: bytes) -> None:
        if self._past:
            self._past += len(piece)
            self._head = (self._head + piece[:_KEPT])[:_KEPT]
            self._tail = (self._tail + piece)[-_KEPT:]
            return
        if self._buffer is None:
            self._buffer = ByteBuffer(self.limit)
        if self._buffer.size + len(piece) <= self.limit:
            self._buffer.add(piece)
            return
        self._past = self._buffer.size + len(piece)
        buffered = self._buffer.take()
        self._head = (bytes(buffered[:_KEPT]) + piece[:_KEPT])[:_KEPT]
        self._tail = (bytes(buffered[-_KEPT:]) + piece)[-_KEPT:]

    def _finish(self) -> Line | OversizedLine:
        line: Line | OversizedLine = b""
        if self._past:
            line = OversizedLine(self._past, self._head, self._tail)
        elif self._buffer is not None:
            line = self._buffer.take()
        self._buffer, self._past, self._head, self._tail = None, 0, b"", b""
        return line


def pieces(chunk: bytes) -> Sequence[bytes]:
    """Splits a chunk with many lines, so that other tasks can run between the parts; leaves other chunks whole."""
    if chunk.count(b"\n") + chunk.count(b"\r") <= _MANY:
        return (chunk,)
    return [chunk[start : start + _PIECE] for start in range(0, len(chunk), _PIECE)]


class FairLineReader:
    """Calls `take` with each line read; a chunk with many lines is spread over several rounds of the event loop.

    Meanwhile further chunks are queued, and reading is to be paused from `hold(True)`, which may be called repeatedly,
    until `hold(False)`.
    """

    def __init__(
        self,
        limit: int,
        take: Callable[[Line | OversizedLine], None],
        hold: Callable[[bool], None] = lambda paused: None,
    ) -> None:
        self._reader = LineReader(limit)
        self._take = take
        self._hold = hold
        self._queue: deque[bytes] = deque()
        self._next: asyncio.Handle | None = None

    @property
    def waits(self) -> bool:
        """Whether chunks are queued."""
        return self._next is not None

    def feed(self, chunk: bytes) -> None:
        """Takes a chunk that was read."""
        end = len(chunk) - 1
        if self._next is None and not self._reader.partial and chunk.find(b"\n") == end and end <= self._reader.limit:
            self._take(chunk[:end])  # one whole line, as most chunks are
            return
        parts = pieces(chunk)
        if len(parts) == 1 and self._next is None:
            self._take_lines(chunk)
            return
        self._queue.extend(parts)
        self._hold(True)  # each time: somebody else may have resumed reading
        if self._next is None:
            self._take_next()

    def _take_next(self) -> None:
        piece = self._queue.popleft()
        if piece.count(b"\n") > _AT_ONCE:
            end = 0
            for _ in range(_AT_ONCE):
                end = piece.find(b"\n", end) + 1
            self._queue.appendleft(piece[end:])
            piece = piece[:end]
        self._next = asyncio.get_running_loop().call_soon(self._take_next) if self._queue else None
        self._take_lines(piece)
        if self._next is None:
            self._hold(False)

    def _take_lines(self, piece: bytes) -> None:
        for line in self._reader.feed(piece):
            self._take(line)

    def end(self) -> None:
        """Handles all queued chunks and an incomplete last line. Call it when the input has ended."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        while self._queue:
            self._take_lines(self._queue.popleft())
        remainder = self._reader.rest()
        if remainder is not None:
            self._take(remainder)


class WriteBatcher:
    """Batches the writes of one round of the event loop: each write is a system call and wakes the reader.

    The first piece of a round is written at once, to avoid a delay; the others are written together at its end.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []
        self.gathers = False
        """Whether something was written in this round of the event loop."""
        self.size = 0
        """Bytes that wait in the batch."""

    def put(self, piece: bytes) -> None:
        """Writes a piece, at the latest at the end of this round of the event loop."""
        if not self.gathers:
            self.gathers = True
            self._loop.call_soon(self._end)
            self._write(piece)
            return
        self._pieces.append(piece)
        self.size += len(piece)
        if self.size > LARGE:
            self.flush()

    def _end(self) -> None:
        self.gathers = False
        if self._pieces:
            self.flush()

    def flush(self) -> None:
        """Writes the batch."""
        pieces, self._pieces, self.size = self._pieces, [], 0
        if pieces:
            self._write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
