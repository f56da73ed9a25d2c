"""Cuts the texts of results so that they stay readable: JSON stays valid, tables keep whole rows. Pure."""

from __future__ import annotations

import csv
import re
from typing import Any, Final, NamedTuple

from mcp_hub.policy.long_results import Head
from mcp_hub.protocol.frames import FrameError, decode

MAX_SCANNED: Final = 256 * 1024
"""Characters of a part that is cut as JSON or as rows; a longer part is cut as prose."""
MAX_COUNTED: Final = 1024 * 1024
"""Characters of a JSON text whose items are counted."""
_MAX_DEPTH: Final = 32
_TRIES: Final = 4
"""How often a JSON text is cut shorter until its closing brackets fit as well."""
_LEAST_STRING: Final = 16
"""Characters of a JSON string below which a part of it is not worth showing."""
_MIN_SHARE: Final = 0.9
"""Prose is cut at the end of a line or word if that lies behind this share of the part."""
_SAMPLE_ROWS: Final = 4
MAX_LINE: Final = 4096
"""Characters behind the cut that are searched for the end of a row, to tell rows from prose."""

_TOKEN: Final = re.compile(
    r'\s*(?:(?P<string>"(?:[^"\\]++|\\.)*+")|(?P<mark>[{}\[\],:])'
    r"|(?P<plain>-?\d[\d.eE+-]*+|true|false|null)(?=[\s,\]}]))",
    re.DOTALL,
)
_CUT_OFF: Final = re.compile(r"\s*(?:-?[\d.eE+-]*|t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?)")
"""A number or literal that may be cut off."""
_STRING: Final = re.compile(r'\s*"(?:[^"\\]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_HALF: Final = re.compile(r"(?:\\u[dD][89abAB][0-9a-fA-F]{2}|[\ud800-\udbff])\Z")
"""The first half of a surrogate pair."""


class TextPart(NamedTuple):
    """The part of a text that is shown, and its amount, such as `20 of 1,000 items`; "" for prose."""

    text: str
    of: str = ""


class _Boundary(NamedTuple):
    """A position after a complete value in a JSON text."""

    position: int
    closing: str
    """The brackets that close the text there."""
    path: tuple[str | int, ...]
    """The path of the list or object that has the value."""
    item_count: int
    """The number of items of the list up to here; 0 in an object."""


def cut_text(text: str, room: int, head: Head) -> TextPart:
    """Returns a beginning of a text that fits into `room`; it may be empty.

    A JSON text ends behind an item of a list, or else a member or a part of a string, and its brackets are closed. A
    text of rows (Markdown, CSV, one JSON text a line) keeps whole rows. Prose ends at a line or word if one is near.
    """
    part = head(text, room)
    if len(part) == len(text):
        return TextPart(text)
    if len(part) <= MAX_SCANNED and text.lstrip()[:1] in ("{", "["):
        json_part = _cut_json(text, part, room, head)
        if json_part is not None:
            return json_part
    if len(part) <= MAX_SCANNED and (row_ends := _row_ends(text, part)) is not None:
        lines = len(row_ends)
        return TextPart(part[: row_ends[-1]] if row_ends else "", f"{lines:,} of {_lines(text):,} lines")
    return TextPart(_cut_at_border(part))


def _lines(text: str) -> int:
    return text.rstrip("\n").count("\n") + 1


def _row_ends(text: str, part: str) -> list[int] | None:
    """Returns the ends of the whole rows in a part of a text; None if it does not consist of rows."""
    start = text[: len(part) + MAX_LINE].strip("\n")
    first_lines = [line.strip() for line in start.split("\n", _SAMPLE_ROWS)[:_SAMPLE_ROWS]]
    last = part.rstrip("\n")
    last = last[last.rfind("\n") + 1 :]
    line_ends = [match.start() for match in re.finditer("\n", part)]
    if len(part) < len(text) and text[len(part)] == "\n" and part[-1:] != "\n":
        line_ends.append(len(part))
    if last.lstrip().startswith("|"):
        return line_ends
    if len(first_lines) > 1 and all(line[:1] + line[-1:] == "{}" for line in first_lines):
        return line_ends
    if not _is_csv(first_lines):
        return None
    quotes, position = 0, 0
    row_ends = []
    for end in line_ends:  # a line break between quotes is part of a cell
        quotes, position = quotes + part.count('"', position, end), end
        if quotes % 2 == 0:
            row_ends.append(end)
    return row_ends


def _is_csv(lines: list[str]) -> bool:
    if len(lines) < _SAMPLE_ROWS:
        return False
    for separator in (",", ";", "\t"):
        try:
            widths = {len(row) for row in csv.reader(lines[:-1], delimiter=separator)}
        except csv.Error:
            continue
        if len(widths) == 1 and widths.pop() > 1:
            return True
    return False


def _cut_at_border(part: str) -> str:
    """Cuts the beginning of a text at its last line or word, if that is not far from its end."""
    for border in ("\n", " "):
        position = part.rfind(border)
        if position > len(part) * _MIN_SHARE:
            return part[:position]
    return part


def _cut_json(text: str, part: str, room: int, head: Head) -> TextPart | None:
    """Returns a shorter JSON text that fits, an empty one if nothing of it fits; None if the text is not JSON."""
    if not _JsonScan(part).is_json:
        return None
    for _ in range(_TRIES):
        try:
            short, boundary = _JsonScan(part).closed()
        except FrameError:  # the scan does not look for wrong escapes in names
            return None
        over = len(short) - len(head(short, room))
        if over <= 0:
            return TextPart(short, _count(text, boundary) if boundary is not None else "")
        part = part[: len(part) - 2 * over]
    return TextPart("")


def _count(text: str, boundary: _Boundary) -> str:
    """Returns how many items of the cut list are shown, "" if they cannot be counted."""
    if not boundary.item_count or len(text) > MAX_COUNTED:
        return ""
    try:
        value: Any = decode(text.encode("utf-8", "surrogatepass"))
        for step in boundary.path:
            value = value[step]
        path = "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in boundary.path).lstrip(".")
        return f"{boundary.item_count:,} of {len(value):,} items{f' of {path}'[:100] if path else ''}"
    except (FrameError, LookupError, TypeError):
        return ""


class _JsonScan:
    """Reads the beginning of a JSON text, up to where it is cut off."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._position = 0
        self._valid = True
        self._open: list[list[Any]] = []
        """For each open bracket: its closing one, the number of complete values in it, the name of its last member."""
        self._expected = "value"
        self._in_lists: dict[int, _Boundary] = {}
        """The last position in a list, by the number of open brackets."""
        self._last: _Boundary | None = None
        while self._valid and (match := _TOKEN.match(part, self._position)) is not None:
            self._position = match.end()
            if match["mark"] is not None:
                self._mark(match["mark"])
            elif match["string"] is not None and self._expected in ("name", "name or end"):
                self._open[-1][2] = match["string"]
                self._expected = "colon"
            else:
                self._value()

    def _mark(self, mark: str) -> None:
        if mark in "{[" and self._expected in ("value", "value or end"):
            self._open.append(["}" if mark == "{" else "]", 0, None])
            self._expected = "name or end" if mark == "{" else "value or end"
            self._valid = len(self._open) <= _MAX_DEPTH
        elif mark in "}]" and self._expected.endswith("end") and self._open and self._open[-1][0] == mark:
            self._open.pop()
            self._expected = "value"
            self._value()
        elif mark == "," and self._expected == "comma or end" and self._open:
            self._expected = "name" if self._open[-1][0] == "}" else "value"
        elif mark == ":" and self._expected == "colon":
            self._expected = "value"
        else:
            self._valid = False

    def _value(self) -> None:
        """Records that a value is complete."""
        if not self._open or not self._expected.startswith("value"):
            self._valid = False  # several texts, or no JSON
            return
        self._open[-1][1] += 1
        self._expected = "comma or end"
        closing = "".join(level[0] for level in reversed(self._open))
        in_list = closing[0] == "]"
        path = tuple(level[1] if level[0] == "]" else level[2] for level in self._open[:-1])
        self._last = _Boundary(self._position, closing, path, self._open[-1][1] if in_list else 0)
        if in_list:
            self._in_lists[len(self._open)] = self._last

    @property
    def is_json(self) -> bool:
        """Whether the part can be the beginning of one JSON list or object."""
        tail = self._part[self._position :]
        cut_off = tail.lstrip()[:1] in ("", '"') or _CUT_OFF.fullmatch(tail) is not None
        return self._valid and cut_off and bool(self._open)

    def closed(self) -> tuple[str, _Boundary | None]:
        """Completes a JSON text that was cut off, as far as it is whole: drops the last part and closes what is open.

        Returns the text, "" if too little is left, and after which value it ends; None if it ends inside a string.
        """
        # A record with some of its members missing would be taken for a whole one, so outer lists come first.
        for boundary in (*(self._in_lists[depth] for depth in sorted(self._in_lists)), self._last):
            if boundary is not None and boundary.position >= len(self._part) // 2:
                return self._part[: boundary.position] + boundary.closing, _with_decoded_names(boundary)
        string = _STRING.match(self._part, self._position) if self._expected.startswith("value") else None
        if string is not None and len(string[0].strip()) > _LEAST_STRING:
            closing = "".join(level[0] for level in reversed(self._open))
            return f'{self._part[: self._position]}{_HALF.sub("", string[0])}…"{closing}', None
        if self._last is not None:
            return self._part[: self._last.position] + self._last.closing, _with_decoded_names(self._last)
        return "", None


def _with_decoded_names(boundary: _Boundary) -> _Boundary:
    """Decodes the names in a path, which are still JSON strings."""
    names = [decode(step.encode("utf-8", "replace")) if isinstance(step, str) else step for step in boundary.path]
    return boundary._replace(path=tuple(names))
