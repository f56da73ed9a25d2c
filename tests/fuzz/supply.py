"""Decisions out of bytes, so that one text of bytes is one whole run of a target, whoever made it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


class Supply:
    """Takes decisions from the front of `data`; where nothing is left, everything is zero, empty or the first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def below(self, limit: int) -> int:
        """A number from 0 to `limit` - 1, of one byte or two."""
        size = 1 if limit <= 256 else 2
        return int.from_bytes(self._take(size), "big") % limit

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def piece(self, most: int = 64) -> bytes:
        """Some bytes, their number said by the first."""
        return self._take(self.below(most + 1))

    def rest(self) -> bytes:
        return self._take(len(self._data))

    def cuts(self, most: int = 16) -> list[int]:
        """Where to cut what comes: numbers to be taken modulo its length."""
        return [self.below(65536) for _ in range(self.below(most))]

    def _take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        self._at += len(taken)
        return taken


def split(text: bytes, cuts: Sequence[int]) -> list[bytes]:
    """`text` in pieces, cut at `cuts`; pieces may be empty."""
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]
