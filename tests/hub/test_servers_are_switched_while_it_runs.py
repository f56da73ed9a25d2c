"""One server of a running hub is restarted, switched off and switched on: nothing else notices, nothing is written."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.errors import CallError, NotConnected, UnknownName
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import load_config
from mcp_hub.hub.server_switch import SWITCHED_OFF, CannotSwitch
from mcp_hub.policy import Call
from mcp_hub.policy.breaker import CircuitState
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.callers import SOLE, Caller
from mcp_hub.upstream.lifecycle import UpstreamState
from tests.fakes.client import PATIENCE, fake, write_config

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def engine(directory: Path, **servers: Any) -> AsyncIterator[Engine]:
    """An engine whose servers have all been tried."""
    config = load_config(write_config(directory, servers))
    async with Engine(config) as hub, asyncio.timeout(PATIENCE):
        for upstream in hub.upstreams.values():
            await upstream.attempted.wait()
        await hub.settled_catalog()
        yield hub


async def call(hub: Engine, server: str, tool: str, **arguments: Any) -> Any:
    route = await hub.route(TOOLS, f"{server}__{tool}", "handshake")
    params = {"name": tool, "arguments": arguments}
    return await hub.act(Call("tools/call", f"{server}__{tool}", route, params, "handshake", Envelope()))


async def text(hub: Engine, server: str, tool: str, **arguments: Any) -> str:
    return str((await call(hub, server, tool, **arguments))["content"][0]["text"])


def tool_names(hub: Engine, server: str) -> list[str]:
    return [name for name in hub.catalog.names(TOOLS) if name.startswith(f"{server}__")]


async def test_a_restarted_server_gets_a_new_process_and_the_others_keep_theirs(tmp_path: Path) -> None:
    async with engine(tmp_path, a=fake(), b=fake()) as hub:
        before = {id: await text(hub, id, "pid") for id in "ab"}
        await hub.switch.restart("a")
        assert "a__echo" in tool_names(hub, "a"), "its tools are listed until it is connected again"
        assert await text(hub, "a", "pid") != before["a"]
        assert await text(hub, "b", "pid") == before["b"]
        assert hub.upstreams["a"].starts == 2
        assert hub.generation.number == 1


async def test_a_restart_fails_running_calls_and_answers_calls_made_meanwhile(
    tmp_path: Path,
) -> None:
    record = tmp_path / "record"
    async with engine(tmp_path, a=fake("--stubborn", "--record", str(record))) as hub:
        running = asyncio.ensure_future(call(hub, "a", "sleep", seconds=600))
        while "tools/call" not in record.read_text():
            await asyncio.sleep(0)
        restarting = asyncio.ensure_future(hub.switch.restart("a"))
        await asyncio.sleep(0)
        later_call = asyncio.ensure_future(text(hub, "a", "echo", text="there"))
        with pytest.raises(CallError) as caught:
            await running
        assert caught.value.code == "server_unavailable"
        await restarting
        assert await later_call == "there"


async def test_a_restart_closes_an_open_breaker_and_ends_the_wait_for_the_next_attempt(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "broken"
    async with engine(tmp_path, a=fake("--die-if", str(broken), breaker={"failures": 1, "cooldown": 600})) as hub:
        broken.touch()
        with pytest.raises(CallError):
            await call(hub, "a", "crash")
        with pytest.raises(CallError):
            await call(hub, "a", "echo", text="x")
        assert hub.rules.breaker_state("a") is CircuitState.OPEN
        broken.unlink()
        await hub.switch.restart("a")
        assert hub.rules.breaker_state("a") is CircuitState.CLOSED
        assert await text(hub, "a", "echo", text="x") == "x"


async def test_a_server_that_is_switched_off_is_not_listed_nor_called_until_it_is_switched_on(tmp_path: Path) -> None:
    async with engine(tmp_path, a=fake(), b=fake()) as hub:
        pid = await text(hub, "b", "pid")
        await hub.switch.disable("a")
        await hub.catalogs.wait_until_built()
        assert not tool_names(hub, "a")
        with pytest.raises(UnknownName):
            await call(hub, "a", "echo", text="x")
        off = hub.upstreams["a"]
        assert (off.state, off.error) == (UpstreamState.DISABLED, SWITCHED_OFF)
        with pytest.raises(CannotSwitch):
            await hub.switch.restart("a")
        await hub.switch.disable("a")
        assert hub.upstreams["a"] is off
        await hub.switch.enable("a")
        assert await text(hub, "a", "echo", text="back") == "back"
        assert await text(hub, "b", "pid") == pid


async def test_a_server_that_its_entry_switches_off_can_be_switched_on(tmp_path: Path) -> None:
    async with engine(tmp_path, a=fake(enabled=False)) as hub:
        await hub.switch.enable("a")
        assert await text(hub, "a", "echo", text="on") == "on"


async def test_a_reload_resets_switched_servers_to_the_configuration(tmp_path: Path) -> None:
    async with engine(tmp_path, a=fake(), b=fake(enabled=False), c=fake()) as hub:
        pid = await text(hub, "c", "pid")
        await hub.switch.disable("a")
        await hub.switch.enable("b")
        assert await text(hub, "b", "echo", text="on") == "on"
        await hub.renew(load_config(tmp_path / "servers.json"))
        assert await text(hub, "a", "echo", text="back") == "back"
        assert await text(hub, "c", "pid") == pid
        await hub.catalogs.wait_until_built()
        assert not tool_names(hub, "b")
        assert hub.upstreams["b"].state is UpstreamState.DISABLED


async def test_switching_an_unknown_server_or_one_disabled_by_the_hub_is_refused(tmp_path: Path) -> None:
    async with engine(tmp_path, a=fake(env={"KEY": "${NO_SUCH_VARIABLE_HERE}"})) as hub:
        for switched in (hub.switch.restart, hub.switch.disable, hub.switch.enable):
            with pytest.raises(CannotSwitch, match="there is no server 'z'; there are: a"):
                await switched("z")
        with pytest.raises(CannotSwitch, match="NO_SUCH_VARIABLE_HERE"):
            await hub.switch.enable("a")


async def test_a_server_with_machine_access_cannot_be_enabled_over_a_network(tmp_path: Path) -> None:
    config = load_config(write_config(tmp_path, {"shell": {"builtin": "shell", "enabled": False}}))
    hub = Engine(config)
    hub.over_network()
    async with hub, asyncio.timeout(PATIENCE):
        with pytest.raises(Exception, match="shell"):
            await hub.switch.enable("shell")
        assert hub.upstreams["shell"].state is UpstreamState.DISABLED


async def test_concurrent_switches_of_one_server_leave_one_process(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with engine(tmp_path, a=fake("--journal", str(journal))) as hub:
        switches = [hub.switch.restart("a"), hub.switch.restart("a"), hub.switch.disable("a"), hub.switch.enable("a")]
        await asyncio.gather(*switches, return_exceptions=True)
        await hub.switch.enable("a")
        pid = await text(hub, "a", "pid")
        assert f"ready {pid}" in journal.read_text().splitlines()[-1]


@pytest.mark.parametrize("begun", [False, True])
async def test_a_hub_that_stops_during_a_server_restart_leaves_no_process(tmp_path: Path, begun: bool) -> None:
    journal = tmp_path / "journal"
    async with engine(tmp_path, a=fake("--stubborn", "--journal", str(journal))) as hub:
        former = hub.upstreams["a"]
        restarting = asyncio.ensure_future(hub.switch.restart("a"))
        await asyncio.sleep(0)
        while begun and hub.upstreams["a"] is former:
            await asyncio.sleep(0)
    await asyncio.gather(restarting, return_exceptions=True)
    assert former.state is UpstreamState.STOPPED
    assert hub.upstreams["a"].state in (UpstreamState.IDLE, UpstreamState.STOPPED)
    assert len([line for line in journal.read_text().splitlines() if line.startswith("ready")]) == 1


@pytest.mark.parametrize("session", ["shared", "client", "call"])
async def test_a_call_that_waits_for_its_connection_fails_when_its_server_is_switched_off(
    tmp_path: Path, session: str
) -> None:
    hangs, record = tmp_path / "hangs", tmp_path / "record"
    server = fake("--hang-if", str(hangs), "--record", str(record), session=session, deadlines={"connect": PATIENCE})
    async with engine(tmp_path, a=server) as hub:
        route = await hub.route(TOOLS, "a__echo", "handshake")
        hangs.touch()
        before = record.stat().st_size
        if session == "shared":
            await hub.switch.restart("a")
        params = {"name": "echo", "arguments": {"text": "x"}}
        caller = SOLE if session == "shared" else Caller()
        waiting = asyncio.ensure_future(
            hub.act(Call("tools/call", "a__echo", route, params, "handshake", Envelope(), caller))
        )
        while record.stat().st_size == before:
            await asyncio.sleep(0)
        await hub.switch.disable("a")
        with pytest.raises(NotConnected):
            await waiting
