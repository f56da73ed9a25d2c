"""What a replica keeps of the principals that it owns, and when that ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mcp_hub.downstream import Connection, not_delivered
from mcp_hub.downstream.dispatcher import Dispatcher
from mcp_hub.downstream.replicas import Replicas
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import read_config
from mcp_hub.protocol.frames import Message
from mcp_hub.protocol.kinds import PROMPTS, RESOURCES, TOOLS
from mcp_hub.protocol.skill_entries import READ_DIRECTORY
from mcp_hub.security import Principal, callers
from tests.fakes.client import ENVELOPE, PATIENCE, fake, write_config
from tests.fakes.redis_server import redis_server

pytestmark = pytest.mark.anyio


async def test_the_sessions_of_a_principal_end_when_its_owner_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "MAX_PRINCIPALS", 2)
    file = write_config(tmp_path, {"own": fake(session="client")})
    ann, bob, eve = map(Principal, ("ann", "bob", "eve"))
    async with redis_server() as store, Engine(read_config(file, {}).config) as hub:
        replicas = Replicas(store.settings(), Dispatcher(hub))
        await replicas.begin()
        sessions = hub.upstreams["own"].own_sessions
        await hub.upstreams["own"].connected()
        first, second, _ = seen = [hub.callers.of(principal) for principal in (ann, bob, ann)]
        for caller in seen:
            replicas.router._ownership(caller)
            async with sessions.of(caller):
                pass
        replicas.router._ownership(hub.callers.of(eve))
        assert [sessions.existing(caller) is not None for caller in (first, second)] == [True, False]
        await replicas.close()


async def test_a_replica_owns_nothing_of_a_principal_that_has_ended(tmp_path: Path) -> None:
    async with redis_server() as store, Engine(read_config(write_config(tmp_path, {}), {}).config) as hub:
        replicas = Replicas(store.settings(), Dispatcher(hub))
        await replicas.begin()
        ann, bob = map(Principal, ("ann", "bob"))
        owners = replicas.router._owners
        for principal in (ann, bob):
            await owners.begin(replicas.router._ownership(hub.callers.of(principal)))
        assert len(owners) == 2
        hub.callers.end(ann.key)
        assert len(owners) == 1
        await replicas.close()


async def test_a_principal_of_another_replica_is_listed_nothing_of_its_former_session(tmp_path: Path) -> None:
    file = write_config(tmp_path, {"own": fake(session="client")})
    async with redis_server() as store, Engine(read_config(file, {}).config) as hub, asyncio.timeout(PATIENCE):
        replicas = Replicas(store.settings(), Dispatcher(hub))
        await replicas.begin()
        own, ann, is_told = hub.upstreams["own"], hub.callers.of(Principal("ann")), asyncio.Event()
        await own.connected()
        before = (await hub.settled_catalog(ann)).names(TOOLS)
        hub.catalogs.watch(lambda kinds, concerns: is_told.set() if concerns(ann) else None)
        ownership = replicas.router._ownership(ann)
        await own.request("tools/call", {"name": "grow", "arguments": {"name": "hers"}}, caller=ann)
        await is_told.wait()
        assert set(hub.catalogs.of(ann).names(TOOLS)) == {*before, "own__hers"}
        assert ownership.let_go is not None
        ownership.let_go()
        assert hub.catalogs.of(ann).names(TOOLS) == before
        await replicas.close()


async def test_only_the_principal_that_another_replica_owns_has_to_listen_again(tmp_path: Path) -> None:
    config = read_config(write_config(tmp_path, {}), {}).config
    params = {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}
    request = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    async with Engine(config) as hub, asyncio.timeout(PATIENCE):
        dispatcher, acknowledged = Dispatcher(hub), asyncio.Queue[Message]()
        stays, gone = [hub.callers.of(Principal(name)) for name in ("ann", "bob")]
        listening = []
        for caller in (stays, gone):  # one that were ended by mistake would be the first to end
            connection = Connection(caller, not_delivered)
            answer = dispatcher.answer(connection, request, acknowledged.put_nowait, "modern")
            listening.append(asyncio.create_task(answer))
            await acknowledged.get()
        dispatcher.end_listening(gone)
        await listening[1]
        assert not listening[0].done()
        dispatcher.end_listening(stays)
        await listening[0]


async def test_the_owner_gets_the_requests_for_servers_with_a_session_of_each_client_alone(tmp_path: Path) -> None:
    servers = {"own": fake("--name", "own", session="client"), "all": fake("--name", "all")}
    async with redis_server() as store, Engine(read_config(write_config(tmp_path, servers), {}).config) as hub:
        replicas = Replicas(store.settings(), Dispatcher(hub))
        await replicas.begin()
        catalog = await hub.settled_catalog()
        ann = hub.callers.of(Principal("ann"))
        for kind in (TOOLS, RESOURCES, PROMPTS):
            for name in catalog.names(kind):
                route = catalog.resolve(kind, name)
                assert route is not None
                for method in (kind.act_method, *([READ_DIRECTORY] if kind is RESOURCES else [])):
                    request = {"method": method, "params": {kind.name_key: name}}
                    assert replicas.router._needs_owner(request, ann, "modern") == (route.upstream == "own")
        await replicas.close()
