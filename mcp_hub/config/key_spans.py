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
    found: dict[KeyPath, KeySpan] = {}
    repeated: list[tuple[KeyPath, int, int]] = []
    at: list[str | int] = []
    named: dict[KeyPath, int] = {}
    awaits_key = False
    for token in JSON_TOKEN.finditer(text):
        mark, here = token["mark"], token.start()
        if token["comment"] is not None or mark == ":":
            continue
        if mark in ("]", "}"):
            if at:
                at.pop()
                _end(found, tuple(at), token.end())
            awaits_key = False
        elif mark == ",":
            if at:
                last = at[-1]
                awaits_key = isinstance(last, str)
                at[-1] = last + 1 if isinstance(last, int) else ""
        elif mark is None and awaits_key and at:
            at[-1] = _json_key(token["text"] or token["word"])
            key = tuple(at)
            if key in named and not any(key[: len(outer)] == outer for outer, _, _ in repeated):
                repeated.append((key, here, named[key]))
            named.setdefault(key, here)
            awaits_key = False
        else:
            path = tuple(at)
            found.setdefault(path, KeySpan(named.get(path, here), here, token.end()))
            if mark is not None:
                at.append("" if mark == "{" else 0)
                awaits_key = mark == "{"
    # A key without a value is an error, which needs a place too.
    for key, offset in named.items():
        found.setdefault(key, KeySpan(offset, offset, offset))
    return JsonSpans(found, repeated)


def _end(found: dict[KeyPath, KeySpan], path: KeyPath, end: int) -> None:
    span = found.get(path)
    if span is not None and span.end <= span.start + 1:
        found[path] = KeySpan(span.name, span.start, end)


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
_TOML_WORD: Final = re.compile(rf"{_TOML_STRING}|[\[{{]|[\]}}]|#[^\n]*|[^\[\]{{}}\"'#\n,]+|[,\n]", re.DOTALL)


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
        found = _TOML_LINE.match(text, position)
        if found is None:
            position += 1
            continue
        start, position = found.span()
        if found["key"] is not None:
            end = _end_of_toml_value(text, position)
            lines.append(TomlLine(table + _toml_parts(found["key"]), "key", table, KeySpan(start, position, end)))
            position = max(end, position)
            continue
        table = _numbered(_toml_parts(found["item"] or found["table"]), counts, item=found["item"] is not None)
        kind = "item" if found["item"] is not None else "table"
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
    for word in iter(_words(text, position), None):
        if word[0] == "\n" and depth == 0:
            break
        if word[0].startswith("#"):
            if depth == 0:
                break
            continue
        depth += word[0] in ("[", "{")
        depth -= word[0] in ("]", "}")
        if word[0].strip():
            end = word.start() + len(word[0].rstrip())
    return end


def _words(text: str, position: int) -> Callable[[], re.Match[str] | None]:
    def following() -> re.Match[str] | None:
        nonlocal position
        word = _TOML_WORD.match(text, position)
        position = word.end() if word is not None else position
        return word

    return following


def _toml_parts(name: str) -> KeyPath:
    return tuple(_toml_part(part) for part in re.findall(_TOML_PART, name))


def _toml_part(part: str) -> str:
    if part[0] == "'" or (part[0] == '"' and "\\" not in part):
        return part[1:-1]
    if part[0] != '"':
        return part
    import tomllib

    return str(next(iter(tomllib.loads(f"{part} = 0"))))
