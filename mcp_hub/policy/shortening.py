"""Making a result shorter without making it wrong: texts are cut, everything else stays whole or is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

from mcp_hub.policy.long_results import head
from mcp_hub.protocol.frames import encode

LEAST_TEXT: Final = 64
"""Bytes below which a part of a text says nothing."""
_MAX_DEPTH: Final = 50
_MAX_VALUES: Final = 100_000
"""Values looked at in one pass, some 0.1 s."""
_SHARES: Final = (2, 8, 32, 128)
"""The longest text and list inside of a value, as a share of the room for all of it; tried in this order."""


def shortened_content(content: Any, room: int) -> tuple[list[Any], int]:
    """(the content blocks as far as they go into `room` bytes, how many bytes they are).

    The first text that is too long is cut, at a line or a word where one is near; texts after it are left out. Any
    other block is whole, or a short text that says what it was.
    """
    blocks = content if isinstance(content, list) else []
    sizes = [len(encode(block)) + 1 for block in blocks]  # and a comma
    if sum(sizes) <= room:
        return list(blocks), sum(sizes)
    notes = [
        None if _text(block) is not None else _note(block, size) for block, size in zip(blocks, sizes, strict=True)
    ]
    least = [0 if note is None else min(size, _size(note)) for note, size in zip(notes, sizes, strict=True)]
    after = [*reversed([*accumulate(reversed(least), initial=0)])][1:]  # what the notes behind each block need
    kept: list[Any] = []
    shown = 0
    cut = False
    for block, size, note, needed in zip(blocks, sizes, notes, after, strict=True):
        free = room - shown - min(needed, room // 4)
        part = block
        if size > free or (note is None and cut):
            part = note
            if note is None and not cut:
                part, cut = _cut(block, free), True
            if part is not None and _size(part) > room - shown:
                part = None
        if part is not None:
            kept.append(part)
            shown += size if part is block else _size(part)
    return kept, shown


def shortened_values(value: Any, room: int) -> Iterator[Any]:
    """Shorter versions of a JSON value, each of at most `room` bytes, the longest first; maybe none.

    Texts and lists are cut; objects keep all their members and everything its type.
    """
    for share in _SHARES:
        try:
            shorter = _Trim(max(room // share, LEAST_TEXT)).trimmed(value)
        except _TooMany:
            continue
        if len(encode(shorter)) <= room:
            yield shorter


def without_lone_surrogates(value: Any) -> Any:
    """A JSON value that is UTF-8: half a pair of surrogates, which was no character, is a question mark."""
    if rb"\ud" not in encode(value):
        return value
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


class _TooMany(Exception):
    """There are more values than are looked at."""


class _Trim:
    """One pass over a value: texts and lists get at most `longest` bytes each."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._seen = 0

    def trimmed(self, value: Any, depth: int = 0) -> Any:
        """A shorter value. Raises _TooMany."""
        self._seen += 1
        if self._seen > _MAX_VALUES:
            raise _TooMany
        if isinstance(value, str):
            return value if len(value) * 6 <= self._longest else head(value, self._longest)
        if isinstance(value, dict) and depth < _MAX_DEPTH:
            return {name: self.trimmed(member, depth + 1) for name, member in value.items()}
        if not isinstance(value, list) or depth >= _MAX_DEPTH:
            return value
        kept: list[Any] = []
        left = self._longest
        for member in value:
            shorter = self.trimmed(member, depth + 1)
            left -= _size(shorter)
            if left < 0:
                break
            kept.append(shorter)
        return kept


def _text(block: Any) -> str | None:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    return text if isinstance(text, str) else None


def _note(block: Any, size: int) -> Any:
    fields = block if isinstance(block, dict) else {}
    inner = fields.get("resource")
    mime_type = fields.get("mimeType", inner.get("mimeType", "") if isinstance(inner, dict) else "")
    what = f"{str(fields.get('type', 'block'))[:50]} {str(mime_type)[:50]}".strip()
    return {"type": "text", "text": f"({what} of {size - 1:,} bytes left out)"}


def _size(block: Any) -> int:
    return len(encode(block)) + 1


def _cut(block: Any, room: int) -> Any:
    """A text block of at most so many bytes; None if that would say nothing."""
    text = block["text"]
    left = room - _size({**block, "text": ""})
    return {**block, "text": _at_a_border(head(text, left), text)} if left >= LEAST_TEXT else None


def _at_a_border(part: str, text: str) -> str:
    """The part up to the last line or word, where that is not far back."""
    if len(part) == len(text):
        return part
    for border in ("\n", " "):
        at = part.rfind(border)
        if at > len(part) * 0.9:
            return part[:at]
    return part
