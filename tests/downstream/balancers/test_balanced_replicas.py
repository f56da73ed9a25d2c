"""The files of docs/examples for replicas, in HAProxy and nginx: a session is served by all, and outlives one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from mcp_hub.cli import main
from mcp_hub.hub.composition import read_config
from tests.downstream.balancers.proxies import EXAMPLES, FILES, Kind, balanced_hub, balancing
from tests.downstream.balancers.visiting import Guest, guest, result_text
from tests.fakes.client import PATIENCE, fake
from tests.fakes.redis_server import redis_server

pytestmark = pytest.mark.anyio
REPLICAS: Final = {"haproxy": "replicas-haproxy.cfg", "nginx": "replicas-nginx.conf"}
KINDS: Final[tuple[Kind, ...]] = ("haproxy", "nginx")


@contextlib.asynccontextmanager
async def session(balancer: Any, lines: list[tuple[str, str]]) -> AsyncIterator[Guest]:
    """A new connection of a session that has begun on another one."""
    async with guest(balancer) as client:
        client.session = lines
        yield client


@pytest.mark.parametrize("kind", KINDS)
async def test_a_session_alternates_between_replicas_and_survives_a_killed_one(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FILES, kind, REPLICAS[kind])
    servers = {"up": fake()}
    async with (
        asyncio.timeout(PATIENCE * 2),
        redis_server() as store,
        balanced_hub(tmp_path / "one", servers, store=store.url) as (first, first_port),
        balanced_hub(tmp_path / "two", servers, store=store.url) as (_, second_port),
        balancing(kind, tmp_path / "balancer", [first_port, second_port]) as balancer,
    ):
        async with guest(balancer) as client:
            await client.shake_hands()
            lines = client.session
        pids = {await pid(balancer, lines) for _ in range(8)}
        assert len(pids) == 2
        first.process.kill()
        assert len({await pid(balancer, lines) for _ in range(8)}) == 1


async def pid(balancer: Any, lines: list[tuple[str, str]]) -> str:
    """The process of the server that answers a call of a session, tried again where a connection breaks."""
    while True:
        async with session(balancer, lines) as client:
            client.call("up__pid", {})
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, AssertionError):
                answer = await client.connection.response()
                if answer.status == 200 and "result" in answer.json:
                    return result_text(answer.json)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_balancer_forwards_no_internal_path_of_replicas(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FILES, kind, REPLICAS[kind])
    async with (
        asyncio.timeout(PATIENCE),
        balanced_hub(tmp_path / "one", {}) as (_, port),
        balancing(kind, tmp_path / "balancer", [port]) as balancer,
        guest(balancer) as client,
    ):
        client.connection.send(b"GET /replica HTTP/1.1\r\nHost: hub.example\r\n\r\n")
        assert (await client.connection.response()).status == 404


def test_the_documented_replica_configuration_loads() -> None:
    environ = {
        "STORE_URL": "redis://:secret@10.0.0.5:6379/0",
        "MY_ADDRESS": "http://10.0.0.7:8808",
        "MCP_HUB_TOKEN": "0123456789abcdef" * 2,
    }
    config = read_config(EXAMPLES / "replicas.yaml", environ).config
    assert config.store is not None
    assert config.store.address == "http://10.0.0.7:8808"


def test_the_compose_file_of_replicas_has_a_valid_command_and_configuration(tmp_path: Path) -> None:
    compose = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())
    hub = compose["services"]["hub"]
    with pytest.raises(SystemExit) as raised:
        main([*hub["command"], "--help"])
    assert raised.value.code == 0
    assert hub["read_only"] is True
    assert {mount["source"] for mount in hub["configs"]} <= set(compose["configs"])
    servers, replicas = tmp_path / "servers.yaml", tmp_path / "replicas.yaml"
    servers.write_text("servers: {}")
    replicas.write_text(compose["configs"]["replicas"]["content"])
    for file in (servers, replicas):
        file.chmod(0o600)
    config = read_config(servers, {}, overlays=(replicas,)).config
    assert config.store is not None
    assert config.store.url.get_secret_value() == "redis://store:6379/0"
