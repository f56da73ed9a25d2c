"""Inserts, replaces and removes members of JSON texts: with comments, trailing commas, or as JSON5."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from mcp_hub.config.findings import KeyPath
from mcp_hub.config.key_spans import JSON_TOKEN, KeySpan, json_spans
from mcp_hub.editing import EditRefused, Placement, nested, newline_of

_INDENT: Final = re.compile(r"[ \t]*")
_FIRST_INDENT: Final = re.compile(r"[{\[][^\n\"{\[]*\n([ \t]+)\S")


class _Gap(msgspec.Struct, frozen=True):
    """The text between two values: the offset of its comma, and the end of its last comma or comment."""

    comma: int | None
    end: int


def insert(text: str, tree: Any, at: KeyPath, value: Any) -> tuple[str, Placement]:
    """Returns the text with the new member, and what was added around it."""
    layout = _Layout(text)
    depth = len(at) - 1
    while depth > 0 and at[:depth] not in layout.spans:
        depth -= 1
    if () not in layout.spans:
        return _first_value(text, nested(at, value), layout, created=len(at))
    created = len(at) - 1 - depth
    container, nested_value = at[:depth], nested(at[depth + 1 :], value)
    edited, after = layout.add(container, at[depth], nested_value)
    return edited, Placement(created, "", after)


def replace(text: str, at: KeyPath, value: Any) -> str:
    """Returns the text with another value at `at`."""
    layout = _Layout(text)
    span = layout.span(at)
    indent = _INDENT.match(text, text.rfind("\n", 0, span.name) + 1)
    written = layout.write(value, indent[0] if indent else "", multiline=layout.multiline)
    return text[: span.start] + written + text[span.end :]


def remove(text: str, at: KeyPath, placement: Placement) -> str:
    """Returns the text without the member at `at`."""
    layout = _Layout(text)
    if not at:
        span = layout.span(())
        start = span.start - len(placement.before) if text.endswith(placement.before, 0, span.start) else span.start
        end = span.end + len(placement.after) if text.startswith(placement.after, span.end) else span.end
        return text[:start] + text[end:]
    return layout.cut(at, placement.after)


def _first_value(text: str, value: Any, layout: _Layout, created: int) -> tuple[str, Placement]:
    """Writes the first value of a text that holds nothing, or only comments."""
    before = "" if not text or text.endswith("\n") else layout.newline
    written = layout.write(value, "", multiline=True)
    return text + before + written + layout.newline, Placement(created, before, layout.newline)


def _lines(value: Any, unit: str) -> list[str]:
    """Returns a value as lines of JSON. Lists of plain values, such as arguments, stay on one line."""
    nested = isinstance(value, list) and any(isinstance(item, dict | list) for item in value)
    if not value or not (nested or isinstance(value, dict)):
        return [json.dumps(value, ensure_ascii=False)]
    members = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    lines = [opening]
    for number, (key, item) in enumerate(members, 1):
        inner = _lines(item, unit)
        inner[0] = (f"{json.dumps(key, ensure_ascii=False)}: " if key is not None else "") + inner[0]
        inner[-1] += "," if number < len(value) else ""
        lines += [unit + line for line in inner]
    return [*lines, closing]


class _Layout:
    """A text, the spans of its values, and how it is laid out."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.spans = json_spans(text).of
        self.newline = newline_of(text)
        stripped = text.strip()
        self.multiline = "\n" in stripped or len(stripped) <= 2
        match = _FIRST_INDENT.search(text)
        self.unit = match[1] if match else "  "

    def span(self, at: KeyPath) -> KeySpan:
        try:
            return self.spans[at]
        except KeyError:
            raise EditRefused("the place cannot be found in the text; edit it by hand") from None

    def write(self, value: Any, indent: str, *, multiline: bool) -> str:
        """Returns a value as JSON whose further lines begin with `indent`."""
        if not multiline:
            return json.dumps(value, ensure_ascii=False)
        return (self.newline + indent).join(_lines(value, self.unit))

    def members(self, container: KeyPath) -> list[KeyPath]:
        depth = len(container) + 1
        return [at for at in self.spans if len(at) == depth and at[:-1] == container]

    def gap(self, start: int, end: int) -> _Gap:
        """Returns the comma and the end of the last comma or comment between two offsets."""
        comma, last = None, start
        for token in JSON_TOKEN.finditer(self.text, start, end):
            if token["mark"] == ":":
                continue
            if token["mark"] == "," and comma is None:
                comma = token.start()
            # The end of a line comment may be the first half of a line end.
            last = token.start() + len(token[0].rstrip())
        return _Gap(comma, last)

    def indent_of(self, offset: int) -> str | None:
        """Returns the indentation in front of `offset`; None if other text is in front of it on its line."""
        start = self.text.rfind("\n", 0, offset) + 1
        lead = self.text[start:offset]
        return lead if not lead.strip(" \t") else None

    def line_indent(self, offset: int) -> str:
        """Returns the indentation of the line of `offset`."""
        match = _INDENT.match(self.text, self.text.rfind("\n", 0, offset) + 1)
        return match[0] if match else ""

    def add(self, container: KeyPath, key: str | int, value: Any) -> tuple[str, str]:
        """Returns the text with one more member of an object or list, and what was added behind the member."""
        text, span = self.text, self.span(container)
        if text[span.start] not in "{[":
            raise EditRefused("what should hold the entry is not an object; edit it by hand")
        members = self.members(container)
        last = self.span(members[-1]) if members else None
        tail = last.end if last is not None else span.start + 1
        gap = self.gap(tail, span.end - 1)
        spans_lines = "\n" in text[span.start : span.end]
        outer = self.line_indent(span.start)
        sibling_indent = self.indent_of(last.name) if last is not None else None
        indent = sibling_indent if sibling_indent is not None else outer + self.unit
        multiline = spans_lines if last is not None else spans_lines or self.multiline
        name = f"{json.dumps(key, ensure_ascii=False)}: " if isinstance(key, str) else ""
        written = name + self.write(value, indent, multiline=multiline)
        after = self.newline + outer if multiline and not spans_lines else ""
        space = "" if last is None and gap.end == span.start + 1 else " "
        lead = self.newline + indent if multiline else space
        if last is None or gap.comma is not None:
            comma = "," if gap.comma is not None else ""
            return text[: gap.end] + lead + written + comma + after + text[gap.end :], after
        return text[:tail] + "," + text[tail : gap.end] + lead + written + text[gap.end :], ""

    def cut(self, at: KeyPath, after: str) -> str:
        """Returns the text without one member, its comma and the space in front of it."""
        text, span, container = self.text, self.span(at), self.span(at[:-1])
        members = self.members(at[:-1])
        number = members.index(at)
        before = self.span(members[number - 1]) if number else None
        following = self.span(members[number + 1]) if number + 1 < len(members) else None
        lead = self.gap(before.end if before is not None else container.start + 1, span.name)
        tail = self.gap(span.end, following.name if following is not None else container.end - 1)
        cuts = [(lead.end, span.end)]
        if tail.comma is not None:
            cuts.append((tail.comma, tail.comma + 1))
        elif lead.comma is not None:
            cuts.append((lead.comma, lead.comma + 1))
        if after and before is following is None and text.startswith(after, span.end):
            cuts.append((span.end, span.end + len(after)))
        for start, end in sorted(cuts, reverse=True):
            text = text[:start] + text[end:]
        return text
