"""Secrets in XML: in elements with a telling name, and in the `value` beside a telling `name` or `key`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from mcp_hub.security.redaction.shapes import MASK

_CONTENT: Final = 4096
"""Characters an element that is hidden may hold."""
_TAG: Final = re.compile(r"<([A-Za-z_][\w:.\-]{0,127})((?:\s[^<>]{0,1024})?)>")
_NAMED: Final = re.compile(r"\b(?:name|key|id)\s{0,3}=\s{0,3}\\?[\"']([\w.:\- ]{1,128})\\?[\"']", re.IGNORECASE)
_VALUE: Final = re.compile(r"(\bvalue\s{0,3}=\s{0,3})(\"[^\"]*+\"|'[^']*+'|\\\"[^\"]*+\")", re.IGNORECASE)
_CUT_OFF: Final = re.compile(r"[^\s<]+\Z")
"""The content of an element where the text ends before it does."""


def hide_in_markup(text: str, is_secret_key: Callable[[str], bool]) -> str:
    """`text` with `***` for what is in there. Linear in its length."""
    kept: list[str] = []
    done = 0
    for found in _TAG.finditer(text):
        if found.start() < done:
            continue
        attributes = found[2]
        if attributes and (named := _NAMED.search(attributes)) is not None and is_secret_key(named[1]):
            kept += text[done : found.start(2)], _VALUE.sub(rf"\g<1>{MASK}", attributes)
            done = found.end(2)
        if not attributes.endswith("/") and is_secret_key(found[1]):
            end = _end(text, found)
            if end > found.end():
                kept += text[done : found.end()], MASK
                done = end
    return "".join((*kept, text[done:])) if kept else text


def _end(text: str, tag: re.Match[str]) -> int:
    """Where the content of an element ends; its beginning for what is a word in angle brackets and no element."""
    begin = tag.end()
    for closing in (f"</{tag[1]}", f"<\\/{tag[1]}"):
        end = text.find(closing, begin, begin + _CONTENT)
        if end >= 0:
            return end
    cut = _CUT_OFF.match(text, begin)
    return cut.end() if cut is not None else begin
