"""An item that can be made valid without changing its meaning is mended and listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import mcp_types
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcp_hub.catalog import Catalog
from mcp_hub.protocol.kinds import MAX_NAME, PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind, name_of
from tests.catalog.test_catalog import OBJECT, page, source, tool
from tests.catalog.test_soundness import FULL, ODD, TYPES, changed, member_paths
from tests.fakes.client import RpcError, fake, hub

ANY_OF = [{"required": ["a"]}, {"required": ["b"]}]
SCHEMAS: list[tuple[Any, dict[str, Any]]] = [
    (None, OBJECT),
    ({}, OBJECT),
    (True, OBJECT),
    ([], OBJECT),
    ({"properties": {"a": {}}}, {**OBJECT, "properties": {"a": {}}}),
    ({"properties": []}, {**OBJECT, "properties": {}}),
    ({"properties": {"a": "text"}}, {**OBJECT, "properties": {"a": {}}}),
    ({"type": None, "required": "a"}, OBJECT),
    ({"type": ["null", "object"]}, OBJECT),
    ({"type": "OBJECT"}, OBJECT),
    ({"anyOf": ANY_OF}, {**OBJECT, "anyOf": ANY_OF}),
    ({"oneOf": ANY_OF}, {**OBJECT, "oneOf": ANY_OF}),
    ({"allOf": ANY_OF}, {**OBJECT, "allOf": ANY_OF}),
    ({"$ref": "#/$defs/a", "$defs": {"a": OBJECT}}, {**OBJECT, "$ref": "#/$defs/a", "$defs": {"a": OBJECT}}),
]
ITEMS: list[tuple[Kind, dict[str, Any], dict[str, Any]]] = [
    (TOOLS, tool("x", outputSchema=True, description="d"), tool("x", description="d")),
    (TOOLS, tool("x", description=1, _meta="m", execution=[]), tool("x")),
    (TOOLS, tool("x", annotations={"readOnlyHint": "yes", "title": "T"}), tool("x", annotations={"title": "T"})),
    (TOOLS, tool("x", icons=["i", {"src": "data:,"}]), tool("x", icons=[{"src": "data:,"}])),
    (RESOURCES, {"uri": "x://y"}, {"uri": "x://y", "name": "x://y"}),
    (RESOURCES, {"uri": "x://y", "title": "T"}, {"uri": "x://y", "title": "T", "name": "T"}),
    (RESOURCES, {"uri": "x://y", "name": "x", "size": 1.5}, {"uri": "x://y", "name": "x"}),
    (RESOURCES, {"uri": "x://y", "name": "x", "annotations": {"priority": 7}},
     {"uri": "x://y", "name": "x", "annotations": {}}),
    (TEMPLATES, {"uriTemplate": "x://{y}"}, {"uriTemplate": "x://{y}", "name": "x://{y}"}),
    (PROMPTS, {"title": "T"}, {"title": "T", "name": "T"}),
    (PROMPTS, {"name": "x", "arguments": {}}, {"name": "x"}),
    (PROMPTS, {"name": "x", "arguments": [{"title": 1}, {"name": "a", "required": 1}]},
     {"name": "x", "arguments": [{"name": "a"}]}),
]  # fmt: skip


def listed(kind: Kind, *items: Any) -> list[dict[str, Any]]:
    """The items of a server without a namespace as clients get them."""
    catalog = Catalog.build([source("s", *items, kind=kind, namespace="")])
    result: list[dict[str, Any]] = page(catalog, kind)[kind.result_key]
    return result


@pytest.mark.parametrize(("schema", "mended"), SCHEMAS)
def test_a_tool_whose_input_schema_allows_objects_is_listed_with_that_type(schema: Any, mended: Any) -> None:
    tools = [{"name": "x", "inputSchema": schema}, {"name": "y"} if schema is None else tool("y")]
    first, second = listed(TOOLS, *tools)
    assert first == {"name": "x", "inputSchema": mended}
    assert second["inputSchema"] == OBJECT
    mcp_types.Tool.model_validate(first)


@pytest.mark.parametrize(("kind", "item", "mended"), ITEMS)
def test_what_does_not_fit_is_dropped_from_the_item_and_a_missing_name_is_made(
    kind: Kind, item: dict[str, Any], mended: dict[str, Any]
) -> None:
    before = json.dumps(item)
    assert listed(kind, item) == [mended]
    assert json.dumps(item) == before
    TYPES[kind].model_validate(mended)


@pytest.mark.parametrize("kind", [TOOLS, RESOURCES, TEMPLATES, PROMPTS])
@given(data=st.data())
def test_only_an_unusable_name_or_schema_leaves_an_item_out(kind: Kind, data: st.DataObject) -> None:
    item = FULL[kind]
    for _ in range(data.draw(st.integers(1, 3))):
        item = changed(item, data.draw(st.sampled_from(member_paths(item))), data.draw(st.sampled_from(ODD)))
    name, schema = item[kind.name_key], item.get("inputSchema")
    is_schema = not schema or schema is True or (isinstance(schema, dict) and schema.get("type") in (None, "object"))
    is_uri = not kind.by_uri or name == FULL[kind][kind.name_key] or kind is TEMPLATES
    assume(is_schema and is_uri and name_of(kind, item))
    (wire,) = listed(kind, item)
    TYPES[kind].model_validate(wire)


@pytest.mark.parametrize("length", [MAX_NAME, MAX_NAME + 1])
def test_a_title_that_becomes_the_name_of_a_prompt_is_no_longer_than_a_name(length: int) -> None:
    assert len(listed(PROMPTS, {"title": "x" * length})) == (length <= MAX_NAME)


WORDS = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
TYPE = st.sampled_from(["object", "string", "null", ["object", "null"], ["string", "object"]])
SUB = st.recursive(
    st.booleans()
    | st.fixed_dictionaries({}, optional={"type": TYPE, "enum": st.lists(VALUES, min_size=1, max_size=3)}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": TYPE,
            "properties": st.dictionaries(WORDS, inner, max_size=2),
            "required": st.lists(WORDS, max_size=2, unique=True),
            "additionalProperties": inner,
            **{key: st.lists(inner, min_size=1, max_size=2) for key in ("anyOf", "oneOf", "allOf")},
            "not": inner,
        },
    ),
    max_leaves=6,
)


@given(schema=SUB, arguments=st.dictionaries(WORDS, VALUES, max_size=3))
def test_every_argument_that_was_valid_stays_valid(schema: Any, arguments: dict[str, Any]) -> None:
    if not jsonschema_rs.is_valid(schema, arguments):
        return
    (wire,) = listed(TOOLS, {"name": "x", "inputSchema": schema})
    assert jsonschema_rs.is_valid(wire["inputSchema"], arguments)


def test_all_tools_of_server_filesystem_are_listed() -> None:
    tools = json.loads(Path(__file__).with_name("server_filesystem.json").read_text())["tools"]
    wires = listed(TOOLS, *tools)
    assert [wire["name"] for wire in wires] == [one["name"] for one in tools]
    assert len(wires) == 14
    assert all(wire["inputSchema"]["type"] == "object" for wire in wires)


@pytest.mark.anyio
async def test_mended_items_are_called_by_what_their_server_knows(tmp_path: Path) -> None:
    lists = tmp_path / "lists.json"
    tools = [{"name": "either", "inputSchema": {"anyOf": ANY_OF}}, {"name": "bare"}]
    items = {"tools": tools, "prompts": [{"title": "The prompt"}], "resources": [{"uri": "x://y", "title": "Y"}]}
    lists.write_text(json.dumps(items))
    for _ in range(2):  # without and with a kept catalog
        async with hub(tmp_path, {"up": fake("--lists", str(lists))}) as client:
            assert {"up__either", "up__bare"} <= set(await client.tool_names())
            assert await client.text("up__bare") == "called bare"
            assert await client.text("up__either", {"b": 1}) == "called either"
            refused = await client.call("up__either", {"c": 1})
            assert refused["_meta"]["mcp-hub/error"]["code"] == "invalid_parameters"
            (prompt,) = (await client.request("prompts/list"))["prompts"]
            assert await client.request("prompts/get", {"name": prompt["name"]})
            assert (await client.request("resources/list"))["resources"][0]["name"] == "Y"
            with pytest.raises(RpcError):
                await client.request("prompts/get", {"name": "up__none"})
