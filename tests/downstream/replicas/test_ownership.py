"""Which replica owns what: claimed, lost, claimed again after the store was away, and what is said of a loss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.downstream.replicas.forwarding import NotOwner
from mcp_hub.downstream.replicas.ownership import Owners, Ownership
from mcp_hub.store import Store, StoreUnavailable
from mcp_hub.store.membership import LEASE, Claim, Membership
from mcp_hub.store.replica_keys import ReplicaKeys
from tests.fakes.redis_server import PATIENCE, Line, RedisServer, redis_server

pytestmark = pytest.mark.anyio
KEYS = ReplicaKeys([b"k" * 32])


class Replica:
    """One replica with a clock of its own."""

    def __init__(self, server: RedisServer | Line) -> None:
        self.skipped = 0.0
        self.store = Store(server.settings(), self.clock)
        self.reclaimed = 0
        self.member = Membership(
            self.store, lambda: KEYS, "http://127.0.0.1:1", rejoined=self._rejoined, clock=self.clock
        )
        self.owners = Owners(self.store, self.member, self._ask_nobody, self.clock)
        self.ownerships: dict[str, Ownership] = {}
        self.released: list[str] = []
        self.restored: list[str] = []

    def clock(self) -> float:
        return asyncio.get_running_loop().time() + self.skipped

    async def _ask_nobody(self, name: str) -> None:
        """Replaces the question to the other replicas: here each one knows only what the store has."""

    def _rejoined(self) -> None:
        self.reclaimed += 1
        self.owners.reclaim()

    def ownership(self, name: str, *, began_here: bool = False) -> Ownership:
        """This replica's record of the owner of `name`."""
        if name not in self.ownerships:
            self.ownerships[name] = entry = Ownership(name, began_here=began_here)
            entry.let_go = lambda: self.released.append(name)
            entry.taken_over = lambda: self.restored.append(name)
        return self.ownerships[name]

    async def owns(self, name: str) -> bool:
        """Asks until it is known who owns something, and returns whether this replica does."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    return await self.owners.owner_elsewhere(self.ownership(name)) is None
                except NotOwner:
                    await asyncio.sleep(0.05)


@asynccontextmanager
async def replicas(count: int) -> AsyncIterator[tuple[RedisServer, list[Replica]]]:
    async with redis_server() as server, joined([Replica(server) for _ in range(count)]) as members:
        yield server, members


@asynccontextmanager
async def joined(members: list[Replica]) -> AsyncIterator[list[Replica]]:
    for replica in members:
        await replica.member.join()
    await until(lambda: all(replica.member.count == len(members) for replica in members))
    try:
        yield members
    finally:
        for replica in members:
            await replica.owners.close()
            await replica.member.leave()
            await replica.store.close()


@contextmanager
def answers_lost(replica: Replica) -> Iterator[None]:
    """Loses every answer of the store to a script while the block runs: each is carried out all the same."""
    store = replica.store
    evaluate = store.evaluate

    async def unheard(text: str, keys: Sequence[str], args: Sequence[str | bytes | float]) -> Any:
        await evaluate(text, keys, args)
        raise StoreUnavailable("The answer was lost.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "evaluate", unheard)
        yield


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_session_opened_at_one_replica_is_owned_by_it_at_all_replicas() -> None:
    async with replicas(2) as (_, (a, b)):
        await a.owners.begin(a.ownership("s", began_here=True))
        assert (await a.owns("s"), await b.owns("s")) == (True, False)
        assert not a.ownership("s").restarted
        assert (a.restored, b.restored, a.released) == ([], [], [])


async def test_a_loss_is_reported_only_if_something_was_open() -> None:
    async with replicas(2) as (_, (a, b)):
        for name in ("used", "unused"):
            await a.owners.begin(a.ownership(name, began_here=True))
        await a.owners.note_own(a.ownership("used"))
        await a.member.leave()
        assert await b.owns("used")
        assert await b.owns("unused")
        assert (b.ownership("used").restarted, b.ownership("unused").restarted) == (True, False)
        assert sorted(b.restored) == ["unused", "used"]


async def test_a_returning_replica_keeps_what_no_other_replica_took() -> None:
    async with replicas(2) as (server, (a, b)):
        await a.owners.begin(a.ownership("s", began_here=True))
        await a.owners.note_own(a.ownership("s"))
        before = {replica.member.me.owner for replica in (a, b)}
        server.pause()
        await until(lambda: not before & {replica.member.me.owner for replica in (a, b)})
        server.resume()
        await until(lambda: a.reclaimed == 1 and b.reclaimed == 1)
        assert await b.owns("s") is False
        assert await a.owns("s")
        assert (a.ownership("s").restarted, a.released) == (False, [])


async def test_a_returning_replica_drops_what_another_replica_took() -> None:
    async with replicas(2) as (_, (a, b)):
        await a.owners.begin(a.ownership("s", began_here=True))
        await a.owners.note_own(a.ownership("s"))
        before = a.member.me.owner
        a.skipped += LEASE  # it was paused, and its record has ended
        await b.store.execute("DEL", b.store.key(f"member:{before}"))
        assert await b.owns("s")
        assert b.ownership("s").restarted
        await until(lambda: a.released == ["s"])
        assert not await a.owns("s")


async def test_after_the_store_loses_its_data_each_owner_keeps_what_it_owned() -> None:
    async with replicas(2) as (server, (a, b)):
        await a.owners.begin(a.ownership("s", began_here=True))
        await a.owners.note_own(a.ownership("s"))
        await server.kill()
        await until(lambda: a.store.is_unavailable and b.store.is_unavailable)
        await server.start()
        await until(lambda: a.reclaimed == 1 and b.reclaimed == 1)
        assert await b.owns("s") is False
        assert await a.owns("s")
        assert (a.ownership("s").restarted, a.released) == (False, [])


async def test_a_replica_paused_while_the_store_was_away_asks_it_before_it_writes_as_the_owner(tmp_path: Path) -> None:
    async with redis_server() as server:
        line = Line(server, tmp_path / "line.sock")
        async with await line.listen(), joined([Replica(line), Replica(server)]) as (a, b):
            await a.owners.begin(a.ownership("s", began_here=True))
            line.cut()
            await until(lambda: a.store.is_unavailable)
            assert await a.owners.still_here(a.ownership("s"))
            async with asyncio.timeout(PATIENCE):
                while not await b.owns("s"):
                    await asyncio.sleep(0.05)
            a.skipped = 60.0
            line.mend()
            assert not await a.owners.still_here(a.ownership("s"))


async def test_a_replica_paused_while_the_store_is_away_writes_as_the_owner_if_it_stays_away() -> None:
    async with replicas(1) as (server, (a,)):
        await a.owners.begin(a.ownership("s", began_here=True))
        server.pause()
        await until(lambda: a.store.is_unavailable)
        a.skipped = 60.0
        assert await a.owners.still_here(a.ownership("s"))
        server.resume()
        await until(lambda: not a.store.is_unavailable)


async def test_a_claim_that_the_store_lost_is_treated_as_a_loss() -> None:
    async with replicas(2) as (_, (a, b)):
        await a.owners.begin(a.ownership("s", began_here=True))
        await b.store.execute("DEL", b.store.key("owner:s"))  # evicted
        assert await b.owns("s")
        assert b.ownership("s").restarted


async def test_a_request_for_state_that_expired_at_its_owner_is_reported_as_a_loss() -> None:
    async with replicas(2) as (_, (a, b)):
        for name in ("used", "unused"):
            await a.owners.begin(a.ownership(name, began_here=True))
        await a.owners.note_own(a.ownership("used"))
        for name in ("used", "unused"):
            a.owners.forget(a.ownerships.pop(name))
            assert not await b.owns(name)
            assert await a.owns(name)
        assert (a.ownership("used").restarted, a.ownership("unused").restarted) == (True, False)


async def test_a_leaving_replica_claims_nothing_more() -> None:
    async with replicas(2) as (_, (a, b)):
        await a.owners.begin(a.ownership("s", began_here=True))
        await a.member.hand_over()
        assert not await a.owns("s")
        assert not await a.owns("another")
        assert await b.owns("s")
        assert await b.owns("another")


async def test_a_loss_is_reported_even_if_the_response_to_the_claim_was_lost() -> None:
    async with replicas(2) as (_, (a, b)):
        for name in ("used", "unused"):
            await a.owners.begin(a.ownership(name, began_here=True))
        await a.owners.note_own(a.ownership("used"))
        await a.member.leave()
        with answers_lost(b):
            for name in ("used", "unused"):
                with pytest.raises(StoreUnavailable):
                    await b.owners.owner_elsewhere(b.ownership(name))
        assert await b.owns("used")
        assert await b.owns("unused")
        assert (b.ownership("used").restarted, b.ownership("unused").restarted) == (True, False)
        assert sorted(b.restored) == ["unused", "used"]


async def test_lost_store_data_is_a_loss_even_if_the_response_to_the_claim_was_lost() -> None:
    async with replicas(2) as (_, (a, b)):
        await a.owners.begin(a.ownership("s", began_here=True))
        await a.member.leave()
        for key in ("owner:s", "state:s"):
            await b.store.execute("DEL", b.store.key(key))
        with answers_lost(b), pytest.raises(StoreUnavailable):
            await b.owners.owner_elsewhere(b.ownership("s"))
        assert await b.owns("s")
        assert b.ownership("s").restarted


async def test_a_former_owner_drops_its_state_even_if_the_response_to_its_claim_was_lost() -> None:
    async with replicas(2) as (_, (a, b)):
        await a.owners.begin(a.ownership("s", began_here=True))
        await a.owners.note_own(a.ownership("s"))
        await b.store.execute("SET", b.store.key("owner:s"), b.member.me.owner)  # it has taken this over, and is gone
        await b.member.leave()
        with answers_lost(a):
            await a.owners.check("s")
        await a.owners.check("s")
        assert (a.ownership("s").restarted, a.released, a.restored) == (True, ["s"], ["s"])


async def test_an_owner_restores_lost_store_data_even_if_the_response_to_the_claim_was_lost() -> None:
    async with replicas(1) as (_, (a,)):
        losses: list[str] = []

        async def record_loss() -> None:
            losses.append("s")

        await a.owners.begin(a.ownership("s", began_here=True))
        a.ownership("s").on_store_loss = record_loss
        await a.store.execute("DEL", a.store.key("owner:s"))
        with answers_lost(a):
            await a.owners.check("s")
        await a.owners.check("s")
        assert losses == ["s"]


async def test_a_replica_whose_lease_ends_during_a_claim_still_reports_the_loss() -> None:
    async with replicas(2) as (_, (a, b)):
        losses: list[str] = []

        async def record_loss() -> None:
            losses.append("s")

        await a.owners.begin(a.ownership("s", began_here=True))
        await a.member.leave()
        for key in ("owner:s", "state:s"):
            await b.store.execute("DEL", b.store.key(key))
        b.ownership("s").on_store_loss = record_loss
        claim = b.member.claim

        async def late_claim(*args: Any, **kwargs: Any) -> Claim:
            granted = await claim(*args, **kwargs)
            b.skipped += LEASE
            return granted

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(b.member, "claim", late_claim)
            with pytest.raises(NotOwner):
                await b.owners.owner_elsewhere(b.ownership("s"))
        assert await b.owns("s")
        assert (b.ownership("s").restarted, losses) == (True, ["s"])


async def test_a_returning_replica_retries_its_claims_until_each_is_answered() -> None:
    async with replicas(1) as (server, (a,)):
        await a.owners.begin(a.ownership("s", began_here=True))
        await a.owners.note_own(a.ownership("s"))
        claim, refusals_left = a.member.claim, 3

        async def failing_claim(*args: Any, **kwargs: Any) -> Claim:
            nonlocal refusals_left
            refusals_left -= 1
            return Claim("", "") if refusals_left >= 0 else await claim(*args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(a.member, "claim", failing_claim)
            await server.kill()
            await until(lambda: a.store.is_unavailable)
            await server.start()
            await until(lambda: refusals_left < 0)
        await a.owners.check("s")
        assert await a.store.execute("HEXISTS", a.store.key("state:s"), "own") == 1
