"""Inserts whole lines into a text and removes them, so that removing restores the text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mcp_hub.editing import newline_of

_LINE_END: Final = re.compile(r"\r\n|\n|\r|\Z")


def end_of_line(text: str, offset: int) -> int:
    """Returns the offset of the end of the line of `offset`, in front of its line break."""
    match = _LINE_END.search(text, offset)
    return match.start() if match else len(text)


def last_line_end(text: str) -> int:
    """Returns the offset of the end of the last line that is not blank; 0 if all are blank."""
    end = len(text.rstrip())
    return end_of_line(text, end) if end else 0


def put_lines(text: str, offset: int, lines: Sequence[str], *, gap: bool = False) -> str:
    """Returns the text with lines behind the line that ends at `offset`, or in front of all if `offset` is 0.

    `gap`: with an empty line between. `cut_lines` is the inverse.
    """
    newline = newline_of(text)
    if offset == 0:
        return newline.join(lines) + newline + text
    return text[:offset] + newline * (2 if gap else 1) + newline.join(lines) + text[offset:]


def cut_lines(text: str, start: int, end: int, *, gap: bool = False) -> str:
    """Returns the text without the lines from `start`, the beginning of a line, up to `end`, the end of a line.

    `gap`: an empty line in front of them is removed too.
    """
    if start == 0:
        match = _LINE_END.match(text, end)
        return text[match.end() :] if match else ""
    start -= _break_before(text, start)
    if gap:
        start -= _break_before(text, start)
    return text[:start] + text[end:]


def _break_before(text: str, offset: int) -> int:
    """Returns the length of the line break that ends at `offset`, 0 if there is none."""
    if text.endswith("\r\n", 0, offset):
        return 2
    return 1 if text.endswith(("\n", "\r"), 0, offset) else 0
