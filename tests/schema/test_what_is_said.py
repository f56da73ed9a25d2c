"""A refusal names the argument, what is wrong with it and what it should be, and no more than that."""

from __future__ import annotations

from typing import Any

import pytest

from tests.schema.checking import Tool

pytestmark = pytest.mark.anyio

MODES = ["lenient", "strict"]


def form(kind: str, size: str) -> dict[str, Any]:
    properties = {"kind": {"const": kind}, size: {"type": "number"}}
    return {"type": "object", "properties": properties, "required": ["kind", size]}


SEARCH = {
    "type": "object",
    "$defs": {"options": {"type": "object", "properties": {"deep": {"type": "boolean"}, "limit": {"type": "integer"}}}},
    "properties": {
        "query": {"type": "string"},
        "limit": {"anyOf": [{"type": "integer", "maximum": 10}, {"type": "null"}]},
        "sort": {"enum": ["new", "old"]},
        "items": {"type": "array", "items": {"type": "integer"}, "maxItems": 5},
        "options": {"anyOf": [{"$ref": "#/$defs/options", "required": ["deep"]}, {"type": "null"}]},
        "shape": {"oneOf": [form("circle", "radius"), form("square", "side")]},
        "even": {"type": "integer", "multipleOf": 2},
    },
    "required": ["query"],
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "query is missing"),
        ({"Query": "x"}, "query is missing (is 'Query' meant for it?)"),
        ({"qeury": "x"}, "query is missing (is 'qeury' meant for it?)"),
        ({"limit": 3, "zzz": 1}, "query is missing;"),
        ({"query": ["x"]}, "query must be a text, not a list"),
        ({"query": None}, "query must be a text, not null"),
        ({"query": "x", "limit": 11}, "limit must be at most 10, not 11"),
        ({"query": "x", "limit": []}, "limit must be a whole number or null, not a list"),
        ({"query": "x", "sort": "best"}, 'sort must be one of "new", "old", not "best"'),
        ({"query": "x", "items": [1, 2, "x"]}, 'items[2] must be a whole number, not a text "x"'),
        ({"query": "x", "items": [1] * 6}, "items must have at most so many members: 5"),
        ({"query": "x", "options": {"deeep": True}}, "options.deep is missing (is 'deeep' meant for it?)"),
        ({"query": "x", "options": {"deep": True, "limit": {}}}, "options.limit must be a whole number, not an object"),
        ({"query": "x", "shape": {"kind": "square"}}, "shape.side is missing"),
        ({"query": "x", "shape": {"kind": "circle", "radius": []}}, "shape.radius must be a number, not a list"),
        ({"query": "x", "even": 3}, "even must be a multiple of 2, not 3"),
    ],
)
async def test_a_refusal_names_the_place_the_problem_and_the_expected_value(
    arguments: dict[str, Any], said: str, mode: str
) -> None:
    outcome = await Tool(SEARCH, mode).call(arguments)
    assert outcome.asked == []
    assert not outcome.executed
    assert outcome.refused_by == f"validate_arguments: {mode}"
    assert said in str(outcome.refused)
    assert "it takes query: string (required)" in str(outcome.refused)


async def test_only_refused_values_are_reported() -> None:
    """The check accepts `"3"` for an integer, so the refusal does not mention it."""
    outcome = await Tool(SEARCH).call({"query": "x", "items": ["3", "y"], "options": {"deep": "true", "limit": []}})
    assert "items[1]" in str(outcome.refused)
    assert "options.limit" in str(outcome.refused)
    assert "items[0]" not in str(outcome.refused)
    assert "options.deep" not in str(outcome.refused)


async def test_only_a_few_problems_are_reported_in_a_short_text() -> None:
    schema = {
        "properties": {f"p{n:03}": {"type": "integer", "enum": [*range(100)]} for n in range(100)},
        "required": ["p099"],
    }
    wrong = {f"p{n:03}": "\x1b[31m" + "y" * 100 for n in range(99)}
    refused = str((await Tool(schema).call(wrong)).refused)
    assert refused.count(" must be ") + refused.count(" is missing") <= 5
    assert "and more" in refused
    assert "p099: integer (required)" in refused
    assert len(refused) < 5000
    assert "\x1b" not in refused


@pytest.mark.parametrize("mode", MODES)
async def test_long_values_and_values_of_presets_are_not_quoted(mode: str) -> None:
    schema = {
        "properties": {
            "token": {"type": "integer"},
            "auth": {"type": "object", "properties": {"key": {"enum": ["a"]}, "more": {"anyOf": [{"type": "array"}]}}},
            "n": {"type": "integer"},
        }
    }
    tools = {"t": {"preset": {"token": "tok-preset", "auth.key": "key-preset", "auth.more": "more-preset"}}}
    arguments = {
        "token": "tok-preset",
        "auth": {"key": "key-preset", "more": "more-preset"},
        "n": "long-" * 20,
    }
    refused = str((await Tool(schema, mode, tools=tools).call(arguments)).refused)
    assert "token" not in refused
    assert "auth." not in refused
    assert "n must be a whole number, not a text" in refused
    assert "-preset" not in refused
    assert "long-long-" not in refused


async def test_the_validation_mode_of_a_tool_is_set_by_its_last_pattern_else_by_its_server() -> None:
    rules = {"*": {"validate_arguments": "strict"}, "t": {"validate_arguments": "off"}}
    schema = {"properties": {"a": {"type": "integer"}}}
    assert (await Tool(schema, "strict", tools=rules).call({"a": []})).refused is None
    assert (await Tool(schema, "off", tools={"*": rules["*"]}).call({"a": "3"})).refused is not None
    assert (await Tool(schema, "strict").call({"a": "3"})).refused is not None


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({}, False),
        ({"command": None, "tools_dir": "/nowhere"}, True),
        ({"command": None, "builtin": "web"}, True),
        ({"command": None, "builtin": "web", "validate_arguments": "lenient"}, False),
    ],
)
async def test_local_and_built_in_tools_are_strict_by_default(settings: dict[str, Any], refused: bool) -> None:
    tool = Tool({"properties": {"a": {"type": "integer"}}}, **{"validate_arguments": None, **settings})
    assert ((await tool.call({"a": "3"})).refused is not None) == refused


async def test_strict_mode_ignores_formats_and_names_the_refused_arguments() -> None:
    tool = Tool({"properties": {"a": {"type": "string", "format": "uri"}}, "additionalProperties": False}, "strict")
    assert (await tool.call({"a": "no uri"})).refused is None
    assert "the tool does not take 'b'" in str((await tool.call({"a": "x", "b": 1})).refused)
