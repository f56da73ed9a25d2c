"""The servers that Agently's ToolManager uses: what names their tools have, and what their results become."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from fastmcp.client.transports import PythonStdioTransport, SSETransport, StdioTransport, StreamableHttpTransport
from fastmcp.mcp_config import MCPConfig
from mcp.client.stdio import StdioServerParameters
from mcp_types import ContentBlock
from pydantic import TypeAdapter

from mcp_hub import ToolManager
from mcp_hub.errors import CallError, ConfigError, ServerUnavailable
from tests.fakes.client import FAKE, fake
from tests.fakes.network import network_hub
from tests.library.tool_managers import Json, result


def text(text: str) -> Json:
    return {"type": "text", "text": text}


def test_tools_of_servers_keep_their_names_and_return_results_in_agentlys_shape(tmp_path: Path) -> None:
    """Agently's document, 7.1 and 7.2: errors as a dict, JSON in a text read, None for nothing."""
    tools = [
        {
            "name": "look",
            "description": "Look",
            "inputSchema": {"type": "object"},
            "_meta": {"fastmcp": {"tags": ["own"]}},
        }
    ]
    shapes = {
        "error": (result(text("bad"), isError=True), {"error": "bad"}),
        "error_without_text": (result({"type": "image", "data": "", "mimeType": "a/b"}, isError=True), {"error": ""}),
        "structured": (result(text("3"), structuredContent={"result": 3}), {"result": 3}),
        "nothing_structured": (result(text("x"), structuredContent={}), {}),
        "number": (result(text("123")), 123),
        "json": (result(text('{"a": 1}')), {"a": 1}),
        "words": (result(text("two words")), "two words"),
        "empty": (result(), None),
    }
    lists = tmp_path / "lists.json"
    lists.write_text(json.dumps({"tools": tools}))
    servers = {name: fake("--lists", str(lists), "--result", answer) for name, (answer, _) in shapes.items()}
    with ToolManager() as manager:
        manager.use_mcp({"mcpServers": servers}, tags="web")
        assert (
            manager.get_tool_info("own").keys()
            == manager.get_tool_info("web").keys()
            == {f"{name}_look" for name in shapes}
        )
        values = {name: manager.call_tool(f"{name}_look", {}) for name in shapes}
        assert values == {name: expected for name, (_, expected) in shapes.items()}


def test_tools_of_a_script_have_their_own_names_and_values_as_results() -> None:
    with ToolManager() as manager:
        assert manager.use_mcp(FAKE) is manager
        info = manager.tool_info["add"]
        assert info["kwargs"] == {"a": ("number", ""), "b": ("number", "")}
        assert manager.call_tool("add", {"a": 1, "b": 2}) == 3
        proxy = manager.get_tool_func("echo")
        assert proxy is not None
        assert asyncio.run(proxy(text="x")) == "x"
        assert manager.call_tool("fail", {}) == "Error: no"
        assert manager.call_tool("add", {"a": [], "b": 2})["error"]
        manager.register("echo", "mine", {}, lambda: "mine")
        assert manager.call_tool("echo", {}) == "mine"
        manager.use_mcp(Path(FAKE))
        assert manager.call_tool("echo", {"text": "theirs"}) == "theirs"
        assert manager.call_tool("crash", {}).startswith("Error: ")
        assert asyncio.run(manager.async_call_tool("crash", {})).startswith("Error: ")
        crash = manager.get_tool_func("crash")
        assert crash is not None
        with pytest.raises(ServerUnavailable):
            asyncio.run(crash())


def test_every_transport_of_the_document_is_a_server(tmp_path: Path) -> None:
    """Agently's document, 7.1: what `fastmcp.Client` takes. Its transports are read, not run."""

    async def use() -> list[Any]:
        answers = []
        async with network_hub(tmp_path, {"fake": fake(namespace="")}) as (_, base):
            entry = fake()
            for transport in (
                f"{base}/mcp",
                f"{base}/sse",
                FAKE,
                Path(FAKE),
                {"mcpServers": {"named": entry}},
                {"mcpServers": {"far": {"url": f"{base}/mcp"}}},
                StdioServerParameters(command=entry["command"], args=entry["args"]),
                StdioTransport(entry["command"], entry["args"]),
                PythonStdioTransport(FAKE),
                StreamableHttpTransport(f"{base}/mcp"),
                SSETransport(f"{base}/sse"),
                MCPConfig.from_dict({"mcpServers": {"one": entry}}),
                MCPConfig.from_dict({"mcpServers": {"far": {"url": f"{base}/mcp"}}}),
            ):
                async with ToolManager() as manager:
                    assert await manager.async_use_mcp(transport, tags=["far", "near"]) is manager
                    assert manager.get_tool_info("far").keys() == manager.get_tool_info("near").keys()
                    answers.append(await manager.async_call_tool("echo", {"text": "x"}))
        return answers

    assert asyncio.run(use()) == ["x"] * 13


def test_an_invalid_transport_is_reported_and_a_missing_server_leaves_no_tools() -> None:
    with ToolManager() as manager:
        for transport in (42, "stdio", {"nothing": 1}):
            with pytest.raises(TypeError):
                manager.use_mcp(transport)
        with pytest.raises(ValueError, match="script"):
            manager.use_mcp("/nowhere/server.py")
        with pytest.raises(CallError):
            manager.use_mcp({"mcpServers": {"dead": fake("--die", "no")}})
        with pytest.raises(CallError):
            asyncio.run(manager.async_use_mcp({"mcpServers": {"dead": fake("--die", "no")}}))
        assert manager.hub.config.servers == ()


def processes() -> list[int]:
    """The servers over stdio that this process has started."""
    pids = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # just gone, or a zombie
            pids += [child.pid] if FAKE in child.cmdline() else []
    return pids


def test_a_second_use_of_one_server_replaces_the_first(tmp_path: Path) -> None:
    """Agently's document, 2 and 7.1: registering a name again replaces it; here the server behind it too."""
    config = {"mcpServers": {"demo": fake()}}
    lists = tmp_path / "lists.json"
    lists.write_text(json.dumps({"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}))
    for transport, id in ((FAKE, "mcp1"), (config, "demo")):
        with ToolManager(tool_blacklist={("demo", "add")}) as manager:
            manager.use_mcp(transport, tags="old")
            names = set(manager.tool_info)
            running, pid = processes(), manager.call_tool("pid", {})
            manager.use_mcp(transport, tags="new")
            assert [server.id for server in manager.hub.config.servers] == [id]
            assert processes() == running
            assert manager.call_tool("pid", {}) == pid
            assert manager.get_tool_info("old") == {}
            assert set(manager.get_tool_info("new")) == names == set(manager.tool_info)
            assert ("add" in names) is (id == "mcp1"), "the blacklist holds by the name of the server"
    with ToolManager() as manager:
        manager.use_mcp(config)
        manager.use_mcp({"mcpServers": {"demo": fake("--lists", str(lists)), "second": fake()}})
        assert [server.id for server in manager.hub.config.servers] == ["demo", "second"]
        assert "demo_look" in manager.tool_info
        assert "second_echo" in manager.tool_info
        assert "echo" not in manager.tool_info, "the server of this name has it no more"


def test_if_one_of_several_servers_fails_none_of_them_is_added(tmp_path: Path) -> None:
    with ToolManager() as manager:
        manager.use_mcp({"mcpServers": {"kept": fake()}}, tags="before")
        pid = manager.call_tool("pid", {})
        before = manager.get_tool_info()
        invalid = {
            "mcpServers": {"good": fake(), "kept": fake("--result", result(text("other"))), "bad": fake("--die", "n")}
        }
        with pytest.raises(CallError, match="bad"):
            manager.use_mcp(invalid)
        with pytest.raises(ConfigError):
            manager.use_mcp({"mcpServers": {"good": fake(), "bad": {"command": 3}}})
        assert manager.get_tool_info() == before == manager.get_tool_info("before")
        assert [server.id for server in manager.hub.config.servers] == ["kept"]
        assert manager.call_tool("echo", {"text": "x"}) == "x"
        assert isinstance(pid, int)


def test_non_text_blocks_have_all_keys_of_a_dumped_model(tmp_path: Path) -> None:
    """Agently's document, 7.2: `.model_dump()`, of the models of the SDK, with their keys in order."""
    annotated = {"annotations": {"priority": 0.5}, "_meta": {"a": 1}}
    blocks: list[Json] = [
        {"type": "image", "data": "aW1h", "mimeType": "image/png", **annotated},
        {"type": "audio", "data": "aW1h", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "demo://x", "name": "more", "icons": [{"src": "https://a.example/b.png"}]},
        {"type": "resource", "resource": {"uri": "demo://x", "text": "hello", "mimeType": "text/plain"}},
        {"type": "resource", "resource": {"uri": "demo://x", "blob": "aGVsbG8="}, **annotated},
    ]
    lists = tmp_path / "lists.json"
    lists.write_text(json.dumps({"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}))
    servers = {f"s{n}": fake("--lists", str(lists), "--result", result(block)) for n, block in enumerate(blocks)}
    dumped = [TypeAdapter(ContentBlock).validate_python(block).model_dump(by_alias=True) for block in blocks]
    with ToolManager() as manager:
        manager.use_mcp({"mcpServers": servers})
        for number, expected in enumerate(dumped):
            value = manager.call_tool(f"s{number}_look", {})
            assert value == expected
            assert list(value) == list(expected)
