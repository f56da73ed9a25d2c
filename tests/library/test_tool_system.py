"""The tool system of the requirements: outcomes, values, tool sets, profiles, interfaces; on real servers and files."""

from __future__ import annotations

import asyncio
import json
import logging
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import mcp_hub
from mcp_hub import (
    BuiltinTool,
    MCPTool,
    NativeTool,
    ToolExecutor,
    ToolManager,
)
from tests.config.discovery.written import function, write
from tests.fakes.client import PATIENCE, fake, write_config
from tests.fakes.json_api import json_api
from tests.library.tool_managers import Neighbours
from tests.library.tool_servers import AS_JSON, VALUES
from tests.peers.programs import MCP1, installed

KEY = "a-key-that-is-right-4711"
DENIED = {"error": "who are you?"}


def test_a_tool_without_a_prefix_may_be_that_of_an_unavailable_server_without_a_namespace(tmp_path: Path) -> None:
    servers = {"up": fake(), "dead": fake("--die", "no such library", namespace="")}
    with ToolManager.from_config(write_config(tmp_path, servers)) as tools:
        for name, code in {"unheard": "server_unavailable", "up__unheard": "tool_not_found"}.items():
            assert ToolExecutor(tools).execute(name, {}).code == code


def test_an_unavailable_server_is_named_with_its_code_and_no_other_tool_is_suggested(tmp_path: Path) -> None:
    """Seed 8: the scenario of a missing permission, and of a server that is down."""
    down = {"url": "http://127.0.0.1:9/mcp", "transport": "http"}
    with json_api(lambda *_: (401, DENIED)) as url:
        refusing = {"url": url, "transport": "http", "mcp_api_key": KEY}
        servers = {"up": fake(), "refusing": refusing, "down": down, "dead": fake("--die", "no such library")}
        codes = {
            "refusing__echo": "permission_denied",
            "refusing/echo": "permission_denied",
            "down__echo": "server_unavailable",
            "down/echo": "server_unavailable",
            "dead__echo": "server_unavailable",
            "echos": "tool_not_found",
            "up__echos": "tool_not_found",
        }
        with ToolManager.from_config(write_config(tmp_path, servers)) as tools:
            messages = ToolExecutor(tools).execute_many([(name, {}) for name in codes], parallel=True)
            for name in codes:
                with pytest.raises(ValueError, match=name) as raised:
                    tools.get_tool(name)
                assert getattr(raised.value, "code", None) == codes[name]
    assert {message.tool_name: message.code for message in messages} == codes
    for message in messages:
        assert message.error is not None
        assert message.error.startswith(f"{message.code}: ")
        assert KEY not in message.error
        assert message.code == "tool_not_found" or "did you mean" not in message.error
    (unknown,) = [message.error or "" for message in messages if message.tool_name == "echos"]
    assert all(repr(server) in unknown for server in ("refusing", "down", "dead"))


@pytest.mark.anyio
async def test_a_tool_of_one_server_does_not_wait_for_another(tmp_path: Path) -> None:
    silent = fake("--silent", deadlines={"connect": "10m"})
    async with ToolManager.from_config(write_config(tmp_path, {"up": fake(), "silent": silent})) as tools:
        async with asyncio.timeout(PATIENCE):
            echo = await tools.async_get_tool("up__echo")
            message = await ToolExecutor(tools).async_execute("up/echo", {"text": "hello"})
    assert (echo.tool_name, message.output) == ("echo", "hello")


def test_a_key_refused_during_a_call_is_reported_as_permission_denied(tmp_path: Path) -> None:
    """Of a REST endpoint, whose tool is listed whatever its key."""
    keys: list[str | None] = []

    def answer(path: str, headers: Mapping[str, str], body: Any) -> tuple[int, Any]:
        keys.append(headers.get("X-API-Key"))
        return (403, DENIED) if path == "/forbidden" else (401, DENIED)

    with json_api(answer) as url:
        for name in ("forbidden", "unknown"):
            write(tmp_path, f"tools/native/{name}.yaml", {"api_url": f"{url}/{name}", "api_key": KEY})
        with ToolManager.from_config(write_config(tmp_path, {})) as tools:
            messages = [ToolExecutor(tools).execute(tool, {}) for tool in tools.load_tools()]
    assert keys == [KEY, KEY]
    assert [(message.code, message.output) for message in messages] == [("permission_denied", None)] * 2


def test_a_call_to_a_tool_whose_server_died_reports_the_server_unavailable(tmp_path: Path) -> None:
    death_flag = tmp_path / "gone"
    servers = {"up": fake(), "dying": fake("--die-if", str(death_flag))}
    with ToolManager.from_config(write_config(tmp_path, servers)) as tools:
        executor = ToolExecutor(tools)
        echo = tools.get_tool("dying__echo")
        assert executor.execute(echo, {"text": "hello"}).output == "hello"
        death_flag.touch()
        executor.execute("dying__crash", {})
        for tool in (echo, "dying__echo", "dying/echo"):
            assert executor.execute(tool, {"text": "hello"}).code in ("server_unavailable", "circuit_open")


@pytest.mark.parametrize("name", ["value", "value_async", "value_last"])
def test_a_functions_value_has_the_same_type_in_process_and_in_a_server(tmp_path: Path, name: str) -> None:
    source = VALUES.replace("def value", "@tool\ndef value").replace("async @tool\ndef", "@tool\nasync def")
    write(tmp_path, "tools/builtin/values.py", f"from mcp_hub import tool\n{source}")
    functions = runpy.run_path(str(write(tmp_path, "here.py", VALUES)))
    with ToolManager.from_config(write_config(tmp_path, {})) as tools:
        tools.tool_func(functions[name])
        executor = ToolExecutor(tools)
        for kind, expected in AS_JSON.items():
            for tool in (f"local/{name}", f"local_/{name}"):
                for message in (
                    executor.execute(tool, {"of": kind}),
                    asyncio.run(executor.async_execute(tool, {"of": kind})),
                ):
                    assert message.error is None
                    assert (kind, message.output, type(message.output)) == (kind, expected, type(expected))


def test_only_values_with_json_text_are_marked_as_json(tmp_path: Path) -> None:
    write(
        tmp_path,
        "tools/builtin/values.py",
        "from mcp_hub import tool\n" + VALUES.replace("def value(", "@tool\ndef value("),
    )
    with ToolManager.from_config(write_config(tmp_path, {"up": fake()})) as tools:
        results = {kind: tools.hub.call_sync("local", "value", {"of": kind}) for kind in AS_JSON}
    marked = {kind for kind, result in results.items() if result.get("_meta") == {"mcp-hub/json": True}}
    assert marked == {"truth", "whole", "real", "items", "pair", "day", "no_items"}
    assert all("_meta" not in results[kind] for kind in AS_JSON.keys() - marked)
    assert results["whole"]["content"] == [{"type": "text", "text": "3"}]


def test_a_value_of_fastmcp_is_not_wrapped(tmp_path: Path) -> None:
    entry = fake("--result", json.dumps({
        "content": [{"type": "text", "text": "42"}], "structuredContent": {"result": 42},
        "_meta": {"fastmcp": {"wrap_result": True}},
    }))  # fmt: skip
    plain = fake("--result", json.dumps({"content": [], "structuredContent": {"result": 42}}))
    with ToolManager.from_config(write_config(tmp_path, {"fastmcp": entry, "own": plain})) as tools:
        messages = ToolExecutor(tools).execute_many([("fastmcp__echo", {}), ("own__echo", {})])
    assert [message.output for message in messages] == [42, {"result": 42}]


def test_an_object_without_a_json_form_is_returned_unchanged_in_process() -> None:
    class Frame:
        pass

    frame = Frame()
    with ToolManager() as tools:

        @tools.tool_func
        def plot() -> Frame:
            return frame

        assert ToolExecutor(tools).execute("plot").output is frame


def test_a_rest_response_that_is_not_an_object_is_returned_as_a_value(tmp_path: Path) -> None:
    answers: dict[str, Any] = {"number": 5, "items": [1, 2], "object": {"a": 1}, "word": "five"}
    with json_api(lambda path, *_: (200, answers[path[1:]])) as url:
        for name in answers:
            write(tmp_path, f"tools/native/{name}.yaml", {"api_url": f"{url}/{name}"})
        with ToolManager.from_config(write_config(tmp_path, {})) as tools:
            messages = ToolExecutor(tools).execute_many([(name, {}) for name in answers])
    assert [message.output for message in messages] == [5, [1, 2], {"a": 1}, "five"]


def test_arguments_that_are_not_json_are_invalid_and_do_not_open_the_breaker(tmp_path: Path) -> None:
    function(tmp_path, "tools/builtin/calculate.py", "calculate")
    with ToolManager.from_config(write_config(tmp_path, {"up": fake()})) as tools:

        @tools.tool_func
        def here(a: int = 1) -> int:
            return a

        executor = ToolExecutor(tools)
        invalid: list[Any] = [{"a": object()}, {"a": {1, object()}}, [1], "text"]
        for name in ("up__add", "calculate"):
            messages = executor.execute_many([(name, parameters) for parameters in invalid * 2])
            assert [message.code for message in messages] == ["invalid_parameters"] * 8
        messages = executor.execute_many([("here", parameters) for parameters in invalid])
        assert [message.code for message in messages] == [None, None, "invalid_parameters", "invalid_parameters"]
        assert executor.execute("up__echo", {"text": "still here"}).output == "still here"


def test_builtin_native_and_mcp_tools_have_their_class_schema_and_settings(tmp_path: Path) -> None:
    """Seed 4.1.1: NativeTool has `api_url` and `auth_method`, MCPTool `mcp_server_url`; BuiltinTool is an `@tool`."""
    search = {
        "description": "Search the web.", "api_url": "http://127.0.0.1:9/search", "auth_method": "API Key",
        "api_key": KEY, "parameters": {"q": {"type": "string", "required": True}},
    }  # fmt: skip
    write(tmp_path, "tools/native/search_tool.yaml", search)
    function(tmp_path, "tools/builtin/calculate.py", "calculate")
    write(tmp_path, "tools/mcp/remote.yaml", fake())
    with ToolManager.from_config(write_config(tmp_path, {})) as tools:
        native, builtin, remote = (tools.get_tool(name) for name in ("search_tool", "calculate", "remote__echo"))
        kinds = {type(tool) for tool in tools.load_tools()}
    assert kinds == {NativeTool, BuiltinTool, MCPTool}
    assert isinstance(native, NativeTool)
    assert (native.api_url, native.auth_method) == ("http://127.0.0.1:9/search", "api_key")
    assert KEY not in repr(native)
    assert (native.name, native.description) == ("local__search_tool", "Search the web.")
    assert [(parameter.name, parameter.type, parameter.required) for parameter in native.parameters] == [
        ("q", "string", True)
    ]
    assert isinstance(builtin, BuiltinTool)
    assert [(parameter.name, parameter.type, parameter.required) for parameter in builtin.parameters] == [
        ("a", "integer", False)
    ]
    assert isinstance(remote, MCPTool)
    assert remote.mcp_server_url is None
    assert [parameter.name for parameter in remote.parameters] == ["text"]
    assert [tool.source for tool in (native, builtin, remote)] == ["native", "builtin", "mcp"]


def test_an_execute_endpoint_is_a_native_tool(tmp_path: Path) -> None:
    """Seed 4.1.1: `/execute` of a server that does not speak MCP."""
    requests: list[Any] = []

    def answer(path: str, headers: Mapping[str, str], body: Any) -> tuple[int, Any]:
        requests.append((path, headers.get("Authorization"), body))
        return 200, {"result": body["a"] + body["b"]}

    with json_api(answer) as url:
        execute = {
            "api_url": f"{url}/execute", "method": "POST", "auth_method": "bearer", "token": KEY, "result": "/result",
            "parameters": {"a": {"type": "integer", "required": True}, "b": {"type": "integer", "required": True}},
        }  # fmt: skip
        write(tmp_path, "tools/native/add.yaml", execute)
        with ToolManager.from_config(write_config(tmp_path, {})) as tools:
            executor = ToolExecutor(tools)
            assert executor.execute("add", {"a": 1, "b": 2}).output == 3
            assert executor.execute("add", {"a": 1}).code == "invalid_parameters"
    assert requests == [("/execute", f"Bearer {KEY}", {"a": 1, "b": 2})]


def test_the_formatter_of_a_manager_follows_the_configuration(tmp_path: Path) -> None:
    strategy = {"function_calling": True, "fallback_to_structured_output": False}
    config = write_config(tmp_path, {}, output_strategy=strategy)
    with ToolManager.from_config(config) as tools, pytest.raises(mcp_hub.HubError):
        tools.formatter.detect_strategy(Without())
    with ToolManager() as tools:
        assert tools.formatter.detect_strategy(Without()) == "structured_output"


class Without:
    """A model without function calling, or whose client cannot say so."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def supports_function_calling(self) -> bool:
        if self.error is not None:
            raise self.error
        return False


@pytest.mark.anyio
async def test_an_async_model_client_is_queried_from_coroutines_and_sync_code() -> None:
    formatter = mcp_hub.ToolFormatter()
    strict = mcp_hub.ToolFormatter({"fallback_to_structured_output": False})
    for client in (Without(), Without(RuntimeError("no"))):
        assert formatter.detect_strategy(client) == "structured_output"
        assert await formatter.async_detect_strategy(client) == "structured_output"
        with pytest.raises(mcp_hub.HubError):
            strict.detect_strategy(client)
        with pytest.raises(mcp_hub.HubError):
            await strict.async_detect_strategy(client)
    assert await formatter.async_detect_strategy(Neighbours(Path())) == formatter.strategy == "function_calling"


def test_a_call_is_logged_at_info_with_arguments_result_and_duration(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Seed 5: parameters, result and duration at INFO, for every outcome, by the standard logger."""
    with (
        ToolManager.from_config(write_config(tmp_path, {"up": fake()})) as tools,
        caplog.at_level(logging.INFO, logger="mcp_hub.executor"),
    ):
        executor = ToolExecutor(tools)
        executor.execute("up__echo", {"text": "hello"})
        asyncio.run(executor.async_execute("up__fail", {}))
        executor.execute("up__nothing", {})
    lines = [record for record in caplog.records if record.name == "mcp_hub.executor"]
    assert [record.levelno for record in lines] == [logging.INFO] * 3
    first, second, third = (record.getMessage() for record in lines)
    assert first.startswith("tool up__echo: arguments {'text': 'hello'}, result hello, ")
    assert second.startswith("tool up__fail: arguments {}, error tool_error: ")
    assert third.startswith("tool up__nothing: arguments {}, error tool_not_found: ")
    assert all(float(line.split()[-2]) >= 0 and line.endswith(" s") for line in (first, second, third))


SDK_SERVER = """
from mcp.server.fastmcp import FastMCP
from pydantic import BaseModel

server = FastMCP("sums")

class Sum(BaseModel):
    result: int

@server.tool()
def add(a: int, b: int) -> int:
    return a + b

@server.tool(name="many")
def numbers() -> list[int]:
    return [1, 2]

@server.tool()
def as_model() -> Sum:
    return Sum(result=3)

server.run()
"""


def test_a_value_that_the_official_sdk_has_wrapped_is_the_output(tmp_path: Path) -> None:
    script = write(tmp_path, "server.py", SDK_SERVER)
    python = str(installed(MCP1))
    with ToolManager(config={"servers": {"sums": {"command": python, "args": [str(script)]}}}) as tools:
        executor = ToolExecutor(tools)
        assert executor.execute("sums/add", {"a": 1, "b": 2}).output == 3
        assert executor.execute(tools.get_tool("sums__many")).output == [1, 2]
        assert asyncio.run(executor.async_execute("sums/as_model")).output == {"result": 3}
