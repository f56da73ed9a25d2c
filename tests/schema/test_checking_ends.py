"""A schema made to take for ever, and arguments as large as they may be, hold nobody up; nothing raises.

The bounds on time are against hangs: each case is done in a hundredth of a second, or never.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog import Route
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.schema.compiled_schemas import MAX_COMPILED, MAX_EXPRESSIONS, MAX_SIZE, SchemaCache, schema_accepts
from mcp_hub.schema.schema_edits import without_property
from tests.fakes.client import PATIENCE
from tests.schema.checking import ROUTE, Tool

pytestmark = pytest.mark.anyio

MODES = ["lenient", "strict"]


def doubling(key: str, leaf: Any, times: int = 40) -> dict[str, Any]:
    """Returns a short schema that checks one value 2 ** times times."""
    parts: dict[str, Any] = {f"d{n}": {key: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(times)}
    return {"$defs": {**parts, f"d{times}": leaf}, "properties": {"a": {"$ref": "#/$defs/d0"}}}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"x": value}
    return value


NODE = {
    "$defs": {"n": {"properties": {"x": {"allOf": [{"$ref": "#/$defs/n"}] * 2}}}},
    "properties": {"a": {"$ref": "#/$defs/n"}},
}
INTEGERS = {"properties": {"a": {"type": "array", "items": {"type": "integer"}}}}
HOSTILE = r"^(?=((a+)+)+$)\1b"
NEVER_ENDING = {
    "all": (doubling("allOf", {"type": "integer"}), {"a": 1}),
    "any": (doubling("anyOf", {"type": "integer"}), {"a": []}),
    "one": (doubling("oneOf", {"type": "integer"}), {"a": 1}),
    "deeper and deeper": (NODE, {"a": nested(40)}),
    "too deep": ({"properties": {"a": {}}}, {"a": nested(500)}),
    "itself": ({"$ref": "#"}, {"a": 1}),
    "a circle": ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, {"a": 1}),
    "itself among others": ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"type": "object"}]}, {"a": 1}),
    "itself by name": ({"$dynamicAnchor": "n", "allOf": [{"$dynamicRef": "#n"}]}, {"a": 1}),
    "many members": (INTEGERS, {"a": list(range(2_000_000))}),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", NEVER_ENDING)
async def test_a_validation_that_would_take_too_long_is_skipped(case: str, mode: str) -> None:
    schema, arguments = NEVER_ENDING[case]
    tool = Tool(schema, mode)
    start = time.monotonic()
    outcome = await tool.call(arguments)
    assert time.monotonic() - start < PATIENCE
    assert outcome.refused is None
    assert outcome.asked[0] is arguments
    assert len(outcome.notes) == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("schema", "arguments", "said"),
    [
        (INTEGERS, {"a": [[]] * 50_000}, "a[0] must be a whole number"),
        (INTEGERS, {"a": [1] * 50_000 + [[]]}, "too large to say where"),
        (doubling("anyOf", {"type": "integer"}, 12), {"a": []}, "too large to say where"),
        ({"properties": {"b": {"type": "integer"}}, "required": ["b"]}, {"a": "x" * 1_000_000}, "b is missing"),
    ],
)
async def test_large_invalid_arguments_are_refused_with_a_time_limited_explanation(
    schema: Any, arguments: Any, said: str, mode: str
) -> None:
    start = time.monotonic()
    outcome = await Tool(schema, mode).call(arguments)
    assert time.monotonic() - start < PATIENCE
    assert outcome.refused is not None
    assert said in outcome.refused
    assert len(outcome.refused) < 3000
    assert outcome.asked == []


@pytest.mark.parametrize("text", ["a" * 60 + "!", "a" * 50_000 + "!"])
async def test_a_regular_expression_that_exceeds_its_budget_refuses_nothing(text: str) -> None:
    alternatives = {"anyOf": [{"type": "string", "pattern": HOSTILE}, {"type": "null"}]}
    for schema in ({"type": "string", "pattern": HOSTILE}, alternatives):
        outcome = await Tool({"properties": {"a": schema}}, "strict").call({"a": text})
        assert outcome.refused is None
        assert len(outcome.asked) == 1


async def test_regular_expressions_are_checked_in_strict_mode() -> None:
    tool = Tool({"properties": {"a": {"type": "string", "pattern": "^(?=x)[a-z]+$"}}}, "strict")
    assert (await tool.call({"a": "xyz"})).refused is None
    assert "a must match" in str((await tool.call({"a": "abc"})).refused)


async def test_a_schema_too_large_or_with_too_many_expressions_is_not_used() -> None:
    large = {"properties": {"a": {"type": "integer", "description": "x" * MAX_SIZE}}, "required": ["a"]}
    many = {"properties": {f"p{n}": {"pattern": f"^{n}$"} for n in range(MAX_EXPRESSIONS + 1)}, "required": ["a"]}
    for schema in (large, many):
        outcome = await Tool(schema, "strict").call({})
        assert outcome.refused is None
        assert not outcome.checked
        assert not schema_accepts(schema, {"a": 1})
    # A lenient reading does not use regular expressions.
    assert "a is missing" in str((await Tool(many).call({})).refused)


async def test_a_recursive_schema_is_checked() -> None:
    tree = {
        "$defs": {"node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["name"],
        }},
        "properties": {"root": {"$ref": "#/$defs/node"}},
    }  # fmt: skip
    for mode in MODES:
        fits = await Tool(tree, mode).call({"root": {"name": "a", "children": [{"name": "b", "children": []}]}})
        assert fits.refused is None
        assert fits.checked
        broken = await Tool(tree, mode).call({"root": {"name": "a", "children": [{"name": "b"}, {}]}})
        assert "root.children[1].name is missing" in str(broken.refused)


async def test_the_cache_of_schemas_is_bounded() -> None:
    schemas = SchemaCache()
    definitions = [{"type": "object", "properties": {"a": {"type": "integer"}}} for _ in range(MAX_COMPILED + 1)]
    compiled = [
        await schemas.compiled(Route("s", TOOLS, str(n)), schema, "strict") for n, schema in enumerate(definitions)
    ]
    assert await schemas.compiled(Route("s", TOOLS, str(MAX_COMPILED)), definitions[-1], "strict") is compiled[-1]
    assert await schemas.compiled(Route("s", TOOLS, "0"), definitions[0], "strict") is not compiled[0]


async def test_only_a_changed_schema_is_compiled_again() -> None:
    schemas = SchemaCache()
    original, changed = {"type": "object"}, {"type": "object", "required": ["a"]}
    first = await schemas.compiled(ROUTE, original, "strict")
    assert await schemas.compiled(ROUTE, original, "strict") is first
    second = await schemas.compiled(ROUTE, changed, "strict")
    assert second is not None
    assert not second.accepts({})


async def test_an_unusable_schema_is_logged_in_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    tool = Tool({"properties": {"a": {"type": "\x1b[31mnonsense\n" + "x" * 5000}}}, "strict")
    with caplog.at_level(logging.WARNING, "mcp_hub.policy"):
        for _ in range(3):
            assert (await tool.call({"a": 1})).refused is None
    (record,) = caplog.records
    message = record.getMessage()
    assert message.startswith("s: arguments of t are not checked")
    assert len(message) < 500
    assert re.fullmatch(r"[^\x00-\x1f]*", message)


KEYS = st.sampled_from([
    "type", "properties", "items", "allOf", "anyOf", "oneOf", "not", "if", "then", "$ref", "$defs", "definitions",
    "$id", "$schema", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "required", "enum", "const",
    "patternProperties", "additionalProperties", "prefixItems", "pattern", "minimum", "a", "dependencies",
    "unevaluatedProperties", "propertyNames", "dependentSchemas", "x/y", "",
])  # fmt: skip
STRINGS = st.sampled_from([
    "object", "array", "integer", "string", "#", "#/$defs/a", "#/a", "#/properties/a", "#a", "a", "(", "^a", "\ud800",
    "http://127.0.0.1:1/x", "file:///x", "#/%2Fa", "#/$defs/~1", "http://json-schema.org/draft-07/schema#", "",
])  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 10**30]) | STRINGS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(schema=st.dictionaries(KEYS, ANYTHING, max_size=5), arguments=st.dictionaries(KEYS, ANYTHING, max_size=3))
@pytest.mark.parametrize("mode", MODES)
async def test_validation_never_raises_and_never_changes_arguments(mode: str, schema: Any, arguments: Any) -> None:
    before = repr(arguments)
    outcome = await Tool(schema, mode).call(arguments)
    assert repr(arguments) == before
    if outcome.refused is None:
        assert outcome.asked[0] is arguments
    else:
        assert outcome.asked == []


@pytest.mark.parametrize("path", [("token",), ("[]", "token")])
def test_a_preset_is_removed_from_a_schema_with_endless_references_in_limited_time(path: tuple[str, ...]) -> None:
    own = {"properties": {"token": {}, "kept": {}}}
    refs = {"anyOf": [{"$ref": "#/$defs/a"}] * 8}
    schema = {**own, **refs, "$defs": {"a": {**own, **refs, "items": refs}}, "items": {**own, **refs}}
    began = time.monotonic()
    reduced = without_property(schema, path, schema)
    assert time.monotonic() - began < PATIENCE
    level_schema = reduced if path == ("token",) else reduced["items"]
    assert level_schema["properties"] == {"kept": {}}


@pytest.mark.parametrize("reference", ["#/$defs/of%20it", "#/$defs/of it", "#/anyOf/0", "#/%24defs/of it"])
def test_a_preset_is_removed_behind_every_spelling_of_a_reference(reference: str) -> None:
    target = {"properties": {"token": {}, "kept": {}}}
    schema = {"properties": {"of": {"$ref": reference}}, "$defs": {"of it": target}, "anyOf": [target]}
    reduced = without_property(schema, ("of", "token"), schema)
    assert reduced["properties"]["of"]["properties"] == {"kept": {}}
