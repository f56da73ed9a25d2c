"""Decisions out of bytes, so that one text of bytes determines a whole run of a target."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


class Supply:
    """Takes decisions from the front of `data`; at the end, everything is zero, empty or the first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def below(self, limit: int) -> int:
        """Returns a number from 0 to `limit` - 1, from one byte or two."""
        size = 1 if limit <= 256 else 2
        return int.from_bytes(self._take(size), "big") % limit

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def piece(self, max_size: int = 64) -> bytes:
        """Returns some bytes; the first byte gives their number."""
        return self._take(self.below(max_size + 1))

    def rest(self) -> bytes:
        return self._take(len(self._data))

    def cuts(self, max_count: int = 16) -> list[int]:
        """Returns positions to cut a text at, to be taken modulo its length."""
        return [self.below(65536) for _ in range(self.below(max_count))]

    def _take(self, size: int) -> bytes:
        chunk = self._data[self._at : self._at + size]
        self._at += len(chunk)
        return chunk


def split(text: bytes, cuts: Sequence[int]) -> list[bytes]:
    """`text` in pieces, cut at `cuts`; pieces may be empty."""
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]
