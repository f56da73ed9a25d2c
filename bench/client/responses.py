"""Parses bytes of HTTP/1.1 into responses, and bytes of an event stream into messages, in any segmentation."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_STREAM = re.compile(rb"\r\ncontent-type: *text/event-stream", re.IGNORECASE)
_SESSION = re.compile(rb"\r\nmcp-session-id: *([^\r]+)", re.IGNORECASE)


class Events:
    """A parser of an event stream: `feed` returns the complete events as (name, data)."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        events = []
        self._buffer += data
        while (end := self._end()) is not None:
            name, lines = b"message", []
            for line in bytes(self._buffer[:end]).split(b"\n"):
                if line.startswith(b"data:"):
                    lines.append(line[5:].removeprefix(b" ").removesuffix(b"\r"))
                elif line.startswith(b"event:"):
                    name = line[6:].strip()
            del self._buffer[:end]
            self._searched = 0
            if lines and lines != [b""]:
                events.append((name, b"\n".join(lines)))
        self._searched = max(0, len(self._buffer) - 3)
        return events

    def _end(self) -> int | None:
        """Returns where the first event ends, with its empty line. Two searches are ten times faster than one regex."""
        ends = [
            index + len(blank)
            for blank in (b"\n\n", b"\r\n\r\n")
            if (index := self._buffer.find(blank, self._searched)) >= 0
        ]
        return min(ends, default=None)


@dataclass(slots=True)
class Response:
    """A whole response: its status, its session if it names one, and the messages in it."""

    status: int
    session: bytes | None
    messages: list[bytes]


class Responses:
    """A parser of the responses of one connection. With `endless` there is one, whose body is an endless stream."""

    def __init__(self, endless: bool = False) -> None:
        self._without_length = 1 << 62 if endless else 0
        self._events = Events()
        self.status = 0
        self._reset()

    def _reset(self) -> None:
        self._head = bytearray()
        self._parts: list[bytes] = []
        self._remaining = -1
        """Bytes that are missing of the body or of a chunk; -1 before the head is complete."""
        self._chunked = False
        self._chunk_line = b""

    def feed(self, data: bytes) -> list[Response]:
        responses = []
        while data:
            if self._remaining < 0 and not self._chunked:
                data = self._take_head(data)
            elif self._chunked:
                data = self._take_chunk(data)
            else:
                self._parts.append(data[: self._remaining])
                data, self._remaining = data[self._remaining :], self._remaining - min(self._remaining, len(data))
            if self._remaining == 0 and not self._chunked:
                responses.append(self._take_response())
        return responses

    def stream(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Events of an endless body."""
        self.feed(data)
        if not self._parts:
            return []
        parts, self._parts = self._parts, []
        return self._events.feed(b"".join(parts))

    def _take_head(self, data: bytes) -> bytes:
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0:
            return b""
        remainder = bytes(self._head[end + 4 :])
        del self._head[end + 2 :]
        self.status = int(self._head[9:12])
        length = _LENGTH.search(self._head)
        self._chunked = _CHUNKED.search(self._head) is not None
        self._remaining = 0 if self._chunked else int(length[1]) if length else self._without_length
        return remainder

    def _take_chunk(self, data: bytes) -> bytes:
        """`_remaining` counts the line end behind a chunk too; 0 means that a line with a length comes next."""
        if self._remaining == 0:
            line, end, remainder = (self._chunk_line + data).partition(b"\r\n")
            if not end:
                self._chunk_line = line
                return b""
            self._chunk_line = b""
            size = int(line, 16)
            if size == 0:
                # No server here sends trailers, so an empty line remains.
                self._chunked, self._remaining = False, 2
                return remainder
            self._remaining = size + 2
            return remainder
        part = data[: self._remaining]
        self._remaining -= len(part)
        # What belongs to the end of line is not part of the body.
        surplus = max(0, 2 - self._remaining)
        self._parts.append(part[: len(part) - surplus] if surplus <= len(part) else b"")
        return data[len(part) :]

    def _take_response(self) -> Response:
        head, body = bytes(self._head), b"".join(self._parts)
        session = _SESSION.search(head)
        if _CHUNKED.search(head):
            body = body[:-2]  # the empty line behind the last chunk
        messages = [body] if body else []
        if _STREAM.search(head):
            messages = [data for _, data in Events().feed(body)]
        status = self.status
        self._reset()
        return Response(status, session[1] if session else None, messages)
