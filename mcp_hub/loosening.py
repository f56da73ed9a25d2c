"""A schema that also accepts what a server would make valid by reading it generously.

Many servers take `"3"` for 3 and `"true"` for true, and models write so. What no reading could make valid stays
refused: a list for a text, a value that an enum does not have, a missing argument.
"""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]
Schema = Json | bool

MAX_DEPTH: Final = 100

_DROPPED: Final = frozenset({
    "$schema", "$comment", "pattern", "format", "unevaluatedProperties", "unevaluatedItems", "additionalItems",
    "patternProperties", "propertyNames", "not", "if", "then", "else", "dependentSchemas", "dependencies",
    "contentEncoding", "contentMediaType", "contentSchema", "uniqueItems", "contains", "minContains", "maxContains",
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
})  # fmt: skip
"""Say nothing about a value, or in a way that a generous reading could turn round; expressions differ by dialect."""
_MAPS: Final = frozenset({"properties", "$defs", "definitions"})
_LISTS: Final = frozenset({"allOf", "anyOf", "prefixItems"})

_AN_INTEGER: Final = {"type": "string", "pattern": r"^\s*[+-]?[0-9]+(\.0*)?\s*$"}
_A_NUMBER: Final = {"type": "string", "pattern": r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"}
_A_BOOLEAN: Final = {
    "enum": ["true", "false", "True", "False", "TRUE", "FALSE", "yes", "no", "on", "off", "1", "0", 1, 0]
}
_SPELLED: Final[dict[str, list[Json]]] = {
    "integer": [_AN_INTEGER],
    "number": [_A_NUMBER],
    "boolean": [_A_BOOLEAN],
    "string": [{"type": ["number", "boolean"]}],
    "array": [{"type": "string", "pattern": r"^\s*\["}],
    "object": [{"type": "string", "pattern": r"^\s*\{"}],
    "null": [],
}
"""What may stand for a value of a type. The texts of lists and objects are JSON, which some servers parse."""


def loosened(schema: Any, depth: int = 0) -> Schema:
    """A schema that accepts all that `schema` does, and what could be read as such. Nothing is changed in place."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return schema if isinstance(schema, bool) else True
    found: Json = {}
    also: list[Schema] = []
    for key, value in schema.items():
        if key in _DROPPED:
            continue
        if key in _MAPS and isinstance(value, dict):
            found[key] = {name: loosened(inner, depth + 1) for name, inner in value.items()}
        elif key in _LISTS and isinstance(value, list):
            found[key] = [loosened(inner, depth + 1) for inner in value]
        elif key == "oneOf" and isinstance(value, list):
            # Two readings may fit now where one did before.
            also.append({"anyOf": [loosened(inner, depth + 1) for inner in value]})
        elif key in ("items", "additionalProperties"):
            _add_inner(found, key, value, depth)
        elif key == "type":
            also.extend(_types(value))
        elif key == "enum" and isinstance(value, list):
            found[key] = [spelling for one in value for spelling in _spellings(one)]
        elif key == "const":
            also.append({"enum": _spellings(value)})
        else:
            found[key] = value
    if also:
        before = found.get("allOf")
        found["allOf"] = [*(before if isinstance(before, list) else []), *also]
    return found


def _add_inner(found: Json, key: str, value: Any, depth: int) -> None:
    """What `false` forbids, extra members, a server may as well ignore."""
    if isinstance(value, list):
        found[key] = [loosened(inner, depth + 1) for inner in value]
    elif value is not False:
        found[key] = loosened(value, depth + 1)


def _types(value: Any) -> list[Schema]:
    names = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    known = [name for name in names if isinstance(name, str) and name in _SPELLED]
    if not known or len(known) != len(names):
        return []
    return [{"anyOf": [{"type": known}, *(other for name in known for other in _SPELLED[name])]}]


def _spellings(value: Any) -> list[Any]:
    """A value of an enum and what may be written for it, without doubles."""
    if isinstance(value, bool):
        word = str(value).lower()
        return [value, word, word.title(), word.upper(), str(int(value)), int(value)]
    if isinstance(value, int | float):
        return [value, str(value)]
    if isinstance(value, str):
        return [value, *_read(value)]
    return [value]


def _read(text: str) -> list[Any]:
    if text in ("true", "false"):
        return [text == "true"]
    try:
        return [int(text)] if len(text) < 20 else []
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return []
    return [number] if number == number and abs(number) != float("inf") else []
