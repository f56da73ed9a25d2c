"""The order of versions, as npm (semantic versioning) and PyPI (PEP 440) have it, as far as the newest needs it."""

from __future__ import annotations

import re
from typing import Final

Order = tuple[tuple[int, ...], int, tuple[tuple[int, str], ...]]
"""The epoch and the numbers of the release without zeros at the end, whether it is final or later, and what follows."""

_VERSION: Final = re.compile(r"v?(?:(\d+)!)?(\d+(?:\.\d+)*)(.*)", re.DOTALL)
_POST: Final = re.compile(r"[.-]?post\d*", re.IGNORECASE)


def order_of(version: str) -> Order:
    """Returns a key to compare versions by. What is no version comes first."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (), 0, ((0, version),)
    numbers = [int((found[1] or "0")[:30]), *(int(part[:30]) for part in found[2].split("."))]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    rest = found[3].partition("+")[0]
    parts = tuple((int(part[:30]), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|[A-Za-z]+", rest))
    state = 1 if not rest else 2 if _POST.match(rest) else 0
    return tuple(numbers), state, parts


def is_final(version: str) -> bool:
    """Returns whether a version is one that launchers take by themselves: no alpha, beta, candidate or nightly."""
    return order_of(version)[1] > 0


def is_newer(version: str, than: str) -> bool:
    """Returns whether a version comes after another."""
    return order_of(version) > order_of(than)
