"""The line reader: any cut of the same bytes gives the same lines, and no line costs more than itself."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_hub.transport.lines import LineReader, Oversized


def fed(data: bytes, cuts: list[int], limit: int) -> list[bytes | Oversized]:
    reader = LineReader(limit)
    lines: list[bytes | Oversized] = []
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in pairwise(edges):
        lines.extend(reader.feed(data[start:end]))
    rest = reader.rest()
    return lines if rest is None else [*lines, rest]


@settings(derandomize=True, max_examples=300)
@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(0, 10_000)))
def test_any_cut_of_the_same_bytes_gives_the_same_lines(parts: list[bytes], cuts: list[int]) -> None:
    data = b"\n".join(parts)
    whole = data.split(b"\n")
    if whole[-1] == b"":
        whole.pop()
    assert fed(data, cuts, limit=10_000) == whole


@settings(derandomize=True, max_examples=200)
@given(st.integers(1, 50), st.integers(1, 200), st.lists(st.integers(0, 10_000)))
def test_a_line_above_the_limit_is_reported_with_its_size_and_its_neighbours_stay(
    limit: int, size: int, cuts: list[int]
) -> None:
    long = bytes(range(48, 58)) * (size // 10 + 1)
    data = b"a\n" + long[:size] + b"\nb\n"
    first, middle, last = fed(data, cuts, limit)
    assert (first, last) == (b"a", b"b")
    if size > limit:
        assert middle == Oversized(size, long[:size][:4096], long[:size][-4096:])
    else:
        assert middle == long[:size]


def test_an_oversized_line_keeps_only_its_ends() -> None:
    reader = LineReader(10_000)
    for _ in range(1000):
        assert reader.feed(b"x" * 10_000) == []
    (line,) = reader.feed(b"end\n")
    assert isinstance(line, Oversized)
    assert line.size == 10_000_003
    assert len(line.head) == len(line.tail) == 4096
    assert line.tail.endswith(b"end")
    assert reader.partial == 0
