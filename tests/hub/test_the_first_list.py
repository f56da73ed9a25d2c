"""The first list waits for servers as long as its client does, and never twice for one that was late."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.clients.table import CLIENTS, client_calling_itself
from mcp_hub.hub import Engine, catalogs, composition, exposure
from mcp_hub.hub.composition import read_config
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.upstream.catalog_cache import CatalogCache
from tests.fakes.client import HUB, PATIENCE, StdioClient, fake, spawned, write_config
from tests.peers.catalogue import REAL_SERVERS, Place

pytestmark = pytest.mark.anyio

CODEX, CLAUDE, GEMINI = "codex-mcp-client", "claude-code", "gemini-cli-mcp-client"


@contextlib.asynccontextmanager
async def program(config: Path, name: str, **capabilities: Any) -> AsyncIterator[StdioClient]:
    """A client of this name, which asks for the list of tools as soon as it may."""
    async with spawned([*HUB, "serve", "--config", str(config)]) as client:
        info = {"name": name, "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}
        await client.request("initialize", params)
        client.notify("notifications/initialized")
        yield client


async def test_a_client_that_waits_is_listed_a_slow_server_and_one_that_does_not_is_told_later(tmp_path: Path) -> None:
    for name in (CODEX, CLAUDE, GEMINI):
        directory = tmp_path / name
        directory.mkdir()
        config = write_config(directory, {"slow": fake("--start-delay", "3")}, list_wait=None)
        async with program(config, name) as client:
            names = await client.tool_names()
            assert ("slow__echo" in names) == (name == GEMINI)
            if name != GEMINI:
                await client.notified("notifications/tools/list_changed")
                assert "slow__echo" in await client.tool_names()


@pytest.mark.parametrize("name", [CODEX, CLAUDE])
async def test_a_server_that_hangs_for_ever_costs_no_tools_of_the_others(tmp_path: Path, name: str) -> None:
    servers = {"hangs": fake("--silent"), "other": fake(), "more": fake()}
    config = write_config(tmp_path, servers, list_wait=None)
    subprocess.run([*HUB, "check", "--config", str(write_config(tmp_path, {**servers, "hangs": fake("--die", "x")},
        list_wait=None))], check=True, timeout=PATIENCE, capture_output=True)  # fmt: skip
    config = write_config(tmp_path, servers, list_wait=None)
    for _ in range(2):
        async with program(config, name) as client:
            assert {"other__echo", "more__echo"} <= set(await client.tool_names())


async def test_no_list_waits_for_a_server_that_was_late_at_the_last_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = read_config(write_config(tmp_path, {"hangs": fake("--silent"), "up": fake()}, list_wait=None)).config
    monkeypatch.setattr(exposure, "LIST_WAIT", 1.0)
    async with Engine(config, kept=CatalogCache(tmp_path / "cache")) as engine:
        async with asyncio.timeout(PATIENCE):
            await engine.settled_catalog()
            await engine.upstreams["up"].attempted.wait()
            while not list((tmp_path / "cache").glob("*.late")):
                await asyncio.sleep(0)
    monkeypatch.setattr(exposure, "LIST_WAIT", 10 * PATIENCE)
    monkeypatch.setattr(catalogs, "LIST_WAIT", 10 * PATIENCE)
    async with Engine(config, kept=CatalogCache(tmp_path / "cache")) as engine, asyncio.timeout(PATIENCE):
        assert "up__echo" in (await engine.settled_catalog()).names(TOOLS)
        assert not engine.upstreams["hangs"].settled.is_set()


async def test_a_server_is_late_also_for_a_client_that_gave_up_and_ended_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = read_config(write_config(tmp_path, {"hangs": fake("--silent"), "up": fake()}, list_wait=None)).config
    monkeypatch.setattr(catalogs, "GIVES_UP", 1.0)
    for module in (exposure, catalogs):
        monkeypatch.setattr(module, "LIST_WAIT", 10 * PATIENCE)
    async with Engine(config, kept=CatalogCache(tmp_path / "cache")) as engine, asyncio.timeout(PATIENCE):
        waiting = asyncio.create_task(engine.settled_catalog())
        await engine.upstreams["up"].attempted.wait()
        while not list((tmp_path / "cache").glob("*.late")):
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
    async with Engine(config, kept=CatalogCache(tmp_path / "cache")) as engine, asyncio.timeout(PATIENCE):
        assert "up__echo" in (await engine.settled_catalog()).names(TOOLS)


async def test_a_server_that_comes_after_some_clients_gave_up_is_not_late_and_one_that_fails_then_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = {"slow": fake("--start-delay", "1"), "fails": fake("--die", "x")}
    config = read_config(write_config(tmp_path, servers, list_wait=None)).config
    monkeypatch.setattr(catalogs, "GIVES_UP", 0.0)
    for module in (exposure, catalogs):
        monkeypatch.setattr(module, "LIST_WAIT", 5.0)

    async def wait_for_notes(count: int) -> None:
        while len(list((tmp_path / "cache").glob("*.late"))) != count:
            await asyncio.sleep(0)

    async with Engine(config, kept=CatalogCache(tmp_path / "cache")) as engine, asyncio.timeout(PATIENCE):
        waiting = asyncio.create_task(engine.settled_catalog())
        await wait_for_notes(2)
        assert "slow__echo" in (await waiting).names(TOOLS)
        await wait_for_notes(1)
    async with Engine(config, kept=CatalogCache(tmp_path / "cache")) as engine:
        assert engine.upstreams["fails"].list_store.was_late


async def test_a_server_that_was_late_for_a_client_in_a_hurry_is_waited_for_by_one_that_waits_longer(
    tmp_path: Path,
) -> None:
    config = write_config(tmp_path, {"slow": fake("--start-delay", "2")}, list_wait=None)
    async with program(config, CODEX) as client:
        assert await client.tool_names() == []
    async with program(config, GEMINI) as client:
        assert "slow__echo" in await client.tool_names()


async def test_a_client_that_has_waited_for_a_launcher_is_waited_for_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launcher that has downloaded the hub, such as `pipx run`, becomes its process."""
    monkeypatch.setattr(composition, "process_age", lambda: 60.0)
    config = read_config(write_config(tmp_path, {"slow": fake("--start-delay", "1")}, list_wait=None)).config
    async with Engine(config, kept=CatalogCache(tmp_path / "cache"), one_client=True) as engine:
        assert "slow__echo" in (await engine.settled_catalog()).names(TOOLS)


def test_the_table_has_how_long_clients_wait() -> None:
    waits = {client.id: client.list_wait for client in CLIENTS}
    assert (waits["codex"], waits["claude-code"], waits["gemini"], waits["opencode"]) == (0.6, 1.2, 10, 10)
    assert all(client.start_limit is None or client.list_wait < client.start_limit for client in CLIENTS)
    assert client_calling_itself(CLAUDE) is not None


async def test_catalogs_are_kept_by_what_the_client_declared(tmp_path: Path) -> None:
    entry = REAL_SERVERS["everything_stdio"].entry(Place(tmp_path))
    config = write_config(tmp_path, {"e": {**entry, "lazy": True}}, list_wait=PATIENCE)
    everything = {"sampling": {}, "elicitation": {"form": {}}, "roots": {}}
    for name, capabilities in ((GEMINI, everything), (CODEX, {})):
        async with program(config, name, **capabilities) as client:
            await client.tool_names()
            await client.text("e__echo", {"message": "x"})  # starts it, where a catalog of another client was kept
    for name, capabilities in ((GEMINI, everything), (CODEX, {})):
        async with program(config, name, **capabilities) as client:
            names = set(await client.tool_names())
            assert ("e__trigger-sampling-request" in names) == (name == GEMINI)
