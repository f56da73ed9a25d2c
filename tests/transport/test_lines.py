"""The line reader: any cut of the same bytes gives the same lines, and no line costs more than itself."""

import asyncio
import itertools
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.transport.lines import FairLineReader, LineReader, OversizedLine


def fed(data: bytes, cuts: list[int], limit: int) -> list[bytes | OversizedLine]:
    reader = LineReader(limit)
    lines: list[bytes | OversizedLine] = []
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in pairwise(edges):
        lines.extend(reader.feed(data[start:end]))
    rest = reader.rest()
    return lines if rest is None else [*lines, rest]


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(0, 10_000)))
def test_any_segmentation_of_the_same_bytes_gives_the_same_lines(parts: list[bytes], cuts: list[int]) -> None:
    data = b"\n".join(parts)
    expected = data.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert fed(data, cuts, limit=10_000) == expected


@given(st.integers(1, 50), st.integers(1, 200), st.lists(st.integers(0, 10_000)))
def test_a_line_above_the_limit_is_reported_with_its_size_and_its_neighbours_stay(
    limit: int, size: int, cuts: list[int]
) -> None:
    long = bytes(range(48, 58)) * (size // 10 + 1)
    data = b"a\n" + long[:size] + b"\nb\n"
    first, middle, last = fed(data, cuts, limit)
    assert (first, last) == (b"a", b"b")
    if size > limit:
        assert middle == OversizedLine(size, long[:size][:4096], long[:size][-4096:])
    else:
        assert middle == long[:size]


def test_an_oversized_line_keeps_only_its_beginning_and_end() -> None:
    reader = LineReader(10_000)
    for _ in range(1000):
        assert reader.feed(b"x" * 10_000) == []
    (line,) = reader.feed(b"end\n")
    assert isinstance(line, OversizedLine)
    assert line.size == 10_000_003
    assert len(line.head) == len(line.tail) == 4096
    assert line.tail.endswith(b"end")
    assert reader.partial == 0


@pytest.mark.anyio
async def test_many_lines_of_one_chunk_are_delivered_in_order_between_other_tasks() -> None:
    delivered: list[bytes | OversizedLine] = []
    pauses: list[bool] = []
    turns = FairLineReader(1000, delivered.append, pauses.append)
    lines = [b"%d" % number for number in range(20_000)]
    turns.feed(b"\n".join(lines) + b"\nbehind")
    assert 0 < len(delivered) < 2_000
    assert pauses == [True]
    turns.feed(b" it\n")  # bytes that arrive during the pause are queued after the others
    rounds = 0
    async with asyncio.timeout(60):
        while pauses[-1]:
            await asyncio.sleep(0)
            rounds += 1
    assert rounds > 20
    assert delivered == [*lines, b"behind it"]
    assert pauses == [True, True, False]  # it pauses once more for the bytes that arrived during the pause


@pytest.mark.anyio
async def test_a_round_of_the_loop_takes_a_bounded_number_of_lines_however_short_they_are() -> None:
    delivered: list[bytes | OversizedLine] = []
    pauses: list[bool] = []
    turns = FairLineReader(1000, delivered.append, pauses.append)
    turns.feed(b"x\n" * 20_000 + b"y\n")
    rounds = [len(delivered)]
    async with asyncio.timeout(60):
        while pauses[-1]:
            await asyncio.sleep(0)
            rounds.append(len(delivered))
    assert delivered == [b"x"] * 20_000 + [b"y"]
    assert max(after - before for before, after in itertools.pairwise([0, *rounds])) <= 200


@pytest.mark.anyio
async def test_lines_still_queued_at_the_end_are_delivered() -> None:
    delivered: list[bytes | OversizedLine] = []
    turns = FairLineReader(1000, delivered.append)
    lines = [b"%d" % number for number in range(20_000)]
    turns.feed(b"\n".join(lines))
    turns.end()
    assert delivered == lines
    await asyncio.sleep(0)
    assert delivered == lines


def test_a_long_line_is_buffered_as_its_parts_arrive() -> None:
    part = b"0123456789abcdef" * 4096
    reader = LineReader(64 * len(part))
    size = 0
    for _ in range(50):
        assert reader.feed(part) == []
        size += len(part)
        assert reader.partial == size
    assert reader.feed(b"end\nnext\n") == [part * 50 + b"end", b"next"]
    for _ in range(65):
        reader.feed(part)
    (oversized,) = reader.feed(b"\n")
    assert isinstance(oversized, OversizedLine)
    assert oversized.size == 65 * len(part)
    assert oversized.head == part[:4096]
