"""What a model is told of the tools found: lines, signatures, and answers of a bounded number of tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp_hub.catalog.token_estimate import estimate_tokens
from mcp_hub.text import printable

Json = Mapping[str, Any]

MAX_DEPTH: Final = 3
"""Objects within objects that are written out."""
MAX_VALUES: Final = 12
"""Values of an enumeration that are written out."""
MAX_LINE: Final = 100
"""Characters of a description on a line."""
MAX_SAID: Final = 300
"""Characters of a description beside a signature."""
OPTIONAL: Final = 120
"""Tokens of a signature up to which optional parameters are in it."""
MAX_SCHEMA: Final = 2000
"""Parts of a schema that are looked at."""
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_SENTENCE: Final = re.compile(r"(?<=[.!?。！？])(?:\s|(?<=[。！？]))|\n")
_WORDS: Final = {"string": "string", "integer": "integer", "number": "number", "boolean": "boolean", "null": "null"}


def signature(name: str, schema: Any, optional: int = OPTIONAL) -> str:
    """Returns a tool as `name(required: type, optional?: type)`.

    Every required parameter is in it with its type. Optional ones follow as long as it is at most `optional` tokens;
    those left out are counted.
    """
    reader = _Reader(schema)
    properties, required = reader.properties(schema)
    parts = [f"{_name(one)}: {reader.type(properties.get(one, True))}" for one in required]
    size = estimate_tokens(f"{name}({', '.join(parts)})")
    more = [one for one in properties if one not in set(required)]
    for number, one in enumerate(more):
        part = f"{_name(one)}?: {reader.type(properties[one])}"
        size += estimate_tokens(f", {part}")
        if size > optional:
            parts.append(f"…{len(more) - number} optional")
            break
        parts.append(part)
    return f"{name}({', '.join(parts)})"


def summary(description: Any, limit: int = MAX_LINE) -> str:
    """Returns the first sentence of a description, on one line, of at most so many characters."""
    text = description.strip()[: 4 * limit] if isinstance(description, str) else ""
    line = " ".join(_SENTENCE.split(text, 1)[0].split())
    return printable(line, limit)


class _Reader:
    """Reads one schema, its own `$defs` included. A part of it that leads to itself is an `object`."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = MAX_SCHEMA

    def properties(self, schema: Any) -> tuple[dict[str, Any], list[str]]:
        """Returns ({name: schema}, required names) of an object, with what `allOf` and `$ref` add."""
        found: dict[str, Any] = {}
        required: dict[str, None] = {}
        waiting: list[Any] = [schema]
        seen: list[Any] = []
        while waiting and len(seen) < MAX_SCHEMA:
            one = self._resolved(waiting.pop(0))
            if not isinstance(one, dict) or any(one is other for other in seen):
                continue
            seen.append(one)
            properties, names, parts = one.get("properties"), one.get("required"), one.get("allOf")
            if isinstance(properties, dict):
                found |= {str(name): value for name, value in properties.items() if name not in found}
            if isinstance(names, list):
                required |= dict.fromkeys(name for name in names if isinstance(name, str))
            waiting += parts if isinstance(parts, list) else []
        return found, list(required)

    def type(self, schema: Any, depth: int = 0) -> str:
        """Returns the type that a schema describes, as TypeScript would write it."""
        self._left -= 1
        schema = self._resolved(schema)
        if not isinstance(schema, dict) or self._left < 0:
            return "any"
        if "const" in schema:
            return _value(schema["const"])
        values = schema.get("enum")
        if isinstance(values, list) and values:
            shown = " | ".join(map(_value, values[:MAX_VALUES]))
            more = len(values) - MAX_VALUES
            return f"{shown} | …{more} more" if more > 0 else shown
        for several in ("anyOf", "oneOf"):
            of = schema.get(several)
            if isinstance(of, list) and of:
                found = " | ".join(dict.fromkeys(self.type(one, depth) for one in of[:MAX_VALUES]))
                return f"{found} | …{len(of) - MAX_VALUES} more" if len(of) > MAX_VALUES else found
        kinds = schema.get("type")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        return " | ".join(dict.fromkeys(self._one(kind, schema, depth) for kind in kinds)) or "any"

    def _one(self, kind: Any, schema: Json, depth: int) -> str:
        if kind in _WORDS:
            return str(kind)
        if kind == "array" or (kind is None and "items" in schema):
            items = schema.get("items")
            of = self.type(items, depth + 1) if isinstance(items, dict) and depth < MAX_DEPTH else "any"
            return f"({of})[]" if " | " in of else f"{of}[]"
        if kind == "object" or (kind is None and ("properties" in schema or "allOf" in schema)):
            properties, required = self.properties(schema)
            if not properties or depth >= MAX_DEPTH:
                return "object"
            parts = [f"{_name(one)}: {self.type(properties.get(one, True), depth + 1)}" for one in required]
            more = [one for one in properties if one not in set(required)]
            parts += [f"{_name(one)}?: {self.type(properties[one], depth + 1)}" for one in more[:MAX_VALUES]]
            parts += [f"…{len(more) - MAX_VALUES} optional"] if len(more) > MAX_VALUES else []
            return f"{{{', '.join(parts)}}}"
        return "any"

    def _resolved(self, schema: Any) -> Any:
        for _ in range(MAX_DEPTH):
            pointer = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(pointer, str) or not pointer.startswith("#"):
                break
            schema = self._root
            for part in pointer[1:].split("/")[1:]:
                key = part.replace("~1", "/").replace("~0", "~")
                schema = schema.get(key) if isinstance(schema, dict) else None
        return schema


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(printable(name, len(name)), ensure_ascii=False)


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | int | float | bool | None) else "object"


class FoundTool:
    """A tool that was found, as an answer shows it. `note` says what is special about it, such as its group."""

    def __init__(self, wire: Json, note: str = "") -> None:
        self.name = str(wire.get("name", ""))
        self._wire = wire
        self._note = f" [{note}]" if note else ""

    def line(self) -> str:
        """Returns its name and the beginning of its description."""
        said = summary(self._wire.get("description") or self._wire.get("title"))
        return f"- {self.name}{self._note}: {said}" if said else f"- {self.name}{self._note}"

    def detailed(self) -> str:
        """Returns its signature and its first sentence."""
        said = summary(self._wire.get("description") or self._wire.get("title"), MAX_SAID)
        shown = signature(self.name, self._wire.get("inputSchema"))
        return f"- {shown}{self._note}\n  {said}" if said else f"- {shown}{self._note}"


def answer(head: str, tools: Sequence[FoundTool], signatures: int, budget: int) -> str:
    """Returns the tools found as a text of at most `budget` tokens: signatures of the best, lines of the others.

    A signature that has no room becomes a line, and lines that have none are counted. Nothing is cut in the middle.
    """
    parts, left, number = [head], budget - estimate_tokens(head) - _SPARE, 0
    lines = [one.line() for one in tools]
    costs = [estimate_tokens(line) + 1 for line in lines]
    for number, one in enumerate(tools):
        shown, cost = lines[number], costs[number]
        if number < signatures:
            full = one.detailed()
            whole = estimate_tokens(full) + 1
            if whole <= left - min(sum(costs[number + 1 :]), left // 3):
                shown, cost = full, whole
        if cost > left:
            return "\n".join([*parts, f"({len(tools) - number} more have no room here; ask for less at once)"])
        parts.append(shown)
        left -= cost
    return "\n".join(parts)


_SPARE: Final = 30
"""Tokens for the last line."""
