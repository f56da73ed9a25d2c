"""Texts about found tools for a model: lines, signatures or Python stubs, in a bounded number of tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from keyword import iskeyword
from typing import Any, ClassVar, Final

from mcp_hub.catalog.token_estimate import estimate_tokens
from mcp_hub.schema.lenient_schema import pointed_to
from mcp_hub.text import printable

Json = Mapping[str, Any]

MAX_DEPTH: Final = 3
"""Objects within objects that are written out."""
MAX_VALUES: Final = 12
"""Values of an enumeration that are written out."""
MAX_LINE: Final = 100
"""Characters of a description on a line."""
MAX_DESCRIPTION: Final = 300
"""Characters of a description beside a signature."""
OPTIONAL: Final = 120
"""Tokens up to which optional parameters are added to a signature."""
MAX_SCHEMA: Final = 2000
"""Parts of a schema that are read. As many names of members as `_NAMES_PER_PART` count as a part."""
_NAMES_PER_PART: Final = 20
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
    parts, omitted = _parameters(_Reader(schema), name, schema, optional)
    parts += [f"…{omitted} optional"] if omitted else []
    return f"{name}({', '.join(parts)})"


def stub(name: str, schema: Any, output: Any = None, optional: int = OPTIONAL) -> str:
    """Returns a tool as `async def name(required: type, optional: type = ...) -> type: ...`, as a program calls it.

    It has the same parameters as its signature. Those whose names are no Python identifiers are in a dict behind `**`.
    The return type comes from the output schema.
    """
    function = f"async def {identifier_of(name)}"
    parts, omitted = _parameters(_PythonReader(schema), function, schema, optional)
    dict_members = [part for part in parts if part.startswith('"')]
    parts = [part for part in parts if part not in dict_members] + (
        [f"**_: {{{', '.join(dict_members)}}}"] if dict_members else []
    )
    comment = f"  # {omitted} optional parameters more" if omitted else ""
    return f"{function}({', '.join(parts)}){_return_annotation(output)}: ...{comment}"


def identifier_of(name: str) -> str:
    """Returns the name by which a program calls a tool: with `_` for each character not allowed in identifiers."""
    identifier = _NO_IDENTIFIER.sub("_", name)
    return f"_{identifier}" if not identifier or identifier[0].isdigit() or iskeyword(identifier) else identifier


def _parameters(reader: _Reader, name: str, schema: Any, optional: int) -> tuple[list[str], int]:
    """Returns the parameters of a tool, required ones first, and how many optional ones are left out."""
    properties, required = reader.properties(schema)
    parts = [
        reader.member(parameter, reader.type(properties.get(parameter, True)), required=True)
        for parameter in islice(required, MAX_SCHEMA)  # so many fit no answer anyway
    ]
    size = estimate_tokens(f"{name}({', '.join(parts)})")
    optional_names = [parameter for parameter in properties if parameter not in required]
    for number, parameter in enumerate(optional_names):
        part = reader.member(parameter, reader.type(properties[parameter]), required=False)
        size += estimate_tokens(f", {part}")
        if size > optional:
            return parts, len(optional_names) - number
        parts.append(part)
    return parts, 0


def _return_annotation(output: Any) -> str:
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

    A part of the schema that leads to itself is an `object`. Unions within unions are one union.
    """

    type_names: ClassVar[Mapping[str, str]] = {
        "string": "string", "integer": "integer", "number": "number", "boolean": "boolean", "null": "null",
    }  # fmt: skip
    any, object, omission = "any", "object", "…{} optional"

    def __init__(self, root: Any) -> None:
        self._root = root
        self._budget = MAX_SCHEMA

    def member(self, name: str, kind: str, *, required: bool) -> str:
        """Returns a parameter with its type."""
        return f"{_member_name(name)}{'' if required else '?'}: {kind}"

    def values(self, values: Sequence[Any], omitted: int) -> str:
        """Returns the type of these values; `omitted` further ones are left out."""
        return self.union([*map(_literal, values)], omitted)

    def union(self, kinds: Iterable[str], omitted: int = 0) -> str:
        """Returns the union of these types; `omitted` further ones are left out."""
        return " | ".join([*dict.fromkeys(kinds), *([f"…{omitted} more"] if omitted > 0 else [])])

    def array(self, item_type: str) -> str:
        """Returns the type of a list."""
        return f"({item_type})[]" if " | " in item_type else f"{item_type}[]"

    def members(self, required: Mapping[str, str], optional: Mapping[str, str], omitted: int) -> str:
        """Returns the type of an object with members of these types; `omitted` optional ones are left out."""
        parts = [self.inner(name, kind, required=True) for name, kind in required.items()]
        parts += [self.inner(name, kind, required=False) for name, kind in optional.items()]
        return f"{{{', '.join([*parts, *([self.omission.format(omitted)] if omitted > 0 else [])])}}}"

    def inner(self, name: str, kind: str, *, required: bool) -> str:
        """Returns a member of an object with its type."""
        return self.member(name, kind, required=required)

    def properties(self, schema: Any) -> tuple[dict[str, Any], dict[str, None]]:
        """Returns ({name: schema}, required names as keys) of an object, with what `allOf` and `$ref` add."""
        merged: dict[str, Any] = {}
        required: dict[str, None] = {}
        pending: list[Any] = [schema]
        seen: set[int] = set()
        while pending and self._budget > 0:
            part = self._resolved(pending.pop(0))
            self._budget -= 1
            if not isinstance(part, dict) or id(part) in seen:
                continue
            seen.add(id(part))
            properties, names, parts = part.get("properties"), part.get("required"), part.get("allOf")
            if isinstance(properties, dict):
                self._budget -= len(properties) // _NAMES_PER_PART
                merged |= {str(name): value for name, value in properties.items() if name not in merged}
            if isinstance(names, list):
                self._budget -= len(names) // _NAMES_PER_PART
                required |= dict.fromkeys(name for name in names if isinstance(name, str))
            pending += parts if isinstance(parts, list) else []
        return merged, required

    def type(self, schema: Any, depth: int = 0) -> str:
        """Returns the type that a schema describes."""
        self._budget -= 1
        schema = self._resolved(schema)
        if not isinstance(schema, dict) or self._budget < 0:
            return self.any
        if "const" in schema:
            return self.values([schema["const"]], 0)
        values = schema.get("enum")
        if isinstance(values, list) and values:
            return self.values(values[:MAX_VALUES], len(values) - MAX_VALUES)
        if _options(schema):
            alternatives = self._alternatives(schema)
            written = [self.type(part, depth) for part in alternatives[:MAX_VALUES]]
            return self.union(written, len(alternatives) - MAX_VALUES) or self.any
        kinds = schema.get("type")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        return self.union(self._single_type(kind, schema, depth) for kind in kinds) or self.any

    def _alternatives(self, union: Json) -> list[Any]:
        """Returns the alternatives of a union, and in place of a union among them its own; none twice."""
        alternatives: list[Any] = []
        pending: list[Any] = [union]
        visited: set[int] = set()
        while pending and self._budget > 0:
            part = self._resolved(pending.pop())
            if id(part) in visited:
                continue
            self._budget -= 1
            visited.add(id(part))
            options = _options(part)
            pending += reversed(options)
            alternatives += [] if options else [part]
        return alternatives

    def _single_type(self, kind: Any, schema: Json, depth: int) -> str:
        if isinstance(kind, str) and kind in self.type_names:
            return self.type_names[kind]
        if kind == "array" or (kind is None and "items" in schema):
            items = schema.get("items")
            return self.array(
                self.type(items, depth + 1) if isinstance(items, dict) and depth < MAX_DEPTH else self.any
            )
        if kind == "object" or (kind is None and ("properties" in schema or "allOf" in schema)):
            properties, required = self.properties(schema)
            if not properties or depth >= MAX_DEPTH:
                return self.object
            optional_names = [name for name in properties if name not in required]
            return self.members(
                {name: self.type(properties.get(name, True), depth + 1) for name in required},
                {name: self.type(properties[name], depth + 1) for name in optional_names[:MAX_VALUES]},
                len(optional_names) - MAX_VALUES,
            )
        return self.any

    def _resolved(self, schema: Any) -> Any:
        for _ in range(MAX_DEPTH):
            pointer = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(pointer, str) or not pointer.startswith("#"):
                break
            schema = pointed_to(self._root, pointer)
        return schema


class _PythonReader(_Reader):
    """Writes types as Python does; an object is a dict of its members' types."""

    type_names: ClassVar[Mapping[str, str]] = {
        "string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None",
    }  # fmt: skip
    any, object, omission = "Any", "dict", "...: Any"

    def member(self, name: str, kind: str, *, required: bool) -> str:
        """Returns a parameter with its type, or a member of a dict if its name is no Python identifier."""
        if not _IDENTIFIER.fullmatch(name) or iskeyword(name):
            return self.inner(name, kind, required=required)
        return f"{name}: {kind}" if required else f"{name}: {kind} = ..."

    def values(self, values: Sequence[Any], omitted: int) -> str:
        if not all(isinstance(value, str | bool | int | None) for value in values):
            return self.any
        literals = (
            json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value) for value in values
        )
        return self.union([f"Literal[{', '.join(literals)}]"], omitted)

    def union(self, kinds: Iterable[str], omitted: int = 0) -> str:
        return " | ".join(dict.fromkeys([*kinds, *([self.any] if omitted > 0 else [])]))

    def array(self, item_type: str) -> str:
        return f"list[{item_type}]"

    def inner(self, name: str, kind: str, *, required: bool) -> str:
        key = json.dumps(printable(name, len(name)), ensure_ascii=False)
        return f"{key}: {kind if required else f'NotRequired[{kind}]'}"


def _options(schema: Any) -> list[Any]:
    """Returns the alternatives of a schema that is a union; none if it is something else."""
    if isinstance(schema, dict) and "const" not in schema and not schema.get("enum"):
        for keyword in ("anyOf", "oneOf"):
            options = schema.get(keyword)
            if isinstance(options, list) and options:
                return options
    return []


def _member_name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(printable(name, len(name)), ensure_ascii=False)


def _literal(value: Any) -> str:
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
        self.wire = wire
        self._note = f" [{note}]" if note else ""

    def line(self) -> str:
        """Returns its name and the beginning of its description."""
        sentence = summary(self.wire.get("description") or self.wire.get("title"))
        return f"- {self.name}{self._note}: {sentence}" if sentence else f"- {self.name}{self._note}"

    def detailed(self) -> str:
        """Returns its signature or stub, and its first sentence."""
        sentence = summary(self.wire.get("description") or self.wire.get("title"), MAX_DESCRIPTION)
        schema = self.wire.get("inputSchema")
        declaration = (
            stub(self.name, schema, self.wire.get("outputSchema")) if self._code else signature(self.name, schema)
        )
        return f"- {declaration}{self._note}\n  {sentence}" if sentence else f"- {declaration}{self._note}"


def answer(head: str, tools: Sequence[FoundTool], signatures: int, budget: int) -> str:
    """Returns the tools found as a text of at most `budget` tokens: signatures of the best, lines of the others.

    A signature that does not fit becomes a line, and lines that do not fit are counted. Nothing is cut in the middle.
    """
    parts, remaining, number = [head], budget - estimate_tokens(head) - _SPARE, 0
    lines = [tool.line() for tool in tools]
    costs = [estimate_tokens(line) + 1 for line in lines]
    for number, tool in enumerate(tools):
        text, cost = lines[number], costs[number]
        if number < signatures:
            details = tool.detailed()
            details_cost = estimate_tokens(details) + 1
            if details_cost <= remaining - min(sum(costs[number + 1 :]), remaining // 3):
                text, cost = details, details_cost
        if cost > remaining:
            return "\n".join([*parts, f"({len(tools) - number} more do not fit; ask for fewer at once)"])
        parts.append(text)
        remaining -= cost
    return "\n".join(parts)


_SPARE: Final = 30
"""Tokens that are reserved for the last line."""
