"""Portable schemas: providers take them, and they accept what the servers' own schemas accept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_hub.clients import Provider
from mcp_hub.protocol.frames import encode
from mcp_hub.schema import portable_schema as module
from mcp_hub.schema.portable_schema import portable_schema
from tests.schema.generated_schemas import DRAFT_4, DRAFT_7, PARTS, POOL, SCHEMAS, compiled
from tests.schema.provider_subsets import DRAFT_2020, REFUSED_BY
from tests.schema.refused_schemas import REFUSED

Json = dict[str, Any]
TARGETS: tuple[Provider | None, ...] = (*get_args(Provider), None)
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
STRING: Json = {"type": "string"}


def refused(schema: Json, target: Provider | None) -> list[str]:
    """What is refused by a provider, or by any of them."""
    return [reason for name, check in REFUSED_BY.items() if target in (name, None) for reason in check(schema)]


def argument(schema: Any, target: Provider | None = None, **root: Any) -> Any:
    """The rewritten schema of an argument."""
    return portable_schema({"type": "object", "properties": {"a": schema}, **root}, target)["properties"]["a"]


@pytest.mark.parametrize(("thread", "provider", "schema", "instances"), REFUSED, ids=[entry[0] for entry in REFUSED])
def test_a_schema_that_a_provider_refused_is_taken_by_all_and_accepts_the_same_arguments(
    thread: str, provider: str, schema: Json, instances: list[Json]
) -> None:
    assert REFUSED_BY[provider](schema)
    before = json.dumps(schema)
    for target in TARGETS:
        rewritten = portable_schema(schema, target)
        assert refused(rewritten, target) == []
        assert portable_schema(rewritten, target) is rewritten
        validator = compiled(rewritten)
        assert [value for value in instances if not validator.is_valid(value)] == []
    assert json.dumps(schema) == before


def livemcpbench() -> list[Json]:
    lines = Path(__file__).with_name("livemcpbench.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[1:]]


@pytest.mark.parametrize("target", TARGETS)
def test_no_schema_of_livemcpbench_is_refused(target: Provider | None) -> None:
    schemas = livemcpbench()
    assert len(schemas) > 400
    assert any(refused(schema, target) for schema in schemas)
    for schema in schemas:
        rewritten = portable_schema(schema, target)
        assert refused(rewritten, target) == []
        assert portable_schema(rewritten, target) is rewritten


ARGUMENTS = [
    *(value for value in POOL if isinstance(value, dict)),
    *({"a": value} for value in POOL),
    *({"b": value, "type": other} for value in POOL for other in (1, "a")),
]
OBJECTS = SCHEMAS.filter(lambda schema: isinstance(schema, dict)) | st.builds(
    lambda dialect, argument, others: {**dialect, "properties": {"a": argument}, **others},
    st.sampled_from([{}, *({"$schema": dialect} for dialect in (DRAFT_4, DRAFT_7, DRAFT_2019, DRAFT_2020))]),
    PARTS,
    st.fixed_dictionaries(
        {},
        optional={
            "$defs": st.fixed_dictionaries({"a": PARTS}),
            "definitions": st.fixed_dictionaries({"a": PARTS}),
            "additionalProperties": PARTS,
            "required": st.just(["a", "c d"]),
            "anyOf": st.lists(PARTS, min_size=1, max_size=3),
            "allOf": st.lists(PARTS, min_size=1, max_size=3),
        },
    ),
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much])
@given(OBJECTS)
def test_every_object_that_a_schema_accepts_is_accepted_by_its_portable_form(schema: Json) -> None:
    before = compiled(schema)
    accepted = [value for value in ARGUMENTS if before.is_valid(value)] if before is not None else []
    for target in TARGETS:
        rewritten = portable_schema(schema, target)
        assert refused(rewritten, target) == []
        assert portable_schema(rewritten, target) == rewritten
        after = compiled(rewritten)
        assert [value for value in accepted if not after.is_valid(value)] == []


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"$schema": DRAFT_7, "properties": {"a": {"$ref": "#/definitions/a", "type": "integer"}},
          "definitions": {"a": {}}}, {"a": "x"}),
        ({"patternProperties": {"^a": {}}, "additionalProperties": False}, {"ab": 1}),
        ({"anyOf": [{"properties": {"a": {"type": "string"}}}, {"required": ["b"]}]}, {"a": 1, "b": 1}),
        ({"$schema": DRAFT_4, "properties": {"a": {"const": "x"}}}, {"a": "y"}),
        ({"$schema": DRAFT_7, "properties": {"a": {"prefixItems": [{"type": "string"}], "maxItems": 1}}}, {"a": [1]}),
        ({"properties": {"a": {"prefixItems": [{"type": "string"}]}}}, {"a": ["x", 1]}),
        ({"properties": {"a": {"enum": [1]}}}, {"a": 1.0}),
        ({"allOf": [{"properties": {"a": True}}], "properties": {"a": {"minimum": 1}}}, {"a": "x"}),
    ],
)  # fmt: skip
def test_what_a_dialect_ignores_or_a_neighbour_allows_stays_allowed(schema: Json, value: Json) -> None:
    assert compiled(schema).is_valid(value)
    for target in TARGETS:
        assert compiled(portable_schema(schema, target)).is_valid(value)


PLAIN: Json = {
    "type": "object", "required": ["a"], "additionalProperties": False,
    "properties": {
        "a": {"type": "string", "description": "d", "enum": ["x", "y"], "default": "x"},
        "b": {"anyOf": [{"type": "array", "items": {"type": "integer", "minimum": 1}}, {"type": "null"}]},
        "c": {"type": "object", "additionalProperties": {"type": "number"}},
        "d": {},
    },
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_a_schema_that_the_provider_takes_is_the_same_object(target: Provider | None) -> None:
    assert portable_schema(PLAIN, target) is PLAIN


def test_anthropic_gets_what_draft_2020_12_allows_unchanged() -> None:
    schema: Json = {
        "$schema": DRAFT_7, "type": "object", "$defs": {"A": {"properties": {"next": {"$ref": "#/$defs/A"}}}},
        "properties": {
            "a": {"$ref": "#/$defs/A"}, "b": {"oneOf": [{"const": 1}, {"type": ["string", "null"], "pattern": "^a"}]},
            "c": True, "d": {"prefixItems": [{}], "exclusiveMinimum": 1, "not": {"enum": []}},
        },
    }  # fmt: skip
    assert portable_schema(schema, "anthropic") is schema
    assert portable_schema(schema, "openai") is not schema


@pytest.mark.parametrize(
    ("schema", "rewritten"),
    [
        ({"type": ["string", "null"]}, {"anyOf": [STRING, {"type": "null"}]}),
        ({"const": "x"}, {"type": "string", "enum": ["x"]}),
        ({"enum": ["x", None]}, {"anyOf": [{"type": "string", "enum": ["x"]}, {"type": "null"}]}),
        ({"enum": [1, 2]}, {"type": "integer", "description": "(enum: [1,2])"}),
        ({"type": "integer", "exclusiveMinimum": 0, "description": "d"},
         {"type": "integer", "minimum": 0, "description": "d (exclusiveMinimum: 0)"}),
        ({**STRING, "format": "uri", "pattern": "^h"}, {**STRING, "description": '(format: "uri"; pattern: "^h")'}),
        ({"type": "array", "items": [STRING, {"type": "null"}], "maxItems": 2},
         {"type": "array", "items": {"anyOf": [STRING, {"type": "null"}]}, "maxItems": 2}),
        ({"type": "array", "prefixItems": [STRING]}, {"type": "array", "items": {}}),
        ({"allOf": [{"type": "object", "properties": {"x": STRING}}, {"required": ["x"]}]},
         {"type": "object", "properties": {"x": STRING}, "required": ["x"]}),
        ({"$ref": "#/$defs/S", "description": "mine"}, {**STRING, "description": "mine"}),
        ({"$ref": "https://example.org/s.json"}, {}),
        ({"type": "object", "required": ["x"]}, {"type": "object", "properties": {"x": {}}, "required": ["x"]}),
        ({"oneOf": [STRING, True]}, {}),
        (True, {}),
    ],
)  # fmt: skip
def test_what_no_provider_takes_is_written_otherwise(schema: Any, rewritten: Json) -> None:
    assert argument(schema, **{"$defs": {"S": {**STRING, "description": "s"}}}) == rewritten


def test_alternatives_at_the_top_become_properties() -> None:
    branch: Json = {"additionalProperties": False, "required": ["kind"]}
    schema: Json = {"anyOf": [
        {**branch, "properties": {"kind": {"const": "a"}, "size": {"type": "integer"}}},
        {**branch, "properties": {"kind": {"const": "b"}, "size": STRING}},
    ]}  # fmt: skip
    assert portable_schema(schema, "openai") == {
        "type": "object", "required": ["kind"], "additionalProperties": False,
        "properties": {
            "kind": {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["b"]}]},
            "size": {"anyOf": [{"type": "integer"}, STRING]},
        },
    }  # fmt: skip


def test_arguments_that_a_provider_cannot_name_are_told_in_the_description() -> None:
    schema = {"type": "object", "properties": {"filter[id]": STRING}, "additionalProperties": False}
    assert portable_schema(schema, "openai") is schema
    for target in ("anthropic", None):
        rewritten = portable_schema(schema, target)
        assert rewritten["properties"] == {}
        assert "additionalProperties" not in rewritten
        assert rewritten["description"] == '(further arguments: {"filter[id]":{"type":"string"}})'


KEYWORDS = st.sampled_from([
    "$ref", "$schema", "$id", "$defs", "type", "enum", "const", "properties", "required", "additionalProperties",
    "items", "prefixItems", "additionalItems", "anyOf", "oneOf", "allOf", "minimum", "exclusiveMinimum", "minItems",
    "maxItems", "format", "pattern", "uniqueItems", "title", "description", "default", "patternProperties", "a",
])  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)
    | st.sampled_from(["object", "array", "string", "integer", "#", "#/properties/a", "#/a/b"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYWORDS, inner, max_size=5),
    max_leaves=20,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(KEYWORDS, VALUES, max_size=6))
def test_a_malformed_schema_becomes_one_that_providers_take(schema: Json) -> None:
    for target in TARGETS:
        rewritten = portable_schema(schema, target)
        assert refused(rewritten, target) == []
        assert portable_schema(rewritten, target) == rewritten


def _nested(schema: Json, times: int) -> Json:
    for _ in range(times):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def _hostile() -> Iterator[Json]:
    def object_of(**properties: Any) -> Json:
        return {"type": "object", "properties": properties}

    links = {f"d{n}": object_of(**{name: {"$ref": f"#/$defs/d{n + 1}"} for name in "abcd"}) for n in range(50)}
    yield {**object_of(a={"$ref": "#/$defs/d0"}), "$defs": {**links, "d50": STRING}}
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(5000)}
    yield {**object_of(a={"$ref": "#/$defs/d0"}), "$defs": {**chain, "d5000": STRING}}
    yield {**object_of(a={"$ref": "#"}, b={"$ref": "#/properties/b"}), "allOf": [{"$ref": "#"}]}
    yield object_of(a={"anyOf": [_nested(STRING, 400), {"allOf": [{"allOf": [{"anyOf": [STRING] * 3000}]}]}]})
    yield object_of(**{f"a{n}": object_of(b=STRING) for n in range(5000)})
    yield {**_nested(STRING, 300), "anyOf": [object_of(**{f"p{n}": STRING}) for n in range(300)]}
    large = {
        **STRING,
        "enum": [f"{n}" for n in range(50_000)],
        "description": "z" * 100_000,
        "default": ["y" * 100_000],
    }
    yield {**object_of(**{f"a{n}": {"$ref": "#/$defs/L"} for n in range(1000)}), "$defs": {"L": large}}
    yield {"anyOf": [{"$ref": "#/$defs/L"}] * 3000, "$defs": {"L": object_of(**{f"a{n}": True for n in range(5000)})}}
    yield object_of(a={**STRING, "enum": ["x" * 1000] * 3000, "pattern": "y" * 100_000, "default": "z" * 1000})
    distinct = [object_of(**{f"p{n}_{m}": True for m in range(80)}) for n in range(200)]
    yield {"allOf": [*distinct, *({"required": [f"r{n}_{m}" for m in range(9)]} for n in range(2000))]}
    yield object_of(a={**object_of(), "anyOf": distinct})


@pytest.mark.parametrize("schema", list(_hostile()), ids=range(11))
def test_a_hostile_schema_is_rewritten_in_bounded_size_and_work(schema: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[int] = []
    in_any, both = module._in_any, module._both

    def counting_in_any(branches: list[Json], name: str) -> Any:
        merged.append(len(branches))
        return in_any(branches, name)

    def counting_both(first: Json, second: Json) -> Json:
        merged.extend(len(facts.get(key, ())) for facts in (first, second) for key in ("properties", "required"))
        return both(first, second)

    monkeypatch.setattr(module, "_in_any", counting_in_any)
    monkeypatch.setattr(module, "_both", counting_both)
    for target in TARGETS:
        merged.clear()
        rewritten = portable_schema(schema, target)
        assert sum(merged) <= 2 * module._PER_UNIT * module.MAX_WORK
        assert refused(rewritten, target) == []
        assert len(encode(rewritten)) <= max(100 * module.MAX_WORK, 2 * len(encode(schema)))


def test_a_recursive_schema_shows_one_level() -> None:
    node: Json = {"type": "object", "properties": {"name": STRING, "next": {"$ref": "#/$defs/Node"}}}
    assert argument({"$ref": "#/$defs/Node"}, "gemini", **{"$defs": {"Node": node}}) == {
        "type": "object", "properties": {"name": STRING, "next": {"type": "object"}}
    }  # fmt: skip
