"""Signatures keep every required parameter and its type; answers keep within their tokens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog.token_estimate import estimate_tokens
from mcp_hub.search.signatures import RETURNED, FoundTool, answer, signature, stub, summary
from tests.search.schemas import check_signature, check_stub

TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null"])
NAMES = st.text("abcxyz_-$ é", min_size=1, max_size=8)


def objects(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    def with_required(properties: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
        names = st.lists(st.sampled_from(sorted(properties)), unique=True) if properties else st.just([])
        return names.map(lambda required: {"type": "object", "properties": properties, "required": required})

    return st.dictionaries(NAMES, parts, max_size=5).flatmap(with_required)


SCHEMAS = st.recursive(
    st.one_of(
        TYPES.map(lambda kind: {"type": kind}),
        st.lists(TYPES, min_size=1, max_size=3).map(lambda kinds: {"type": kinds}),
        st.lists(st.text(max_size=5) | st.integers(), min_size=1, max_size=15).map(lambda values: {"enum": values}),
        st.sampled_from([True, False, {}, {"const": 1}, {"$ref": "#"}, {"$ref": "#/properties/a"}, {"$ref": "x"}, 5]),
    ),
    lambda inner: st.one_of(
        inner.map(lambda items: {"type": "array", "items": items}),
        st.lists(inner, min_size=1, max_size=3).map(lambda of: {"anyOf": of}),
        objects(inner),
    ),
    max_leaves=12,
)


@given(objects(SCHEMAS))
def test_a_signature_of_any_schema_has_every_required_parameter_and_its_type(schema: dict[str, Any]) -> None:
    check_signature("server__tool", schema)


@given(st.text(max_size=20), objects(SCHEMAS), SCHEMAS | objects(SCHEMAS))
def test_a_stub_of_any_schema_is_python_with_every_required_parameter(name: str, schema: Any, output: Any) -> None:
    check_stub(name, schema, output)


POINT = {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}, "required": ["x"]}


@pytest.mark.parametrize(
    ("schema", "output", "shown"),
    [
        (
            {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["b"]},
            None,
            "(b: int, a: str = ...): ...",
        ),
        ({"properties": {"a": {"enum": ["x", 1, None]}}}, None, '(a: Literal["x", 1, None] = ...): ...'),
        ({"properties": {"a": {"type": ["boolean", "null"]}}}, None, "(a: bool | None = ...): ..."),
        (
            {"properties": {"from": {"type": "string"}, "x-y": POINT}, "required": ["from"]},
            None,
            '(**_: {"from": str, "x-y": NotRequired[{"x": float, "y": NotRequired[float]}]}): ...',
        ),
        ({}, {"type": "object", "properties": {"rows": {"items": POINT}}, "required": ["rows"]},
         '() -> {"rows": list[{"x": float, "y": NotRequired[float]}]}: ...'),
        ({}, {"type": "object", "properties": {"result": {"type": "array", "items": {"type": "integer"}}}},
         "() -> list[int]: ..."),
        ({}, {"type": "object", "properties": {f"member_{n}": POINT for n in range(RETURNED)}}, "() -> dict: ..."),
        (None, None, "(): ..."),
    ],
)  # fmt: skip
def test_a_stub_is_a_python_function_definition(schema: Any, output: Any, shown: str) -> None:
    assert stub("my-server__t", schema, output) == f"async def my_server__t{shown}"


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        (
            {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["b"]},
            "b: integer, a?: string",
        ),
        ({"properties": {"a": {"enum": ["x", "y"]}}}, 'a?: "x" | "y"'),
        ({"properties": {"a": {"type": "array", "items": {"type": "string"}}}}, "a?: string[]"),
        ({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, "a?: string | null"),
        (
            {
                "properties": {"a": {"$ref": "#/$defs/Point"}},
                "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
            },
            "a?: {x: number}",
        ),
        ({"allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}]}, "a: string"),
        ({"required": ["a"]}, "a: any"),
        ({}, ""),
        (None, ""),
    ],
)
def test_a_signature_has_the_form_of_a_declaration(schema: Any, shown: str) -> None:
    assert signature("t", schema) == f"t({shown})"


def test_a_recursive_schema_has_a_short_signature() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}, "required": ["next"]}
    text = signature("t", {"properties": {"n": {"$ref": "#/$defs/N"}}, "$defs": {"N": node}})
    assert text == "t(n?: {next: {next: {next: object}}})"


def test_a_union_that_leads_to_itself_has_a_short_signature() -> None:
    looped = {"anyOf": [{"$ref": "#/properties/a"}, {"type": "string"}]}
    assert signature("x", {"properties": {"a": looped}}) == "x(a?: string)"
    assert signature("x", {"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}] * 2}}}) == "x(a?: any)"
    nested: dict[str, Any] = {"type": "string"}
    for _ in range(400):
        nested = {"oneOf": [nested, {"type": "null"}]}
    assert signature("x", {"properties": {"a": nested}}) == "x(a?: string | null | …389 more)"


def test_optional_parameters_beyond_the_limit_are_counted() -> None:
    many = {f"option_number_{number}": {"type": "string"} for number in range(100)}
    text = signature("t", {"properties": {**many, "key": {"type": "string"}}, "required": ["key"]})
    assert text.startswith("t(key: string, option_number_0?: string")
    assert text.endswith("optional)")
    assert estimate_tokens(text) < 150


@given(
    st.lists(
        st.builds(
            lambda name, text, schema: {"name": name, "description": text, "inputSchema": schema},
            st.text("abc_", min_size=1, max_size=60),
            st.text(max_size=2000),
            objects(SCHEMAS),
        ),
        max_size=50,
    ),
    st.integers(0, 50),
)
def test_a_search_result_stays_within_its_token_limit(tools: list[dict[str, Any]], signatures: int) -> None:
    text = answer("Tools found:", [FoundTool(tool) for tool in tools], signatures, 1200)
    assert estimate_tokens(text) <= 1200
    assert "\u202e" not in text


def test_a_signature_that_does_not_fit_is_replaced_by_a_plain_line() -> None:
    large = {f"parameter_{number}": {"type": "string"} for number in range(400)}
    schema = {"type": "object", "properties": large, "required": list(large)}
    text = answer("Found:", [FoundTool({"name": "large", "description": "Much.", "inputSchema": schema})], 3, 1200)
    assert text == "Found:\n- large: Much."


def test_a_summary_is_one_printable_line() -> None:
    assert summary("Gets\n  the weather. And more.") == "Gets"
    assert summary("Gets the\tweather. And more.") == "Gets the weather."
    assert summary("x\u202ey") == "x\\u202ey"
    assert summary(None) == ""
    assert len(summary("word " * 100)) <= 101
