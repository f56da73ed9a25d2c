"""Generated schemas of all dialects, and values to validate with them."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
from hypothesis import strategies as st

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
NAMES = st.sampled_from(["a", "b", "type", "enum", "pattern", "properties", "required", "$ref"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([0.5, "a", "b", "3", "true", "[1]", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


REFERENCES = st.sampled_from([
    "#", "#/$defs/a", "#/definitions/a", "#/properties/a", "#/properties/b/not", "#/oneOf/0", "#/allOf/0",
    "#/components/a", "#/patternProperties/^a", "#/items", "#/additionalProperties", "#/properties/type",
])  # fmt: skip


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"properties": st.dictionaries(NAMES, inner, max_size=3)},
        optional={
            "type": st.just("object"),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "."]), inner, max_size=2),
            "propertyNames": inner,
            "unevaluatedProperties": inner,
            "dependentRequired": st.just({"a": ["b"]}),
            "dependentSchemas": st.dictionaries(NAMES, inner, max_size=1),
            "maxProperties": st.integers(0, 2),
        },
    )


def _lists(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={
            "items": inner | st.lists(inner, max_size=2),
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "additionalItems": inner,
            "unevaluatedItems": inner,
            "contains": inner,
            "minItems": st.integers(0, 2),
            "uniqueItems": st.booleans(),
        },
    )


PARTS = st.recursive(
    st.booleans()
    | st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"])
            | st.just(["string", "null"]),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "minimum": st.integers(-3, 3),
            "exclusiveMaximum": st.integers(-3, 3) | st.booleans(),
            "multipleOf": st.sampled_from([2, 0.5]),
            "maxLength": st.integers(0, 3),
            "pattern": st.just("^a"),
        },
    )
    | st.builds(lambda value: {"const": value}, VALUES)
    | st.builds(lambda reference: {"$ref": reference}, REFERENCES),
    lambda inner: (
        _objects(inner)
        | _lists(inner)
        | st.fixed_dictionaries(
            {"patternProperties": st.fixed_dictionaries({"^a": inner}), "additionalProperties": inner}
        )
        | st.builds(
            lambda key, branches: {key: branches},
            st.sampled_from(["allOf", "anyOf", "oneOf"]),
            st.lists(inner, min_size=1, max_size=3),
        )
        | st.builds(lambda subschema: {"not": subschema}, inner)
        | st.builds(lambda condition, branch: {"if": condition, "then": branch}, inner, inner)
        | st.builds(lambda subschema, reference: {**subschema, "$ref": reference}, _objects(inner), REFERENCES)
    ),
    max_leaves=6,
)
SCHEMAS = PARTS | st.fixed_dictionaries(
    {"properties": st.dictionaries(NAMES, PARTS, max_size=3)},
    optional={
        "$schema": st.sampled_from([DRAFT_4, DRAFT_7]),
        "$defs": st.fixed_dictionaries({"a": PARTS}),
        "definitions": st.fixed_dictionaries({"a": PARTS}),
        "components": st.fixed_dictionaries({"a": PARTS}),
        "patternProperties": st.fixed_dictionaries({"^a": PARTS}),
        "oneOf": st.lists(PARTS, min_size=1, max_size=2),
    },
)


ATOMS: list[Any] = [None, True, False, 0, 1, 2, 3, -1, 2.5, 3.0, "", "a", "ab", "abcd", "b", "3", "true", "[1]", "{}"]
POOL: list[Any] = [
    *ATOMS,
    *([atom] for atom in ATOMS),
    *({name: atom} for name in ("a", "b", "type") for atom in ATOMS),
    *([1, item] for item in (1, "a", [], {})),
    *({"a": first, "b": second} for first in (1, "a", []) for second in (2, "b", {})),
    [], {}, [1, 2, 3], [[1], [1]], {"a": {"a": 1}}, {"a": ["a"], "$ref": "#"}, {"a": [[]], "enum": {"b": []}},
]  # fmt: skip


def compiled(schema: Any) -> Any:
    """Returns a validator, or None for an invalid schema."""
    try:
        return jsonschema_rs.validator_for(schema, offline=True)
    except ValueError:
        return None
