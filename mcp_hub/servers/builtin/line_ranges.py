"""Lines of a text by their numbers, from 1; ranges are inclusive, and -1 is the last line. Pure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

AROUND: Final = 5
"""Lines shown before and after a change."""


class WrongRange(ValueError):
    """The numbers are none of lines of this text; `str()` says why."""


def lines_of(text: str) -> list[str]:
    """Its lines with their ends, whichever these are."""
    return io.StringIO(text, newline="").readlines()


def resolved(ranges: Sequence[int], count: int, shown: str) -> tuple[int, int]:
    """First and last line, both there, of a range in a text of `count` lines. Raises WrongRange."""
    if len(ranges) != 2 or any(isinstance(number, bool) or not isinstance(number, int) for number in ranges):
        text = f"InvalidArgumentError: Invalid range format. Expected a list of two integers, but got {list(ranges)}."
        raise WrongRange(text)
    if 0 in ranges:
        raise WrongRange(
            f"InvalidArgumentError: Lines are counted from 1 (or -1 from the end), but got {list(ranges)}."
        )
    first, last = ranges
    if first > last and (first > 0) == (last > 0):
        raise _backwards(ranges)
    start, end = (number if number > 0 else count + 1 + number for number in ranges)
    if start > count or end < 1:
        text = f"The range '{list(ranges)}' is out of bounds for the file '{shown}', which has only {count} lines."
        raise WrongRange(f"InvalidArgumentError: {text}")
    start = max(start, 1)  # the last 100 lines of a shorter file are all of it
    if start > end:
        raise _backwards(ranges)
    return start, min(end, count)


def _backwards(ranges: Sequence[int]) -> WrongRange:
    text = f"The start line is greater than the end line in the given range {list(ranges)}."
    return WrongRange(f"InvalidArgumentError: {text}")


def numbered(lines: Sequence[str], start: int, end: int) -> str:
    """`N: line` for each of them, with plain line ends."""
    return "".join(f"{start + index}: {_plain(line)}" for index, line in enumerate(lines[start - 1 : end]))


def _plain(line: str) -> str:
    text = line.rstrip("\r\n")
    return text if text == line else f"{text}\n"


def line_end(lines: Sequence[str]) -> str:
    """How lines of this text end."""
    return "\r\n" if lines and lines[0].endswith("\r\n") else "\n"


def replaced(lines: Sequence[str], start: int, end: int, content: str) -> list[str]:
    """The lines with others in the place of `start` to `end`; what follows begins a line of its own."""
    if content and not content.endswith("\n") and (end < len(lines) or lines[end - 1].endswith(("\n", "\r"))):
        content += line_end(lines)
    return lines_of("".join([*lines[: start - 1], content, *lines[end:]]))


def inserted(lines: Sequence[str], number: int, content: str) -> list[str]:
    """The lines with `content` as line `number`, 1 to one more than there are. Raises WrongRange."""
    if not 1 <= number <= len(lines) + 1:
        text = f"The given line_number ({number}) is not in the valid range [1, {len(lines) + 1}]."
        raise WrongRange(f"InvalidArgumentsError: {text}")
    before, after = list(lines[: number - 1]), lines[number - 1 :]
    unended = bool(before) and not before[-1].endswith(("\n", "\r"))
    if unended:  # only the last line can be: the new one ends as it did
        before[-1] += line_end(lines)
    elif not content.endswith("\n"):
        content += line_end(lines)
    return lines_of("".join([*before, content, *after]))


def around(before: int, after: int, start: int, end: int) -> tuple[int, int]:
    """First and last line to be shown of a change of lines `start` to `end` that made `after` lines of `before`."""
    return max(1, start - AROUND), min(end + after - before + AROUND, after)
