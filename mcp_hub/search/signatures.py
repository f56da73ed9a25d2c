"""Texts about found tools for a model: lines, signatures or Python stubs, in a bounded number of tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from keyword import iskeyword
from typing import Any, ClassVar, Final

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
"""Tokens up to which optional parameters are added to a signature."""
MAX_SCHEMA: Final = 2000
"""Parts of a schema that are read."""
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_SENTENCE: Final = re.compile(r"(?<=[.!?。！？])(?:\s|(?<=[。！？]))|\n")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_IDENTIFIER: Final = re.compile(r"\W", re.ASCII)
RETURNED: Final = 80
"""Tokens up to which the return type of a tool is written out in its stub."""


def signature(name: str, schema: Any, optional: int = OPTIONAL) -> str:
    """Returns a tool as `name(required: type, optional?: type)`.

    It has every required parameter with its type. Optional ones follow while it has at most `optional` tokens; others
    are counted.
    """
    parts, left = _parameters(_Reader(schema), name, schema, optional)
    parts += [f"…{left} optional"] if left else []
    return f"{name}({', '.join(parts)})"


def stub(name: str, schema: Any, output: Any = None, optional: int = OPTIONAL) -> str:
    """Returns a tool as `async def name(required: type, optional: type = ...) -> type: ...`, as a program calls it.

    It has the same parameters as its signature. Those whose names are no Python identifiers are in a dict behind `**`.
    The return type comes from the output schema.
    """
    function = f"async def {identifier_of(name)}"
    parts, left = _parameters(_PythonReader(schema), function, schema, optional)
    others = [part for part in parts if part.startswith('"')]
    parts = [part for part in parts if part not in others] + ([f"**_: {{{', '.join(others)}}}"] if others else [])
    more = f"  # {left} optional parameters more" if left else ""
    return f"{function}({', '.join(parts)}){_returned(output)}: ...{more}"


def identifier_of(name: str) -> str:
    """Returns the name by which a program calls a tool: with `_` for each character not allowed in identifiers."""
    found = _NO_IDENTIFIER.sub("_", name)
    return f"_{found}" if not found or found[0].isdigit() or iskeyword(found) else found


def _parameters(reader: _Reader, name: str, schema: Any, optional: int) -> tuple[list[str], int]:
    """Returns the parameters of a tool, required ones first, and how many optional ones are left out."""
    properties, required = reader.properties(schema)
    parts = [reader.member(one, reader.type(properties.get(one, True)), required=True) for one in required]
    size = estimate_tokens(f"{name}({', '.join(parts)})")
    more = [one for one in properties if one not in set(required)]
    for number, one in enumerate(more):
        part = reader.member(one, reader.type(properties[one]), required=False)
        size += estimate_tokens(f", {part}")
        if size > optional:
            return parts, len(more) - number
        parts.append(part)
    return parts, 0


def _returned(output: Any) -> str:
    """Returns ` -> TYPE` for the result that a program gets from a tool, "" if the type is not known."""
    if not isinstance(output, dict):
        return ""
    reader = _PythonReader(output)
    properties, _ = reader.properties(output)
    value = properties["result"] if properties.keys() == {"result"} else output
    kind = reader.type(value)
    return f" -> {kind if estimate_tokens(kind) <= RETURNED else reader.type(value, MAX_DEPTH)}"


def summary(description: Any, limit: int = MAX_LINE) -> str:
    """Returns the first sentence of a description, on one line, with at most `limit` characters."""
    text = description.strip()[: 4 * limit] if isinstance(description, str) else ""
    line = " ".join(_SENTENCE.split(text, 1)[0].split())
    return printable(line, limit)


class _Reader:
    """Reads one schema, its own `$defs` included, and writes types as TypeScript does.

    A part of the schema that leads to itself is an `object`.
    """

    words: ClassVar[Mapping[str, str]] = {
        "string": "string", "integer": "integer", "number": "number", "boolean": "boolean", "null": "null",
    }  # fmt: skip
    any, object, rest = "any", "object", "…{} optional"

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = MAX_SCHEMA

    def member(self, name: str, kind: str, *, required: bool) -> str:
        """Returns a parameter with its type."""
        return f"{_name(name)}{'' if required else '?'}: {kind}"

    def values(self, values: Sequence[Any], more: int) -> str:
        """Returns the type of these values and of `more` ones that are left out."""
        return self.union([*map(_value, values)], more)

    def union(self, kinds: Iterable[str], more: int = 0) -> str:
        """Returns the union of these types and of `more` ones that are left out."""
        return " | ".join([*dict.fromkeys(kinds), *([f"…{more} more"] if more > 0 else [])])

    def array(self, of: str) -> str:
        """Returns the type of a list."""
        return f"({of})[]" if " | " in of else f"{of}[]"

    def members(self, required: Mapping[str, str], optional: Mapping[str, str], more: int) -> str:
        """Returns the type of an object with members of these types, and `more` optional ones that are left out."""
        parts = [self.inner(name, kind, required=True) for name, kind in required.items()]
        parts += [self.inner(name, kind, required=False) for name, kind in optional.items()]
        return f"{{{', '.join([*parts, *([self.rest.format(more)] if more > 0 else [])])}}}"

    def inner(self, name: str, kind: str, *, required: bool) -> str:
        """Returns a member of an object with its type."""
        return self.member(name, kind, required=required)

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
        """Returns the type that a schema describes."""
        self._left -= 1
        schema = self._resolved(schema)
        if not isinstance(schema, dict) or self._left < 0:
            return self.any
        if "const" in schema:
            return self.values([schema["const"]], 0)
        values = schema.get("enum")
        if isinstance(values, list) and values:
            return self.values(values[:MAX_VALUES], len(values) - MAX_VALUES)
        for several in ("anyOf", "oneOf"):
            of = schema.get(several)
            if isinstance(of, list) and of:
                return self.union([self.type(one, depth) for one in of[:MAX_VALUES]], len(of) - MAX_VALUES)
        kinds = schema.get("type")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        return self.union(self._one(kind, schema, depth) for kind in kinds) or self.any

    def _one(self, kind: Any, schema: Json, depth: int) -> str:
        if isinstance(kind, str) and kind in self.words:
            return self.words[kind]
        if kind == "array" or (kind is None and "items" in schema):
            items = schema.get("items")
            return self.array(
                self.type(items, depth + 1) if isinstance(items, dict) and depth < MAX_DEPTH else self.any
            )
        if kind == "object" or (kind is None and ("properties" in schema or "allOf" in schema)):
            properties, required = self.properties(schema)
            if not properties or depth >= MAX_DEPTH:
                return self.object
            more = [one for one in properties if one not in set(required)]
            return self.members(
                {one: self.type(properties.get(one, True), depth + 1) for one in required},
                {one: self.type(properties[one], depth + 1) for one in more[:MAX_VALUES]},
                len(more) - MAX_VALUES,
            )
        return self.any

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


class _PythonReader(_Reader):
    """Writes types as Python does; an object is a dict of its members' types."""

    words: ClassVar[Mapping[str, str]] = {
        "string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None",
    }  # fmt: skip
    any, object, rest = "Any", "dict", "...: Any"

    def member(self, name: str, kind: str, *, required: bool) -> str:
        """Returns a parameter with its type, or a member of a dict if its name is no Python identifier."""
        if not _IDENTIFIER.fullmatch(name) or iskeyword(name):
            return self.inner(name, kind, required=required)
        return f"{name}: {kind}" if required else f"{name}: {kind} = ..."

    def values(self, values: Sequence[Any], more: int) -> str:
        if not all(isinstance(one, str | bool | int | None) for one in values):
            return self.any
        written = (json.dumps(one, ensure_ascii=False) if isinstance(one, str) else repr(one) for one in values)
        return self.union([f"Literal[{', '.join(written)}]"], more)

    def union(self, kinds: Iterable[str], more: int = 0) -> str:
        return " | ".join(dict.fromkeys([*kinds, *([self.any] if more > 0 else [])]))

    def array(self, of: str) -> str:
        return f"list[{of}]"

    def inner(self, name: str, kind: str, *, required: bool) -> str:
        key = json.dumps(printable(name, len(name)), ensure_ascii=False)
        return f"{key}: {kind if required else f'NotRequired[{kind}]'}"


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(printable(name, len(name)), ensure_ascii=False)


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | int | float | bool | None) else "object"


class FoundTool:
    """A found tool, as search results show it.

    Args:
        wire: The tool as it is listed.
        note: A remark about it, such as its group.
        code: Whether it is shown as a stub, for programs, instead of a signature.
    """

    def __init__(self, wire: Json, note: str = "", *, code: bool = False) -> None:
        self.name = str(wire.get("name", ""))
        self._code = code
        self._wire = wire
        self._note = f" [{note}]" if note else ""

    def line(self) -> str:
        """Returns its name and the beginning of its description."""
        said = summary(self._wire.get("description") or self._wire.get("title"))
        return f"- {self.name}{self._note}: {said}" if said else f"- {self.name}{self._note}"

    def detailed(self) -> str:
        """Returns its signature or stub, and its first sentence."""
        said = summary(self._wire.get("description") or self._wire.get("title"), MAX_SAID)
        schema = self._wire.get("inputSchema")
        shown = stub(self.name, schema, self._wire.get("outputSchema")) if self._code else signature(self.name, schema)
        return f"- {shown}{self._note}\n  {said}" if said else f"- {shown}{self._note}"


def answer(head: str, tools: Sequence[FoundTool], signatures: int, budget: int) -> str:
    """Returns the tools found as a text of at most `budget` tokens: signatures of the best, lines of the others.

    A signature that does not fit becomes a line, and lines that do not fit are counted. Nothing is cut in the middle.
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
            return "\n".join([*parts, f"({len(tools) - number} more do not fit; ask for fewer at once)"])
        parts.append(shown)
        left -= cost
    return "\n".join(parts)


_SPARE: Final = 30
"""Tokens that are reserved for the last line."""
