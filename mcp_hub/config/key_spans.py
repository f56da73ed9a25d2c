"""Finds the keys and values of a JSON or TOML text, as offsets in the text.

The text has been parsed before; these scanners only locate what the parser accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

import msgspec

from mcp_hub.config.findings import KeyPath

_JSON_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_JSON_COMMENT: Final = r"//[^\n]*|/\*.*?\*/"
JSON_COMMENTS: Final = re.compile(f"{_JSON_STRING}|({_JSON_COMMENT})", re.DOTALL)
LOOSE_COMMA: Final = re.compile(rf"{_JSON_STRING}|(,)(?=\s*[\]}}])", re.DOTALL)
JSON_TOKEN: Final = re.compile(
    rf"(?P<comment>{_JSON_COMMENT})|(?P<text>{_JSON_STRING}|'(?:[^'\\]|\\.)*')|(?P<mark>[\[\]{{}}:,])"
    r"|(?P<word>[^\s\[\]{}:,\"'/]+)",
    re.DOTALL,
)


class KeySpan(msgspec.Struct, frozen=True):
    """The place of one key or list item: its name begins at `name`, its value is from `start` up to `end`."""

    name: int
    start: int
    end: int


class JsonSpans(msgspec.Struct, frozen=True):
    """The places of all keys and list items of a JSON text."""

    of: dict[KeyPath, KeySpan]
    """Path -> place, in the order of the text. `()` is the value at the top. Of equal keys, the first is kept."""
    repeated: list[tuple[KeyPath, int, int]]
    """Equal keys of one object: (key, offset, offset of the first)."""


def json_spans(text: str) -> JsonSpans:
    """Returns the places of all keys and list items of a JSON text with comments, or of a JSON5 text."""
    spans: dict[KeyPath, KeySpan] = {}
    repeated: list[tuple[KeyPath, int, int]] = []
    at: list[str | int] = []
    key_offsets: dict[KeyPath, int] = {}
    awaits_key = False
    for token in JSON_TOKEN.finditer(text):
        mark, start = token["mark"], token.start()
        if token["comment"] is not None or mark == ":":
            continue
        if mark in ("]", "}"):
            if at:
                at.pop()
                _close_span(spans, tuple(at), token.end())
            awaits_key = False
        elif mark == ",":
            if at:
                last = at[-1]
                awaits_key = isinstance(last, str)
                at[-1] = last + 1 if isinstance(last, int) else ""
        elif mark is None and awaits_key and at:
            at[-1] = _json_key(token["text"] or token["word"])
            key = tuple(at)
            if key in key_offsets and not any(key[: len(outer)] == outer for outer, _, _ in repeated):
                repeated.append((key, start, key_offsets[key]))
            key_offsets.setdefault(key, start)
            awaits_key = False
        else:
            path = tuple(at)
            spans.setdefault(path, KeySpan(key_offsets.get(path, start), start, token.end()))
            if mark is not None:
                at.append("" if mark == "{" else 0)
                awaits_key = mark == "{"
    # A key without a value is an error, which needs a place too.
    for key, offset in key_offsets.items():
        spans.setdefault(key, KeySpan(offset, offset, offset))
    return JsonSpans(spans, repeated)


def _close_span(spans: dict[KeyPath, KeySpan], path: KeyPath, end: int) -> None:
    span = spans.get(path)
    if span is not None and span.end <= span.start + 1:
        spans[path] = KeySpan(span.name, span.start, end)


def _json_key(token: str) -> str:
    if token.startswith('"'):
        try:
            return str(json.loads(token, strict=False))
        except ValueError:
            return token[1:-1]
    return token[1:-1] if token.startswith("'") else token


_TOML_PART: Final = r"(?:[A-Za-z0-9_-]+|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')"
_TOML_NAME: Final = rf"{_TOML_PART}(?:[ \t]*\.[ \t]*{_TOML_PART})*"
_TOML_BLANK: Final = re.compile(r"(?:\s+|#[^\n]*)+")
_TOML_LINE: Final = re.compile(
    rf"\[\[[ \t]*(?P<item>{_TOML_NAME})[ \t]*\]\]|\[[ \t]*(?P<table>{_TOML_NAME})[ \t]*\]"
    rf"|(?P<key>{_TOML_NAME})[ \t]*=[ \t]*"
)
_TOML_STRING: Final = (
    r"\"\"\"(?:[^\\]|\\.)*?\"{3,5}|'''.*?'{3,5}|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'"  # each a whole string
)
_TOML_TOKEN: Final = re.compile(rf"{_TOML_STRING}|[\[{{]|[\]}}]|#[^\n]*|[^\[\]{{}}\"'#\n,]+|[,\n]", re.DOTALL)


class TomlLine(msgspec.Struct, frozen=True):
    """A header of a table, or a key with its value."""

    path: KeyPath
    """The path from the top of the document. In an array of tables, the index follows the name."""
    kind: str
    """`key`, `table`, or `item` for a table in an array."""
    table: KeyPath
    """The path of the table that a key belongs to; for a header its own path."""
    span: KeySpan


def toml_lines(text: str) -> list[TomlLine]:
    """Returns all headers and keys of a TOML text in their order; not those inside of inline tables."""
    lines: list[TomlLine] = []
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    position = 0
    while position < len(text):
        if (blank := _TOML_BLANK.match(text, position)) is not None:
            position = blank.end()
            continue
        match = _TOML_LINE.match(text, position)
        if match is None:
            position += 1
            continue
        start, position = match.span()
        if match["key"] is not None:
            end = _end_of_toml_value(text, position)
            lines.append(TomlLine(table + _toml_parts(match["key"]), "key", table, KeySpan(start, position, end)))
            position = max(end, position)
            continue
        table = _numbered(_toml_parts(match["item"] or match["table"]), counts, item=match["item"] is not None)
        kind = "item" if match["item"] is not None else "table"
        lines.append(TomlLine(table, kind, table, KeySpan(start, position, position)))
    return lines


def _numbered(name: KeyPath, counts: dict[KeyPath, int], *, item: bool) -> KeyPath:
    """Returns the path of a header, in which the number of the last table follows the name of each array."""
    path: KeyPath = ()
    for number, part in enumerate(name):
        path = (*path, part)
        last = number == len(name) - 1
        if last and item:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _end_of_toml_value(text: str, position: int) -> int:
    depth, end = 0, position
    for token in iter(_toml_tokens(text, position), None):
        if token[0] == "\n" and depth == 0:
            break
        if token[0].startswith("#"):
            if depth == 0:
                break
            continue
        depth += token[0] in ("[", "{")
        depth -= token[0] in ("]", "}")
        if token[0].strip():
            end = token.start() + len(token[0].rstrip())
    return end


def _toml_tokens(text: str, position: int) -> Callable[[], re.Match[str] | None]:
    def next_token() -> re.Match[str] | None:
        nonlocal position
        token = _TOML_TOKEN.match(text, position)
        position = token.end() if token is not None else position
        return token

    return next_token


def _toml_parts(name: str) -> KeyPath:
    return tuple(_toml_part(part) for part in re.findall(_TOML_PART, name))


def _toml_part(part: str) -> str:
    if part[0] == "'" or (part[0] == '"' and "\\" not in part):
        return part[1:-1]
    if part[0] != '"':
        return part
    import tomllib

    return str(next(iter(tomllib.loads(f"{part} = 0"))))
