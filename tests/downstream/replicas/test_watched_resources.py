"""What a session subscribes to, from one owner to the next, also where the store has forgotten it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_hub.downstream.event_stream import Outbox
from mcp_hub.downstream.replicas.watched_resources import WatchedResources
from mcp_hub.store import Store
from tests.fakes.redis_server import RedisServer, redis_server

pytestmark = pytest.mark.anyio
KEY = "watches:session"


class Replica:
    """One replica that serves the session. `subscribed` has the URIs it has subscribed to."""

    def __init__(self, server: RedisServer) -> None:
        self.subscribed: set[str] = set()
        self.methods: list[str] = []
        """The methods of the requests to the server, in the order in which they took effect."""
        self.restore_started = asyncio.Event()
        self.release = asyncio.Event()
        self.release.set()
        """While it is not set, the server answers no request to restore a subscription."""
        self.store = Store(server.settings())
        session: Any = SimpleNamespace(connection="connection", standing=Outbox())
        dispatcher: Any = SimpleNamespace(answer=self._answer)
        self.watched = WatchedResources(self.store, dispatcher, session, self.store.key(KEY), 60)

    async def _answer(self, caller: Any, message: Any, send: Any, era: str) -> Any:
        if "id" in message:
            self.restore_started.set()
            await self.release.wait()
        self.methods.append(message["method"])
        change = self.subscribed.add if message["method"].endswith("/subscribe") else self.subscribed.discard
        change(message["params"]["uri"])
        return {"result": {}}

    async def request(self, method: str, uri: str) -> None:
        """Carries out what the client asks for."""
        message = {"method": f"resources/{method}", "params": {"uri": uri}}
        await self.watched.note(message)
        await self._answer(None, message, None, "handshake")

    async def take_over(self) -> None:
        """Becomes the owner after another one that is gone."""
        await self.watched.load()
        await self.watched.restore()

    def hand_over(self) -> tuple[int, list[str]]:
        self.subscribed.clear()
        return self.watched.let_go()


@contextlib.asynccontextmanager
async def replicas(count: int) -> AsyncIterator[list[Replica]]:
    """Starts `count` replicas that share one store."""
    async with redis_server() as server:
        members = [Replica(server) for _ in range(count)]
        yield members
        for replica in members:
            await replica.store.close()


async def test_a_new_owner_restores_the_resource_subscriptions_of_the_store() -> None:
    async with replicas(2) as (one, two):
        await one.request("subscribe", "x:a")
        await one.request("subscribe", "x:b")
        await one.request("unsubscribe", "x:b")
        await two.take_over()
        assert two.subscribed == {"x:a"}
        await two.watched.take(*one.hand_over())
        assert two.subscribed == {"x:a"}


async def test_a_former_owner_supplies_subscriptions_that_the_store_lost() -> None:
    async with replicas(3) as (one, two, three):
        await one.request("subscribe", "x:a")
        await one.request("subscribe", "x:b")
        await one.store.execute("DEL", one.store.key(KEY))
        await two.take_over()
        assert two.subscribed == set()
        await two.request("unsubscribe", "x:b")
        await two.request("subscribe", "x:c")
        await two.watched.take(*one.hand_over())
        assert two.subscribed == {"x:a", "x:c"}
        await three.take_over()  # the store knows it again
        assert three.subscribed == {"x:a", "x:c"}


async def test_an_outdated_owner_restores_no_subscription() -> None:
    async with replicas(3) as (one, two, three):
        await one.request("subscribe", "x:a")
        await one.request("subscribe", "x:b")
        await two.take_over()
        await two.request("unsubscribe", "x:b")
        await three.take_over()
        await three.watched.take(*one.hand_over())
        assert three.subscribed == {"x:a"}


@pytest.mark.parametrize("first", ["the older", "the later"])
async def test_after_a_store_loss_the_later_of_two_former_owners_supplies_the_subscriptions(first: str) -> None:
    async with replicas(4) as (one, two, three, four):
        await one.request("subscribe", "x:a")
        await one.request("subscribe", "x:b")
        await two.take_over()
        await two.request("unsubscribe", "x:b")
        await two.request("subscribe", "x:c")
        await one.store.execute("DEL", one.store.key(KEY))
        await three.take_over()
        handovers = [one.hand_over(), two.hand_over()]
        for turn, uris in handovers if first == "the older" else reversed(handovers):
            await three.watched.take(turn, uris)
        assert three.subscribed == {"x:a", "x:c"}
        await four.take_over()
        assert four.subscribed == {"x:a", "x:c"}


@pytest.mark.parametrize("last", ["unsubscribe", "subscribe"])
async def test_a_clients_request_is_applied_after_its_restored_subscriptions(last: str) -> None:
    async with replicas(2) as (one, two):
        await one.request("subscribe", "x:a")
        two.release.clear()
        takeover = asyncio.ensure_future(two.take_over())
        await two.restore_started.wait()

        async def send_request() -> None:
            for method in ("unsubscribe", "subscribe")[: 1 if last == "unsubscribe" else 2]:
                await two.request(method, "x:a")

        request = asyncio.ensure_future(send_request())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not request.done()
        two.release.set()
        await asyncio.gather(takeover, request)
        assert (
            two.methods == ["resources/subscribe", "resources/unsubscribe", "resources/subscribe"][: len(two.methods)]
        )
        assert two.subscribed == ({"x:a"} if last == "subscribe" else set())
        assert two.methods[-1] == f"resources/{last}"
