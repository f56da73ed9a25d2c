"""The buffer of long messages: the same bytes whatever their pieces, and nothing large is copied when it grows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.protocol.frames import decode
from mcp_hub.transport import lines
from mcp_hub.transport.lines import ByteBuffer


@given(st.lists(st.binary(max_size=300), max_size=40), st.sampled_from([(20, 60), (20, 10_000), (10_000, 20_000)]))
def test_any_pieces_are_read_back_unchanged(pieces: list[bytes], bounds: tuple[int, int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "LARGE", bounds[0])
        patch.setattr(lines, "HUGE", bounds[1])
        buffer = ByteBuffer(20_000)
        for _ in range(2):  # a buffer can be used again
            for piece in pieces:
                buffer.add(piece)
            assert buffer.size == sum(map(len, pieces))
            assert bytes(buffer.take()) == b"".join(pieces)
            assert buffer.size == 0


def test_a_huge_message_is_buffered_in_one_memory_mapping() -> None:
    piece = b'"' + b"x" * 65_534 + b'"'
    buffer = ByteBuffer(64 * 1024 * 1024)
    buffer.add(b"[" + piece)
    while buffer.size <= lines.HUGE:
        buffer.add(b"," + piece)
    mapped = buffer._map
    assert mapped is not None
    assert len(mapped) == 64 * 1024 * 1024  # it never has to grow
    buffer.add(b"]")
    assert set(map(len, decode(buffer.take()))) == {65_534}


def test_a_message_is_buffered_even_if_mapping_memory_fails() -> None:
    buffer = ByteBuffer(1 << 62)  # no system maps so much memory
    for _ in range(10):
        buffer.add(b"x" * 1024 * 1024)
    assert bytes(buffer.take()) == b"x" * 10 * 1024 * 1024
