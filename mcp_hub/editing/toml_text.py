"""Inserts, replaces and removes tables and keys of TOML texts. Inline tables are not edited."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

from mcp_hub.config.findings import KeyPath, dotted
from mcp_hub.config.key_spans import TomlLine, toml_lines
from mcp_hub.editing import EditRefused, Placement
from mcp_hub.editing.line_cuts import cut_lines, end_of_line, last_line_end, put_lines

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def insert(text: str, tree: Any, at: KeyPath, value: Any) -> tuple[str, Placement]:
    """Returns the text with the new key, or with a new table at its end. Tables around it need no headers in TOML."""
    lines = toml_lines(text)
    for depth in range(1, len(at)):
        if any(line.kind == "key" and line.path == at[:depth] for line in lines):
            raise EditRefused(f"{dotted(at[:depth])} is an inline table; write it as [{dotted(at[:depth])}]")
    if any(isinstance(part, int) for part in at):
        raise EditRefused(f"{dotted(at)} is in a list of tables; edit it by hand")
    if isinstance(value, dict):
        return put_lines(text, last_line_end(text), list(_table(at, value)), gap=True), Placement()
    table, assignment = at[:-1], f"{_key(at[-1])} = {write(value)}"
    siblings = [line for line in lines if line.table == table and (line.kind == "key" or line.path == table)]
    if siblings:
        start = text.rfind("\n", 0, siblings[-1].span.name) + 1
        indent = text[start : siblings[-1].span.name]
        offset = end_of_line(text, siblings[-1].span.end)
        return put_lines(text, offset, [indent + assignment]), Placement()
    if not table:
        return put_lines(text, 0, [assignment]), Placement()
    return put_lines(text, last_line_end(text), [f"[{_name(table)}]", assignment], gap=True), Placement()


def replace(text: str, at: KeyPath, value: Any) -> str:
    """Returns the text with another value of a key."""
    for line in toml_lines(text):
        if line.kind == "key" and line.path == at:
            return text[: line.span.start] + write(value) + text[line.span.end :]
    raise EditRefused(f"{dotted(at)} is a table, or inside of an inline table; edit it by hand")


def remove(text: str, at: KeyPath, placement: Placement) -> str:
    """Returns the text without a key, or without a table and the tables in it."""
    cuts = list(_cuts(toml_lines(text), at))
    if not cuts:
        raise EditRefused(f"{dotted(at)} is inside of an inline table; edit it by hand")
    for start, end, is_table in reversed(cuts):
        start = text.rfind("\n", 0, start) + 1
        text = cut_lines(text, start, end_of_line(text, end), gap=is_table)
    return text


def _cuts(lines: list[TomlLine], at: KeyPath) -> Iterator[tuple[int, int, bool]]:
    """Yields the ranges to cut: start, end, and whether it is a table. Tables that follow each other are one range."""
    start = end = -1
    for line in lines:
        is_inside = line.path[: len(at)] == at
        if is_inside and line.kind == "key" and line.table[: len(at)] != at:
            if start >= 0:
                yield start, end, True
                start = -1
            yield line.span.name, line.span.end, False
        elif is_inside:
            start = line.span.name if start < 0 else start
            end = line.span.end
        elif start >= 0:
            yield start, end, True
            start = -1
    if start >= 0:
        yield start, end, True


def _table(at: KeyPath, value: dict[str, Any]) -> Iterator[str]:
    yield f"[{_name(at)}]"
    inner = {key: member for key, member in value.items() if isinstance(member, dict)}
    for key, member in value.items():
        if key not in inner:
            yield f"{_key(key)} = {write(member)}"
    for key, member in inner.items():
        yield ""
        yield from _table((*at, key), member)


def _name(at: KeyPath) -> str:
    return ".".join(map(_key, at))


def _key(part: str | int) -> str:
    text = str(part)
    return text if _BARE.fullmatch(text) else _text(text)


def _text(text: str) -> str:
    # JSON escapes all that TOML wants escaped, but DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def write(value: Any) -> str:
    """Returns a value as TOML on one line."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "inf", -math.inf: "-inf"}.get(value, "nan")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(write, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {write(member)}" for key, member in value.items()) + "}"
    raise EditRefused("TOML has no null; leave the key out")
