"""What a generous server could read as valid is passed and nothing else; what fits the exact schema always is."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mcp_hub.loosening import loosened


def accepts(schema: Any, value: Any) -> bool:
    return jsonschema_rs.is_valid(loosened(schema), value)


PASSED = [
    ({"type": "integer"}, "3"),
    ({"type": "integer"}, " -3.0 "),
    ({"type": "integer"}, 3.0),
    ({"type": "number"}, "1e3"),
    ({"type": "boolean"}, "true"),
    ({"type": "boolean"}, 0),
    ({"type": "string"}, 3),
    ({"type": "string"}, True),
    ({"type": "array", "items": {"type": "integer"}}, "[1, 2]"),
    ({"type": "object"}, '{"a": 1}'),
    ({"type": ["integer", "null"]}, "3"),
    ({"enum": [1, 2]}, "1"),
    ({"enum": ["1", "2"]}, 1),
    ({"const": True}, "true"),
    ({"type": "string", "format": "uri"}, "no uri"),
    ({"type": "string", "pattern": "^a$"}, "b"),
    ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, {"b": 1}),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "3"),
    ({"type": "object", "properties": {"type": {"type": "boolean"}, "enum": {"type": "integer"}}}, {"enum": "1"}),
    ({"type": "array", "prefixItems": [{"type": "integer"}], "items": False}, ["1", "more"]),
    ({"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}, {"a": "7"}),
]
REFUSED = [
    ({"type": "string"}, ["a"]),
    ({"type": "string"}, {"a": 1}),
    ({"type": "string"}, None),
    ({"type": "integer"}, "three"),
    ({"type": "integer"}, 3.5),
    ({"type": "integer"}, "3.5"),
    ({"type": "boolean"}, "maybe"),
    ({"type": "array"}, "a"),
    ({"type": "array"}, {"a": 1}),
    ({"type": "object"}, [1]),
    ({"enum": ["a", "b"]}, "c"),
    ({"type": "integer", "maximum": 3}, 5),
    ({"type": "string", "minLength": 3}, "ab"),
    ({"required": ["a"]}, {}),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, [1]),
    ({"type": "array", "items": {"type": "integer"}}, ["x"]),
    ({"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}, {"a": "x"}),
    ({"type": "object", "properties": {"required": {"type": "array"}}}, {"required": 1}),
]


@pytest.mark.parametrize(("schema", "value"), PASSED)
def test_what_could_be_read_as_valid_is_passed(schema: Any, value: Any) -> None:
    assert accepts(schema, value)


@pytest.mark.parametrize(("schema", "value"), REFUSED)
def test_what_no_reading_makes_valid_is_refused(schema: Any, value: Any) -> None:
    assert not accepts(schema, value)


NAMES = st.sampled_from(["a", "b", "type", "enum", "pattern", "properties", "required", "$ref"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([0.5, "a", "b", "3", "true", "[1]", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"properties": st.dictionaries(NAMES, inner, max_size=3)},
        optional={
            "type": st.just("object"),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
        },
    )


SCHEMAS = st.recursive(
    st.booleans()
    | st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"])
            | st.just(["string", "null"]),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "minimum": st.integers(-3, 3),
            "maxLength": st.integers(0, 3),
            "pattern": st.just("^a"),
            "uniqueItems": st.booleans(),
        },
    )
    | st.builds(lambda value: {"const": value}, VALUES),
    lambda inner: (
        _objects(inner)
        | st.builds(lambda one: {"type": "array", "items": one}, inner)
        | st.builds(
            lambda key, branches: {key: branches},
            st.sampled_from(["allOf", "anyOf", "oneOf"]),
            st.lists(inner, min_size=1, max_size=3),
        )
        | st.builds(lambda one: {"not": one}, inner)
        | st.builds(lambda one, two: {"if": one, "then": two}, inner, inner)
    ),
    max_leaves=6,
)


@given(schema=SCHEMAS, value=VALUES)
@settings(max_examples=600, deadline=None, derandomize=True)
def test_a_loosened_schema_accepts_all_that_the_exact_one_does(schema: Any, value: Any) -> None:
    assume(jsonschema_rs.is_valid(schema, value))
    assert accepts(schema, value)


@given(schema=VALUES | SCHEMAS)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_any_json_can_be_loosened_and_stays_as_it_was(schema: Any) -> None:
    before = repr(schema)
    loosened(schema)
    assert repr(schema) == before
