"""Text of upstreams made safe to show: no control character reaches a terminal or a log."""

from __future__ import annotations

import json
import unicodedata
from typing import Final

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Unicode categories that are invisible or steer a terminal: controls, bidi marks, tags, surrogates, separators."""


def printable(text: str, limit: int = 500) -> str:
    r"""Returns `text` on one line, with hidden characters as \xNN or \uNNNN escapes, cut to `limit` characters."""
    cut = text[:limit]
    if not cut.isprintable():
        cut = "".join(char if unicodedata.category(char) not in _HIDDEN else _escape(char) for char in cut)
    return cut + "…" if len(text) > limit else cut


def _escape(char: str) -> str:
    if char == "\t":
        return " "
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def json_escaped(text: str, keep: str = "") -> str:
    """Returns a JSON text in which all characters that are invisible or steer a terminal are JSON escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else json.dumps(char)[1:-1] for char in text)
