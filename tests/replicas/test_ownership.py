"""Who owns a session while leases and the store fail: the owner and its loss are known before anything acts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from mcp_hub.downstream.replicas.forwarding import NotOwner
from mcp_hub.downstream.replicas.ownership import Owners, Ownership
from mcp_hub.store import StoreUnavailable
from mcp_hub.store.membership import Member
from tests.fakes.redis_server import PATIENCE, RedisServer, redis_server
from tests.store.test_membership import Replica, until

pytestmark = pytest.mark.anyio
NAME = "session:one"


class Owner:
    """A replica and what it knows of one session; `letting_go` counts how often it has dropped what was open."""

    def __init__(self, server: RedisServer, *, began_here: bool) -> None:
        self.replica = Replica(server)
        self.member = self.replica.member
        self.others: list[Owner] = []
        self.owners = Owners(self.replica.store, self.member, self._ask_others)
        self.letting_go = self.forgotten = self.failing = 0
        self.loading: asyncio.Event | None = None
        self.ownership = Ownership(NAME, began_here=began_here)
        self.ownership.let_go, self.ownership.on_store_loss, self.ownership.load = (
            self._let_go,
            self._forget,
            self._load,
        )

    async def _ask_others(self, name: str) -> None:
        for peer in self.others:
            await peer.owners.check(name)

    def _let_go(self) -> None:
        self.letting_go += 1

    async def _forget(self) -> None:
        if self.failing:
            self.failing -= 1
            raise StoreUnavailable("The store does not answer.")
        self.forgotten += 1

    async def _load(self) -> None:
        if self.loading is not None:
            await self.loading.wait()

    async def elsewhere(self) -> Member | None:
        """Returns the replica that owns the session, or None for this one, as soon as it is known."""
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(NotOwner, StoreUnavailable):
                    return await self.owners.owner_elsewhere(self.ownership)
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        await self.owners.close()
        await self.member.leave()
        await self.replica.store.close()


@contextlib.asynccontextmanager
async def owner_pair(server: RedisServer) -> AsyncIterator[tuple[Owner, Owner]]:
    """Runs two replicas: the session began at the first, which owns it and has open state for it."""
    owner, peer = Owner(server, began_here=True), Owner(server, began_here=False)
    owner.others, peer.others = [peer], [owner]
    for replica in (owner, peer):
        await replica.member.join()
    try:
        assert await owner.elsewhere() is None
        await owner.owners.note_own(owner.ownership)
        await until(lambda: peer.member.find(owner.member.me.owner) is not None)
        yield owner, peer
    finally:
        for replica in (owner, peer):
            await replica.end()


async def test_no_request_is_executed_before_the_loss_of_an_owner_is_known() -> None:
    async with redis_server() as server, owner_pair(server) as (owner, peer):
        owner.replica.cut_off()
        await until(lambda: peer.member.count == 1)
        peer.loading = asyncio.Event()
        first = asyncio.ensure_future(peer.elsewhere())
        await until(peer.ownership.claiming.locked)
        second = asyncio.ensure_future(peer.elsewhere())
        assert not (await asyncio.wait([first, second], timeout=0.3))[0]
        peer.loading.set()
        assert (await first, await second) == (None, None)
        assert peer.ownership.restarted


async def test_an_owner_whose_key_was_lost_releases_ownership_before_the_next_owner_acts() -> None:
    async with redis_server() as server, owner_pair(server) as (owner, peer):
        assert await peer.elsewhere() == owner.member.me
        await peer.replica.store.execute("DEL", peer.replica.store.key(f"owner:{NAME}"))
        peer.ownership.owner = None
        assert await peer.elsewhere() is None
        assert peer.ownership.restarted
        assert owner.letting_go == 1
        assert await owner.elsewhere() == peer.member.me


async def test_an_unreported_loss_is_reported_by_the_next_owner() -> None:
    async with redis_server() as server, owner_pair(server) as (owner, peer):
        owner.replica.cut_off()
        await until(lambda: peer.member.count == 1)
        assert await peer.elsewhere() is None
        third = Owner(server, began_here=False)
        await third.member.join()
        peer.replica.cut_off()
        await until(lambda: third.member.count == 1)
        assert await third.elsewhere() is None
        assert third.ownership.restarted
        await third.end()


async def test_after_a_store_loss_an_owner_keeps_its_state_and_writes_it_again() -> None:
    async with redis_server() as server, owner_pair(server) as (owner, peer):
        before, forgotten, owner.failing = owner.member.me.owner, owner.forgotten, 2
        await server.kill()
        await until(
            lambda: (
                owner.replica.store.is_unavailable
                and peer.replica.store.is_unavailable
                and owner.member.me.owner != before
            )
        )
        await server.start()
        await until(lambda: owner.member.holds and peer.member.holds)
        assert await owner.elsewhere() is None
        await until(lambda: owner.forgotten == forgotten + 1)
        assert (owner.letting_go, owner.ownership.restarted, owner.failing) == (0, False, 0)
        await until(lambda: peer.member.find(owner.member.me.owner) is not None)
        owner.replica.cut_off()
        await until(lambda: peer.member.count == 1)
        assert await peer.elsewhere() is None
        assert peer.ownership.restarted  # the owner has written again that it has open state


async def test_an_owner_that_lost_ownership_drops_open_state_and_reports_it() -> None:
    async with redis_server() as server, owner_pair(server) as (owner, _):
        store = owner.replica.store
        await store.execute("SET", store.key(f"owner:{NAME}"), "gone:1")
        await store.execute("DEL", store.key(f"state:{NAME}"))
        await owner.owners.check(NAME)
        assert (owner.letting_go, owner.ownership.restarted) == (1, True)
