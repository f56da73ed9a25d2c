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
        if any(one.kind == "key" and one.path == at[:depth] for one in lines):
            raise EditRefused(f"{dotted(at[:depth])} is an inline table; write it as [{dotted(at[:depth])}]")
    if any(isinstance(part, int) for part in at):
        raise EditRefused(f"{dotted(at)} is in a list of tables; edit it by hand")
    if isinstance(value, dict):
        return put_lines(text, last_line_end(text), list(_table(at, value)), gap=True), Placement()
    around, written = at[:-1], f"{_key(at[-1])} = {write(value)}"
    own = [one for one in lines if one.table == around and (one.kind == "key" or one.path == around)]
    if own:
        start = text.rfind("\n", 0, own[-1].span.name) + 1
        indent = text[start : own[-1].span.name]
        place = end_of_line(text, own[-1].span.end)
        return put_lines(text, place, [indent + written]), Placement()
    if not around:
        return put_lines(text, 0, [written]), Placement()
    return put_lines(text, last_line_end(text), [f"[{_name(around)}]", written], gap=True), Placement()


def replace(text: str, at: KeyPath, value: Any) -> str:
    """Returns the text with another value of a key."""
    for one in toml_lines(text):
        if one.kind == "key" and one.path == at:
            return text[: one.span.start] + write(value) + text[one.span.end :]
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
    """Yields the places to cut: start, end, and whether it is a table. Tables that follow each other are one place."""
    start = end = -1
    for one in lines:
        inside = one.path[: len(at)] == at
        if inside and one.kind == "key" and one.table[: len(at)] != at:
            if start >= 0:
                yield start, end, True
                start = -1
            yield one.span.name, one.span.end, False
        elif inside:
            start = one.span.name if start < 0 else start
            end = one.span.end
        elif start >= 0:
            yield start, end, True
            start = -1
    if start >= 0:
        yield start, end, True


def _table(at: KeyPath, value: dict[str, Any]) -> Iterator[str]:
    yield f"[{_name(at)}]"
    inner = {key: one for key, one in value.items() if isinstance(one, dict)}
    for key, one in value.items():
        if key not in inner:
            yield f"{_key(key)} = {write(one)}"
    for key, one in inner.items():
        yield ""
        yield from _table((*at, key), one)


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
        return "{" + ", ".join(f"{_key(key)} = {write(one)}" for key, one in value.items()) + "}"
    raise EditRefused("TOML has no null; leave the key out")
