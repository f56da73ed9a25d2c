"""Files of tools that are added, changed and removed while the hub of a program runs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import Hub, ToolExecutor, ToolManager
from tests.config.discovery.written import function, write
from tests.fakes.client import fake, spawned, write_config

API = "http://127.0.0.1:9/x"


def names_of(tools: ToolManager) -> list[str]:
    return [tool.name for tool in tools.load_tools() if not tool.name.startswith(("first__", "given__"))]


def here() -> str:
    return "here"


def test_tools_and_tool_sets_of_files_that_appear_are_found_and_those_of_removed_ones_are_gone(tmp_path: Path) -> None:
    """Seed 5: a new tool is a file in a folder, and nothing else."""
    config = write_config(tmp_path, {"first": fake()})
    given = [{"name": "given", "params": fake()}]
    with ToolManager(given, tool_blacklist=["given/add"], config=config) as tools:
        tools.tool_func(here)
        executor = ToolExecutor(tools)
        pids = [executor.execute(f"{server}__pid").output for server in ("first", "given")]
        assert names_of(tools) == ["here"]
        native = write(tmp_path, "tools/native/search.yaml", f"api_url: {API}\n")
        assert tools.get_tool("search").source == "native"
        function(tmp_path, "tools/builtin/one.py", "calculate")
        assert executor.execute("calculate", {"a": 5}).output == "calculate of one.py"
        write(tmp_path, "tools/mcp/late.yaml", fake("--tools", "1"))
        assert executor.execute("late/echo", {"text": "hello"}).output == "hello"
        write(tmp_path, "configs/tool_sets/some.yaml", "tools: [calculate, t0, here]\n")
        assert [tool.tool_name for tool in tools.get_tool_set("some")] == ["calculate", "t0", "here"]
        function(tmp_path, "tools/builtin/one.py", "other")
        native.unlink()
        write(tmp_path, "tools/native/broken.yaml", "api_url: [\n")
        assert {"late__t0", "local__other", "here"} <= {*names_of(tools)}
        with pytest.raises(ValueError, match="calculate"):
            tools.get_tool("calculate")
        with pytest.raises(ValueError, match="search"):
            tools.get_tool("search")
        assert executor.execute("here").output == "here"
        assert [executor.execute(f"{server}__pid").output for server in ("first", "given")] == pids
        assert executor.execute("given/add", {"a": 1, "b": 2}).code == "tool_not_found"


def test_a_directory_of_tools_of_a_mapping_is_followed_and_what_the_program_removed_stays_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tools").mkdir()
    config: dict[str, Any] = {"tools_dir": str(tmp_path / "tools"), "servers": {"first": fake(), "second": fake()}}
    with ToolManager(config=config) as tools:
        config.clear()
        tools.hub.remove_server_sync("second")
        function(tmp_path, "tools/one.py", "one")
        write(tmp_path, "tools/mcp/given.yaml", fake())
        write(tmp_path, "tools/mcp/broken.yaml", "command: [\n")
        assert ToolExecutor(tools).execute("one", {"a": 1}).output == "one of one.py"
        assert [server.id for server in tools.hub.config.servers] == ["first", "local", "given"]
    assert any("mcp/broken.yaml" in record.getMessage() for record in caplog.records)


def test_files_that_cannot_be_used_change_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = write_config(tmp_path, {"first": fake()})
    with ToolManager.from_config(config) as tools:
        before = tools.load_tools()
        config.write_text("{")
        assert tools.load_tools() == before
        write_config(tmp_path, {"first": fake("--tools", "1")})
        assert tools.get_tool("first__t0").server == "first"
    assert any("cannot be used" in record.getMessage() for record in caplog.records)


def test_files_that_a_server_can_write_wait_for_the_program(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = write_config(tmp_path, {"writer": fake(env={"WORKSPACE": str(tmp_path)})})
    with ToolManager.from_config(config) as tools:
        function(tmp_path, "tools/builtin/one.py", "one")
        assert {tool.server for tool in tools.load_tools()} == {"writer"}
        assert any("writer can write" in record.getMessage() for record in caplog.records)
        asyncio.run(tools.hub.renew(config))
        assert tools.get_tool("one").server == "local"


def test_watch_off_and_a_configuration_made_by_the_program_are_not_followed(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"first": fake()}, watch=False)
    with ToolManager.from_config(config) as off, ToolManager(config=Hub(config).config) as made:
        assert names_of(off) == names_of(made) == []
        function(tmp_path, "tools/builtin/one.py", "one")
        assert names_of(off) == names_of(made) == []


PROGRAM = """
import asyncio, sys
from mcp_hub import Hub

hub = Hub()
asyncio.run(hub.renew(sys.argv[1]))
hub.serve("stdio")
"""


@pytest.mark.anyio
async def test_clients_of_a_hub_that_serves_another_configuration_are_told_of_new_files(
    tmp_path: Path,
) -> None:
    program = write(tmp_path, "program.py", PROGRAM)
    config = write_config(tmp_path, {"first": fake()})
    async with spawned([sys.executable, str(program), str(config)]) as client:
        await client.initialize()
        assert "first__echo" in await client.tool_names()
        function(tmp_path, "tools/builtin/one.py", "one")
        while "local__one" not in await client.tool_names():
            await client.notified("notifications/tools/list_changed")
            client.notifications.clear()


def test_a_server_that_the_program_has_replaced_stays_replaced_when_files_change(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"first": fake(), "second": fake()})
    with ToolManager(config=config, timeout=60) as tools:
        tools.server_dict["first"] = fake(env={"REPLACED": "1"})
        executor = ToolExecutor(tools)
        for entry in ({}, {"disable_tools": ["add"]}):
            write_config(tmp_path, {"first": fake(**entry), "second": fake(**entry)})
            names = asyncio.run(tools.get_all_tool_definitions())
            assert ["add" in {tool["name"] for tool in server["tools"]} for server in names] == [True, not entry]
            assert "REPLACED" in executor.execute("first/environ").output


async def list_briefly(hub: Hub) -> None:
    """Asks for the tools and is cancelled at once, as by a deadline of the program."""
    asking = asyncio.create_task(hub.list())
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


def test_a_change_is_not_lost_with_the_listing_that_noticed_it(tmp_path: Path) -> None:
    async def listed() -> set[str]:
        async with Hub.from_config(write_config(tmp_path, {"one": fake("--tools", "1")})) as hub:
            assert {card.server for card in await hub.list()} == {"one"}
            write_config(tmp_path, {"one": fake("--tools", "1"), "two": fake("--tools", "1")})
            await list_briefly(hub)
            return {card.server for card in await hub.list()}

    assert asyncio.run(listed()) == {"one", "two"}
