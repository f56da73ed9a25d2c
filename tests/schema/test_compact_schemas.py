"""Compact schemas accept what the whole ones do, and are shorter."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mcp_hub.schema.compact_schema import MAX_DEPTH, change_schemas, compact_schema
from mcp_hub.schema.compiled_schemas import CompiledSchema
from tests.schema.generated_schemas import DRAFT_4, DRAFT_7, PARTS, POOL, SCHEMAS, compiled

Json = dict[str, Any]

OBJECT: Json = {"type": "object", "properties": {"a": {"type": "integer"}}}
NODE: Json = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    ("schema", "compact"),
    [
        ({**OBJECT, "title": "A", "$comment": "c", "examples": [{}]}, OBJECT),
        ({"properties": {"title": {"title": "T"}, "examples": {}}}, {"properties": {"title": {}, "examples": {}}}),
        ({"properties": {"a": {"default": None}, "b": {"default": 0}}}, {"properties": {"a": {}, "b": {"default": 0}}}),
        ({"const": {"title": "T"}, "enum": [{"title": "T"}]}, {"const": {"title": "T"}, "enum": [{"title": "T"}]}),
        ({**OBJECT, "required": [], "additionalProperties": True}, OBJECT),
        ({**OBJECT, "additionalProperties": False}, {**OBJECT, "additionalProperties": False}),
        ({**OBJECT, "$schema": DRAFT_7}, OBJECT),
        ({**OBJECT, "$schema": DRAFT_2020}, OBJECT),
        ({**OBJECT, "$schema": DRAFT_4}, {**OBJECT, "$schema": DRAFT_4}),
        ({"$schema": DRAFT_7, "items": [{}]}, {"$schema": DRAFT_7, "items": [{}]}),
        ({**OBJECT, "$defs": {"Unused": {"type": "string"}}}, OBJECT),
        (
            {"properties": {"a": {"$ref": "#/$defs/A", "description": "d"}}, "$defs": {"A": {"type": "string"}}},
            {"properties": {"a": {"type": "string", "description": "d"}}},
        ),
        ({"$schema": DRAFT_7, "$ref": "#/definitions/A", "definitions": {"A": OBJECT}}, OBJECT),
        (
            {"properties": {"a": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": {**NODE, "title": "Node"}}},
            {"properties": {"a": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": NODE}},
        ),
        (
            {
                "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/B"}},
                "$defs": {"A": {"enum": ["x"], "title": "A"}, "B": {"enum": ["x"], "title": "B"}},
            },
            {"properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"enum": ["x"]}}},
        ),
    ],
)
def test_a_compact_schema_omits_keywords_that_do_not_help_a_model(schema: Json, compact: Json) -> None:
    before = json.dumps(schema)
    assert compact_schema(schema) == compact
    assert json.dumps(schema) == before


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#/$defs/A/properties/x"}}, "$defs": {"A": {"properties": {"x": {}}}, "B": {}}},
        {"properties": {"a": {"$ref": "other.json"}}, "$defs": {"A": {}}},
        {"properties": {"a": {"$ref": "#named"}}, "$defs": {"A": {"$anchor": "named"}}},
        {"$id": "https://a/b", "properties": {"a": {"$ref": "https://a/b#/$defs/A"}}, "$defs": {"A": {}}},
        {"properties": {"a": {"$ref": "#/$defs/A", "minimum": 1}}, "$defs": {"A": {"type": "integer"}}},
        {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": True}},
        {"additionalProperties": True, "allOf": [{}], "unevaluatedProperties": False},
    ],
)
def test_a_schema_whose_meaning_could_change_is_not_compacted(schema: Json) -> None:
    assert compact_schema(schema) is schema


def _remarked(schema: Json) -> Json:
    meta: Json = {"title": "T", "description": "d", "$comment": "c", "examples": [1], "default": None, "required": []}
    return {**meta, "additionalProperties": True, "minLength": 0, "uniqueItems": False, **schema}


DEFINITIONS = st.sampled_from(["a", "b", "c"])
SIMPLE = st.recursive(
    st.builds(lambda name: {"$ref": f"#/$defs/{name}"}, DEFINITIONS)
    | st.just({"$ref": "#"})
    | st.builds(lambda name: {"$ref": f"#/$defs/{name}", "description": "of it"}, DEFINITIONS)
    | st.builds(lambda name: {"$ref": f"#/$defs/{name}", "maximum": 1}, DEFINITIONS)
    | st.sampled_from([{"type": "integer"}, {"type": "string"}, {"type": "integer", "title": "N"}, {"const": 1}]),
    lambda inner: (
        st.builds(lambda subschema: {"type": "object", "properties": {"a": subschema}, "required": ["a"]}, inner)
        | st.builds(lambda a, b: {"properties": {"a": a, "b": b}, "unevaluatedProperties": False}, inner, inner)
        | st.builds(lambda subschema: {"type": "array", "items": subschema}, inner)
        | st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner)
    ),
    max_leaves=4,
)
WITH_DEFINITIONS = st.builds(
    lambda root, definitions, dialect: {**root, "$defs": definitions, **dialect},
    SIMPLE,
    st.fixed_dictionaries({"a": SIMPLE, "b": SIMPLE, "c": SIMPLE}),
    st.sampled_from([{}, {"$schema": DRAFT_7}, {"$schema": DRAFT_2020}]),
)


def _accepted(schema: Any) -> list[bool] | None:
    validator = compiled(schema)
    return None if validator is None else [validator.is_valid(value) for value in POOL]


@given(schema=SCHEMAS | WITH_DEFINITIONS | PARTS)
@settings(suppress_health_check=[HealthCheck.filter_too_much])
def test_a_compact_schema_accepts_exactly_what_the_whole_one_does(schema: Any) -> None:
    assume(isinstance(schema, dict))
    assume(_accepted(schema) is not None)
    for variant in (schema, change_schemas(schema, _remarked)):
        expected = _accepted(variant)
        if expected is None:
            continue  # the oldest dialect does not allow an empty `required`
        before = json.dumps(variant)
        compact = compact_schema(variant)
        assert _accepted(compact) == expected
        assert len(json.dumps(compact)) <= len(before) == len(json.dumps(variant))


def test_a_schema_nested_too_deeply_is_not_compacted() -> None:
    schema: Json = {"type": "integer", "title": "T"}
    for _ in range(MAX_DEPTH + 1):
        schema = {"properties": {"a": schema}}
    assert compact_schema(schema) is schema
    chain = {str(number): {"items": {"$ref": f"#/$defs/{number + 1}"}} for number in range(5000)}
    long: Json = {"items": {"$ref": "#/$defs/0"}, "$defs": {**chain, "5000": {}}}
    assert compact_schema(long) is long


def test_compiled_validators_agree_on_whole_and_compact_schemas() -> None:
    schema = {**OBJECT, "title": "T", "$schema": DRAFT_7, "$defs": {"B": {}}, "additionalProperties": False}
    for mode in ("strict", "lenient"):
        full, compact = CompiledSchema(schema, mode), CompiledSchema(compact_schema(schema), mode)
        for value in POOL:
            assert full.accepts(value) == compact.accepts(value)
