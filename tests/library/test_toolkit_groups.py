"""AgentScope's Toolkit: groups of tools, and a toolkit that is attached to a hub or served."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import Hub, Toolkit
from mcp_hub.policy.access import BLACKLIST
from tests.fakes.client import FAKE, RpcError, spawned
from tests.library.toolkits import add, coroutine, names, parameters, plain, text

pytestmark = pytest.mark.anyio


async def test_tools_of_an_inactive_group_are_unlisted_and_name_the_switch(
    toolkit: Toolkit,
) -> None:
    """Check 38. Seed 004, lines 128 and 305; rows A004-5 to 8 have the words of the texts."""
    toolkit.create_tool_group("sums", "Adding.", notes="Add slowly.")
    toolkit.create_tool_group("words", "Saying.", active=True)
    for name in ("sums", "basic"):
        with pytest.raises(ValueError, match=rf"^Tool group '{name}' is already registered in the toolkit\.$"):
            toolkit.create_tool_group(name, "Again.")
    with pytest.raises(ValueError, match=r"^Tool group 'nope' not found\.$"):
        toolkit.register_tool_function(add, "nope")
    toolkit.register_tool_function(add, "sums")
    toolkit.register_tool_function(plain, group_name="words")
    toolkit.register_tool_function(toolkit.reset_equipped_tools)
    assert names(toolkit) == ["plain", "reset_equipped_tools"]
    assert names(toolkit, ["sums"]) == ["add"]
    assert await text(toolkit, "add", a=1) == (
        "FunctionInactiveError: The function 'add' is in the inactive group 'sums'. "
        "Activate the tool group by calling 'reset_equipped_tools' first to use this tool."
    )
    assert parameters(toolkit, "reset_equipped_tools")["properties"] == {
        "sums": {"type": "boolean", "default": False, "description": "Adding."},
        "words": {"type": "boolean", "default": False, "description": "Saying."},
    }
    for arguments in ({"sums": True, "words": "yes"}, {"sums": True, "nope": True}):
        assert (await text(toolkit, "reset_equipped_tools", **arguments)).startswith("Invalid arguments: ")
    assert names(toolkit) == ["plain", "reset_equipped_tools"]  # nothing has changed
    notes = "## About Tool Group 'sums'\nAdd slowly."
    assert await text(toolkit, "reset_equipped_tools", sums=True) == (
        f"Now tool groups 'sums' are activated. You MUST follow these notes to use these tools:\n<notes>{notes}</notes>"
    )
    assert toolkit.get_activated_notes() == toolkit.get_tool_group_notes() == notes
    assert names(toolkit) == ["add", "reset_equipped_tools"]
    assert await text(toolkit, "add", a=1) == "3"
    assert await text(toolkit, "reset_equipped_tools") == "All tool groups are now deactivated currently."
    assert names(toolkit) == ["reset_equipped_tools"]


async def test_groups_are_switched_and_removed_with_their_tools_and_their_state_is_kept(toolkit: Toolkit) -> None:
    for name in ("one", "two", "three"):
        toolkit.create_tool_group(name, name)
    toolkit.register_tool_function(add, "one")
    toolkit.register_tool_function(plain, "two")
    toolkit.update_tool_groups(["one", "two", "basic", "nope"], active=True)
    assert names(toolkit) == ["add", "plain"]
    state = toolkit.state_dict()
    assert state == {"active_groups": ["one", "two"]}
    toolkit.load_state_dict({"active_groups": ["two"]})
    assert names(toolkit) == ["plain"]
    invalid_states: list[Any] = [{}, [], {"active_groups": "one"}, {"active_groups": ["one"], "more": 1}]
    for invalid_state in invalid_states:
        with pytest.raises(ValueError, match="active_groups"):
            toolkit.load_state_dict(invalid_state)
    toolkit.load_state_dict({**state, "more": 1}, strict=False)
    assert toolkit.state_dict() == state
    with pytest.raises(ValueError, match="basic"):
        toolkit.remove_tool_groups("basic")
    with pytest.raises(TypeError):
        toolkit.remove_tool_groups([1])  # type: ignore[list-item]
    toolkit.remove_tool_groups("one")
    assert list(toolkit.tools) == ["plain"]
    assert "FunctionNotFoundError" in await text(toolkit, "add", a=1)
    toolkit.register_tool_function(add)
    assert await text(toolkit, "add", a=1) == "3"
    toolkit.remove_tool_function("add")
    toolkit.remove_tool_function("add")
    with pytest.raises(ValueError, match="add"):
        toolkit.remove_tool_function("add", allow_not_exist=False)
    toolkit.clear()
    assert (toolkit.tools, toolkit.groups, toolkit.get_json_schemas()) == ({}, {}, [])


async def test_a_hub_has_the_functions_and_groups_of_an_attached_toolkit_and_its_rules_apply() -> None:
    toolkit = Toolkit()
    toolkit.create_tool_group("sums", "Adding.")
    toolkit.register_tool_function(add, "sums")
    toolkit.register_tool_function(plain)
    toolkit.register_tool_function(coroutine)
    async with Hub({"servers": {}, "blacklist": []}) as hub:
        hub.attach(toolkit)
        assert toolkit.hub is hub
        assert {card.name for card in await hub.list()} == {"plain", "coroutine"}
        refused = await hub.call("local", "add", {"a": 1})
        assert refused["_meta"]["mcp-hub/error"]["code"] == "group_inactive"
        toolkit.update_tool_groups(["sums"], active=True)
        assert {card.name for card in await hub.list()} == {"add", "plain", "coroutine"}
        assert (await hub.call("local", "add", {"a": 1}))["content"] == [{"type": "text", "text": "3"}]
        assert await text(toolkit, "add", a=1) == "3"
        toolkit.remove_tool_groups("sums")
        assert {card.name for card in await hub.list()} == {"plain", "coroutine"}
        hub.change_sync(lambda config: BLACKLIST.changed(config, (("local", "plain"),)))
        assert await text(toolkit, "plain") == "Error: Unknown tool: plain"
        await toolkit.aclose()
        assert await text(toolkit, "coroutine") == "a b"


SERVED = """
import asyncio, sys
from mcp_hub import StdIOStatefulClient, Toolkit, ToolResponse

def said(text, **more):
    return ToolResponse([{"type": "text", "text": text}], **more)

async def spell(word: str):
    for end in range(1, len(word) + 1):
        yield said(word[:end], is_last=False)

toolkit = Toolkit()
toolkit.create_tool_group("remote", "Elsewhere.", notes="Be quick.")
toolkit.register_tool_function(spell)
toolkit.register_tool_function(toolkit.reset_equipped_tools)
client = StdIOStatefulClient("fake", command=sys.executable, args=[sys.argv[1]])

async def registered():
    await client.connect()
    await toolkit.register_mcp_client(
        client, "remote", enable_funcs=["echo", "add"], preset_kwargs_mapping={"add": {"b": 40}})

asyncio.run(registered())
toolkit.serve()
"""


async def test_a_toolkit_is_served_with_its_clients_its_presets_and_its_groups(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SERVED)
    async with spawned([sys.executable, str(program), FAKE]) as served:
        await served.initialize()
        assert await served.tool_names() == ["reset_equipped_tools", "spell"]
        result = await served.call("spell", {"word": "hub"}, _meta={"progressToken": "t"})
        assert result["content"][0]["text"] == "hub"
        progress = await served.notified("notifications/progress", 3)
        assert [note["params"]["message"] for note in progress] == ["h", "hu", "hub"]
        refused = await served.call("add", {"a": 2})
        assert refused["_meta"]["mcp-hub/error"]["code"] == "group_inactive"
        assert "Be quick." in await served.text("reset_equipped_tools", {"remote": True})
        await served.notified("notifications/tools/list_changed")
        tools = {tool["name"]: tool for tool in (await served.request("tools/list"))["tools"]}
        assert list(tools) == ["reset_equipped_tools", "spell", "echo", "add"]
        assert list(tools["add"]["inputSchema"]["properties"]) == ["a"]
        assert await served.text("add", {"a": 2, "b": 0}) == "42"
        with pytest.raises(RpcError) as hidden:
            await served.call("pid")
        assert hidden.value.code == -32602
