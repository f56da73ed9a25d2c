"""No preset value and no preset argument is in anything that a program's hub says or writes, whoever set it."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mcp_hub import Hub, StdIOStatefulClient, ToolExecutor, Toolkit, ToolManager, ToolResponse, tool
from tests.fakes.client import PATIENCE
from tests.library.toolkits import add, block, parameters

pytestmark = pytest.mark.anyio

REPEATING = str(Path(__file__).parents[1] / "fakes" / "repeating.py")
CANARY = "canary-29f1"
SHORT = "q7"
HIDDEN = ("key", "options")
PRESET = {"key": CANARY, "options": {"token": f"{CANARY}-nested", "depth": 12345678, "short": SHORT}}
HOWS = ("error", "rpc", "crash", "tell", "ok")


class Said:
    """Collects every text that leaves a test: chunks, records of all loggers, spans."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        self.caplog = caplog
        self.texts: list[str] = []
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def all(self) -> str:
        logged = [record.getMessage() for record in self.caplog.records if record.name.startswith("mcp_hub")]
        spans = [span.to_json() for span in self.exporter.get_finished_spans()]
        return "\n".join((*self.texts, *logged, *spans))

    def assert_clean(self) -> None:
        full_text = self.all()
        assert full_text
        for line in full_text.splitlines():
            assert CANARY not in line, line
            assert "12345678" not in line, line
        records = [json.loads(record.getMessage()) for record in self.caplog.records if record.name == "mcp_hub.calls"]
        assert records
        assert not [record for record in records if HIDDEN[0] in record.get("arguments", {})]
        assert SHORT not in json.dumps([record.get("arguments") for record in records])


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Said:
    return Said(caplog)


async def called(toolkit: Toolkit, name: str, **arguments: Any) -> str:
    async with asyncio.timeout(PATIENCE):
        return "\n".join([str(chunk) async for chunk in toolkit.call_tool_function(block(name, **arguments))])


@pytest.mark.parametrize("gathered", [False, True])
async def test_presets_of_tools_of_mcp_clients_are_redacted(said: Said, gathered: bool) -> None:
    hub = Hub({"servers": {}}, tracer_provider=said.provider) if gathered else None
    client = StdIOStatefulClient("repeating", command=sys.executable, args=[REPEATING])
    await client.connect()
    async with Toolkit(hub=hub) as toolkit:
        await toolkit.register_mcp_client(client, preset_kwargs_mapping={"say": PRESET})
        assert list(parameters(toolkit, "say")["properties"]) == ["how", "count"]
        for how in HOWS:
            said.texts.append(await called(toolkit, "say", how=how, key="of the model"))
        misfit = await called(toolkit, "say", how=["x"], count=[])
        said.texts.append(misfit)
        assert "how must be a text" in misfit
        for name in HIDDEN:
            assert name not in misfit
        assert repr(toolkit.tools["say"])
        said.texts.append(repr(toolkit.tools["say"]))
        await client.close()
    if hub is not None:
        await hub.aclose()
    said.assert_clean()


async def test_two_toolkits_share_a_client_each_with_its_own_presets(said: Said) -> None:
    client = StdIOStatefulClient("repeating", command=sys.executable, args=[REPEATING])
    await client.connect()
    first, second = Toolkit(), Toolkit()
    await first.register_mcp_client(client, preset_kwargs_mapping={"say": {"key": f"{CANARY}-1"}})
    await second.register_mcp_client(client, preset_kwargs_mapping={"say": {"key": f"{CANARY}-2"}})
    said.texts.append(await called(first, "say", how="ok"))
    answer = await called(second, "say", how="error")
    assert answer.count("***") == 2
    said.texts.append(answer)
    assert list(parameters(first, "say")["properties"]) == ["how", "count", "options"]
    await client.close()
    await first.aclose()
    await second.aclose()
    said.assert_clean()


@tool(preset={"key": f"{CANARY}-marked", "depth": 12345678})
def marked(word: str, key: str, depth: int) -> str:
    """Fail."""
    raise ValueError(f"{word} with {key} at {depth}")


async def test_one_tool_registered_twice_has_the_presets_of_each_registration(said: Said) -> None:
    client = StdIOStatefulClient("repeating", command=sys.executable, args=[REPEATING])
    await client.connect()
    async with Toolkit(config={"servers": {}}) as toolkit:
        for number in (1, 2):
            preset = {"say": {"key": f"k{number}", "options": {"token": f"{CANARY}-{number}"}}}
            await toolkit.register_mcp_client(client, preset_kwargs_mapping=preset, namesake_strategy="rename")
        toolkit.register_tool_function(add, preset_kwargs={"b": 12345678})
        assert parameters(toolkit, "say_2") == parameters(toolkit, "say")
        said.texts.append(await called(toolkit, "say", how="ok"))
        answer = await called(toolkit, "say_2", how="error")
        assert "k1" in answer  # too short to be looked for in what a server says
        assert "k2" in answer
        said.texts.append(answer)
        await client.close()
    said.assert_clean()


async def test_presets_of_functions_are_redacted(said: Said) -> None:
    def fails(word: str, key: str) -> ToolResponse:
        """Fail."""
        raise ValueError(f"{word} with {key}")

    hub = Hub(tracer_provider=said.provider)
    async with Toolkit(hub=hub) as toolkit:
        toolkit.register_tool_function(fails, preset_kwargs={"key": CANARY})
        toolkit.register_tool_function(functools.partial(fails, key=f"{CANARY}-bound"), func_name="bound")
        toolkit.register_tool_function(marked, func_name="in_toolkit")
        assert list(parameters(toolkit, "in_toolkit")["properties"]) == ["word"]
        for name in ("fails", "bound", "in_toolkit"):
            answer = await called(toolkit, name, word="w", key="of the model")
            assert "w with ***" in answer
            said.texts.append(answer)
        said.texts.append(await called(toolkit, "fails", word=1))
        toolkit.remove_tool_function("bound")
        hub.tool(marked)
        failed = await hub.call("local", "marked", {"word": "w"})
        assert failed["content"][0]["text"] == "Error: w with *** at ***"
        said.texts.append(json.dumps(failed))
        said.texts.append(json.dumps(await hub.call("local", "marked", {"word": 1, "other": 2})))
        toolkit.register_tool_function(lambda: ToolResponse([{"type": "text", "text": "x"}]), func_name="other")
    await hub.aclose()
    said.assert_clean()


async def test_presets_of_a_manager_are_redacted_in_the_executors_log(said: Said) -> None:
    @tool(preset={"key": CANARY})
    def tells(word: str, key: str) -> dict[str, str]:
        """Tell, or fail."""
        if word == "fail":
            raise ValueError(key)
        return {"word": word, "key": key}

    server = {"command": sys.executable, "args": [REPEATING], "preset": {"say": PRESET}, "namespace": "repeating"}
    manager = ToolManager(config={"servers": {"repeating": server}})
    manager.hub.tool(tells)
    executor = ToolExecutor(manager)
    for how in HOWS:
        message = await executor.async_execute("repeating/say", {"how": how, "key": "x"})
        said.texts += [str(message.error)]
    manager.tool_func(marked)
    assert list(manager.tool_info["marked"]["kwargs"]) == ["word"]
    said.texts += [str((await executor.async_execute("marked", {"word": "w"})).error)]
    said.texts += [str((await executor.async_execute("tells", {"word": "fail"})).error)]
    message = await executor.async_execute("tells", {"word": "ok"})
    assert message.output["key"] == CANARY  # what a tool returns is its caller's
    said.texts.append(json.dumps(await manager.execute_tool_call("repeating", "say", {"how": "error"})))
    said.texts.append(json.dumps(await manager.execute_tool_call("repeating", "say", {"how": 1, "count": []})))
    await manager.aclose()
    said.assert_clean()


async def test_an_unexpected_error_inside_the_hub_is_logged_without_presets(said: Said) -> None:
    class Broken(dict[str, Any]):
        def items(self) -> Any:
            raise KeyError(f"{CANARY} is missing")

    async with Toolkit() as toolkit:

        def fine(word: str, key: str) -> ToolResponse:
            """Answer."""
            return ToolResponse([{"type": "text", "text": word}])

        toolkit.register_tool_function(fine, preset_kwargs={"key": CANARY})
        answer = await toolkit.hub.act("local", "fine", {"word": "w"}, preset=Broken(key="x"))
        said.texts.append(str(answer.error))
        said.texts.append(await called(toolkit, "fine", word="w"))
    said.assert_clean()
