"""Built-in servers of this machine are there where an entry names them, and over a network only where it says so."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.config import Config, Server
from mcp_hub.config.models import Listen
from mcp_hub.downstream.app import App
from mcp_hub.downstream.dispatcher import Dispatcher
from mcp_hub.errors import ConfigError
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import load_config
from mcp_hub.protocol.kinds import TOOLS
from tests.fakes.client import HUB, RpcError, StdioClient, fake, hub, spawned, write_config

pytestmark = pytest.mark.anyio

OF_THIS_MACHINE = ("code", "shell", "text_files", "files")


def entry(builtin: str, directory: Path, **options: Any) -> dict[str, Any]:
    roots = {"roots": {"/workspace/": str(directory)}} if builtin == "files" else {}
    return {"builtin": builtin, **roots, **options}


async def exit_code(*arguments: str) -> tuple[int, str]:
    async with spawned([*HUB, *arguments]) as process:
        code = await process.exited()
        await process.until(lambda: process.stderr.endswith(b"\n"))
        return code, process.stderr.decode()


@pytest.mark.parametrize("builtin", OF_THIS_MACHINE)
async def test_servers_with_machine_access_are_refused_over_a_network_before_any_start(
    tmp_path: Path, builtin: str
) -> None:
    path = write_config(tmp_path, {"mine": entry(builtin, tmp_path)})
    config = load_config(path)
    with pytest.raises(ConfigError):
        App(Dispatcher(Engine(config)), Listen(port=0), sse=True)


@pytest.mark.parametrize("words", [["serve", "--http"], ["serve", "--sse", "--port", "0"], ["check"]])
async def test_a_network_hub_with_a_machine_access_server_exits_with_the_reason(
    tmp_path: Path, words: list[str]
) -> None:
    listen = {"listen": {"port": 0}} if words == ["check"] else {}
    config = write_config(tmp_path, {"mine": entry("shell", tmp_path), "other": fake()}, **listen)
    code, message = await exit_code(*words, "--config", str(config))
    assert code == 2
    assert "mine (builtin: shell)" in message
    assert "allow_over_network" in message


async def test_a_machine_access_server_is_served_over_a_network_if_its_entry_allows_it(tmp_path: Path) -> None:
    servers = {
        "forced": entry("shell", tmp_path, allow_over_network=True),
        "off": entry("code", tmp_path, enabled=False),
    }
    async with Engine(load_config(write_config(tmp_path, servers))) as running:
        App(Dispatcher(running), Listen(port=0), sse=True)
        assert list((await running.settled_catalog()).names(TOOLS)) == ["forced__execute_shell_command"]


async def test_a_reload_adds_no_machine_access_server_to_a_network_hub(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"other": fake()}, watch=False)
    async with spawned([*HUB, "serve", "--http", "--port", "0", "--config", str(config)]) as process:
        await process.until(lambda: b"Serving" in process.stderr)
        write_config(tmp_path, {"other": fake(), "mine": entry("shell", tmp_path)}, watch=False)
        process.process.send_signal(signal.SIGHUP)
        await process.until(lambda: b"was not loaded again" in process.stderr)
        await process.until(lambda: b"mine (builtin: shell)" in process.stderr)
        process.process.terminate()
        assert await process.exited() == 0


async def test_no_runtime_change_adds_a_machine_access_server_to_a_network_hub(tmp_path: Path) -> None:
    async with Engine(Config()) as running:
        App(Dispatcher(running), Listen(port=0), sse=False)
        with pytest.raises(ConfigError):
            await running.renew(Config(servers=(shell(),)), running.generation.selection)
        assert running.upstreams == {}
        await running.renew(Config(servers=(shell(allow_over_network=True),)), running.generation.selection)
        assert list(running.upstreams) == ["mine"]


def shell(**options: Any) -> Server:
    return Server(id="mine", transport="stdio", builtin="shell", namespace="mine", **options)


async def test_the_process_of_a_machine_access_server_starts_only_from_a_hub() -> None:
    for name in OF_THIS_MACHINE:
        environ = {key: value for key, value in os.environ.items() if key != "MCP_HUB_BUILTIN"}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "mcp_hub.servers", name,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=environ,
        )  # fmt: skip
        _, stderr = await process.communicate()
        assert process.returncode == 1
        assert f"builtin: {name}" in stderr.decode()


async def test_no_machine_access_tools_exist_without_an_entry(tmp_path: Path) -> None:
    tools = ("execute_python_code", "execute_shell_command", "view_text_file", "write_file", "delete_file")
    async with hub(tmp_path, {"other": fake(), "sh": entry("shell", tmp_path, enabled=False)}) as client:
        assert not [name for name in await client.tool_names() if name.endswith(tools)]
        for name in (*tools, *(f"sh__{name}" for name in tools)):
            assert await unknown(client, name)


async def unknown(client: StdioClient, name: str) -> bool:
    with pytest.raises(RpcError) as caught:
        await client.call(name, {"command": "echo"})
    return caught.value.code == -32602


def test_allow_over_network_applies_only_to_machine_access_servers_and_restarts_none(tmp_path: Path) -> None:
    (server,) = load_config(write_config(tmp_path, {"up": {"command": "x", "allow_over_network": True}})).servers
    assert not server.allow_over_network  # `check` warns that it does nothing here
    assert shell().connection == shell(allow_over_network=True).connection
    assert json.loads(shell().connection)["builtin"] == "shell"
