"""The order of versions in npm (semantic versioning) and PyPI (PEP 440), as far as finding the newest needs it."""

from __future__ import annotations

import re
from typing import Final

Order = tuple[tuple[int, ...], int, tuple[tuple[int, str], ...]]
"""Epoch and numbers without zeros at the end; 0 for a pre-release, 1 final, 2 post-release; the parts of the suffix."""

_VERSION: Final = re.compile(r"v?(?:(\d+)!)?(\d+(?:\.\d+)*)(.*)", re.DOTALL)
_POST: Final = re.compile(r"[.-]?post\d*", re.IGNORECASE)


def order_of(version: str) -> Order:
    """Returns a key to compare versions by. A text that is not a version comes first."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (), 0, ((0, version),)
    numbers = [int((match[1] or "0")[:30]), *(int(part[:30]) for part in match[2].split("."))]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    suffix = match[3].partition("+")[0]
    parts = tuple(
        (int(part[:30]), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|[A-Za-z]+", suffix)
    )
    state = 1 if not suffix else 2 if _POST.match(suffix) else 0
    return tuple(numbers), state, parts


def is_final(version: str) -> bool:
    """Returns whether launchers choose a version by default: it is no alpha, beta, candidate or nightly."""
    return order_of(version)[1] > 0


def is_newer(version: str, than: str) -> bool:
    """Returns whether a version comes after another."""
    return order_of(version) > order_of(than)
