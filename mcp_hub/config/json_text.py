"""JSON as people write it: comments, trailing commas, JSON5 when need be, a byte order mark, duplicate keys refused."""

from __future__ import annotations

import functools
import json
import re
from typing import Any, Final

from mcp_hub.config.document import Parsed, Unreadable
from mcp_hub.config.findings import KeyPath, dotted

_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_COMMENT: Final = r"//[^\n]*|/\*.*?\*/"
_STRIPPED: Final = re.compile(f"{_STRING}|({_COMMENT})", re.DOTALL)
_LOOSE_COMMA: Final = re.compile(rf"{_STRING}|(,)(?=\s*[\]}}])", re.DOTALL)
_TOKEN: Final = re.compile(
    rf"{_COMMENT}|(?P<text>{_STRING}|'(?:[^'\\]|\\.)*')|(?P<mark>[\[\]{{}}:,])|(?P<word>[^\s\[\]{{}}:,\"'/]+)",
    re.DOTALL,
)
_JSON5_ERROR: Final = re.compile(r"<string>:(\d+) (Unexpected .{1,40} at column \d+)", re.DOTALL)


def parse(text: str) -> Parsed:
    """`Unreadable` with a line for what is not even JSON5; a duplicate key is a fault."""
    repeated: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(items)
        if len(values) != len(items):
            repeated.append(items[0][0])
        return values

    tree = _loads(text, pairs)
    lines = functools.cache(lambda: _lines(text))
    faults: list[tuple[int | None, str]] = []
    if repeated:
        faults = [
            (line, f"{dotted(at)}: this key is already given in line {before}") for at, line, before in lines()[1]
        ]
        # Two spellings of one key (an escape) are not seen as equal by their text alone.
        faults = faults or [(None, "a key is given twice in the same object")]
    return Parsed(tree, lambda at: lines()[0].get(at), faults=tuple(faults))


def _loads(text: str, pairs: Any) -> Any:
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        pass
    # Comments and trailing commas are nearly always all there is to it, and the json5 parser is slow.
    plain = _STRIPPED.sub(lambda match: re.sub(r"[^\n]", " ", match[1]) if match[1] else match[0], text)
    try:
        return json.loads(_LOOSE_COMMA.sub(lambda match: " " if match[1] else match[0], plain), object_pairs_hook=pairs)
    except RecursionError:
        raise Unreadable("is nested too deeply") from None
    except ValueError:
        return _loads5(text, pairs)


def _loads5(text: str, pairs: Any) -> Any:
    import json5

    try:
        return json5.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise Unreadable("is nested too deeply") from None
    except Exception as error:  # the parser also lets through what its number and text conversions raise
        found = _JSON5_ERROR.match(str(error))
        if found is None:
            raise Unreadable("is not valid JSON") from None
        raise Unreadable(f"is not valid JSON: {found[2]}".replace("\n", "\\n"), int(found[1])) from None


def _lines(text: str) -> tuple[dict[KeyPath, int], list[tuple[KeyPath, int, int]]]:
    """The line of every key and list item of a valid text, and the duplicate keys: (key, its line, the first's)."""
    lines: dict[KeyPath, int] = {}
    repeated: list[tuple[KeyPath, int, int]] = []
    at: list[str | int] = []
    line, counted = 1, 0
    awaits_key = False
    for token in _TOKEN.finditer(text):
        mark = token["mark"]
        if mark is None and token["text"] is None and token["word"] is None:
            continue
        line, counted = line + text.count("\n", counted, token.start()), token.start()
        if mark not in ("]", "}", ",", ":") and at and isinstance(at[-1], int):
            lines.setdefault(tuple(at), line)
        if mark == "{":
            at.append("")
            awaits_key = True
        elif mark == "[":
            at.append(0)
            awaits_key = False
        elif mark in ("]", "}"):
            if at:
                at.pop()
            awaits_key = False
        elif mark == "," and at:
            last = at[-1]
            awaits_key = isinstance(last, str)
            at[-1] = last + 1 if isinstance(last, int) else ""
        elif mark is None and awaits_key and at:
            at[-1] = _key(token["text"] or token["word"])
            key = tuple(at)
            if key in lines and not any(key[: len(outer)] == outer for outer, _, _ in repeated):
                repeated.append((key, line, lines[key]))
            lines.setdefault(key, line)
            awaits_key = False
    return lines, repeated


def _key(token: str) -> str:
    if token.startswith('"'):
        try:
            return str(json.loads(token, strict=False))
        except ValueError:
            return token[1:-1]
    return token[1:-1] if token.startswith("'") else token
