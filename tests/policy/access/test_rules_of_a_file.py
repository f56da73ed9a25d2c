"""Blacklist, filters, presets and other words for tools, as a client sees them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.catalog import Item, Route
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import load_config
from mcp_hub.protocol.frames import finished
from mcp_hub.protocol.kinds import TOOLS
from tests.fakes.client import RpcError, fake, hub, write_config
from tests.fakes.network import network_hub

pytestmark = pytest.mark.anyio


def calls(record: Path) -> list[dict[str, Any]]:
    """The params of every tools/call the upstream saw."""
    messages = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    return [message["params"] for message in messages if message.get("method") == "tools/call"]


async def test_a_blacklist_applies_to_lists_and_calls_on_every_transport(tmp_path: Path) -> None:
    """Checks 2 and 3."""
    record = tmp_path / "record"
    async with network_hub(tmp_path / "inner", {"up": fake("--record", str(record))}) as (_, base):
        servers = {
            "stdio": fake("--record", str(record)),
            "http": {"url": base + "/mcp", "transport": "http"},
            "sse": {"url": base + "/sse", "transport": "sse"},
        }
        blacklist = [["stdio", "add"], ["http", "up__add"], "sse/up__a*"]
        async with hub(tmp_path, servers, blacklist=blacklist) as client:
            names = await client.tool_names()
            assert {"stdio__echo", "http__up__echo", "sse__up__echo"} <= set(names)
            assert [name for name in names if name.endswith("add")] == []
            for name in ("stdio__add", "http__up__add", "sse__up__add"):
                with pytest.raises(RpcError) as refused:
                    await client.call(name, {"a": 1, "b": 2})
                with pytest.raises(RpcError) as unknown:
                    await client.call(name + "x", {"a": 1, "b": 2})
                assert refused.value.code == unknown.value.code == -32602
                assert unknown.value.error["message"].removesuffix("x") == refused.value.error["message"]
    assert calls(record) == []


async def test_filters_apply_to_lists_and_calls(tmp_path: Path) -> None:
    """Check 36."""
    async with hub(tmp_path, {"a": fake(enable_tools=["ec*", "add"]), "b": fake(disable_tools=["echo"])}) as client:
        names = await client.tool_names()
        assert [name for name in names if name.startswith("a__")] == ["a__echo", "a__add"]
        assert "b__add" in names
        assert "b__echo" not in names
        assert await client.text("a__echo", {"text": "x"}) == "x"
        for name in ("a__pid", "b__echo"):
            with pytest.raises(RpcError) as refused:
                await client.call(name)
            assert refused.value.code == -32602


async def test_a_tool_added_after_an_allow_list_stays_hidden(tmp_path: Path) -> None:
    servers = {"a": fake(enable_tools=["grow", "echo"]), "b": fake()}
    async with hub(tmp_path, servers) as client:
        await client.tool_names()
        await client.text("a__grow", {"name": "late"})
        await client.text("b__grow", {"name": "late"})
        await client.notified("notifications/tools/list_changed")
        names = await client.tool_names()
        assert "b__late" in names
        assert "a__late" not in names
        with pytest.raises(RpcError) as refused:
            await client.call("a__late")
        assert refused.value.code == -32602


async def test_a_preset_argument_is_not_listed_and_always_sent(tmp_path: Path) -> None:
    """Check 35."""
    record = tmp_path / "record"
    entry = fake("--record", str(record), preset={"add": {"b": 40}, "count": {"options.token": "t", "steps": 1}})
    async with hub(tmp_path, {"a": entry}) as client:
        tools = {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}
        assert list(tools["a__add"]["inputSchema"]["properties"]) == ["a"]
        assert await client.text("a__add", {"a": 2}) == "42"
        for smuggled in ({"b": 1}, {"B": 1}, {"b": {"b": 1}}, {"b": None}, {"\uff42": 1}, {"__proto__": {"b": 1}}):
            await client.call("a__add", {"a": 2, **smuggled})
        client.send_raw(
            b'{"jsonrpc":"2.0","id":"d","method":"tools/call",'
            b'"params":{"name":"a__add","arguments":{"a":2,"b":1,"b":7}}}\n'
        )
        await client.until(lambda: any(m.get("id") == "d" for m in client.unmatched))
        for options in ({}, {"options": {"token": "mine", "x": 1}}, {"options": {"TOKEN": "mine"}}, {"options": "x"}):
            await client.call("a__count", options)
    sent = [call["arguments"] for call in calls(record)]
    assert all(
        arguments["b"] == 40 and not {"B", "\uff42"} & arguments.keys() for arguments in sent if "a" in arguments
    )
    assert [arguments["options"] for arguments in sent if "options" in arguments] == [
        {"token": "t"},
        {"x": 1, "token": "t"},
        {"token": "t"},
        {"token": "t"},
    ]


async def test_a_preset_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUMMAND", "secret text")
    async with hub(tmp_path, {"a": fake(preset={"echo": {"text": "${SUMMAND}"}})}) as client:
        assert await client.text("a__echo") == "secret text"


async def test_schemas_of_tools_with_presets_are_forgotten_when_the_server_no_longer_lists_them(tmp_path: Path) -> None:
    config = load_config(write_config(tmp_path, {"up": fake(preset={"*": {"key": "k"}})}))
    async with Engine(config) as engine:
        argument = "of tool 1 alone"  # `sys.getrefcount` tells whether anybody holds it

        def listing(number: int) -> Item:
            name, names = f"tool{number}", [argument] if number == 1 else ["text"]
            schema = {"type": "object", "properties": {name: {} for name in names}}
            return Item(Route("up", TOOLS, name), name, {"name": name, "inputSchema": schema})

        references = sys.getrefcount(argument)
        for number in (1, 2):
            finished(engine.rules.shape([listing(number)]))
        assert sys.getrefcount(argument) == references


async def test_the_configuration_overrides_name_title_and_description_of_a_tool(tmp_path: Path) -> None:
    rules = {"echo": {"name": "say", "title": "Say", "description": "Say it again."}}
    async with hub(tmp_path, {"a": fake(tools=rules)}) as client:
        tools = {tool["name"]: tool for tool in (await client.request("tools/list"))["tools"]}
        assert (tools["a__say"]["title"], tools["a__say"]["description"]) == ("Say", "Say it again.")
        assert tools["a__say"]["futureField"] == {"x": 10**25}
        assert await client.text("a__say", {"text": "x"}) == "x"
        with pytest.raises(RpcError) as unknown:
            await client.call("a__echo", {"text": "x"})
        assert unknown.value.code == -32602


async def test_tags_of_the_configuration_filter_tools(tmp_path: Path) -> None:
    rules = {"echo": {"tags": ["safe"]}, "p*": {"tags": ["safe", "slow"]}}
    entry = fake(tools=rules, include_tags=["safe"], exclude_tags=["slow"])
    async with hub(tmp_path, {"a": entry}) as client:
        assert await client.tool_names() == ["a__echo"]


async def test_tags_listed_by_a_server_filter_tools_under_every_key_libraries_use(tmp_path: Path) -> None:
    schema = {"type": "object"}
    tools = [
        {"name": key, "inputSchema": schema, "_meta": {key: {"tags": ["safe"]}}} for key in ("fastmcp", "_fastmcp")
    ]
    lists = tmp_path / "lists.json"
    lists.write_text(json.dumps({"tools": [*tools, {"name": "untagged", "inputSchema": schema}]}))
    async with hub(tmp_path, {"a": fake("--lists", str(lists), include_tags=["safe"])}) as client:
        assert await client.tool_names() == ["a__fastmcp", "a___fastmcp"]


async def test_tags_of_functions_filter_tools(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "some.py").write_text(
        "from mcp_hub import tool\n"
        "@tool(tags=['safe'])\ndef one() -> int:\n    return 1\n"
        "@tool\ndef two() -> int:\n    return 2\n"
    )
    async with hub(tmp_path, {"mine": {"tools_dir": str(tools), "include_tags": ["safe"]}}) as client:
        assert await client.tool_names() == ["mine__one"]
