"""Texts with their escapes taken off: percent-encoding, backslashes as in JSON, character references of HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

LEVELS: Final = 6
"""How many encodings around each other are undone."""

_ESCAPE: Final = re.compile(
    r"(?P<percent>(?:%[0-9a-fA-F]{2})+)"
    r"|(?P<bytes>(?:\\x[0-9a-fA-F]{2})+)"
    r"|(?P<units>(?:\\u[0-9a-fA-F]{4})+)"
    r"|\\U(?P<point>[0-9a-fA-F]{8})"
    r"|\\(?P<short>[\"'/bfnrt\\])"
    r"|&(?:#(?P<decimal>[0-9]{1,8})|#[xX](?P<hex>[0-9a-fA-F]{1,8})|(?P<name>[A-Za-z][A-Za-z0-9]{1,31}));"
)
_SHORT: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def has_escapes(text: str) -> bool:
    """Whether there may be something to take off."""
    return "%" in text or "\\" in text or ("&" in text and ";" in text)


def unescaped(text: str) -> str:
    """`text` with one level of escapes taken off."""
    return _ESCAPE.sub(_plain, text)


def levels(text: str) -> Iterator[str]:
    """`text` with one level taken off, with two, and so on, as far as there are any."""
    for _ in range(LEVELS):
        if not has_escapes(text):
            return
        plain = unescaped(text)
        if plain == text:
            return
        yield plain
        text = plain


def unescaped_with_places(text: str, places: list[int]) -> tuple[str, list[int]]:
    """As `unescaped`, and where each character comes from.

    `places` holds the place of each character of `text` and that of its end, and so does what is returned.
    """
    kept: list[str] = []
    mapped: list[int] = []
    done = 0
    for found in _ESCAPE.finditer(text):
        plain = _plain(found)
        kept += text[done : found.start()], plain
        mapped += places[done : found.start()]
        mapped += [places[at] for at in _starts(found, plain)]
        done = found.end()
    kept.append(text[done:])
    mapped += places[done:]
    return "".join(kept), mapped


def _plain(found: re.Match[str]) -> str:
    kind = found.lastgroup
    if kind == "percent":
        return bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "surrogateescape")
    if kind == "bytes":
        data = bytes.fromhex(found[0].replace("\\x", ""))
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data.decode("latin-1")
    if kind == "units":
        return bytes.fromhex(found[0].replace("\\u", "")).decode("utf-16-be", "surrogatepass")
    if kind == "short":
        return _SHORT.get(found["short"], found["short"])
    if kind == "name":
        return _names().get(f"{found['name']};", found[0])
    number = int(found["decimal"]) if kind == "decimal" else int(found[kind or "hex"], 16)
    return chr(number) if number < 0x110000 else found[0]


@cache
def _names() -> Mapping[str, str]:
    from html.entities import html5  # 2,000 names, of no use before a text has one

    return html5


def _starts(found: re.Match[str], plain: str) -> Iterator[int]:
    """Where in the text each character begins that an escape stands for."""
    kind, at = found.lastgroup, found.start()
    if kind not in ("percent", "bytes", "units"):
        return iter(range(at, at + len(plain))) if plain == found[0] else iter([at] * len(plain))
    return _run(at, found.end(), kind, plain)


def _run(at: int, end: int, kind: str, plain: str) -> Iterator[int]:
    width = {"percent": 3, "bytes": 4, "units": 6}[kind]
    one_byte = kind == "bytes" and len(plain) * width == end - at
    for char in plain:
        yield at
        if one_byte:
            units = 1
        elif kind == "units":
            units = 2 if ord(char) > 0xFFFF else 1
        else:
            units = len(char.encode("utf-8", "surrogateescape"))
        at += width * units
