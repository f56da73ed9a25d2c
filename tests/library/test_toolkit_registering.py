"""AgentScope's Toolkit: what models are told of a tool, and how tools are registered."""

from __future__ import annotations

import functools
from typing import Any, Literal

import pytest

from mcp_hub import Toolkit, ToolResponse
from tests.library.toolkits import Point, add, names, parameters, said, text

pytestmark = pytest.mark.anyio


def test_function_schemas_equal_those_of_agentscope() -> None:
    toolkit = Toolkit()
    toolkit.register_tool_function(add)
    assert toolkit.get_json_schemas() == [
        {
            "type": "function",
            "function": {
                "name": "add",
                "description": "Add two numbers.\nExactly.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "a": {"type": "integer", "description": "The first one."},
                        "b": {"type": "integer", "description": "The second one.", "default": 2},
                    },
                    "required": ["a"],
                },
            },
        }
    ]
    registered = toolkit.tools["add"]
    assert (registered.name, registered.group, registered.source, registered.original_func) == (
        "add", "basic", "function", add,
    )  # fmt: skip
    toolkit.close()


async def test_namesakes_are_refused_left_out_replaced_or_renamed(toolkit: Toolkit) -> None:
    """Check 37."""

    def other(a: int) -> ToolResponse:
        return said("other")

    other.__name__ = "add"
    toolkit.register_tool_function(add)
    with pytest.raises(ValueError, match=r"^A function with name 'add' is already registered in the toolkit\.$"):
        toolkit.register_tool_function(other)
    toolkit.register_tool_function(other, namesake_strategy="skip")
    assert await text(toolkit, "add", a=1) == "3"
    toolkit.register_tool_function(other, namesake_strategy="rename")
    assert names(toolkit) == ["add", "add_2"]
    assert toolkit.tools["add_2"].original_name == "add"
    assert (await text(toolkit, "add", a=1), await text(toolkit, "add_2", a=1)) == ("3", "other")
    toolkit.register_tool_function(other, namesake_strategy="override")
    assert names(toolkit) == ["add", "add_2"]
    assert await text(toolkit, "add", a=1) == "other"
    with pytest.raises(ValueError, match="strategy"):
        toolkit.register_tool_function(other, namesake_strategy="other")  # type: ignore[arg-type]
    async with Toolkit() as again:  # after a restart
        for _ in range(2):
            again.register_tool_function(add, namesake_strategy="rename")
        assert names(again) == ["add", "add_2"]


async def test_a_schema_by_hand_is_used_and_titles_go_but_not_properties_of_that_name(
    toolkit: Toolkit,
) -> None:
    """Check 41."""

    def wrapper(**arguments: Any) -> ToolResponse:
        return said(str(arguments))

    properties = {"title": {"type": "string", "title": "Title"}, "query": {"type": "string"}}
    schema = {
        "type": "function",
        "function": {
            "name": "search",
            "description": "By hand.",
            "parameters": {"type": "object", "properties": properties, "required": ["query"]},
        },
    }
    toolkit.register_tool_function(wrapper, json_schema=schema)
    assert parameters(toolkit, "search")["properties"] == {"title": {"type": "string"}, "query": {"type": "string"}}
    assert await text(toolkit, "search", query="q", title="t") == "{'query': 'q', 'title': 't'}"
    wrong: list[Any] = [{"type": "function"}, {"type": "function", "function": []}, {"name": "search"}]
    for bad in wrong:
        with pytest.raises(TypeError):
            toolkit.register_tool_function(wrapper, json_schema=bad)
    assert names(toolkit) == ["search"]


async def test_presets_and_partial_arguments_are_hidden_and_override(
    toolkit: Toolkit, caplog: pytest.LogCaptureFixture
) -> None:
    secret = object()

    def send(to: str, key: Any, user: str = "nobody") -> ToolResponse:
        return said(f"{to} {key is secret} {user}")

    toolkit.register_tool_function(send, preset_kwargs={"key": secret, "user": "me"}, func_description="Said.")
    assert list(parameters(toolkit, "send")["properties"]) == ["to"]
    assert toolkit.get_json_schemas()[0]["function"]["description"] == "Said."
    assert await text(toolkit, "send", to="x", user="theirs", key=1) == "x True me"
    assert "dropped" in caplog.text
    assert "theirs" not in caplog.text
    toolkit.register_tool_function(functools.partial(send, "y", secret), func_name="bound")
    assert list(parameters(toolkit, "bound")["properties"]) == ["user"]
    assert toolkit.tools["bound"].preset_kwargs == {"to": "y", "key": secret}
    assert await text(toolkit, "bound", user="u") == "y True u"


async def test_a_function_gets_arguments_as_the_model_sent_them(toolkit: Toolkit) -> None:
    def where(point: Point, *rest: int, unit: Literal["m", "km"] = "m", **more: int) -> ToolResponse:
        return said(f"{type(point).__name__} {rest} {unit} {more}")

    toolkit.register_tool_function(where, include_var_positional=True, include_var_keyword=True)
    assert await text(toolkit, "where", point={"x": 1}, rest=[1, 2], more={"y": 3}) == "dict (1, 2) m {'y': 3}"
    assert (await text(toolkit, "where", point={"x": "one"})).startswith("Error: ")
