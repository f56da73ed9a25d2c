"""The line reader: the same bytes in any pieces are the same lines, and nothing is kept beyond the limit."""

from __future__ import annotations

from mcp_hub.transport import lines
from tests.fuzz.supply import Supply, split

TOKENS = (b"\n", b"\r\n", b"\n\n", b"\0", b"x" * 40, b'{"id":1}', b"\xff")
SEEDS = (b"\x05\x02\x00\x03\x00\x09" + b"one\ntwo\n\nthree", b"\x02\x00" + b"0123456789" * 3 + b"\nafter\n")

_BY_HAND = 2 * lines._KEPT
"""Both ends of a line that is too long."""


def target(data: bytes) -> None:
    supply = Supply(data)
    limit, cuts, text = supply.below(40), supply.cuts(), supply.rest()
    reader = lines.LineReader(limit)
    parsed: list[lines.Line | lines.OversizedLine] = []
    for piece in split(text, cuts):
        parsed += reader.feed(piece)
        gathered = reader._buffer.size if reader._buffer is not None else 0
        buffered = gathered + len(reader._head) + len(reader._tail)
        assert buffered <= max(limit, _BY_HAND), "more is kept than the limit allows"
    last = reader.rest()
    assert [_comparable(line, limit) for line in parsed + ([] if last is None else [last])] == _expected(text, limit)
    assert reader.partial == 0


def _expected(text: bytes, limit: int) -> list[bytes | tuple[int, bytes, bytes]]:
    parts = text.split(b"\n")
    if not parts[-1]:
        parts.pop()
    edge = lines._KEPT
    return [line if len(line) <= limit else (len(line), line[:edge], line[-edge:]) for line in parts]


def _comparable(line: lines.Line | lines.OversizedLine, limit: int) -> bytes | tuple[int, bytes, bytes]:
    return (line.size, line.head, line.tail) if isinstance(line, lines.OversizedLine) else bytes(line)
