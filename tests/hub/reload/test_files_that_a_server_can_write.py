"""A running hub does not read a file by itself that one of its servers can have changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import HUB, PATIENCE, StdioClient, fake, hub, write_config
from tests.hub.reload.test_going_over_to_another_configuration import LOADED, heard
from tests.upstream.asking.test_calls_wait_for_the_roots import called, slow_client_of
from tests.upstream.asking.test_servers_ask_handshake_clients import asking

pytestmark = pytest.mark.anyio

WAITS = b"waits for a person"


def files(directory: Path) -> dict[str, Any]:
    return {"builtin": "files", "roots": {"/workspace/": str(directory)}}


async def written_by_a_model(client: StdioClient, servers: dict[str, Any], **root: Any) -> None:
    """Has the server of files write a configuration with one server more, as a model would."""
    content = json.dumps({"servers": servers, **root})
    await client.call("files__write_file", {"path": "/workspace/servers.json", "content": content})


def command(runtime: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "MCP_HUB_RUNTIME_DIR": str(runtime)}
    return subprocess.run([*HUB, *arguments], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


async def test_a_server_that_a_model_wrote_runs_only_after_a_person_has_reloaded(tmp_path: Path) -> None:
    servers, runtime = {"files": files(tmp_path)}, tmp_path / "run"
    async with hub(tmp_path, servers, env={"MCP_HUB_RUNTIME_DIR": str(runtime)}) as client:
        await written_by_a_model(client, {**servers, "evil": fake()})
        await heard(client, WAITS)
        assert LOADED not in client.stderr
        assert not [name for name in await client.tool_names() if name.startswith("evil__")]
        config = str(tmp_path / "servers.json")
        assert WAITS.decode() in command(runtime, "status", "--config", config).stdout
        done = command(runtime, "reload", "--config", config)
        assert (done.returncode, "started evil" in done.stdout) == (0, True), done.stderr
        assert await client.text("evil__echo", {"text": "now"}) == "now"
        assert WAITS.decode() not in command(runtime, "status", "--config", config).stdout


async def test_a_change_waits_as_long_as_such_a_server_is_on(tmp_path: Path) -> None:
    async with hub(tmp_path, {"files": files(tmp_path), "a": fake()}) as client:
        # The file no longer has that server, but the hub does.
        await written_by_a_model(client, {"evil": fake()})
        await heard(client, WAITS)
        write_config(tmp_path, {"a": fake()})
        await heard(client, WAITS, 2)
        client.process.send_signal(signal.SIGHUP)
        await heard(client, LOADED)
        write_config(tmp_path, {"a": fake(), "b": fake()})
        await heard(client, LOADED, 2)
        assert await client.text("b__echo", {"text": "there"}) == "there"


async def test_a_refused_file_is_told_by_the_command_that_reloads(tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    async with hub(tmp_path, {"a": fake()}, watch=False, env={"MCP_HUB_RUNTIME_DIR": str(runtime)}) as client:
        pid = await client.text("a__pid")
        write_config(tmp_path, {"a": fake(disable_tools=5)})
        done = command(runtime, "reload", "--json")
        assert done.returncode == 1
        assert "servers.a.disable_tools" in json.loads(done.stdout)[0]["problem"]
        assert await client.text("a__pid") == pid
    assert command(runtime, "reload").returncode == 1


async def test_the_roots_that_a_client_gives_a_server_count(tmp_path: Path) -> None:
    async with slow_client_of(tmp_path, asking("--first-roots")) as client:
        await called(client, {"name": "a__echo"}, tmp_path)
        write_config(tmp_path, {"evil": fake()})
        await heard(client, WAITS)
        assert LOADED not in client.stderr


TOOL = "from mcp_hub import tool\n\n\n@tool\ndef {name}() -> str:\n    return 'x'\n"


async def test_files_that_a_reload_by_a_person_has_added_are_watched(tmp_path: Path) -> None:
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "own.py").write_text(TOOL.format(name="first"))
    async with hub(tmp_path, {"files": files(tmp_path)}) as client:
        await written_by_a_model(client, {"a": fake()}, tools_dir="functions")
        await heard(client, WAITS)
        client.process.send_signal(signal.SIGHUP)
        await heard(client, LOADED)
        (tmp_path / "functions" / "own.py").write_text(TOOL.format(name="second"))
        await heard(client, LOADED, 2)
        assert "local__second" in await client.tool_names()
