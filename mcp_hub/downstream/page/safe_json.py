"""JSON of upstreams cut to what a page can show: long texts and long lists say how long they were."""

from __future__ import annotations

from typing import Any, Final

MAX_TEXT: Final = 100_000
"""Characters of one text."""
MAX_DATA: Final = 8 * 1024 * 1024
"""The most characters of the base64 data of one image or sound; longer data is left out."""
_DATA: Final = ("data", "blob")
MAX_MEMBERS: Final = 5_000
"""Members of one list or object."""
MAX_DEPTH: Final = 60


class _Budget:
    remaining = 16 * 1024 * 1024
    """Characters of all texts together."""


def bounded(value: Any) -> Any:
    """Returns JSON with its long texts, lists and objects cut. Where one is cut, its original length is put there.

    A block whose `data` or `blob` is left out has the member `cut`, the number of characters that it had.
    """
    return _bounded(value, _Budget(), MAX_DEPTH)


def _bounded(value: Any, budget: _Budget, depth: int) -> Any:
    if isinstance(value, str):
        return _text(value, budget)
    if isinstance(value, dict):
        return _object(value, budget, depth - 1) if depth else "…"
    if isinstance(value, list):
        if not depth:
            return "…"
        members = [_bounded(member, budget, depth - 1) for member in value[:MAX_MEMBERS]]
        return members if len(value) <= MAX_MEMBERS else [*members, f"… ({len(value):,} members)"]
    return value


def _object(value: dict[str, Any], budget: _Budget, depth: int) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, member in list(value.items())[:MAX_MEMBERS]:
        if name in _DATA and isinstance(member, str) and isinstance(value.get("mimeType"), str):
            members |= _data(name, member, budget)
        else:
            members[_text(str(name), budget)] = _bounded(member, budget, depth)
    if len(value) > MAX_MEMBERS:
        members["…"] = f"{len(value):,} members"
    return members


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
