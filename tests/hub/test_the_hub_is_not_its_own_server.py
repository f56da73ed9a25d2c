"""A hub never serves itself, by whatever way it is reached."""

import asyncio
import contextlib
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcp_hub.config.discovery import TrustedDirectories, read_executed
from tests.fakes.client import HUB, PATIENCE, RpcError, fake, free_port, write_config
from tests.fakes.network import network_hub, sdk
from tests.hub.guarded import COMMAND, LOOK_AGAIN, check, hubs_below, link, outermost, script

pytestmark = pytest.mark.anyio


ENTRIES: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    "directly": lambda folder, file: {"command": COMMAND, "args": ["serve", "--config", str(file)]},
    "as a module": lambda folder, file: {
        "command": sys.executable, "args": ["-P", "-m", "mcp_hub", "serve", f"--config={file}"]
    },
    "through a symlink": lambda folder, file: {
        "command": link(folder / "hub", COMMAND), "args": ["serve", "-v", "--conf", str(file)]
    },
    "by a symlink to the file": lambda folder, file: {
        "command": COMMAND, "args": ["serve", "--config", link(folder / "other.json", file)]
    },
    "through env": lambda folder, file: {
        "command": "env", "args": ["A=b", sys.executable, "-m", "mcp_hub", "serve", "--config", str(file)]
    },
    "relative to its directory": lambda folder, file: {
        "command": COMMAND, "args": ["serve", "--config", file.name], "cwd": str(folder)
    },
    "without naming the file": lambda folder, file: {"command": COMMAND, "args": ["serve"], "cwd": str(folder)},
    "named by the environment": lambda folder, file: {
        "command": COMMAND, "args": ["serve"], "env": {"MCP_HUB_CONFIG": str(file)}
    },
    "by uvx": lambda folder, file: {
        "command": "uvx", "args": ["mcp-hub-gateway[all]==0.1.0", "serve", "--config", str(file)]
    },
    "by uvx from a package": lambda folder, file: {
        "command": "uvx", "args": ["--from", "mcp-hub-gateway", "mcp-hub", "serve", "--config", str(file)]
    },
}  # fmt: skip
"""Ways that an entry can be seen to take by its words alone."""


@pytest.mark.parametrize("way", ENTRIES)
async def test_an_entry_that_starts_this_hub_is_left_out_before_any_process_starts(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = {"other": fake(), "hub": ENTRIES[way](tmp_path, tmp_path / "servers.json")}
    config = write_config(tmp_path, servers)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    TrustedDirectories.of_user().add(read_executed(config))  # else a hub that finds the file there does not use it
    async with outermost(config) as (client, guard):
        assert "other__echo" in (names := await client.tool_names())
        assert not [name for name in names if name.startswith("hub")]
        assert b"servers.hub: is this hub itself; it is left out" in client.stderr
    assert guard.peak == 0
    fact = (await check(config))["hub"]
    assert (fact["state"], fact["problem"]) == ("disabled", "is this hub itself; it is left out")


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("hidden", [True, False])
async def test_a_hub_of_several_files_does_not_serve_itself_by_any_of_them(
    tmp_path: Path, first: bool, hidden: bool
) -> None:
    (tmp_path / "more").mkdir()
    files = [tmp_path / "servers.json", tmp_path / "more" / "servers.json"]
    argv = [COMMAND, "serve", "--config", str(files[not first])]
    entry = {"command": "sh", "args": ["-c", shlex.join(argv)]} if hidden else {"command": COMMAND, "args": argv[1:]}
    write_config(tmp_path, {"other": fake()})
    write_config(tmp_path / "more", {"hub": entry})
    async with outermost(*files) as (client, guard):
        assert await client.text("other__echo", {"text": "there"}) == "there"
        await client.until(lambda: b"is this hub itself; it is left out" in client.stderr)
        assert not [name for name in await client.tool_names() if name.startswith("hub")]
    assert guard.peak <= hidden


HIDDEN: dict[str, Callable[[Path, list[str]], dict[str, Any]]] = {
    "a shell": lambda folder, argv: {"command": "sh", "args": ["-c", shlex.join(argv)]},
    "a script named npx": lambda folder, argv: {
        "command": script(folder / "npx", argv, folder / "starts"), "args": ["-y", "some-package@1.0.0"]
    },
    "a script named uvx": lambda folder, argv: {
        "command": script(folder / "uvx", argv, folder / "starts"), "args": ["some-package==1.0.0"]
    },
    "a shell without an environment": lambda folder, argv: {
        "command": "sh", "args": ["-c", f'exec env -i HOME="$HOME" PATH="$PATH" {shlex.join(argv)}']
    },
}  # fmt: skip
"""Ways whose words do not say that they end in this hub."""


@pytest.mark.parametrize("way", HIDDEN)
async def test_a_program_that_proves_to_be_this_hub_is_left_out_and_not_restarted(tmp_path: Path, way: str) -> None:
    argv = [*HUB, "serve", "--config", str(tmp_path / "servers.json")]
    config = write_config(tmp_path, {"other": fake(), "hub": HIDDEN[way](tmp_path, argv)})
    async with outermost(config) as (client, guard):
        await client.until(lambda: b"hub: is this hub itself; it is left out" in client.stderr)
        names = await client.tool_names()
        assert "other__echo" in names
        assert not [name for name in names if name.startswith("hub")]
        assert not await gone_below(client.process.pid)
    assert guard.peak <= 3
    if (tmp_path / "starts").exists():
        assert (tmp_path / "starts").read_text().count("started") == 1
    fact = (await check(config))["hub"]
    assert (fact["state"], fact["problem"]) == ("disabled", "is this hub itself; it is left out")


async def gone_below(pid: int) -> list[psutil.Process]:
    """The hubs that are left below `pid` once those that were refused have had their time to end."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while hubs_below(pid):
                await asyncio.sleep(LOOK_AGAIN)
    return hubs_below(pid)


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
@pytest.mark.parametrize("era", ["auto", "handshake"])
async def test_a_url_that_is_the_hubs_own_port_is_left_out(tmp_path: Path, path: str, era: str) -> None:
    if path == "/sse" and era == "auto":
        era = "modern"
    port = free_port()
    entry = {"url": f"http://127.0.0.1:{port}{path}", "era": era}
    async with network_hub(tmp_path, {"other": fake(), "self": entry}, port) as (hub, base):
        await hub.until(lambda: b"self: is this hub itself; it is left out" in hub.stderr)
        async with sdk(base + "/mcp", "modern") as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
        assert "other__echo" in names
        assert not [name for name in names if name.startswith("self")]
        fact = (await check(tmp_path / "servers.json"))["self"]  # another process with the same file
        assert (fact["state"], fact["problem"]) == ("disabled", "is this hub itself; it is left out")


async def test_the_cached_catalog_of_a_server_that_is_now_this_hub_is_dropped(tmp_path: Path) -> None:
    upstream, starts = fake(), tmp_path / "starts"
    entry = {"command": script(tmp_path / "run", [upstream["command"], *upstream["args"]], starts)}
    config = write_config(tmp_path, {"other": fake(), "run": entry})
    async with outermost(config) as (client, _):
        assert "run__echo" in await client.tool_names()
    script(tmp_path / "run", [*HUB, "serve", "--config", str(config)], starts)
    async with outermost(config) as (client, _):
        await client.request("tools/list")
        await client.until(lambda: b"run: is this hub itself; it is left out" in client.stderr)
        await client.notified("notifications/tools/list_changed")
        assert "run__echo" not in await client.tool_names()
        with pytest.raises(RpcError):
            await client.call("run__echo", {"text": "nobody"})
    async with outermost(config) as (client, _):
        assert "run__echo" not in await client.tool_names()


async def test_a_reload_that_adds_the_hub_itself_keeps_serving_the_other_servers(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"other": fake()}, watch=False)
    argv = [sys.executable, "-m", "mcp_hub", "serve", "--config", str(config)]
    async with outermost(config) as (client, guard):
        assert "other__echo" in await client.tool_names()
        hidden = {"command": "sh", "args": ["-c", shlex.join(argv)]}
        visible = {"command": argv[0], "args": argv[1:]}
        write_config(tmp_path, {"other": fake(), "hidden": hidden, "seen": visible}, watch=False)
        client.process.send_signal(signal.SIGHUP)
        await client.until(lambda: b"hidden: is this hub itself; it is left out" in client.stderr)
        await client.until(lambda: b"servers.seen: is this hub itself; it is left out" in client.stderr)
        await client.until(lambda: b"loaded servers.json again" in client.stderr)
        assert await client.text("other__echo", {"text": "still there"}) == "still there"
        # What was left out is tried again when the file is: it may be another program by now.
        write_config(tmp_path, {"other": fake(), "hidden": fake()}, watch=False)
        client.process.send_signal(signal.SIGHUP)
        await client.until(lambda: client.stderr.count(b"loaded servers.json again") == 2)
        assert await client.text("hidden__echo", {"text": "another"}) == "another"
    assert guard.peak <= 3
