"""ToolManager as Agently has it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from mcp_hub import ToolManager
from mcp_hub.library.agently import agently_format
from tests.fakes.client import FAKE, PATIENCE, fake, write_config
from tests.library.tool_managers import Json


class Point(BaseModel):
    x: int = Field(description="across")
    y: int


class Odd:
    pass


def add(a: Annotated[int, "left"] = 3, b: Annotated[int, "right", Field(ge=0)] = 1) -> int:
    """Add two numbers."""
    return a + b


async def later(text: str) -> Odd:
    """Something JSON has no word for."""
    await asyncio.sleep(0)
    odd = Odd()
    odd.text = text  # type: ignore[attr-defined]
    return odd


def boom() -> Point:
    raise ValueError("boom")


@pytest.fixture(scope="module")
def manager() -> Iterator[ToolManager]:
    with ToolManager() as manager:
        for function in (add, later, boom):
            assert manager.tool_func(function) is function
        yield manager


def test_check_30_unknown_and_failing_tools_return_error_texts(manager: ToolManager) -> None:
    """Agently's document, 6: errors are returned as these texts, nothing raises."""
    assert manager.call_tool("x", {}) == "Can not find tool named 'x'"
    assert manager.call_tool("boom", {}) == "Error: boom"
    assert asyncio.run(manager.async_call_tool("x", {})) == "Can not find tool named 'x'"
    assert asyncio.run(manager.async_call_tool("boom", {})) == "Error: boom"
    assert manager.call_tool("add", {"a": "1"}).startswith("Error: ")


def test_an_exception_without_a_message_is_an_error_without_text() -> None:
    with ToolManager() as tools:
        tools.register("silent", "d", {}, raises(RuntimeError()))
        tools.register("empty", "d", {}, raises(RuntimeError("")))
        tools.register("named", "d", {}, raises(RuntimeError("RuntimeError")))
        texts = [tools.call_tool(name, {}) for name in ("silent", "empty", "named")]
        assert texts == ["Error: ", "Error: ", "Error: RuntimeError"]


def raises(error: Exception) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function


def counts(to: int) -> Iterator[int]:
    yield from range(to)


async def counts_async(to: int) -> AsyncIterator[int]:
    for number in range(to):
        yield number


def returns_generator(to: int) -> Any:
    return (number for number in range(to))


async def returns_generator_later(to: int) -> Any:
    return (number for number in range(to))


@pytest.mark.parametrize("function", [counts, counts_async, returns_generator, returns_generator_later])
def test_a_call_returns_the_generator_of_a_function_which_the_caller_runs(function: Callable[..., Any]) -> None:
    async def call(tools: ToolManager) -> tuple[Any, Any]:
        sync = await asyncio.to_thread(tools.call_tool, "count", {"to": 3})
        return await drained(sync), await drained(await tools.async_call_tool("count", {"to": 2}))

    with ToolManager() as tools:
        tools.register("count", "d", {"to": (int, "how far")}, function)
        assert asyncio.run(call(tools)) == ([0, 1, 2], [0, 1])


async def drained(generator: Any) -> list[Any]:
    return [item async for item in generator] if isinstance(generator, AsyncGenerator) else list(generator)


def test_check_31_annotated_arguments_and_defaults_are_described(manager: ToolManager) -> None:
    """Agently's document, 3."""
    info = manager.get_tool_info()["add"]
    assert info == {
        "name": "add",
        "desc": "Add two numbers.",
        "kwargs": {"a": (int, "left;Default: 3"), "b": (int, "right;Default: 1")},
        "returns": int,
    }
    (card,) = [card for card in manager.hub.list_sync() if card.exposed == "add"]
    assert card.schema["properties"]["a"] == {"type": "integer", "description": "left;Default: 3", "default": 3}
    assert manager.tool_info["boom"]["returns"] == {"x": (int, "across"), "y": (int,)}
    assert manager.tool_info["boom"]["desc"] == "boom"


def test_check_32_tags_match_whole_words_and_tools_are_listed_once(manager: ToolManager) -> None:
    """Agently's document, 1, 2 and 4."""
    manager.register("one", "d", {"q": (str, "what")}, lambda q: q, tags="math")
    manager.register(name="two", desc=None, kwargs=None, func=lambda: 2, returns={"n": (int,)}, tags=["math", "web"])
    assert list(manager.get_tool_info(["math", "web"])) == ["one", "two"]
    assert [info["name"] for info in manager.get_tool_list("math")] == ["one", "two"]
    assert manager.get_tool_list("m") == manager.get_tool_list(["nothing"]) == []
    assert manager.tag_mappings["web"] == {"two"}
    for view in (manager.tool_funcs, manager.tool_info, manager.tag_mappings):
        with pytest.raises(TypeError):
            view["more"] = {}  # type: ignore[index]
    assert manager.tool_info["two"] == {"name": "two", "desc": "", "kwargs": {}, "returns": {"n": (int,)}}
    assert "returns" not in manager.tool_info["one"]
    manager.tag("one", ["web", "more"])
    assert {name for name in manager.get_tool_info("web")} == {"one", "two"}
    (card,) = [card for card in manager.hub.list_sync() if card.exposed == "one"]
    assert card.definition["_meta"]["mcp-hub/tags"] == ["math", "more", "web"]
    with pytest.raises(ValueError, match="nowhere"):
        manager.tag(["one", "nowhere"], "x")
    assert "x" not in manager.tag_mappings


def test_a_name_that_is_registered_again_is_replaced_with_its_tags(manager: ToolManager) -> None:
    manager.register("again", "first", {}, lambda: 1, tags="old")
    manager.register("again", "second", {}, lambda: 2, tags="new")
    assert manager.call_tool("again", {}) == 2
    assert manager.get_tool_list("old") == []
    assert manager.tool_info["again"]["desc"] == "second"
    with pytest.raises(TypeError):
        manager.register("none", "d", {}, None)


def test_functions_return_their_value_unchanged(manager: ToolManager) -> None:
    assert manager.call_tool("add", {"a": 1}) == 2
    odd = manager.call_tool("later", {"text": "x"})
    assert isinstance(odd, Odd)
    assert isinstance(asyncio.run(manager.async_call_tool("later", {"text": "x"})), Odd)


def test_a_registered_function_needs_no_schema_and_gets_what_was_sent(manager: ToolManager) -> None:
    calls: list[Json] = []

    def takes_all(q: Any, **more: Any) -> str:
        calls.append({"q": q, **more})
        return "taken"

    manager.register("all", "d", {"q": ("str | None", "what"), "n": (int, "how many")}, takes_all)
    assert manager.call_tool("all", {"q": ["a"], "n": 1}) == "taken"
    assert calls == [{"q": ["a"], "n": 1}]
    assert manager.call_tool("all", {}).startswith("Error: ")
    assert manager.call_tool("all", {"q": 1, "n": "many"}).startswith("Error: ")


def test_a_function_with_var_keywords_receives_extra_arguments(manager: ToolManager) -> None:
    def collect(first: int = 1, **others: Any) -> Any:
        return first, others

    manager.tool_func(collect)
    assert manager.call_tool("collect", {"second": {"a": [2]}, "third": None}) == (
        1,
        {"second": {"a": [2]}, "third": None},
    )
    assert manager.call_tool("collect", {"first": "one"}).startswith("Error: ")


def test_get_tool_func_returns_the_function_itself_or_a_sync_or_async_wrapper(manager: ToolManager) -> None:
    """Agently's document, 5."""
    assert manager.get_tool_func("add") is add
    assert manager.tool_funcs["add"] is add
    assert manager.get_tool_func("nowhere") is None
    assert manager.get_tool_func("nowhere", shift="sync") is None
    sync, asynchronous = manager.get_tool_func("later", shift="sync"), manager.get_tool_func("add", shift="async")
    assert sync is not None
    assert asynchronous is not None

    async def inside() -> tuple[Any, Any]:
        return sync("x"), await asynchronous(a=1, b=1)

    assert isinstance(sync("x"), Odd)
    assert isinstance(asyncio.run(inside())[0], Odd)
    assert asyncio.run(asynchronous(a=1, b=1)) == 2
    assert manager.get_tool_func("add", shift="sync") is add
    assert manager.get_tool_func("later", shift="async") is later


def test_a_sync_function_does_not_run_in_the_callers_loop(manager: ToolManager) -> None:
    manager.register("thread", "d", {}, threading.get_ident)
    assert asyncio.run(manager.async_call_tool("thread", {})) != threading.get_ident()


def test_a_schema_is_converted_to_kwargs_without_being_changed() -> None:
    schema: Json = {
        "type": "object",
        "properties": {"a": {"type": "integer", "title": "A", "description": "left", "default": 3}, "b": {}},
        "additionalProperties": {"type": "string"},
    }
    before = json.dumps(schema)
    assert agently_format.from_schema(schema) == {
        "a": ("integer", "description: left;default: 3"),
        "b": (Any, ""),
        "<*>": ("string", ""),
    }
    assert json.dumps(schema) == before
    assert agently_format.from_schema({"type": "object"}) is None
    assert agently_format.from_schema({}) is agently_format.from_schema(None) is None
    assert agently_format.from_schema({"properties": {"q": {"type": "string"}}}) == {"q": ("string", "")}
    with pytest.raises(TypeError):
        agently_format.from_schema({"type": "array"})


def test_check_34_servers_work_without_fastmcp_and_markitdown_and_stdin_is_never_read() -> None:
    """Both are of no use to the library; what does need one says so in an error, and stdin is never read."""
    program = f"""
        import builtins, sys
        class Missing:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in ("fastmcp", "markitdown"):
                    raise ImportError(f"{{name}} is not installed: pip install {{name}}")
        sys.meta_path.insert(0, Missing())
        def refuse(*_): raise AssertionError("asked")
        builtins.input = refuse
        from mcp_hub import BaseTool, ToolManager
        with ToolManager() as manager:
            manager.use_mcp({FAKE!r})
            print(manager.call_tool("echo", {{"text": "works"}}))
        try:
            import fastmcp
        except ImportError as error:
            print(error)
        sys.modules["langchain_core"] = None
        try:
            BaseTool(name="x").to_langchain(None)
        except ImportError as error:
            print(error)
    """
    completed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    echoed, blocked, missing = completed.stdout.splitlines()
    assert echoed == "works"
    assert blocked.startswith("fastmcp is not installed")
    assert "pip install" in missing


class Colour(Enum):
    RED = "red"


@dataclass
class Pair:
    left: Any
    right: Any = None


class Silent:
    def __str__(self) -> str:
        raise RuntimeError("no words")


OBJECTS = (
    *(b"abc", b"\xff\xfe", Path("x"), Odd(), Silent(), Point(x=1, y=2), Pair(1, Odd()), Colour.RED, date(2020, 1, 1)),
    *({1, 2}, (1, 2), float("nan"), "\ud800", {"k": Odd()}, [Pair(2)], {1: 2}, print, iter([1]), 2**70),
)


def test_python_objects_reach_a_function_and_come_back_untouched() -> None:
    """Agently's document, 6: what JSON has no word for is not checked and not converted."""
    received: list[Any] = []

    def anything(v: Any) -> Any:
        received.append(v)
        return v

    def path(v: Path) -> Path:
        received.append(v)
        return v

    async def model(v: Point, w: Any = None) -> Point:
        received.append(v)
        return v

    with ToolManager() as manager:
        manager.tool_func(anything)
        manager.tool_func(path)
        manager.tool_func(model)
        manager.register("typed", "d", {"v": (int, "a number")}, anything)
        for name in ("anything", "path", "model", "typed"):
            for value in OBJECTS[:-1] if name != "anything" else OBJECTS:
                assert manager.call_tool(name, {"v": value}) is value, (name, value)
                assert received.pop() is value
        mapping: Json = {"x": 1, "y": [2]}
        assert manager.call_tool("anything", {"v": mapping}) is mapping
        valid = {"x": 1, "y": 2}
        assert manager.call_tool("model", {"v": valid}) is valid, "the annotation is checked, nothing is converted"
        assert manager.call_tool("model", {"v": mapping}).startswith("Error: ")
        assert manager.call_tool("path", {"v": 3}).startswith("Error: ")
        assert "missing 1 required positional argument: 'v'" in manager.call_tool("model", {"w": Odd()})


def test_rules_inspect_the_contents_of_python_objects(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="mcp_hub.calls")
    urls: list[Any] = []

    class Address:
        def __str__(self) -> str:
            return "https://huggingface.co/datasets/x"

    with ToolManager() as manager:
        manager.register("scrape", "d", {"url": (str, "")}, lambda url, **more: urls.append(url))
        for hidden in (Address(), Pair("https://huggingface.co/datasets/x"), {Address(): 1, "b": b"\xff"}):
            assert "Hugging Face" in manager.call_tool("scrape", {"url": hidden})
        manager.call_tool("scrape", {"url": Path("page"), "api_key": b"sk-1234567890abcdef"})
    assert urls == [Path("page")]
    *_, record = [json.loads(entry.getMessage()) for entry in caplog.records if entry.name == "mcp_hub.calls"]
    assert record["arguments"] == {"url": "page", "api_key": "***"}


def test_servers_that_are_added_concurrently_do_not_replace_each_other(tmp_path: Path) -> None:
    def server(tool: str) -> Json:
        lists = tmp_path / f"{tool}.json"
        lists.write_text(json.dumps({"tools": [{"name": tool, "inputSchema": {"type": "object"}}]}))
        return {"command": sys.executable, "args": [FAKE, "--lists", str(lists)]}

    async def use() -> list[Any]:
        async with ToolManager() as manager:
            await asyncio.gather(*(manager.async_use_mcp(server(tool)) for tool in ("echo", "pid")))
            return [
                len(manager.hub.config.servers),
                await manager.async_call_tool("echo", {"text": "x"}),
                await manager.async_call_tool("pid"),
            ]

    count, echo, pid = asyncio.run(use())
    assert (count, echo) == (2, "x")
    assert int(pid)


def test_python_objects_for_a_server_are_serialised_as_json() -> None:
    with ToolManager() as manager:
        manager.use_mcp(FAKE)
        for value, serialised in (
            (Path("x"), "x"),
            (b"abc", "abc"),
            (Colour.RED, "red"),
            (date(2020, 1, 1), "2020-01-01"),
        ):
            assert manager.call_tool("echo", {"text": value}) == serialised
        assert "Odd is not JSON" in manager.call_tool("echo", {"text": Odd()})["error"]


def test_the_check_of_arguments_can_be_switched_off() -> None:
    with ToolManager() as checked, ToolManager(check_arguments=False) as unchecked:
        for manager in (checked, unchecked):
            manager.register("typed", "d", {"n": (int, "a number")}, lambda n: n)
            manager.tool_func(add)
        assert checked.call_tool("typed", {"n": "3"}).startswith("Error: The arguments do not fit")
        assert unchecked.call_tool("typed", {"n": "3"}) == "3"
        assert checked.call_tool("add", {"a": "x", "b": "y"}).startswith("Error: The arguments do not fit")
        assert unchecked.call_tool("add", {"a": "x", "b": "y"}) == "xy"
        assert unchecked.call_tool("add", {"c": 1}).startswith("Error: add() got an unexpected keyword argument")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_hundred_nested_calls_do_not_deadlock(kind: str) -> None:
    """Each waits for the next one, so none of them may wait for a slot that an outer one has."""
    with ToolManager() as manager:

        def down(n: int) -> Any:
            return manager.call_tool("down", {"n": n - 1}) if n else "the end"

        async def down_async(n: int) -> Any:
            return manager.call_tool("down", {"n": n - 1}) if n else "the end"

        manager.register("down", "d", {"n": (int, "")}, down if kind == "sync" else down_async)
        assert manager.call_tool("down", {"n": 100}) == "the end"
        assert asyncio.run(manager.async_call_tool("down", {"n": 100})) == "the end"


def test_configured_tools_are_listed(tmp_path: Path) -> None:
    path = write_config(
        tmp_path,
        {
            "web": fake(tags=["net"], tools={"echo": {"tags": ["words"]}}),
            "gone": fake("--die", "no"),
            "off": fake(enabled=False),
        },
        blacklist=[["web", "add"]],
    )
    with ToolManager.from_config(path) as manager:
        manager.tool_func(add)
        manager.hub.tool(tags=["mine"])(later)
        info = manager.get_tool_info()
        assert info["web__echo"] == {
            "name": "web__echo",
            "desc": "echo of fake",
            "kwargs": {"text": ("string", "")},
        }
        assert "web__add" not in info
        assert {"add", "later"} <= info.keys()
        assert [tool["name"] for tool in manager.get_tool_list("words")] == ["web__echo"]
        assert set(manager.get_tool_info(["words", "mine"])) == {"web__echo", "later"}
        assert "web__pid" in manager.get_tool_info("net")
        echo = manager.get_tool_func("web__echo")
        assert echo is not None
        assert echo is manager.get_tool_func("web__echo")
        assert asyncio.run(echo(text="x")) == "x"
        sync = manager.get_tool_func("web__echo", shift="sync")
        assert sync is not None
        assert sync(text="y") == manager.call_tool("web__echo", {"text": "y"}) == "y"
        assert manager.get_tool_func("web__add") is None
