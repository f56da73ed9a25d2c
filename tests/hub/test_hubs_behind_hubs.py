"""Hubs behind hubs serve, up to a limit, and a circle of them lists nothing twice. Every hub is under a guard."""

import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcp_hub.config.ancestry import HUB_KEY
from mcp_hub.protocol.era import HUB_NAME, LATEST_HANDSHAKE
from tests.downstream.network.visitor import ACCEPT
from tests.fakes.client import FAKE, HUB, PATIENCE, RpcError, fake, free_port, spawned, write_config
from tests.fakes.network import network_hub, sdk
from tests.hub.guarded import COMMAND, LOOK_AGAIN, check, guarded, outermost, script

pytestmark = pytest.mark.anyio

PROXY = Path(FAKE).with_name("renaming_proxy.py")
SALT = "0" * 32
SHORT = 3
"""Seconds for the `list_wait` of hubs in a circle, whose lists wait for each other."""


async def test_a_hub_with_another_file_is_not_mistaken_for_this_one(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    inner_config = write_config(inner, {"up": fake()})
    entry = {"command": COMMAND, "args": ["serve", "--config", str(inner_config)]}
    async with outermost(write_config(tmp_path, {"hub": entry})) as (client, guard):
        assert await client.text("hub__up__echo", {"text": "through both"}) == "through both"
    assert guard.peak == 1


async def test_two_files_that_start_each_other_end_after_two_hubs(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    starts = tmp_path / "starts"
    for folder, peer in zip(folders, folders[::-1], strict=True):
        folder.mkdir()
        argv = [*HUB, "serve", "--config", str(peer / "servers.json")]
        entry = {"command": script(folder / "run", argv, starts)}
        write_config(folder, {"own": fake(), "next": entry}, list_wait="30s")
    async with outermost(folders[0] / "servers.json") as (client, guard):
        names = await client.tool_names()
        assert {"own__echo", "next__own__echo"} <= set(names)
        assert not [name for name in names if name.startswith("next__next")]
        await client.until(lambda: b"leads back to a hub that this one runs behind" in client.stderr)
        assert b"next: next: leads back" in client.stderr  # the hub above says where
    assert guard.peak <= 2
    assert starts.read_text().count("started") == 2


def row(folder: Path, hubs: int, **root: Any) -> Path:
    """The configuration of the first of so many hubs in a row, each the only server of the one before."""
    inner: dict[str, Any] = fake()
    for number in range(hubs, 0, -1):
        directory = folder / str(number)
        directory.mkdir()
        config = write_config(directory, {"next": inner, "own": fake()}, list_wait="30s", **root)
        inner = {"command": COMMAND, "args": ["serve", "--config", str(config)]}
    return config


async def test_four_chained_hubs_serve(tmp_path: Path) -> None:
    async with outermost(row(tmp_path, 4)) as (client, guard):
        assert await client.text("next__next__next__next__echo", {"text": "from afar"}) == "from afar"
    assert guard.peak == 3


async def test_a_fifth_chained_hub_is_refused_and_the_first_reports_why(tmp_path: Path) -> None:
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


async def test_max_hub_depth_allows_more_chained_hubs(tmp_path: Path) -> None:
    async with outermost(row(tmp_path, 5, max_hub_depth=5)) as (client, _):
        assert await client.text("next__next__next__next__next__echo", {"text": "on purpose"}) == "on purpose"


def inherited(config: Path, tmp_path: Path) -> dict[str, str]:
    """The mark that a program started by a tool of a hub with this configuration finds in its environment."""
    out = tmp_path / "environment.json"
    program = f"import json, os; json.dump(dict(os.environ), open({str(out)!r}, 'w'))"
    original = config.read_text()
    write_config(config.parent, {"reads": {"command": sys.executable, "args": ["-c", program]}})
    subprocess.run([*HUB, "check", "--config", str(config)], capture_output=True, timeout=PATIENCE, check=False)
    config.write_text(original)
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
    upstream = fake()
    entry = {"command": script(tmp_path / "up", [upstream["command"], *upstream["args"]], started)}
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
    assert guard.peak <= 4
    assert starts.read_text().count("started") == 4  # the last one was refused


async def test_a_network_hub_beyond_the_limit_does_not_start(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": fake()})
    ancestors = f"{SALT}:{','.join(['a' * 16] * 4)}"
    async with spawned(
        [*HUB, "serve", "--http", "--port", "0", "--config", str(config)], env={"MCP_HUB_ABOVE": ancestors}
    ) as hub:
        assert await hub.exited() == 2
        assert b"number 5 in a row of hubs" in hub.stderr


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
@pytest.mark.parametrize("hubs", [2, 3])
async def test_network_hubs_in_a_loop_do_not_list_themselves(tmp_path: Path, path: str, hubs: int) -> None:
    ports = [free_port() for _ in range(hubs)]
    configurations = [
        {f"own{number}": fake(), "next": {"url": f"http://127.0.0.1:{ports[(number + 1) % hubs]}{path}"}}
        for number in range(hubs)
    ]
    async with contextlib.AsyncExitStack() as stack:
        starting = [
            stack.enter_async_context(network_hub(tmp_path / str(number), servers, ports[number], list_wait=SHORT))
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
    inner = write_config(folder, {"own": fake(), "url": {"url": f"http://127.0.0.1:{port}/mcp"}}, list_wait=SHORT)
    entry = {"command": COMMAND, "args": ["serve", "--config", str(inner)]}
    left_out = b": is this hub itself, by way of another hub; it is left out"
    async with (
        network_hub(tmp_path, {"up": fake(), "again": entry}, port, list_wait=SHORT) as (hub, _),
        guarded(hub.process.pid) as guard,
        outermost(inner) as (client, inner_guard),
    ):
        async with asyncio.timeout(PATIENCE):
            while left_out not in hub.stderr + client.stderr:  # by whoever is asked first
                await asyncio.sleep(LOOK_AGAIN)
            names = await client.tool_names()
            while any(name.startswith("url__again__") for name in names):
                await asyncio.sleep(LOOK_AGAIN)
                names = await client.tool_names()
        assert "own__echo" in names
    assert guard.peak <= 1
    assert inner_guard.peak == 0


async def listed(base: str) -> list[str]:
    async with sdk(base + "/mcp", "modern") as client:
        return [tool.name for tool in (await client.list_tools()).tools]


async def test_the_first_hub_counts_chained_hubs_over_http(tmp_path: Path) -> None:
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


async def test_other_clients_and_servers_do_not_see_the_hub_metadata(tmp_path: Path) -> None:
    record = tmp_path / "record"
    config = write_config(tmp_path, {"up": fake("--record", str(record))})
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        assert "_meta" not in await client.initialize()
        assert "_meta" not in await client.request("tools/list")
    assert "mcp-hub/hub" not in record.read_text()


async def test_a_hub_in_front_of_a_network_hub_is_not_told_the_names_of_its_servers(tmp_path: Path) -> None:
    port = free_port()
    servers = {"up": fake(), "circle": {"url": f"http://127.0.0.1:{port}/mcp"}}
    async with (
        network_hub(tmp_path, servers, port, list_wait=SHORT) as (hub, base),
        httpx2.AsyncClient(base_url=base, headers=ACCEPT, timeout=PATIENCE) as http,
    ):
        async with asyncio.timeout(PATIENCE):
            while b"circle: is this hub itself" not in hub.stderr:
                await asyncio.sleep(LOOK_AGAIN)
        info = {"name": HUB_NAME, "version": "1"}
        params = {"protocolVersion": LATEST_HANDSHAKE, "capabilities": {}, "clientInfo": info}
        answer = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        told = json.dumps(answer.json()["result"]["_meta"][HUB_KEY])
        assert "circle" not in told


async def test_the_inherited_ancestry_variable_reveals_no_paths(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": fake()})
    (mark,) = inherited(config, tmp_path).values()
    salt, _, digests = mark.partition(":")
    assert len(salt) == 32
    assert len(digests) == 16
    assert not set(mark) - set("0123456789abcdef:,")
