"""The SSE parser: the same bytes in any pieces yield the same events, which are those of the specification."""

from __future__ import annotations

from typing import NoReturn

from mcp_hub.transport import sse_codec
from tests.fuzz.supply import Supply, split
from tests.transport.test_sse import reference

TOKENS = (
    *(b"data", b"data: ", b"id: ", b"event: ", b"retry: ", b":", b" ", b"\r", b"\n", b"\r\n", b"\n\n", b"\0"),
    *(b"12", b"\xef\xbb\xbf", "é".encode(), b"x" * 90, b"data: y\n\n", b"\x0b", b"\x0c", b"\x1c", b"\xc2\x85"),
)
SEEDS = (
    b"\x00\x02\x00\x04\x00\x11\xef\xbb\xbf: hi\r\nevent: a\rdata: 1\r\n\r\nid: 7\ndata: x\ndata\n\nretry: 5\n\n",
    b"\x08\x00data: " + b"x" * 120 + b"\n\ndata: after\n\n",
)
LARGE = 1 << 20


def fail(message: str) -> NoReturn:
    raise AssertionError(message)


def target(data: bytes) -> None:
    supply = Supply(data)
    size, cuts, text = supply.below(16), supply.cuts(), supply.rest()
    pieces = split(text, cuts)
    events, large = _parsed(pieces, LARGE)
    assert large == 0
    assert events == reference(text), "not the events of the specification"
    if size:
        bounded = _parsed(pieces, size)
        assert bounded == _parsed([text], size), "the events depend on where the bytes were cut"
        remaining = iter(event.data for event in events)
        assert all(event.data in remaining for event in bounded[0]), "an event that was never sent"


def _parsed(pieces: list[bytes], limit: int) -> tuple[list[sse_codec.SseEvent], int]:
    """The events, and how many were too large."""
    parser = sse_codec.SseParser(limit)
    events: list[sse_codec.SseEvent] = []
    large = 0
    for piece in pieces:
        for event in parser.feed(piece):
            if isinstance(event, sse_codec.SseEvent):
                events.append(event)
                continue
            large += event.tail is None
            assert len(event.head) <= sse_codec._KEPT, "more is kept of a head than the limit"
        buffered = parser._line.size + parser._data_size() + len(parser._head) + len(parser._tail)
        assert buffered <= limit + sse_codec._FIELD + 2 * sse_codec._KEPT, "more is kept than the limit allows"
    return events, large
