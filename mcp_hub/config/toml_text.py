"""TOML: the tree, and the lines of its keys as far as the layout of the file shows them."""

from __future__ import annotations

import functools
import re
import tomllib
from typing import Final

from mcp_hub.config.document import Parsed, Unreadable
from mcp_hub.config.findings import KeyPath

_PART: Final = r"(?:[A-Za-z0-9_-]+|\"[^\"\n]*\"|'[^'\n]*')"
_NAME: Final = rf"{_PART}(?:\s*\.\s*{_PART})*"
_LINE: Final = re.compile(rf"\s*(?:\[\[\s*(?P<item>{_NAME})\s*\]\]|\[\s*(?P<table>{_NAME})\s*\]|(?P<key>{_NAME})\s*=)")
_PLACE: Final = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")


def parse(text: str) -> Parsed:
    """`Unreadable` with a line for what is not TOML; duplicate keys are not."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place = _PLACE.search(message)
        line = int(place[1]) if place is not None and place[1] else None
        # The parser quotes keys and characters of the file; a value in the wrong place may be a secret.
        problem = _QUOTED.sub("…", message[: place.start()] if place is not None else message)
        raise Unreadable(f"is not valid TOML: {problem}", line) from None
    except RecursionError:
        raise Unreadable("is nested too deeply") from None
    except ValueError:
        raise Unreadable("is not valid TOML: a number or date that does not exist") from None
    lines = functools.cache(lambda: _lines(text))
    return Parsed(tree, lambda at: lines().get(at))


def _lines(text: str) -> dict[KeyPath, int]:
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for number, line in enumerate(text.split("\n"), 1):
        found = _LINE.match(line)
        if found is None:
            continue
        if found["item"] is not None:
            table = _parts(found["item"])
            counts[table] = counts.get(table, -1) + 1
            table = (*table, counts[table])
            lines.setdefault(table, number)
        elif found["table"] is not None:
            table = _parts(found["table"])
            lines.setdefault(table, number)
        else:
            lines.setdefault(table + _parts(found["key"]), number)
    return lines


def _parts(name: str) -> KeyPath:
    return tuple(part if part[0] not in "\"'" else part[1:-1] for part in re.findall(_PART, name))
