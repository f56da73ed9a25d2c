"""AgentScope's MCP client classes."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import ClientSession
from mcp.types import TextContent

from mcp_hub import HttpStatefulClient, HttpStatelessClient, Hub, StdIOStatefulClient, Toolkit, ToolResponse
from mcp_hub.errors import CallError, ConfigError
from mcp_hub.library.agentscope.mcp_clients import McpObject
from tests.fakes.client import PATIENCE, fake
from tests.fakes.network import network_hub

pytestmark = pytest.mark.anyio


def stdio(name: str, *options: str) -> StdIOStatefulClient:
    entry = fake(*options)
    return StdIOStatefulClient(name, command=entry["command"], args=entry["args"])


async def test_a_stdio_client_keeps_one_session_and_refuses_calls_before_connect() -> None:
    client = stdio("fake")
    assert not client.is_connected
    for method in (client.list_tools, client.close, lambda: client.get_callable_function("pid")):
        with pytest.raises(RuntimeError):
            await method()
    await client.connect()
    assert client.is_connected
    with pytest.raises(RuntimeError):
        await client.connect()
    tools = {tool.name: tool for tool in await client.list_tools()}
    assert tools["echo"].inputSchema == tools["echo"].input_schema == tools["echo"]["inputSchema"]
    assert tools["echo"].annotations.readOnlyHint is True
    assert tools["echo"].futureField == {"x": 10**25}
    pid = await client.get_callable_function("pid")
    first = await pid()
    assert isinstance(first, ToolResponse)
    assert first.metadata == {"x/y": 1}
    assert first.is_last
    assert (await pid()).content == first.content
    with pytest.raises(ValueError, match="nowhere"):
        await client.get_callable_function("nowhere")
    assert await echoed(client.client) == "x"
    await client.close()
    assert not psutil.pid_exists(int(first.content[0]["text"]))
    with pytest.raises(RuntimeError):
        await pid()
    await client.connect()
    assert (await (await client.get_callable_function("pid"))()).content != first.content
    await client.close()


async def echoed(streams: Any) -> str:
    """What the SDK's session gets from `echo` over these streams."""
    async with asyncio.timeout(PATIENCE), streams as (read, write, *_), ClientSession(read, write) as session:
        await session.initialize()
        result = await session.call_tool("echo", {"text": "x"})
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


async def test_a_tool_function_has_its_schema_and_returns_the_raw_result_on_request() -> None:
    client = stdio("fake")
    await client.connect()
    echo = await client.get_callable_function("echo", wrap_tool_result=False)
    assert (echo.mcp_name, echo.name, echo.description) == ("fake", "echo", "echo of fake")
    assert echo.json_schema["function"]["parameters"]["properties"] == {"text": {"type": "string"}}
    result = await echo(text="hello")
    assert result.content[0].text == "hello"
    assert result.isError is False
    assert result.is_error is False
    assert result.structuredContent is None
    assert result.meta == {"x/y": 1}
    assert result["futureTop"] == {"n": 10**25}
    assert vars(result)["is_error"] is False
    assert "text" not in dir(McpObject({"type": "text"}))  # it is invalid, so there is no object of the SDK
    slow = await client.get_callable_function("sleep", execution_timeout=0.2)
    with pytest.raises(TimeoutError):
        await slow(seconds=60)
    add = await client.get_callable_function("add")
    with pytest.raises(CallError) as raised:
        await add(a=[])
    assert raised.value.code == "invalid_parameters"
    await client.close()


async def test_stdio_clients_are_closed_in_any_order() -> None:
    clients = [stdio(name) for name in ("a", "b", "c")]
    for client in clients:
        await client.connect()
    pids = [int((await (await client.get_callable_function("pid"))()).content[0]["text"]) for client in clients]
    for client in (clients[1], clients[0], clients[2]):
        await client.close()
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


async def test_connecting_to_a_missing_server_is_an_error() -> None:
    client = stdio("dead", "--die", "no")
    with pytest.raises(CallError) as raised:
        await client.connect()
    assert raised.value.code == "server_unavailable"
    assert not client.is_connected


@pytest.mark.parametrize(("transport", "path"), [("streamable_http", "/mcp"), ("sse", "/sse")])
async def test_http_clients_list_and_call(transport: Any, path: str, tmp_path: Path) -> None:
    async with network_hub(tmp_path, {"fake": fake(namespace="")}) as (_, base):
        stateful = HttpStatefulClient("one", transport, base + path)
        await stateful.connect()
        assert "echo" in [tool.name for tool in await stateful.list_tools()]
        assert (await (await stateful.get_callable_function("echo"))(text="x")).content == [
            {"type": "text", "text": "x"}
        ]
        await stateful.close()
        stateless = HttpStatelessClient("two", transport, base + path, headers={"X-Any": "1"})
        assert stateless.stateful is False
        assert stateless.client_config["headers"] == {"X-Any": "1"}
        assert "echo" in [tool.name for tool in await stateless.list_tools()]
        assert (await (await stateless.get_callable_function("echo"))(text="y")).content == [
            {"type": "text", "text": "y"}
        ]
        if transport == "sse":  # the SDK's client for SSE leaves sockets open, so it is not used here
            assert hasattr(stateless.get_client(), "__aenter__")
        else:
            assert [await echoed(streams) for streams in (stateful.client, stateless.get_client())] == ["x", "x"]


async def test_invalid_client_arguments_are_refused_at_construction() -> None:
    with pytest.raises(ValueError, match="transport"):
        HttpStatefulClient("x", "stdio", "http://127.0.0.1/")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="auth"):
        HttpStatefulClient("x", "sse", "http://127.0.0.1/sse", auth=object())
    with pytest.raises(ConfigError):
        HttpStatelessClient("x", "sse", "file:///etc/passwd")
    with pytest.raises(ValueError, match="UTF-8"):
        StdIOStatefulClient("x", "python", encoding="latin-1")


async def test_an_attached_client_uses_the_hub_and_its_rules() -> None:
    client = stdio("fake")
    await client.connect()
    hub = Hub({"blacklist": [["fake", "add"]]})
    await asyncio.to_thread(hub.attach, client)
    assert client.is_connected
    assert client.hub is hub
    assert "add" not in [tool.name for tool in await client.list_tools()]
    assert ("fake", "echo") in [(card.server, card.name) for card in await hub.list()]
    await client.close()
    assert await hub.list() == []
    await hub.aclose()


async def test_a_stateless_client_opens_a_session_per_call_and_a_stateful_one_keeps_one(tmp_path: Path) -> None:
    """Seed 004, section 6. The server behind the listener has a process for each session."""
    async with network_hub(tmp_path, {"fake": fake(namespace="", session="client")}) as (_, base):
        # Only the handshake era has sessions.
        stateful = HttpStatefulClient("one", "streamable_http", base + "/mcp", era="handshake")
        await stateful.connect()
        stateless = HttpStatelessClient("two", "streamable_http", base + "/mcp", era="handshake")
        stateful_pid, stateless_pid = [await client.get_callable_function("pid") for client in (stateful, stateless)]
        first, second = await stateful_pid(), await stateful_pid()
        assert first.content == second.content
        results = [(await stateless_pid()).content for _ in range(2)]
        assert first.content not in results
        assert results[0] != results[1]
        await stateful.close()


async def test_command_arguments_and_environment_of_a_stdio_client_reach_its_server(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "place.py").write_text(
        "import os\nfrom mcp_hub import tool\n@tool\ndef place() -> str:\n"
        "    return os.getcwd() + os.environ['MARK'] + str('LEAK' in os.environ)\n"
    )
    work = tmp_path / "work"
    work.mkdir()
    client = StdIOStatefulClient(
        name="local",
        command=sys.executable,
        args=["-m", "mcp_hub.servers", "local", str(tools)],
        env={"MARK": "${HOME}"},  # a value, not a reference
        cwd=str(work),
        encoding="utf-8",
        encoding_error_handler="strict",
    )
    await client.connect()
    (block,) = (await (await client.get_callable_function("place"))()).content
    assert block["text"] == f"{work}${{HOME}}False"
    await client.close()


@pytest.mark.parametrize("kind", [HttpStatefulClient, HttpStatelessClient])
async def test_timeouts_of_an_http_client_are_deadlines_of_its_server(kind: Any) -> None:
    default, custom = kind("a", "sse", "http://127.0.0.1/sse"), kind("b", "sse", "http://127.0.0.1/sse", None, 2, 5)
    timeouts = [
        (deadlines.connect, deadlines.list, deadlines.idle)
        for deadlines in (c.hub.config.servers[0].deadlines for c in (default, custom))
    ]
    assert timeouts == [(30, 30, 300), (2, 2, 5)]


async def test_a_tools_schema_is_kept_unchanged(tmp_path: Path) -> None:
    """AgentScope kept `properties` and `required` alone (row A004-16)."""
    schema = {
        "type": "object",
        "properties": {"where": {"$ref": "#/$defs/Place"}},
        "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}}},
        "anyOf": [{"required": ["where"]}],
        "additionalProperties": False,
    }
    lists = tmp_path / "lists.json"
    lists.write_text(json.dumps({"tools": [{"name": "go", "inputSchema": schema}]}))
    client = stdio("fake", "--lists", str(lists))
    await client.connect()
    toolkit = Toolkit()
    await toolkit.register_mcp_client(client)
    (listed,) = toolkit.get_json_schemas()
    assert listed["function"]["parameters"] == schema
    await client.close()
    await toolkit.aclose()
