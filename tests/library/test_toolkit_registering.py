"""AgentScope's Toolkit: what models are told of a tool, and how tools are registered."""

from __future__ import annotations

import functools
import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from mcp_hub import Toolkit, ToolResponse
from tests.library.toolkits import Point, add, names, parameters, text, text_response

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


async def test_equal_function_names_are_refused_skipped_replaced_or_renamed(toolkit: Toolkit) -> None:
    """Check 37."""

    def namesake(a: int) -> ToolResponse:
        return text_response("other")

    namesake.__name__ = "add"
    toolkit.register_tool_function(add)
    with pytest.raises(ValueError, match=r"^A function with name 'add' is already registered in the toolkit\.$"):
        toolkit.register_tool_function(namesake)
    toolkit.register_tool_function(namesake, namesake_strategy="skip")
    assert await text(toolkit, "add", a=1) == "3"
    toolkit.register_tool_function(namesake, namesake_strategy="rename")
    assert names(toolkit) == ["add", "add_2"]
    assert toolkit.tools["add_2"].original_name == "add"
    assert (await text(toolkit, "add", a=1), await text(toolkit, "add_2", a=1)) == ("3", "other")
    toolkit.register_tool_function(namesake, namesake_strategy="override")
    assert names(toolkit) == ["add", "add_2"]
    assert await text(toolkit, "add", a=1) == "other"
    with pytest.raises(ValueError, match="strategy"):
        toolkit.register_tool_function(namesake, namesake_strategy="other")  # type: ignore[arg-type]
    async with Toolkit() as restarted:  # after a restart
        for _ in range(2):
            restarted.register_tool_function(add, namesake_strategy="rename")
        assert names(restarted) == ["add", "add_2"]


async def test_a_handwritten_schema_is_used_and_loses_titles_but_not_title_properties(
    toolkit: Toolkit,
) -> None:
    """Check 41."""

    def wrapper(**arguments: Any) -> ToolResponse:
        return text_response(str(arguments))

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
    invalid_schemas: list[Any] = [{"type": "function"}, {"type": "function", "function": []}, {"name": "search"}]
    for invalid_schema in invalid_schemas:
        with pytest.raises(TypeError):
            toolkit.register_tool_function(wrapper, json_schema=invalid_schema)
    assert names(toolkit) == ["search"]


async def test_presets_and_partial_arguments_are_hidden_and_override(
    toolkit: Toolkit, caplog: pytest.LogCaptureFixture
) -> None:
    secret = object()

    def send(to: str, key: Any, user: str = "nobody") -> ToolResponse:
        return text_response(f"{to} {key is secret} {user}")

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


async def test_a_function_receives_arguments_unconverted(toolkit: Toolkit) -> None:
    def where(point: Point, *rest: int, unit: Literal["m", "km"] = "m", **more: int) -> ToolResponse:
        return text_response(f"{type(point).__name__} {rest} {unit} {more}")

    toolkit.register_tool_function(where, include_var_positional=True, include_var_keyword=True)
    assert await text(toolkit, "where", point={"x": 1}, rest=[1, 2], more={"y": 3}) == "dict (1, 2) m {'y': 3}"
    assert (await text(toolkit, "where", point={"x": "one"})).startswith("Error: ")


async def test_a_function_with_var_keywords_accepts_what_its_schema_allows(toolkit: Toolkit) -> None:
    """AgentScope's `generate_response` takes `**kwargs` alone and gets the fields of a model (seed 001, line 36)."""

    class Answer(BaseModel):
        answer: Point
        kwargs: dict[str, int]

    def generate_response(**kwargs: Any) -> ToolResponse:
        return text_response(json.dumps(kwargs, sort_keys=True))

    def finish(response: str, **answer: Any) -> ToolResponse:
        return text_response(json.dumps([response, answer], sort_keys=True))

    for function in (generate_response, finish):
        toolkit.register_tool_function(function)
    assert "additionalProperties" not in parameters(toolkit, "generate_response")
    assert await text(toolkit, "generate_response", any={"x": 1}, more=[2]) == '{"any": {"x": 1}, "more": [2]}'
    assert await text(toolkit, "finish", response="r", other=1) == '["r", {"other": 1}]'
    arguments = {"answer": {"x": 1}, "kwargs": {"y": 2}}
    for name in ("generate_response", "finish"):
        toolkit.set_extended_model(name, Answer)
    assert await text(toolkit, "generate_response", **arguments) == json.dumps(arguments)
    assert await text(toolkit, "finish", response="r", **arguments) == json.dumps(["r", arguments])
    assert (await text(toolkit, "generate_response", answer={"x": "one"}, kwargs={})).startswith("Error: ")
    (listed,) = [card for card in await toolkit.hub.list() if card.name == "finish"]
    outcome = await toolkit.hub.call(listed.server, "finish", {"response": "r", **arguments, "more": True})
    assert json.loads(outcome["content"][0]["text"]) == ["r", {**arguments, "more": True}]


async def test_the_keyword_names_of_both_documents_are_accepted(toolkit: Toolkit) -> None:
    """Seed 001, line 82 and seed 004, line 53: `set_extended_model`; seed 001, line 32: `register_mcp_server`."""

    def finish(**answer: Any) -> ToolResponse:
        return text_response(str(answer))

    toolkit.register_tool_function(tool_func=finish, group_name="basic")
    toolkit.set_extended_model(finish_function_name="finish", structured_model=Point)
    assert list(parameters(toolkit, "finish")["properties"]) == ["x"]
    toolkit.set_extended_model(finish_function_name="finish", structured_model=None)
    assert parameters(toolkit, "finish")["properties"] == {}
    toolkit.set_extended_model(func_name="finish", model=Point)
    assert list(parameters(toolkit, "finish")["properties"]) == ["x"]
    toolkit.set_extended_model("finish", None)
    assert parameters(toolkit, "finish")["properties"] == {}
    with pytest.raises(TypeError):
        toolkit.set_extended_model()
    with pytest.raises(ValueError, match="finish_it"):
        toolkit.set_extended_model(finish_function_name="finish_it", structured_model=Point)
    assert (Toolkit.register_mcp_server, Toolkit.remove_mcp_servers, Toolkit.get_tool_group_notes) == (
        Toolkit.register_mcp_client,
        Toolkit.remove_mcp_clients,
        Toolkit.get_activated_notes,
    )


async def test_the_description_of_the_meta_tool_says_that_it_sets_the_final_state(toolkit: Toolkit) -> None:
    """It is the text of AgentScope 1.0.10."""
    toolkit.register_tool_function(toolkit.reset_equipped_tools)
    (schema,) = toolkit.get_json_schemas()
    assert "absolute final state of ALL tool\ngroups, not incremental changes" in schema["function"]["description"]


async def test_a_value_sent_over_mcp_for_a_preset_argument_is_dropped(
    toolkit: Toolkit, caplog: pytest.LogCaptureFixture
) -> None:
    def opened(door: str, key: str) -> ToolResponse:
        return text_response(f"{door} {key}")

    toolkit.register_tool_function(opened, preset_kwargs={"key": "sesame"})
    toolkit.register_tool_function(functools.partial(opened, key="sesame"), func_name="bound")
    handwritten = {
        "type": "object",
        "properties": {"door": {"type": "string"}, "key": {"type": "string"}},
        "required": ["door", "key"],
        "additionalProperties": False,
    }
    toolkit.register_tool_function(
        opened, preset_kwargs={"key": "sesame"}, json_schema=handwritten, func_name="by_hand"
    )
    for card in await toolkit.hub.list():
        caplog.clear()
        outcome = await toolkit.hub.call(card.server, card.name, {"door": "d", "key": "mine"})
        assert outcome["content"] == [{"type": "text", "text": "d sesame"}]
        assert "dropped" in caplog.text
        refused = await toolkit.hub.call(card.server, card.name, {"door": "d", "lock": "mine"})
        assert refused["_meta"]["mcp-hub/error"]["code"] == "invalid_parameters"
        assert "key" not in json.dumps(refused)
