"""JSON of upstreams cut to what a page can show: long texts and long lists say how long they were."""

from __future__ import annotations

from collections.abc import Sized
from itertools import islice
from typing import Any, Final

MAX_TEXT: Final = 100_000
"""Characters of one text."""
MAX_DATA: Final = 8 * 1024 * 1024
"""The most characters of the base64 data of one image or sound; longer data is left out."""
_DATA: Final = ("data", "blob")
MAX_MEMBERS: Final = 5_000
"""Members of one list or object."""
MAX_DEPTH: Final = 60


MAX_TOTAL: Final = 16 * 1024 * 1024
"""Characters of all texts together."""


class _Budget:
    def __init__(self, remaining: int) -> None:
        self.remaining = remaining


def bounded(value: Any, total: int = MAX_TOTAL) -> Any:
    """Returns JSON with its long texts, lists and objects cut. Where one is cut, its original length is put there.

    A block whose `data` or `blob` is left out has the member `cut`, the number of characters that it had. Each member
    counts as a character of `total`; when that is used up, lists and objects are empty.
    """
    return _bounded(value, _Budget(total), MAX_DEPTH)


def _bounded(value: Any, budget: _Budget, depth: int) -> Any:
    if isinstance(value, str):
        return _text(value, budget)
    if isinstance(value, dict):
        return _object(value, budget, depth - 1) if depth else "…"
    if isinstance(value, list | tuple):
        if not depth:
            return "…"
        members = [_bounded(member, budget, depth - 1) for member in value[: _members(value, budget)]]
        return members if len(value) == len(members) else [*members, f"… ({len(value):,} members)"]
    return value


def _object(value: dict[str, Any], budget: _Budget, depth: int) -> dict[str, Any]:
    members: dict[str, Any] = {}
    shown = _members(value, budget)
    for name, member in islice(value.items(), shown):
        if name in _DATA and isinstance(member, str) and isinstance(value.get("mimeType"), str):
            members |= _data(name, member, budget)
        else:
            members[_text(str(name), budget)] = _bounded(member, budget, depth)
    if len(value) > shown:
        members["…"] = f"{len(value):,} members"
    return members


def _members(value: Sized, budget: _Budget) -> int:
    """Returns how many members of a list or object are shown, and takes them off the budget."""
    number = max(0, min(len(value), MAX_MEMBERS, budget.remaining))
    budget.remaining -= number
    return number


def _data(name: str, data: str, budget: _Budget) -> dict[str, Any]:
    """Returns the base64 data of a block whole or not at all, as a part of it shows nothing."""
    if len(data) > min(MAX_DATA, budget.remaining):
        return {name: "", "cut": len(data)}
    budget.remaining -= len(data)
    return {name: data}


def _text(text: str, budget: _Budget) -> str:
    limit = max(0, min(MAX_TEXT, budget.remaining))
    budget.remaining -= min(len(text), limit)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"
