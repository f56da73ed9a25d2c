"""Tools as models are told of them, and calls as models say them, there and back."""

import asyncio
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import mcp_hub
from mcp_hub.hub.composition import load_config
from mcp_hub.library import formats
from mcp_hub.library.formats import FormatError, ToolCall
from mcp_hub.library.tool_system import StrategyUnavailable, ToolFormatter
from tests.fakes.client import HUB, PATIENCE, fake, write_config

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a"]}
ADD = {"name": "add", "description": "adds", "inputSchema": SCHEMA, "annotations": {}}
SUB = {"name": "sub", "inputSchema": {"type": "object"}}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
all_arguments = st.dictionaries(st.text(), json_values, max_size=5)
tool_names = st.text(min_size=1, max_size=20)
prose = st.text(alphabet=st.characters(exclude_characters="{}[]\"'\\"), max_size=40)


class Model:
    def __init__(self, supports: Any) -> None:
        self.supports = supports

    def supports_function_calling(self) -> Any:
        if isinstance(self.supports, Exception):
            raise self.supports
        return self.supports


@pytest.mark.parametrize(
    ("supports", "allowed", "expected"),
    [
        (True, {}, "function_calling"),
        (True, {"fallback_to_structured_output": False}, "function_calling"),
        (False, {}, "structured_output"),
        (RuntimeError("no"), {"function_calling": True}, "structured_output"),
        (False, {"fallback_to_structured_output": False}, None),
        (RuntimeError("no"), {"fallback_to_structured_output": False}, None),
        (True, {"function_calling": False}, "structured_output"),
        (True, {"function_calling": False, "fallback_to_structured_output": False}, None),
    ],
)
def test_the_strategy_depends_on_the_model_and_the_configuration(
    tmp_path: Path, supports: Any, allowed: dict[str, bool], expected: str | None
) -> None:
    """Check 49: supports -> function_calling; not + fallback -> structured_output; not + no fallback -> error."""
    config = load_config(write_config(tmp_path, {"up": fake()}, output_strategy=allowed))
    for formatter in (ToolFormatter(config.output_strategy), mcp_hub.ToolFormatter(allowed)):
        if expected is None:
            with pytest.raises(StrategyUnavailable):
                formatter.detect_strategy(Model(supports))
            continue
        assert formatter.detect_strategy(Model(supports)) == formatter.strategy == expected
        formatted = formatter.format(ADD, {"a": 1})
        definitions = formatter.format_for_llm([ADD])
        if expected == "function_calling":
            assert formatted == {"name": "add", "arguments": '{"a": 1}'}
            function = {"name": "add", "description": "adds", "parameters": SCHEMA}
            assert definitions == [{"type": "function", "function": function}]
        else:
            assert formatted == {"name": "add", "parameters": {"a": 1}}
            assert definitions == formatter.prompt([ADD])
        assert formatter.parse(json.dumps(formatted)) == [ToolCall("add", {"a": 1})]


class AsyncModel:
    """A client that has to ask first, and can only be asked on the loop it belongs to, if it has one."""

    def __init__(self, supports: bool | Exception, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.supports, self.loop = supports, loop

    async def supports_function_calling(self) -> bool:
        assert self.loop in (None, asyncio.get_running_loop())
        await asyncio.sleep(0)
        if isinstance(self.supports, Exception):
            raise self.supports
        return self.supports


@pytest.mark.parametrize(
    ("supports", "expected"),
    [(True, "function_calling"), (False, "structured_output"), (RuntimeError("no"), "structured_output")],
)
def test_an_async_model_client_works_from_sync_code_and_in_a_loop(supports: bool | Exception, expected: str) -> None:
    strict = ToolFormatter({"fallback_to_structured_output": False})

    async def on_a_loop() -> None:
        loop = asyncio.get_running_loop()
        assert ToolFormatter().detect_strategy(AsyncModel(supports)) == expected
        assert await ToolFormatter().async_detect_strategy(AsyncModel(supports, loop)) == expected
        assert await ToolFormatter().async_detect_strategy(Model(supports)) == expected
        if supports is not True:
            with pytest.raises(StrategyUnavailable):
                await strict.async_detect_strategy(AsyncModel(supports, loop))

    assert ToolFormatter().detect_strategy(AsyncModel(supports)) == expected
    asyncio.run(on_a_loop())


def test_a_model_client_without_the_method_is_treated_as_without_function_calling() -> None:
    assert ToolFormatter().detect_strategy(object()) == "structured_output"


def test_the_prompt_contains_the_schemas_and_the_template_text() -> None:
    text = formats.prompt([ADD, SUB])
    assert text.endswith(
        '请按以下格式调用工具：\n{\n  "name": "工具名",\n'
        '  "parameters": {\n    "参数1": "值1",\n    "参数2": "值2"\n  }\n}'
    )
    assert json.loads(text.splitlines()[1]) == {"name": "add", "description": "adds", "schema": SCHEMA}
    # Whoever repeats the tools calls none of them.
    assert formats.calls_in(text, ["add", "sub"]) == []


class Tool(BaseModel):
    name: str = "add"
    description: str = "adds"
    parameters: Any = None


@pytest.mark.parametrize(
    "tool",
    [
        ADD,
        {"type": "function", "function": {"name": "add", "description": "adds", "parameters": SCHEMA}},
        {"name": "add", "description": "adds", "input_schema": SCHEMA},
        SimpleNamespace(name="add", description="adds", inputSchema=SCHEMA),
        Tool(parameters=SCHEMA),
        mcp_hub.BaseTool(name="add", description="adds", json_schema=SCHEMA),
        Tool(parameters=[{"name": "a", "type": "integer", "required": True}, {"name": "b", "type": "integer"}]),
        Tool(parameters={"a": {"type": "integer", "required": True}, "b": "integer"}),
    ],
)
def test_a_tool_is_accepted_in_every_common_format(tool: Any) -> None:
    (function,) = (entry["function"] for entry in formats.openai_tools([tool]))
    assert function == {"name": "add", "description": "adds", "parameters": SCHEMA}
    assert formats.anthropic_tools([tool]) == [{"name": "add", "description": "adds", "input_schema": SCHEMA}]


@pytest.mark.parametrize("tool", [{}, {"name": ""}, object(), Tool(parameters=5), Tool(parameters=[5])])
def test_a_value_that_is_not_a_tool_is_an_error(tool: Any) -> None:
    with pytest.raises(FormatError):
        formats.openai_tools([tool])


@given(tool_names, all_arguments, prose, prose, st.sampled_from(["openai", "anthropic", "structured"]))
def test_a_call_survives_formatting_and_parsing(name: str, arguments: Any, before: str, after: str, style: Any) -> None:
    message = formats.call(name, arguments, style)
    (parsed,) = formats.calls_in(message)
    assert (parsed.name, parsed.arguments) == (name, arguments)
    for text in (json.dumps(message), json.dumps(message, indent=2, ensure_ascii=False)):
        for reply in (text, f"{before}\n```json\n{text}\n```\n{after}", f"{before}{text}{after}{text}"):
            assert {(call.name, repr(call.arguments)) for call in formats.calls_in(reply)} == {(name, repr(arguments))}


@given(st.lists(st.tuples(tool_names, all_arguments), max_size=4))
def test_several_calls_keep_their_order_in_every_vendors_message(wanted: Any) -> None:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for n, (name, arguments) in enumerate(wanted)
    ]
    openai = {"role": "assistant", "content": 'it says {"name": "no", "parameters": {}}', "tool_calls": calls}
    blocks = [
        {"type": "tool_use", "id": f"c{n}", "name": name, "input": arguments}
        for n, (name, arguments) in enumerate(wanted)
    ]
    anthropic = {"role": "assistant", "content": [{"type": "text", "text": "now {"}, *blocks], "type": "message"}
    responses = {
        "output": [
            {"type": "function_call", "call_id": f"c{n}", "name": name, "arguments": json.dumps(arguments)}
            for n, (name, arguments) in enumerate(wanted)
        ]
    }
    langchain_calls = [{"name": name, "args": arguments, "id": f"c{n}"} for n, (name, arguments) in enumerate(wanted)]
    langchain = {"content": "", "tool_calls": langchain_calls}
    expected = [ToolCall(name, arguments, f"c{n}") for n, (name, arguments) in enumerate(wanted)]
    if wanted:
        assert formats.calls_in(openai) == formats.calls_in({"choices": [{"message": openai}]}) == expected
    assert formats.calls_in(anthropic) == formats.calls_in(responses) == formats.calls_in(langchain) == expected
    assert formats.calls_in(SimpleNamespace(**langchain)) == expected
    text = json.dumps([{"name": name, "parameters": arguments} for name, arguments in wanted])
    assert [(call.name, call.arguments) for call in formats.calls_in(text)] == wanted


def test_the_legacy_function_call_of_a_message_is_read_as_a_call() -> None:
    message = {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": ""}}
    assert formats.calls_in(message) == [ToolCall("add", {})]


def test_with_a_list_of_tools_only_calls_to_those_are_recognised() -> None:
    text = '{"name": "Ada", "parameters": {}} {"name": "add", "parameters": {"a": 1}}'
    assert ToolFormatter().parse(text, [ADD]) == [ToolCall("add", {"a": 1})]


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", "5", "{'a': 1}"])
def test_unparsable_arguments_are_an_error_and_not_a_call(arguments: str) -> None:
    message = {"tool_calls": [{"function": {"name": "add", "arguments": arguments}}]}
    with pytest.raises(FormatError):
        formats.calls_in(message)


@given(st.text() | st.text(alphabet='{}[]":,\\ab1'))
def test_parsing_any_text_for_calls_never_raises(text: str) -> None:
    for call in formats.calls_in(text):
        assert call.name


@pytest.mark.parametrize("unit", ["{", '{"a":', "[", '{"name": "x", "parameters": ', '{"', '{"\\'])
def test_an_unfinished_call_is_read_in_bounded_time(unit: str) -> None:
    assert formats.calls_in(unit * (formats.MAX_TEXT // len(unit))) == []


def test_arguments_that_are_not_valid_json_are_refused() -> None:
    for bad in ({"a": float("nan")}, {"a": object()}):
        with pytest.raises(FormatError):
            formats.call("add", bad, "openai")


def test_the_tools_command_prints_each_format(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": fake()})

    def tools(format: str) -> str:
        command = [*HUB, "tools", "--config", str(config), "--format", format]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout

    definitions = json.loads(tools("json"))
    assert [tool["name"] for tool in definitions[:2]] == ["up__echo", "up__add"]
    assert json.loads(tools("openai")) == formats.openai_tools(definitions)
    assert json.loads(tools("anthropic")) == formats.anthropic_tools(definitions)
    assert tools("prompt") == formats.prompt(definitions) + "\n"
