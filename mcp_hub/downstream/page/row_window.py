"""The part of a long list that a page shows: filtered, sorted and cut in the hub, so that its size is bounded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp_hub.downstream.page.endpoints import Json

MAX_WINDOW: Final = 300
"""Rows in one answer."""
MAX_WORDS: Final = 200
"""Characters of a filter that are read."""
_NUMBER: Final = re.compile(r"(\d{1,20})")


def window(rows: Sequence[Json], query: Mapping[str, str], filtered: Sequence[str]) -> Json:
    """Returns the rows that a page asks for, with the numbers of all rows and of those that match its filter.

    Args:
        rows: All rows, with equal members.
        query: `text` has words that must all be in a row, `sort` names a member, `down` reverses the order, and
            `first` and `count` say which rows of those that match are wanted.
        filtered: The members that `text` is searched in.
    """
    words = query.get("text", "")[:MAX_WORDS].lower().split()
    matching = [row for row in rows if _has(row, words, filtered)] if words else rows
    member = query.get("sort", "")
    if rows and member in rows[0]:

        def order(row: Json) -> Any:
            return natural_order(row[member])

        matching = sorted(matching, key=order, reverse="down" in query)
    first = number_in(query, "first", 0)
    end = first + min(number_in(query, "count", MAX_WINDOW), MAX_WINDOW)
    return {"rows": list(matching[first:end]), "first": first, "matching": len(matching), "total": len(rows)}


def _has(row: Json, words: Sequence[str], filtered: Sequence[str]) -> bool:
    text = " ".join([str(row[name]) for name in filtered if row[name]]).lower()
    return all(word in text for word in words)


def natural_order(value: Any) -> tuple[bool, Any]:
    """Returns a key that sorts numbers before texts, and texts by their words and numbers: `t2` before `t10`."""
    if isinstance(value, int | float):
        return False, value
    parts = _NUMBER.split(str(value or "").casefold())
    return True, [int(part) if at % 2 else part for at, part in enumerate(parts)]


def number_in(query: Mapping[str, str], name: str, default: int) -> int:
    """Returns a number of a query; the default if there is none."""
    text = query.get(name, "")
    return int(text[:9]) if text.isascii() and text.isdigit() else default
