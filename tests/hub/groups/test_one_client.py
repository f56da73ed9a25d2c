"""Groups of a configuration as one client over stdio meets them."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.errors import ConfigError
from mcp_hub.hub.composition import read_config
from tests.fakes.client import HUB, PATIENCE, RpcError, StdioClient, fake, hub, spawned, write_config
from tests.hub.groups.hearing import CHANGED, GROUPS, RESET, code, inactive
from tests.hub.reload.test_going_over_to_another_configuration import changed

pytestmark = pytest.mark.anyio

SERVERS = {"a": fake("--name", "a"), "b": fake("--name", "b")}


async def listed(client: StdioClient) -> dict[str, Any]:
    return {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}


def texts(result: dict[str, Any]) -> list[str]:
    assert not result.get("isError"), result
    return [block["text"] for block in result["content"]]


@pytest.mark.parametrize("modern", [False, True])
async def test_inactive_tools_are_unlisted_until_their_group_is_activated(tmp_path: Path, modern: bool) -> None:
    """Check 38, in both eras."""
    record = tmp_path / "record"
    servers = {"a": fake("--name", "a", "--record", str(record)), "b": SERVERS["b"]}
    async with hub(tmp_path, servers, modern=modern, groups=GROUPS) as client:
        if modern:
            client.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "ear")
        tools = await listed(client)
        assert {RESET, "a__echo", "a__pid"} <= set(tools)
        assert not {"a__add", "b__add", "b__pid"} & set(tools)
        assert tools[RESET]["inputSchema"]["properties"] == {
            name: {"type": "boolean", "default": False, "description": group["description"]}
            for name, group in GROUPS.items()
        }
        refused = await client.call("a__add", {"a": 1, "b": 2})
        assert refused["isError"] is True
        assert code(refused) == "group_inactive"
        assert refused["content"] == [{"type": "text", "text": inactive("a__add", "sums")}]
        assert code(await client.call("b__pid")) == "group_inactive"
        assert b"tools/call" not in record.read_bytes()

        text, definitions = texts(await client.call(RESET, {"sums": True}))
        assert text == (
            "Now tool groups 'sums' are activated. You MUST follow these notes to use these tools:\n"
            "<notes>## About Tool Group 'sums'\nAdd twice.</notes>"
        )
        activated = {tool["name"]: tool for tool in json.loads(definitions)["tools"]}
        await client.notified(CHANGED)
        tools = await listed(client)
        assert set(activated) == {"a__add", "b__add"} <= set(tools)
        assert activated["a__add"]["inputSchema"] == tools["a__add"]["inputSchema"]
        assert "a__echo" not in tools  # the state is absolute
        assert await client.text("a__add", {"a": 1, "b": 2}) == "3"
        assert code(await client.call("a__echo", {"text": "x"})) == "group_inactive"

        (text,) = texts(await client.call(RESET, {"sums": False}))
        assert text == "All tool groups are now deactivated currently."
        text, _ = texts(await client.call(RESET, {"texts": True, "all_of_b": True}))
        assert text.startswith("Now tool groups 'texts', 'all_of_b' are activated. You MUST follow")
        assert await client.text("b__add", {"a": 2, "b": 2}) == "4"  # of two groups, one of which is on


async def test_an_invalid_switch_changes_nothing(tmp_path: Path) -> None:
    async with hub(tmp_path, SERVERS, groups=GROUPS) as client:
        before = await listed(client)
        for arguments, text in [
            ({"sums": True, "texts": "yes"}, "the argument texts should be a bool value, but got <class 'str'>."),
            ({"sums": True, "texts": 1}, "the argument texts should be a bool value, but got <class 'int'>."),
            ({"sums": True, "texts": None}, "the argument texts should be a bool value, but got <class 'NoneType'>."),
        ]:
            refused = await client.call(RESET, arguments)
            assert code(refused) == "invalid_parameters"
            assert refused["content"][0]["text"] == f"Invalid arguments: {text}"
        for arguments in ({"sums": True, "nowhere": True}, {"nowhere": False}, {"basic": True}):
            refused = await client.call(RESET, arguments)
            assert code(refused) == "invalid_parameters"
            assert "'sums', 'texts', 'all_of_b'" in refused["content"][0]["text"]
        assert await listed(client) == before
        assert await client.text("a__echo", {"text": "still on"}) == "still on"
        await client.call(RESET, {"texts": True})  # as it was
        await client.call(RESET, {})
        await client.notified(CHANGED)
        assert len([n for n in client.notifications if n["method"] == CHANGED]) == 1


async def test_notes_of_active_groups_are_in_the_instructions(tmp_path: Path) -> None:
    groups = {**GROUPS, "sums": {**GROUPS["sums"], "active": True}}
    async with hub(tmp_path, SERVERS, handshake=False, groups=groups) as client:
        instructions = (await client.initialize())["instructions"]
        assert instructions.startswith("## About Tool Group 'sums'\nAdd twice.")
        assert "all_of_b" not in instructions


async def test_a_refused_tool_stays_unknown_in_an_inactive_group(tmp_path: Path) -> None:
    servers = {"a": fake("--name", "a", disable_tools=["add"]), "b": SERVERS["b"]}
    async with hub(tmp_path, servers, groups=GROUPS, blacklist=["b/crash"], meta_tools=True) as client:
        for state in ({}, {"sums": True, "all_of_b": True}):
            await client.call(RESET, state)
            for name in ("a__add", "b__crash"):
                answers = [await client.start("tools/call", params) for params in (
                    {"name": name, "arguments": {}},
                    {"name": "hub_call", "arguments": {"tool": name}},
                )]  # fmt: skip
                for answer in answers:
                    assert answer["error"] == {"code": -32602, "message": f"Unknown tool: {name}"}
            result = json.loads(texts(await client.call("hub_search", {"query": "", "limit": 50, "detail": "full"}))[0])
            assert not {"a__add", "b__crash"} & {tool["name"] for tool in result["tools"]}


async def test_without_groups_there_are_no_meta_tools(tmp_path: Path) -> None:
    async with hub(tmp_path, {"a": SERVERS["a"]}) as client:
        assert not {RESET, "hub_search", "hub_call"} & set(await listed(client))
        for name in (RESET, "hub_search", "hub_call"):
            with pytest.raises(RpcError) as caught:
                await client.call(name)
            assert caught.value.error == {"code": -32602, "message": f"Unknown tool: {name}"}


async def test_a_server_cannot_impersonate_the_meta_tools(tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    names = (RESET, "hub_call", "hub_search")
    tools = [{"name": name, "description": "mine", "inputSchema": {"type": "object"}} for name in names]
    lists.write_text(json.dumps({"tools": tools}))
    servers = {"evil": fake("--lists", str(lists), namespace=""), "mcp-hub": fake(namespace="")}
    for on_conflict in ("override", "prefix"):
        directory = tmp_path / on_conflict
        directory.mkdir()
        root = {"groups": {"g": ["mcp-hub/add"]}, "meta_tools": True, "on_conflict": on_conflict}
        async with hub(directory, servers, **root) as client:
            listed_tools = await listed(client)
            assert all(listed_tools[name]["description"] != "mine" for name in names)
            (impostor,) = [n for n in listed_tools if n.endswith("call") or "hub_call_" in n if n != "hub_call"]
            assert await client.text(impostor) == "called hub_call"
            text, _ = texts(await client.call(RESET, {"g": True}))
            assert text == "Now tool groups 'g' are activated."
            assert await client.text("add", {"a": 1, "b": 1}) == "2"
            resource = await client.request("resources/read", {"uri": "fake://fake/one"})
            assert resource["contents"][0]["text"] == "text of fake://fake/one"  # of a server called as the hub is


async def test_groups_survive_another_configuration(tmp_path: Path) -> None:
    async with hub(tmp_path, SERVERS, groups=GROUPS, watch=False) as client:
        await client.call(RESET, {"sums": True, "all_of_b": True})
        assert {"a__add", "b__pid"} <= set(await listed(client))
        count = len(await client.notified(CHANGED))
        fewer = {name: GROUPS[name] for name in ("sums", "texts")}
        extended = {**fewer, "pids": {"description": "Ids.", "tools": ["*/pid"]}}
        await changed(client, tmp_path, SERVERS, groups=extended, watch=False)
        await client.notified(CHANGED, count + 1)
        tools = await listed(client)
        assert list(tools[RESET]["inputSchema"]["properties"]) == ["sums", "texts", "pids"]
        assert {"a__add", "b__echo"} <= set(tools)  # as it was switched; the group of b is gone, its tools are not
        assert not {"a__echo", "a__pid", "b__pid"} & set(tools)
        refused = await client.call(RESET, {"all_of_b": True})
        assert code(refused) == "invalid_parameters"
        await changed(client, tmp_path, SERVERS, watch=False)
        assert RESET not in await listed(client)
        assert await client.text("a__pid") == await client.text("a__pid")
        # A change nobody sees is not told.
        await changed(client, tmp_path, SERVERS, groups=extended, watch=False)
        await client.notified(CHANGED, count + 3)
        quiet = {"a": fake("--name", "a", tools={"pid": {"title": "Another"}}), "b": SERVERS["b"]}
        await changed(client, tmp_path, quiet, groups=extended, watch=False)
        await client.call(RESET, {"pids": True})
        await client.notified(CHANGED, count + 4)
        assert (await listed(client))["a__pid"]["title"] == "Another"
        assert len([n for n in client.notifications if n["method"] == CHANGED]) == count + 4


async def test_a_tool_of_an_inactive_group_is_refused_without_starting_its_server(tmp_path: Path) -> None:
    """Lists that were kept are grouped as live ones are."""
    journal = tmp_path / "journal"
    servers = {"a": fake("--journal", str(journal), lazy=True)}
    groups = {"sums": ["a/add"]}
    async with hub(tmp_path, servers, groups=groups) as client:
        await client.text("a__pid")
    assert "ready" in journal.read_text()
    journal.unlink()
    async with hub(tmp_path, servers, groups=groups) as client:
        assert "a__add" not in await listed(client)
        assert code(await client.call("a__add", {"a": 1, "b": 1})) == "group_inactive"
        await client.call(RESET, {"sums": True})
        assert "a__add" in await listed(client)
        assert not journal.exists()
        assert await client.text("a__add", {"a": 1, "b": 1}) == "2"


async def test_with_hub_scope_the_group_state_survives_a_restart_if_a_state_file_is_set(tmp_path: Path) -> None:
    path = tmp_path / "own" / "state.json"
    root = {"groups": GROUPS, "group_scope": "hub", "state_file": str(path)}
    async with hub(tmp_path, SERVERS, **root) as client:
        await client.call(RESET, {"sums": True})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with hub(tmp_path, SERVERS, **root) as client:
        tools = await listed(client)
        assert "a__add" in tools
        assert "a__echo" not in tools  # on in the configuration, switched off by the client
        await client.call(RESET, {"texts": True})
    path.write_text("{")
    async with hub(tmp_path, SERVERS, **root) as client:
        assert "a__echo" in await listed(client)  # as the configuration says
        await client.until(lambda: b"state_file is ignored" in client.stderr)
    async with hub(tmp_path, SERVERS, groups=GROUPS, state_file=str(path)) as client:
        await client.call(RESET, {"sums": True})  # of a session alone: kept nowhere
    assert path.read_text() == "{"


async def test_the_command_line_switches_groups_on_and_shows_them(tmp_path: Path) -> None:
    config = write_config(tmp_path, SERVERS, groups=GROUPS)

    async def run(*arguments: str) -> tuple[int, str]:
        pipe = asyncio.subprocess.PIPE
        argv = [*HUB, *arguments, "--config", str(config)]
        process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe)
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
        return process.returncode or 0, (out + err).decode()

    async with spawned([*HUB, "serve", "--config", str(config), "--group", "sums"]) as client:
        await client.initialize()
        assert {"a__add", "a__echo"} <= set(await listed(client))
        client.process.send_signal(signal.SIGHUP)
        await client.until(lambda: b"loaded servers.json again" in client.stderr)
        assert "a__add" in await listed(client)
    status, output = await run("tools")
    assert status == 0
    assert "a__echo" in output and "a__add" not in output  # noqa: PT018
    assert "group sums (inactive" in output and "group texts (active" in output  # noqa: PT018
    status, output = await run("tools", "--group", "sums")
    assert [line.split()[0] for line in output.splitlines()] == ["a__add", "b__add"]
    status, output = await run("tools", "--group", "basic")
    assert "a__pid" in output and "a__add" not in output and "b__" not in output  # noqa: PT018
    assert (await run("call", "a__add", "--args", '{"a": 1, "b": 2}'))[0] == 1
    assert (await run("call", "a", "add", "--args", '{"a": 1, "b": 2}'))[0] == 1
    assert await run("call", "--group", "sums", "a__add", "--args", '{"a": 1, "b": 2}') == (0, "3\n")
    status, output = await run("call", "a__add", "--explain")
    assert "group" in output and "refused: groups.sums: inactive" in output  # noqa: PT018
    status, output = await run("call", RESET, "--args", '{"texts": true}', "--explain")
    assert status == 0, output
    for command in (["serve"], ["tools"], ["call", "a__pid"]):
        status, output = await run(*command, "--group", "nowhere")
        assert status == 2, output
        assert "no group 'nowhere'" in output


@pytest.mark.parametrize(
    ("groups", "where"),
    [
        ({"basic": ["a/add"]}, "groups.basic: is reserved"),
        ({"g": {"tools": ["a/add"], "active": "perhaps"}}, "groups.g.active"),
        ({"g": {"notes": ["x"]}}, "groups.g.notes"),
        ({"g\x07": ["a/add"]}, "without control characters"),
        ("a/add", "groups: must be a mapping"),
    ],
)
def test_invalid_groups_are_errors_of_the_file(tmp_path: Path, groups: Any, where: str) -> None:
    config = write_config(tmp_path, SERVERS, groups=groups)
    with pytest.raises(ConfigError, match=where):
        read_config(config)


def test_suspicious_groups_are_warnings(tmp_path: Path) -> None:
    groups = {"read only": {"tools": ["a/echo"]}, "more": {"servers": ["c*"]}}
    loaded = read_config(write_config(tmp_path, SERVERS, groups=groups, group_scope="hub", meta_tools=True))
    assert [warning.split(": ")[1] for warning in loaded.warnings] == ["groups.'read only'", "groups.more.servers"]
    assert loaded.config.group_scope == "hub"
