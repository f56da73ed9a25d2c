"""A hub never serves itself, by whatever way it is reached; hubs behind hubs work, up to a limit.

Every hub here runs under a guard that ends them all as soon as there are more than a loop could be stopped with.
"""

import asyncio
import contextlib
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fakes.client import FAKE, HUB, PATIENCE, RpcError, StdioClient, fake, spawned, write_config
from tests.hub.test_over_a_network import free_port, network_hub, sdk

pytestmark = pytest.mark.anyio

COMMAND = str(Path(sys.executable).with_name("mcp-hub"))
BOUND = 8
"""Hubs at the same time: twice the limit of a row. A loop that is not stopped passes it within seconds."""
LOOK_AGAIN = 0.1
"""Seconds between two looks at the processes, of which no event tells."""
PROXY = Path(FAKE).with_name("renaming_proxy.py")
SALT = "0" * 32


def hubs_below(pid: int) -> list[psutil.Process]:
    """The processes below `pid` that serve as hubs."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                words, parent = process.cmdline(), process.parent()
                serves = "serve" in words and any(word in ("mcp_hub", COMMAND) for word in words)
                # A child that has not become its program yet looks like its parent.
                if serves and (parent is None or (words, process.environ()) != (parent.cmdline(), parent.environ())):
                    found.append(process)
    return found


class Guard:
    """Counts the hubs below one process; ends all of them if they become too many."""

    def __init__(self, pid: int) -> None:
        self.most = 0
        self._pid = pid

    async def watch(self) -> None:
        while True:
            hubs = hubs_below(self._pid)
            self.most = max(self.most, len(hubs))
            if len(hubs) > BOUND:
                for process in [psutil.Process(self._pid), *hubs]:
                    with contextlib.suppress(psutil.Error):
                        process.kill()
                return
            await asyncio.sleep(LOOK_AGAIN)


@contextlib.asynccontextmanager
async def guarded(pid: int) -> AsyncIterator[Guard]:
    guard = Guard(pid)
    watching = asyncio.create_task(guard.watch())
    try:
        yield guard
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert guard.most <= BOUND, f"{guard.most} hubs"


@contextlib.asynccontextmanager
async def outermost(*configs: Path) -> AsyncIterator[tuple[StdioClient, Guard]]:
    """A hub over stdio with its client, under guard."""
    files = [word for config in configs for word in ("--config", str(config))]
    async with (
        spawned([*HUB, "serve", *files]) as client,
        guarded(client.process.pid) as guard,
    ):
        await client.initialize()
        yield client, guard


async def check(config: Path) -> dict[str, dict[str, Any]]:
    """What `mcp-hub check` says of each server, under guard."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*HUB, "check", "--json", "--config", str(config), stdout=pipe)
    async with guarded(process.pid), asyncio.timeout(PATIENCE):
        stdout, _ = await process.communicate()
    return {fact["server"]: fact for fact in json.loads(stdout)["servers"]}


def script(path: Path, words: list[str], starts: Path) -> str:
    """A program that notes that it was started and then becomes another."""
    path.write_text(f"#!/bin/sh\necho started >> {shlex.quote(str(starts))}\nexec {shlex.join(words)}\n")
    path.chmod(0o700)
    return str(path)


def link(path: Path, target: str | Path) -> str:
    path.symlink_to(target)
    return str(path)


WRITTEN: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
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


@pytest.mark.parametrize("way", WRITTEN)
async def test_an_entry_that_says_it_starts_this_hub_is_left_out_before_anything_is_started(
    tmp_path: Path, way: str
) -> None:
    servers = {"other": fake(), "hub": WRITTEN[way](tmp_path, tmp_path / "servers.json")}
    config = write_config(tmp_path, servers)
    async with outermost(config) as (client, guard):
        assert "other__echo" in (names := await client.tool_names())
        assert not [name for name in names if name.startswith("hub")]
        assert b"servers.hub: is this hub itself; it is left out" in client.stderr
    assert guard.most == 0
    fact = (await check(config))["hub"]
    assert (fact["state"], fact["problem"]) == ("disabled", "is this hub itself; it is left out")


async def test_a_hub_with_another_file_is_not_mistaken_for_this_one(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    behind = write_config(inner, {"up": fake()})
    entry = {"command": COMMAND, "args": ["serve", "--config", str(behind)]}
    async with outermost(write_config(tmp_path, {"hub": entry})) as (client, guard):
        assert await client.text("hub__up__echo", {"text": "through both"}) == "through both"
    assert guard.most == 1


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("hidden", [True, False])
async def test_a_hub_of_several_files_does_not_serve_itself_by_any_of_them(
    tmp_path: Path, first: bool, hidden: bool
) -> None:
    (tmp_path / "more").mkdir()
    files = [tmp_path / "servers.json", tmp_path / "more" / "servers.json"]
    words = [COMMAND, "serve", "--config", str(files[not first])]
    entry = {"command": "sh", "args": ["-c", shlex.join(words)]} if hidden else {"command": COMMAND, "args": words[1:]}
    write_config(tmp_path, {"other": fake()})
    write_config(tmp_path / "more", {"hub": entry})
    async with outermost(*files) as (client, guard):
        assert await client.text("other__echo", {"text": "there"}) == "there"
        await client.until(lambda: b"is this hub itself; it is left out" in client.stderr)
        assert not [name for name in await client.tool_names() if name.startswith("hub")]
    assert guard.most <= hidden


HIDDEN: dict[str, Callable[[Path, list[str]], dict[str, Any]]] = {
    "a shell": lambda folder, words: {"command": "sh", "args": ["-c", shlex.join(words)]},
    "a script named npx": lambda folder, words: {
        "command": script(folder / "npx", words, folder / "starts"), "args": ["-y", "some-package@1.0.0"]
    },
    "a script named uvx": lambda folder, words: {
        "command": script(folder / "uvx", words, folder / "starts"), "args": ["some-package==1.0.0"]
    },
    "a shell without an environment": lambda folder, words: {
        "command": "sh", "args": ["-c", f'exec env -i HOME="$HOME" PATH="$PATH" {shlex.join(words)}']
    },
}  # fmt: skip
"""Ways whose words do not say that they end in this hub."""


@pytest.mark.parametrize("way", HIDDEN)
async def test_a_program_that_turns_out_to_be_this_hub_is_left_out_and_not_started_again(
    tmp_path: Path, way: str
) -> None:
    words = [*HUB, "serve", "--config", str(tmp_path / "servers.json")]
    config = write_config(tmp_path, {"other": fake(), "hub": HIDDEN[way](tmp_path, words)})
    async with outermost(config) as (client, guard):
        await client.until(lambda: b"hub: is this hub itself; it is left out" in client.stderr)
        names = await client.tool_names()
        assert "other__echo" in names
        assert not [name for name in names if name.startswith("hub")]
        assert not await gone_below(client.process.pid)
    assert guard.most <= 3
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


async def test_two_files_that_start_each_other_make_two_hubs(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    starts = tmp_path / "starts"
    for folder, other in zip(folders, folders[::-1], strict=True):
        folder.mkdir()
        words = [*HUB, "serve", "--config", str(other / "servers.json")]
        entry = {"command": script(folder / "run", words, starts)}
        write_config(folder, {"own": fake(), "next": entry}, list_wait="30s")
    async with outermost(folders[0] / "servers.json") as (client, guard):
        names = await client.tool_names()
        assert {"own__echo", "next__own__echo"} <= set(names)
        assert not [name for name in names if name.startswith("next__next")]
        await client.until(lambda: b"leads back to a hub that this one runs behind" in client.stderr)
        assert b"next: next: leads back" in client.stderr  # the hub above says where
    assert guard.most <= 2
    assert starts.read_text().count("started") == 2


def row(folder: Path, hubs: int, **root: Any) -> Path:
    """The configuration of the first of so many hubs in a row, each the only server of the one before."""
    inner: dict[str, Any] = fake()
    for number in range(hubs, 0, -1):
        place = folder / str(number)
        place.mkdir()
        config = write_config(place, {"next": inner, "own": fake()}, list_wait="30s", **root)
        inner = {"command": COMMAND, "args": ["serve", "--config", str(config)]}
    return config


async def test_four_hubs_in_a_row_serve(tmp_path: Path) -> None:
    async with outermost(row(tmp_path, 4)) as (client, guard):
        assert await client.text("next__next__next__next__echo", {"text": "from afar"}) == "from afar"
    assert guard.most == 3


async def test_a_fifth_hub_in_a_row_is_refused_and_the_first_says_why(tmp_path: Path) -> None:
    config = row(tmp_path, 5)
    (problem,) = (await check(config))["next"]["incomplete"]
    assert problem.startswith("next › next › next: would be number 5 in a row of hubs")
    assert "max_hub_depth" in problem
    async with outermost(config) as (client, _):  # now with the lists that every hub has kept
        names = await client.tool_names()
        assert "next__next__next__own__echo" in names
        assert "next__next__next__next__own__echo" not in names
        await client.until(lambda: b"next: next \xe2\x80\xba next" in client.stderr)
        assert b"number 5 in a row of hubs" in client.stderr


async def test_more_hubs_in_a_row_are_served_where_the_configuration_says_so(tmp_path: Path) -> None:
    async with outermost(row(tmp_path, 5, max_hub_depth=5)) as (client, _):
        assert await client.text("next__next__next__next__next__echo", {"text": "on purpose"}) == "on purpose"


def inherited(config: Path, tmp_path: Path) -> dict[str, str]:
    """The mark that a program started by a tool of a hub with this configuration finds in its environment."""
    out = tmp_path / "environment.json"
    reading = f"import json, os; json.dump(dict(os.environ), open({str(out)!r}, 'w'))"
    kept = config.read_text()
    write_config(config.parent, {"reads": {"command": sys.executable, "args": ["-c", reading]}})
    subprocess.run([*HUB, "check", "--config", str(config)], capture_output=True, timeout=PATIENCE, check=False)
    config.write_text(kept)
    return {"MCP_HUB_ABOVE": json.loads(out.read_text())["MCP_HUB_ABOVE"]}


@pytest.mark.parametrize("modern", [False, True])
async def test_an_agent_started_by_a_tool_may_start_a_hub_with_the_same_file(tmp_path: Path, modern: bool) -> None:
    config = write_config(tmp_path, {"up": fake()})
    environment = inherited(config, tmp_path)
    async with spawned([*HUB, "serve", "--config", str(config)], env=environment, modern=modern) as client:
        if not modern:
            await client.initialize()
        assert await client.text("up__echo", {"text": "for an agent"}) == "for an agent"


async def test_a_hub_that_may_be_a_loop_starts_nothing_before_it_knows_its_client(tmp_path: Path) -> None:
    started = tmp_path / "started"
    up = fake()
    entry = {"command": script(tmp_path / "up", [up["command"], *up["args"]], started)}
    config = write_config(tmp_path, {"up": entry})
    environment = inherited(config, tmp_path)
    async with spawned([*HUB, "serve", "--config", str(config)], env=environment) as client:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "mcp-hub", "version": "1"},
        }
        assert await client.request("ping") == {}
        with pytest.raises(RpcError) as refused:
            await client.request("initialize", params)
        assert refused.value.error["data"]["mcp-hub/hub"]["code"] == "itself"
        with pytest.raises(RpcError):
            await client.request("tools/list", {"_meta": {"io.modelcontextprotocol/clientInfo": {"name": "mcp-hub"}}})
    assert not started.exists()


async def test_a_loop_through_other_programs_ends_at_the_depth_limit(tmp_path: Path) -> None:
    """The hub behind a proxy that goes by a name of its own cannot tell it from an agent."""
    starts = tmp_path / "starts"
    config = tmp_path / "servers.json"
    hub = script(tmp_path / "hub", [*HUB, "serve", "--config", str(config)], starts)
    proxy = {"command": sys.executable, "args": [str(PROXY), hub]}
    write_config(tmp_path, {"own": fake(), "proxy": proxy}, list_wait="30s")
    async with outermost(config) as (client, guard):
        names = await client.tool_names()
        assert "proxy__proxy__proxy__own__echo" in names
        assert "proxy__proxy__proxy__proxy__own__echo" not in names
    assert guard.most <= 4
    assert starts.read_text().count("started") == 4  # the last one was refused


async def test_a_network_hub_beyond_the_limit_does_not_start(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": fake()})
    above = f"{SALT}:{','.join(['a' * 16] * 4)}"
    async with spawned(
        [*HUB, "serve", "--http", "--port", "0", "--config", str(config)], env={"MCP_HUB_ABOVE": above}
    ) as hub:
        assert await hub.exited() == 2
        assert b"number 5 in a row of hubs" in hub.stderr


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


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
@pytest.mark.parametrize("hubs", [2, 3])
async def test_hubs_on_ports_that_lead_in_a_circle_do_not_list_themselves(tmp_path: Path, path: str, hubs: int) -> None:
    ports = [free_port() for _ in range(hubs)]
    configurations = [
        {f"own{number}": fake(), "next": {"url": f"http://127.0.0.1:{ports[(number + 1) % hubs]}{path}"}}
        for number in range(hubs)
    ]
    async with contextlib.AsyncExitStack() as stack:
        starting = [
            stack.enter_async_context(network_hub(tmp_path / str(number), servers, ports[number]))
            for number, servers in enumerate(configurations)
        ]
        running = await asyncio.gather(*starting)
        left_out = b"next: is this hub itself, by way of another hub; it is left out"
        async with asyncio.timeout(PATIENCE):
            while not any(left_out in hub.stderr for hub, _ in running):
                await asyncio.sleep(LOOK_AGAIN)
            for number, (_, base) in enumerate(running):
                names = await listed(base)
                while any(name.count("next__") >= hubs for name in names):
                    await asyncio.sleep(LOOK_AGAIN)  # it is being told that what it lists was left out
                    names = await listed(base)
                assert f"own{number}__echo" in names


async def test_a_hub_does_not_list_its_own_file_served_by_another_hub(tmp_path: Path) -> None:
    folder, port = tmp_path / "inner", free_port()
    folder.mkdir()
    inner = write_config(folder, {"own": fake(), "url": {"url": f"http://127.0.0.1:{port}/mcp"}})
    again = {"command": COMMAND, "args": ["serve", "--config", str(inner)]}
    left_out = b": is this hub itself, by way of another hub; it is left out"
    async with (
        network_hub(tmp_path, {"up": fake(), "again": again}, port) as (hub, _),
        guarded(hub.process.pid) as guard,
        outermost(inner) as (client, other),
    ):
        async with asyncio.timeout(PATIENCE):
            while left_out not in hub.stderr + client.stderr:  # by whoever is asked first
                await asyncio.sleep(LOOK_AGAIN)
            names = await client.tool_names()
            while any(name.startswith("url__again__") for name in names):
                await asyncio.sleep(LOOK_AGAIN)
                names = await client.tool_names()
        assert "own__echo" in names
    assert guard.most <= 1
    assert other.most == 0


async def test_the_cached_catalog_of_a_server_that_is_now_this_hub_is_dropped(tmp_path: Path) -> None:
    up, starts = fake(), tmp_path / "starts"
    entry = {"command": script(tmp_path / "run", [up["command"], *up["args"]], starts)}
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


async def listed(base: str) -> list[str]:
    async with sdk(base + "/mcp", "modern") as client:
        return [tool.name for tool in (await client.list_tools()).tools]


async def test_hubs_in_a_row_over_http_are_counted_by_the_first(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        inner: dict[str, Any] = fake()
        for number in range(5, 1, -1):
            _, base = await stack.enter_async_context(network_hub(tmp_path / str(number), {"next": inner}))
            assert await listed(base)  # its lists are there before anybody is in front of it
            inner = {"url": f"{base}/mcp"}
        (tmp_path / "1").mkdir()
        config = write_config(tmp_path / "1", {"next": inner})
        fact = (await check(config))["next"]
        assert fact["state"] == "disabled"
        assert "5 hubs in a row" in fact["problem"]
        write_config(tmp_path / "1", {"next": inner}, max_hub_depth=5)
        assert (await check(config))["next"]["state"] == "ready"


async def test_a_reload_that_adds_the_hub_itself_keeps_serving_the_other_servers(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"other": fake()}, watch=False)
    words = [sys.executable, "-m", "mcp_hub", "serve", "--config", str(config)]
    async with outermost(config) as (client, guard):
        assert "other__echo" in await client.tool_names()
        hidden = {"command": "sh", "args": ["-c", shlex.join(words)]}
        seen = {"command": words[0], "args": words[1:]}
        write_config(tmp_path, {"other": fake(), "hidden": hidden, "seen": seen}, watch=False)
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
    assert guard.most <= 3


async def test_other_clients_and_servers_do_not_see_the_hub_metadata(tmp_path: Path) -> None:
    record = tmp_path / "record"
    config = write_config(tmp_path, {"up": fake("--record", str(record))})
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        assert "_meta" not in await client.initialize()
        assert "_meta" not in await client.request("tools/list")
    assert "mcp-hub/hub" not in record.read_text()


async def test_the_inherited_mark_of_a_hub_reveals_no_paths(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": fake()})
    (mark,) = inherited(config, tmp_path).values()
    salt, _, digests = mark.partition(":")
    assert len(salt) == 32
    assert len(digests) == 16
    assert not set(mark) - set("0123456789abcdef:,")
