"""Parses and encodes server-sent events, without I/O.

The parser follows the WHATWG specification, takes linear time and buffers at most one event.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

import msgspec

from mcp_hub.transport.lines import ByteBuffer

COMMENT: Final = b": keep-alive\n\n"
"""A comment that a server writes to keep an idle stream open; clients ignore it."""

_KEPT: Final = 4096
"""Bytes kept of each end of an event that is too large; a message's id is usually found there."""
_FIELD: Final = 64
"""Bytes by which a line may be longer than the limit of its data: field name, colon, blank."""
_NAME_LIMIT: Final = 1024
"""Bytes of an event's name that are kept; a longer id is ignored."""
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_BOM: Final = b"\xef\xbb\xbf"


class SseEvent(msgspec.Struct, frozen=True):
    """One event. `id`: the stream's last id so far. `retry`: milliseconds, if this event has it."""

    event: str
    data: bytes | memoryview
    id: str | None
    retry: int | None


class OversizedEvent(msgspec.Struct, frozen=True):
    """An event above the limit, of which only `head` and `tail` are kept.

    It comes once when the limit is passed (`tail` is None), and once more at the end of the event.
    """

    head: bytes
    tail: bytes | None


class _TooLarge(Exception):
    """The event exceeds the limit."""


class SseParser:
    """Parses one stream. `max_event`: bytes of data in one event."""

    def __init__(self, max_event: int) -> None:
        self.last_event_id: str | None = None
        """The value of `Last-Event-ID` for a reconnection; None if the stream had no id, or an empty one."""
        self.retry: int | None = None
        """Milliseconds to wait before a reconnection, if the stream gave any."""
        self._max = max_event
        self._events: list[SseEvent | OversizedEvent] = []
        """Those of the chunk that is being read."""
        self._line = ByteBuffer(max_event + _FIELD)
        """The incomplete line that is being read."""
        self._after_cr = False
        self._first_line = True
        self._skipping = False
        self._blank = True
        self._head = self._tail = b""
        self._reset()

    def _reset(self) -> None:
        self._event = ""
        self._data: bytes | memoryview | None = None
        """The first line of data; None: there is none yet."""
        self._lines: ByteBuffer | None = None
        """All lines of data, if there is more than one."""
        self._id: str | None = None
        self._retry: int | None = None

    def feed(self, chunk: bytes) -> list[SseEvent | OversizedEvent]:
        """Returns the events that `chunk` completes, in order."""
        self._events = []
        for piece in chunk.splitlines(keepends=True):
            try:
                self._take_piece(piece)
            except _TooLarge:
                self._events.append(OversizedEvent(self._head, None))
        return self._events

    def _take_piece(self, piece: bytes) -> None:
        if self._after_cr:
            self._after_cr = False
            if piece == b"\n":
                return  # the second half of a CRLF
        last_byte = piece[-1]
        if last_byte == 10:
            body = piece[:-2] if piece[-2:-1] == b"\r" else piece[:-1]
        elif last_byte == 13:
            body = piece[:-1]
            self._after_cr = True
        elif self._skipping:
            self._tail = (self._tail + piece[-_KEPT:])[-_KEPT:]
            self._blank = False
            return
        else:
            self._extend(piece, blank=False)
            return
        if self._skipping:
            self._skip(body)
        else:
            self._take_line(body)

    def _extend(self, piece: bytes, *, blank: bool) -> None:
        """Adds a piece to the line. Raises _TooLarge."""
        line = self._line
        if line.size + len(piece) + self._data_size() > self._max + _FIELD:
            self._fail(bytes(line.take()[-_KEPT:]) + piece, blank=blank)
        line.add(piece)

    def _data_size(self) -> int:
        return self._lines.size if self._lines is not None else len(self._data or b"")

    def _take_line(self, body: bytes) -> None:
        line: bytes | memoryview = body
        if self._line.size:
            self._extend(body, blank=True)
            line = self._line.take()
        elif len(body) + self._data_size() > self._max + _FIELD:
            self._fail(body, blank=True)
        if self._first_line:
            self._first_line = False
            if line[:3] == _BOM:
                line = line[3:]
        if line:
            self._field(line)
        else:
            self._dispatch()

    def _field(self, line: bytes | memoryview) -> None:
        name, colon, _ = (line if isinstance(line, bytes) else bytes(line[:_FIELD])).partition(b":")
        if not name and colon:
            return  # a comment
        value = line[len(name) + 1 :]
        if value[:1] == b" ":
            value = value[1:]
        if name == b"data":
            self._add(value)
        elif name == b"event":
            self._event = bytes(value[:_NAME_LIMIT]).decode("utf-8", "replace")
        elif name == b"id":
            if len(value) <= _NAME_LIMIT and b"\0" not in (id := bytes(value)):
                self._id = id.decode("utf-8", "replace")
        elif name == b"retry" and len(value) < 16 and (retry := bytes(value)).isdigit():
            self.retry = self._retry = int(retry)

    def _add(self, value: bytes | memoryview) -> None:
        if self._data is None:
            self._data = value
            if len(value) > self._max:
                self._fail(value, blank=True)
            return
        if self._data_size() + 1 + len(value) > self._max:
            buffered = self._lines.take() if self._lines is not None else self._data
            self._fail(bytes(buffered[-_KEPT:]) + b"\n" + bytes(value[-_KEPT:]), blank=True)
        if self._lines is None:
            self._lines = ByteBuffer(self._max)
            self._lines.add(self._data)
        self._lines.add(b"\n")
        self._lines.add(value)

    def _dispatch(self) -> None:
        self._remember_id()
        if self._data is not None:
            data = self._data if self._lines is None else self._lines.take()
            self._events.append(SseEvent(self._event or "message", data, self.last_event_id, self._retry))
        self._reset()

    def _remember_id(self) -> None:
        if self._id is not None:
            self.last_event_id = self._id or None

    def _fail(self, end: bytes | memoryview, *, blank: bool) -> NoReturn:
        """Raises _TooLarge. `end` holds the bytes read last."""
        self._head, self._tail = bytes((self._data or end)[:_KEPT]), bytes(end[-_KEPT:])
        self._skipping, self._blank, self._first_line = True, blank, False
        self._line.take()
        self._data = self._lines = None
        raise _TooLarge

    def _skip(self, body: bytes) -> None:
        if body or not self._blank:
            self._tail = (self._tail + body[-_KEPT:])[-_KEPT:]
            self._blank = True
            return
        self._skipping = False
        self._remember_id()  # otherwise a reconnection would bring the same event again
        self._reset()
        self._events.append(OversizedEvent(self._head, self._tail))


def encode_event(data: bytes, event: str = "message", id: str | None = None) -> bytes:
    """Returns one event as bytes. Raises ValueError for an `event` or `id` with a line end or NUL in it."""
    head = b"" if id is None else b"id: " + _one_line(id) + b"\n"
    if event != "message":
        head += b"event: " + _one_line(event) + b"\n"
    if b"\n" in data or b"\r" in data:
        data = b"\ndata: ".join(_LINE_END.split(data))
    return head + b"data: " + data + b"\n\n"


def prime(id: str, retry: int) -> bytes:
    """Returns an event with an id and empty data; a client can resume the stream from it after `retry` milliseconds."""
    return b"id: " + _one_line(id) + b"\nretry: %d\ndata: \n\n" % retry


def _one_line(text: str) -> bytes:
    if any(char in text for char in "\r\n\0"):
        raise ValueError("an event's name and id are one line")
    return text.encode()
