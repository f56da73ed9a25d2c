"""Switches, labels and reloads at one replica apply at all of them, and no session sees two configurations."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcp_hub.downstream.dispatcher import Dispatcher
from mcp_hub.downstream.replicas import Replicas
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import read_config
from mcp_hub.policy.pins import listed_record, pins_text, read_pins
from mcp_hub.protocol.kinds import TOOLS
from tests.downstream.page.acting import ADMIN, act
from tests.downstream.page.opened import OpenPage
from tests.fakes.client import PATIENCE, fake, write_config
from tests.fakes.network import network_hub
from tests.fakes.redis_server import RedisServer, redis_server
from tests.hub.groups.hearing import RESET
from tests.replicas.raw_client import Json, RawClient, code_of, raw, text_of
from tests.replicas.served import Cluster, cluster

pytestmark = pytest.mark.anyio
ERAS = ["handshake", "modern"]
GROUPS = {"sums": {"description": "adds", "tools": ["up/add"]}}
ADD = {"a": 1, "b": 2}
LISTEN = {"ui": True, "principals": {"boss": {"token": ADMIN, "admin": True}}}
LABELS = {
    "notes": {**fake(), "labels": ["reads_private"]},
    "web": {**fake(), "labels": ["reads_untrusted"]},
    "mail": {**fake(), "labels": ["writes_external"]},
}


class Visitor:
    """A client of either era that sends each request to a given replica."""

    def __init__(self, client: RawClient, era: str) -> None:
        self._client = client
        self._era = era

    async def begin(self, url: str) -> None:
        if self._era == "handshake":
            await self._client.begin(url)

    async def request(self, method: str, params: Json, url: str) -> Json:
        if self._era == "handshake":
            return await self._client.request(method, params, url)
        return await self._client.modern(method, params, url)

    async def call(self, name: str, arguments: Json, url: str) -> Json:
        return await self.request("tools/call", {"name": name, "arguments": arguments}, url)

    async def tools(self, url: str) -> set[str]:
        return {tool["name"] for tool in (await self.request("tools/list", {}, url))["result"]["tools"]}


@pytest.mark.parametrize("scope", ["session", "hub"])
@pytest.mark.parametrize("era", ERAS)
async def test_a_group_switched_at_one_replica_is_switched_at_all_replicas(
    tmp_path: Path, era: str, scope: str
) -> None:
    root: dict[str, Any] = {"groups": GROUPS, "group_scope": scope}
    async with cluster(tmp_path, {"up": fake()}, balanced=False, **root) as served, raw(served.url) as client:
        visitor = Visitor(client, era)
        await visitor.begin(served.urls[0])
        for switched, at in ((True, 0), (False, 1), (True, 2)):
            assert "Now" in text_of(await visitor.call(RESET, {"sums": switched}, served.urls[at])) or not switched
            for url in served.urls:
                assert ("up__add" in await visitor.tools(url)) is switched
                assert code_of(await visitor.call("up__add", ADD, url)) == (None if switched else "group_inactive")


async def test_a_group_switch_of_one_session_does_not_affect_other_sessions(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, {"up": fake()}, balanced=False, groups=GROUPS) as served,
        raw(served.url) as first,
        raw(served.url) as second,
    ):
        switching, bystander = Visitor(first, "handshake"), Visitor(second, "handshake")
        await switching.begin(served.urls[0])
        await bystander.begin(served.urls[0])
        await switching.call(RESET, {"sums": True}, served.urls[1])
        assert ["up__add" in await bystander.tools(url) for url in served.urls] == [False] * 3


@pytest.mark.parametrize("era", ERAS)
async def test_a_replica_that_joins_later_gets_the_switched_groups(tmp_path: Path, era: str) -> None:
    root: dict[str, Any] = {"groups": GROUPS}
    async with cluster(tmp_path, {"up": fake()}, 1, balanced=False, **root) as served, raw(served.url) as client:
        visitor = Visitor(client, era)
        await visitor.begin(served.url)
        await visitor.call(RESET, {"sums": True}, served.url)
        async with network_hub(tmp_path / "later", {"up": fake()}, store=served.store.url, **root) as (_, url):
            assert "up__add" in await visitor.tools(url)


async def test_a_replica_that_starts_later_has_servers_switched_as_on_the_page_of_another(tmp_path: Path) -> None:
    servers = {"up": fake(), "spare": fake(enabled=False)}
    async with (
        cluster(tmp_path, servers, balanced=False, listen=LISTEN) as served,
        raw(served.url, ADMIN) as client,
        httpx2.AsyncClient(base_url=served.url) as http,
    ):
        page, visitor = OpenPage(http, served.url), Visitor(client, "modern")
        await page.begin(token=ADMIN)
        await act(page, "disable", server="up")
        await act(page, "enable", server="spare")
        await served.end(1)
        await served.restart(1)
        for url in served.urls:
            assert {name.partition("__")[0] for name in await visitor.tools(url)} == {"spare"}
        changed, store = {**servers, "new": fake()}, served.store.url
        async with network_hub(tmp_path / "changed", changed, store=store, listen=LISTEN) as (_, url):
            assert {name.partition("__")[0] for name in await visitor.tools(url)} == {"up", "new"}


@pytest.mark.parametrize("era", ERAS)
async def test_labels_used_at_several_replicas_are_counted_together(tmp_path: Path, era: str) -> None:
    async with cluster(tmp_path, LABELS, balanced=False, flows="refuse") as served, raw(served.url) as client:
        visitor, echo = Visitor(client, era), {"text": "a"}
        await visitor.begin(served.urls[0])
        assert code_of(await visitor.call("notes__echo", echo, served.urls[0])) is None
        assert code_of(await visitor.call("web__echo", echo, served.urls[1])) is None
        assert code_of(await visitor.call("mail__echo", echo, served.urls[2])) == "permission_denied"


async def test_a_labelled_call_is_refused_if_its_label_cannot_be_shared(tmp_path: Path) -> None:
    async with cluster(tmp_path, LABELS, 2, balanced=False, flows="refuse") as served, raw(served.url) as client:
        visitor, echo = Visitor(client, "modern"), {"text": "a"}
        assert code_of(await visitor.call("notes__echo", echo, served.urls[0])) is None
        served.store.pause()
        assert code_of(await visitor.call("web__echo", echo, served.urls[0])) == "store_unavailable"
        assert code_of(await visitor.call("notes__echo", echo, served.urls[0])) is None
        served.store.resume()
        async with asyncio.timeout(PATIENCE):
            while code_of(await visitor.call("web__echo", echo, served.urls[0])) == "store_unavailable":
                pass


async def test_a_reload_at_one_replica_reaches_the_others(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"up": fake()}, 2, balanced=False, watch=False) as served:
        for number in range(2):
            write(tmp_path, served, number, {"up": fake(), "new": fake()})
        served.replicas[0][0].process.send_signal(signal.SIGHUP)
        for process, _ in served.replicas:
            await process.until(lambda process_now=process: b"again: started new" in process_now.stderr)


async def test_a_session_sees_one_configuration_while_replicas_reload(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, {"up": fake()}, balanced=False, watch=False) as served,
        raw(served.url) as first,
        raw(served.url) as second,
    ):
        sessions = [Visitor(first, "handshake"), Visitor(second, "handshake")]
        for session, url in zip(sessions, served.urls, strict=False):
            await session.begin(url)
        for number, (process, _) in enumerate(served.replicas):
            write(tmp_path, served, number, {"up": fake(), "new": fake()})
            process.process.send_signal(signal.SIGHUP)
            await process.until(lambda process_now=process: b"again: started new" in process_now.stderr)
            for at, session in enumerate(sessions):
                namespaces = [{name.partition("__")[0] for name in await session.tools(url)} for url in served.urls]
                assert namespaces == [{"up", "new"} if at <= number else {"up"}] * 3


@contextlib.asynccontextmanager
async def replica(directory: Path, store: RedisServer, **settings: Any) -> AsyncIterator[Engine]:
    """A replica in this process, without a listener, with a file of pins of its own."""
    directory.mkdir()
    file = write_config(directory, {"up": fake()}, pins="enforce")
    async with Engine(read_config(file, {}).config) as hub:
        replicas = Replicas(store.settings(**settings), Dispatcher(hub))
        await replicas.begin()
        try:
            yield hub
        finally:
            await replicas.close()


async def test_pins_and_switched_servers_of_one_replica_apply_at_the_others(tmp_path: Path) -> None:
    async with (
        redis_server() as store,
        replica(tmp_path / "one", store) as first,
        replica(tmp_path / "other", store) as second,
    ):
        for hub in (first, second):
            await hub.upstreams["up"].connected()
        assert "up__echo" not in (await second.settled_catalog()).names(TOOLS)
        record = listed_record(first.upstreams["up"])
        await first.sharing.broadcast("pins", None, pins_text({"up": record}))
        await first.sharing.broadcast("switch", None, ["up", "disable"])
        async with asyncio.timeout(PATIENCE):
            while second.upstreams["up"].server.enabled:
                await asyncio.sleep(0.01)
        assert read_pins(tmp_path / "other" / "servers.pins.json") == {"up": record}
        await first.sharing.broadcast("switch", None, ["up", "enable"])
        async with asyncio.timeout(PATIENCE):
            while "up__echo" not in (await second.settled_catalog()).names(TOOLS):
                await asyncio.sleep(0.01)


def write(tmp_path: Path, served: Cluster, number: int, servers: dict[str, Any]) -> None:
    write_config(tmp_path / f"replica{number}", servers, store=served.store.url, watch=False)
