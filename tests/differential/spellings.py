"""Arguments as models write them: one valid call of each tool, and calls that differ from it in one value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]

_MAX_DEPTH = 4
_OF_TYPE: Mapping[str, Any] = {
    "string": "a",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "null": None,
    "array": [],
    "object": {},
}
_OF_FORMAT: Mapping[str, str] = {
    "date": "2026-01-02",
    "date-time": "2026-01-02T03:04:05Z",
    "time": "03:04:05",
    "duration": "PT1H",
    "uuid": "6fa459ea-ee8a-3ca4-894e-db77e160355e",
    "uri": "http://127.0.0.1:9/",
    "email": "me@example.invalid",
    "path": "a",
    "binary": "YQ==",
}
PROBES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, -1, 3.0, 2.5, 10**20, "", " ", "a", "3", " 3 ", "3.0", "+3", "-3", "03", "1e2"),
    *("0.5", ".5", "1_000", "0x10", "1,5", "inf", "NaN", "true", "True", "TRUE", "yes", "off", "t", "null", "None"),
    *("2026-01-02", "2026-01-02T03:04:05", "20260102", "a,b", "[]", '["a"]', "[1]", "{}", '{"a": 1}'),
    *([], ["a"], [1], ["1"], [None], [[]], {}, {"a": 1}, {"x": 1}, {"0": "a"}, {"type": "a"}),
)
"""Values of every type, tried in the place of every argument."""


def _resolved(schema: Any, root: Json) -> Json:
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, dict) or not isinstance(reference := schema.get("$ref"), str):
            break
        target: Any = root
        for step in reference.removeprefix("#").split("/")[1:]:
            target = target.get(step, {})
        schema = target
    return schema if isinstance(schema, dict) else {}


def _types(schema: Json) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else list(kinds)


def valid(schema: Any, root: Json, values: Mapping[str, Any], name: str = "", depth: int = 0) -> Any:
    """A value that the schema accepts, that of its name in `values` if there is one."""
    schema = _resolved(schema, root)
    if name in values:
        return [values[name]] if "array" in _types(schema) and not isinstance(values[name], list) else values[name]
    for key in ("const", "default"):
        if schema.get(key) is not None:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return valid(schema[key][0], root, values, name, depth)
    kind = next(iter(_types(schema)), "object" if "properties" in schema else "string")
    if kind == "object":
        return valid_object(schema, root, values, depth + 1)
    if kind == "array":
        prefix = schema.get("prefixItems") or []
        items = prefix or [schema.get("items", {})] * max(1, schema.get("minItems", 1))
        return [valid(item, root, values, "", depth + 1) for item in items] if depth < _MAX_DEPTH else []
    if kind == "string":
        return _OF_FORMAT.get(schema.get("format", ""), "a" * max(1, schema.get("minLength", 1)))
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    if kind == "number" and least is not None:
        return least + 0.25
    return least if kind == "integer" and least is not None else schema.get("multipleOf", _OF_TYPE[kind])


def valid_object(schema: Json, root: Json, values: Mapping[str, Any], depth: int = 0) -> Json:
    """A valid object with all members that are required, and those that `values` has."""
    required, members = schema.get("required", []), schema.get("properties", {})
    keys = [key for key in members if key in required or key in values]
    return {key: valid(members[key], root, values, key, depth) for key in keys}


def calls(schema: Json, values: Mapping[str, Any]) -> Iterator[Json]:
    """Yields arguments: valid ones with and without what is optional, then each of them changed in one place."""
    least = valid_object(schema, schema, values)
    full = {key: valid(member, schema, values, key) for key, member in schema.get("properties", {}).items()}
    yield least
    yield full
    yield {**least, "unknown": 1}
    yield {**full, "unknown": {"a": [None]}}
    yield from _without_one(least)
    yield {key: json.dumps(value) if isinstance(value, dict | list) else value for key, value in full.items()}
    yield {key: None if key not in least else value for key, value in full.items()}
    for key, inner in schema.get("properties", {}).items():
        for value in varied(inner, schema, values, full[key]):
            yield {**least, key: value}


def varied(schema: Any, root: Json, values: Mapping[str, Any], usual: Any, depth: int = 0) -> Iterator[Any]:
    """Yields other values for one argument: other spellings of its usual value, and values of every type."""
    schema = _resolved(schema, root)
    yield from spelled(usual)
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from varied(branch, root, values, valid(branch, root, values, "", depth), depth)
    for item in schema.get("enum", ()):
        yield from spelled(item)
    yield from PROBES
    if depth >= _MAX_DEPTH:
        return
    if isinstance(usual, list):
        items = schema.get("items") if isinstance(schema.get("items"), dict) else {}
        yield from ([*usual, *usual], usual[:1] * 5, dict(enumerate(usual)), usual[0] if usual else None)
        for item in varied(items, root, values, usual[0] if usual else valid(items, root, values), depth + 1):
            yield [item]
    elif isinstance(usual, dict):
        yield {**usual, "unknown": 1}
        yield from _without_one(usual)
        for key, inner in schema.get("properties", {}).items():
            for item in varied(inner, root, values, valid(inner, root, values, key), depth + 1):
                yield {**usual, key: item}


def _without_one(members: Json) -> Iterator[Json]:
    for key in members:
        yield {name: value for name, value in members.items() if name != key}


def spelled(value: Any) -> Iterator[Any]:
    """Yields what a model may write for a value."""
    yield value
    if isinstance(value, str):
        yield from (value.upper(), value.title(), f" {value} ", [value], value.encode().hex(), json.dumps(value))
    elif isinstance(value, bool):
        yield from (str(value), str(value).lower(), int(value), str(int(value)), float(value))
    elif isinstance(value, int | float):
        yield from (str(value), float(value), f"{value} ", [value], f"{float(value)}")
    elif isinstance(value, dict | list):
        yield from (json.dumps(value), [value], str(value))
