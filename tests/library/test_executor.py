"""ToolExecutor and the tools of a configuration, as the tool system's requirements have them."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import BaseTool, Hub, IToolExecutor, IToolManager, ToolExecutor, ToolManager
from tests.fakes.client import fake, write_config


def wait(seconds: float) -> float:
    """Take a while."""
    time.sleep(seconds)
    return seconds


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolManager]:
    directory = tmp_path_factory.mktemp("executor")
    (directory / "tools").mkdir()
    (directory / "tools" / "numbers.py").write_text(
        "from mcp_hub import tool\n\n@tool\ndef calculate(a: int, b: int) -> int:\n    'Add.'\n    return a + b\n"
    )
    path = write_config(
        directory,
        {"fake": fake(), "slow": fake(deadlines={"call": 0.5})},
        tools_dir=str(directory / "tools"),
        tool_sets={"data_analysis_set": ["fake/echo", "calculate"]},
    )
    with ToolManager.from_config(path) as manager:
        manager.tool_func(wait)
        yield manager


def test_tools_of_every_kind_have_one_type(manager: ToolManager) -> None:
    assert isinstance(manager, IToolManager)
    tools = {tool.name: tool for tool in manager.load_tools()}
    assert (tools["fake__echo"].source, tools["wait"].source) == ("mcp", "builtin")
    calculate = manager.get_tool("calculate")
    assert isinstance(calculate, BaseTool)
    assert calculate.source == "builtin"
    assert [(parameter.name, parameter.type, parameter.required) for parameter in calculate.parameters] == [
        ("a", "integer", True),
        ("b", "integer", True),
    ]
    assert calculate.description == "Add."
    assert manager.get_tool("fake/echo") == manager.get_tool("fake__echo") == tools["fake__echo"]
    with pytest.raises(ValueError, match="did you mean"):
        manager.get_tool("calculat")


@pytest.mark.parametrize("tool", ["fake__echo", "wait"])
def test_arguments_that_json_cannot_express_are_an_error_of_the_call(manager: ToolManager, tool: str) -> None:
    cyclic: dict[str, Any] = {}
    cyclic["again"] = cyclic
    deep: list[Any] = []
    for _ in range(3000):
        deep = [deep]
    for value in (cyclic, deep):
        assert ToolExecutor(manager).execute(tool, {"text": value}).code == "invalid_parameters"
        server, name = ("fake", "echo") if tool != "wait" else ("local", "wait")
        assert "error" in asyncio.run(manager.execute_tool_call(server, name, {"text": value}))


def test_names_of_arguments_become_texts_as_in_json(manager: ToolManager, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mcp_hub.calls")
    assert ToolExecutor(manager).execute("fake__echo", {"text": "x", 1: 2}).error is None  # type: ignore[dict-item]
    *_, record = [json.loads(entry.getMessage()) for entry in caplog.records if entry.name == "mcp_hub.calls"]
    assert record["arguments"] == {"text": "x", "1": 2}


def test_an_executor_of_a_tool_set_has_its_tools_and_an_unknown_set_is_an_error(manager: ToolManager) -> None:
    assert {tool.tool_name for tool in manager.get_tool_set("data_analysis_set")} == {"echo", "calculate"}
    with pytest.raises(ValueError, match="data_analysis_set"):
        manager.get_tool_set("nothing")


def test_results_are_messages_and_errors_begin_with_their_code(manager: ToolManager) -> None:
    executor = ToolExecutor(manager)
    assert isinstance(executor, IToolExecutor)
    message = executor.execute(manager.get_tool("calculate"), {"a": 1, "b": 2})
    assert (message.tool_name, message.output, message.error) == ("local__calculate", 3, None)
    assert asyncio.run(executor.async_execute("wait", {"seconds": 0})).output == 0
    codes = {
        "invalid_parameters": ("calculate", {"a": "one", "b": 2}),
        "timeout": ("slow__sleep", {"seconds": 60}),
        "tool_not_found": ("nothing", {}),
        "tool_error": ("fake__fail", {}),
    }
    for code, (tool, parameters) in codes.items():
        message = executor.execute(tool, parameters)
        assert message.output is None
        assert message.error is not None
        assert (message.code, message.error.partition(":")[0]) == (code, code)


def test_check_48_parallel_calls_take_as_long_as_one_and_keep_their_order(manager: ToolManager) -> None:
    executor = ToolExecutor(manager)
    arrivals: list[float] = []

    def meet(number: int) -> int:
        """All three have to be here at once, or none goes on."""
        arrivals.append(number)
        barrier.wait(30)
        if number == 2:
            raise ValueError("two")
        return number

    barrier = threading.Barrier(3)
    manager.tool_func(meet)
    calls: list[Any] = [("meet", {"number": 1}), {"name": "meet", "parameters": {"number": 2}}, ("meet", {"number": 3})]
    for messages in (executor.execute_many(calls), asyncio.run(executor.async_execute_many(calls, parallel=True))):
        assert [message.output for message in messages] == [1, None, 3]
        assert messages[1].error == "tool_error: Error: two"


def test_calls_one_after_the_other_are_in_order(manager: ToolManager) -> None:
    numbers: list[int] = []

    def note(number: int) -> int:
        numbers.append(number)
        return number

    manager.tool_func(note)
    messages = ToolExecutor(manager).execute_many([("note", {"number": n}) for n in range(4)], parallel=False)
    assert numbers == [message.output for message in messages] == [0, 1, 2, 3]


def test_every_call_is_logged_without_secrets(manager: ToolManager, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="mcp_hub.executor"):
        ToolExecutor(manager).execute("fake__echo", {"text": "hello", "password": "hunter2-hunter2"})
    (record,) = [record for record in caplog.records if record.name == "mcp_hub.executor"]
    message = record.getMessage()
    assert "fake__echo" in message
    assert "hello" in message
    assert "hunter2" not in message


def test_an_executor_accepts_a_hub(manager: ToolManager, tmp_path: Path) -> None:
    assert ToolExecutor(manager.hub).execute("calculate", {"a": 2, "b": 2}).output == 4


def test_a_result_is_not_lost_if_its_server_is_removed_during_the_call() -> None:
    with Hub() as hub:

        @hub.tool
        def last_act() -> dict[str, int]:
            """Remove the server of this function."""
            hub.remove_server_sync(hub.functions or "")
            return {"result": 1}

        assert ToolExecutor(hub).execute("last_act").output == {"result": 1}
