"""The check passes exactly what a lenient server could accept; what fits the exact schema always passes."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings

from mcp_hub.schema.lenient_schema import MAX_DEPTH, make_exact, make_lenient
from tests.schema.generated_schemas import DRAFT_4, DRAFT_7, POOL, SCHEMAS, VALUES, compiled


def accepts(schema: Any, value: Any) -> bool:
    return jsonschema_rs.is_valid(make_lenient(schema), value)


PASSED = [
    ({"properties": {"a": {"type": "boolean"}}}, {"a": None}),
    ({"properties": {"a": {"enum": ["x"]}, "b": {"type": "string"}}, "required": ["b"]}, {"a": None, "b": "x"}),
    ({"properties": {"a": {"properties": {"b": {"type": "array"}}}}, "required": ["a"]}, {"a": {"b": None}}),
    (
        {"properties": {"a": {"properties": {"x": {"type": "integer"}}}, "b": {"$ref": "#/properties/a/properties/x"}}},
        {"a": None, "b": "7"},
    ),
    ({"items": {"properties": {"a": {"const": 1}}}}, [{"a": None}]),
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
    ({"enum": [1, 2]}, "2 "),
    ({"enum": [1, 2]}, True),
    ({"type": "integer"}, "1e2"),
    ({"type": "integer"}, "0x10"),
    ({"type": "integer"}, [1]),
    ({"type": "number"}, ["1"]),
    ({"type": "array"}, "a"),
    ({"type": "array", "items": {"type": "integer"}}, 1),
    ({"type": ["integer", "null"]}, "null"),
    ({"properties": {"a": {"type": "integer"}}}, {"a": "null"}),
    ({"properties": {"a": {"type": "integer", "default": 7}}, "required": ["a"]}, {}),
    ({"enum": ["1", "2"]}, 1),
    ({"const": True}, "true"),
    ({"type": "string", "format": "uri"}, "no uri"),
    ({"type": "string", "pattern": "^a$"}, "b"),
    ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, {"b": 1}),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "3"),
    ({"type": "object", "properties": {"type": {"type": "boolean"}, "enum": {"type": "integer"}}}, {"enum": "1"}),
    ({"type": "array", "prefixItems": [{"type": "integer"}], "items": False}, ["1", "more"]),
    ({"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}, {"a": "7"}),
    ({"components": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/components/n"}}}, {"a": "7"}),
    ({"properties": {"a": {"oneOf": [{"type": "integer"}]}, "b": {"$ref": "#/properties/a/oneOf/0"}}}, {"b": "7"}),
    ({"properties": {"a": {"not": {"type": "integer"}}, "b": {"$ref": "#/properties/a/not"}}}, {"b": "7"}),
    ({"patternProperties": {"^x": {"type": "array"}}, "additionalProperties": {"type": "integer"}}, {"x": [1]}),
    ({"type": "integer"}, True),
    ({"type": "integer"}, "1_000"),
    ({"type": "number"}, "Infinity"),
    ({"type": "boolean"}, "Y"),
    ({"type": "boolean"}, "OFF"),
    ({"enum": [[1, 2]]}, "[1, 2]"),
    ({"not": {"type": "string"}}, "3"),
    ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"b": 1}),
    ({"propertyNames": {"maxLength": 1}}, {"long": 1}),
    ({"if": {"type": "string"}, "then": False, "properties": {"a": {"type": "integer"}}}, "3"),
    ({"type": "array", "uniqueItems": True}, [1, 1]),
    ({"enum": [2]}, "2.0"),
    ({"type": "string", "enum": ["a"], "properties": {"enum": False}}, "a"),
    ({"$schema": DRAFT_7, "$ref": "#/definitions/n", "type": "array", "definitions": {"n": {"type": "integer"}}}, 3),
    ({"$schema": DRAFT_7, "type": "array", "items": [{"type": "integer"}], "additionalItems": False}, ["1", "more"]),
    ({"$schema": DRAFT_4, "maximum": 3, "exclusiveMaximum": True}, 2),
    ({"$schema": DRAFT_4, "type": "integer"}, 3.0),
    ({"$schema": DRAFT_4, "const": 3}, 4),
]
REFUSED = [
    ({"properties": {"a": {"type": "boolean"}}, "required": ["a"]}, {"a": None}),
    ({"properties": {"a": {"type": "boolean"}}}, {"a": [None]}),
    ({"properties": {"a": {"items": {"type": "boolean"}}}}, {"a": [None]}),
    ({"type": "string"}, ["a"]),
    ({"type": "string"}, {"a": 1}),
    ({"type": "string"}, None),
    ({"type": "integer"}, "three"),
    ({"type": "integer"}, 3.5),
    ({"type": "integer"}, "3.5"),
    ({"type": "boolean"}, "maybe"),
    ({"type": "array"}, {"a": 1}),
    ({"type": "object"}, [1]),
    ({"type": "integer"}, [1, 2]),
    ({"type": "integer"}, "null"),
    ({"enum": [1, 2]}, "3"),
    ({"enum": [2, 3]}, True),
    ({"properties": {"a": {"type": "integer"}, "b": {"default": 7}}, "required": ["a", "b"]}, {"b": 1}),
    ({"enum": ["a", "b"]}, "c"),
    ({"type": "integer", "maximum": 3}, 5),
    ({"type": "string", "minLength": 3}, "ab"),
    ({"required": ["a"]}, {}),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, [1]),
    ({"type": "array", "items": {"type": "integer"}}, ["x"]),
    ({"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}, {"a": "x"}),
    ({"type": "object", "properties": {"required": {"type": "array"}}}, {"required": {}}),
    ({"components": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/components/n"}}}, {"a": "x"}),
    ({"properties": {"pattern": {"type": "integer"}, "enum": {"enum": ["a"]}}}, {"pattern": []}),
    ({"properties": {"pattern": {"type": "integer"}, "enum": {"enum": ["a"]}}}, {"enum": "b"}),
    ({"additionalProperties": {"type": "integer"}}, {"x": "y"}),
    ({"$schema": DRAFT_7, "type": "array", "items": [{"type": "integer"}]}, ["x"]),
    ({"$schema": DRAFT_4, "maximum": 3, "exclusiveMaximum": True}, 3),
    ({"type": "number", "multipleOf": 2}, 3),
]


@pytest.mark.parametrize(("schema", "value"), PASSED)
def test_a_value_that_a_conversion_makes_valid_is_passed(schema: Any, value: Any) -> None:
    assert accepts(schema, value)


@pytest.mark.parametrize(("schema", "value"), REFUSED)
def test_a_value_that_no_conversion_makes_valid_is_refused(schema: Any, value: Any) -> None:
    assert not accepts(schema, value)


@given(schema=SCHEMAS)
@settings(suppress_health_check=[HealthCheck.filter_too_much])
def test_a_lenient_schema_accepts_all_that_the_strict_one_does(schema: Any) -> None:
    exact = compiled(schema)
    assume(exact is not None)
    loose, explaining = (
        jsonschema_rs.validator_for(make_lenient(schema)),
        jsonschema_rs.validator_for(make_exact(schema)),
    )
    for value in POOL:
        if exact.is_valid(value):
            assert loose.is_valid(value)
            assert explaining.is_valid(value)
        elif explaining.is_valid(value):
            assert loose.is_valid(value)


@given(schema=VALUES | SCHEMAS)
def test_making_any_json_lenient_does_not_modify_it(schema: Any) -> None:
    before = repr(schema)
    make_lenient(schema)
    make_exact(schema)
    assert repr(schema) == before


def test_a_lenient_schema_accepts_anything_below_its_depth_limit() -> None:
    schema: Any = {"type": "integer"}
    for _ in range(100_000):
        schema = {"properties": {"a": schema}, "required": ["a"]}
    copy = make_lenient(schema)
    for _ in range(MAX_DEPTH + 1):
        copy = copy["properties"]["a"]
    assert copy is True
