"""Membership of replicas: which are alive, what each owns, and what a paused or cut off replica may rely on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.protocol.frames import encode
from mcp_hub.store import Store, StoreUnavailable
from mcp_hub.store.change_log import Change, ChangeLog
from mcp_hub.store.membership import LEASE, MARGIN, Claim, Lease, Member, Membership
from mcp_hub.store.replica_keys import ReplicaKeys
from tests.fakes.redis_server import PATIENCE, Line, RedisServer, redis_server

KEYS = ReplicaKeys([b"k" * 32])


class Replica:
    """A member with a store connection and a clock of its own."""

    def __init__(self, server: RedisServer | Line, keys: ReplicaKeys = KEYS, **settings: str) -> None:
        self.store = Store(server.settings(**settings))
        self.lost = 0
        self.heard: list[bytes] = []
        self.gone: list[str] = []
        self.skipped = 0.0
        self.member = Membership(
            self.store,
            lambda: keys,
            "http://127.0.0.1:1",
            lost=self._lose,
            gone=self.gone.extend,
            newest=self.heard.append,
            clock=lambda: asyncio.get_running_loop().time() + self.skipped,
        )

    def _lose(self) -> None:
        self.lost += 1

    def cut_off(self) -> None:
        """Cuts the replica off from the store without notice: its records stay in the store as after SIGKILL."""
        self.store.away_since = 0.0


@asynccontextmanager
async def replicas(server: RedisServer, count: int) -> AsyncIterator[list[Replica]]:
    joined = [Replica(server) for _ in range(count)]
    for replica in joined:
        await replica.member.join()
    try:
        yield joined
    finally:
        for replica in joined:
            await replica.member.leave()
            await replica.store.close()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.01)


@given(
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 3)), min_size=1, max_size=20),
    st.floats(0, 30),
)
def test_a_lease_never_outlasts_that_in_the_store(renewals: list[tuple[float, float]], later: float) -> None:
    """Each renewal is sent after a pause, and reaches the store after a delay."""
    lease, now, store_until = Lease(), 0.0, float("-inf")
    for pause, delay in renewals:
        now += pause
        requested_at = now
        now += delay
        # The store counts from when the renewal reaches it, at the earliest `requested_at`.
        store_until = requested_at + delay + LEASE
        lease.note_renewal(requested_at)
        assert not lease.holds(store_until - MARGIN / 2 + 1e-6)
    assert not (lease.holds(now + later) and now + later >= store_until)


def test_a_lease_that_was_ended_does_not_hold() -> None:
    lease = Lease()
    assert not lease.holds(0.0)
    lease.note_renewal(0.0)
    assert lease.holds(1.0)
    lease.note_end()
    assert not lease.holds(1.0)


pytestmark = pytest.mark.anyio


async def test_replicas_know_each_other_and_forget_those_that_left() -> None:
    async with redis_server() as server, replicas(server, 3) as (a, b, c):
        await until(lambda: all(replica.member.count == 3 for replica in (a, b, c)))
        assert b.member.find(a.member.me.owner) == a.member.me
        await c.member.leave()
        await until(lambda: a.member.count == b.member.count == 2)


async def test_what_a_live_replica_owns_cannot_be_claimed_by_another() -> None:
    async with redis_server() as server, replicas(server, 2) as (a, b):
        first_claim = await a.member.claim("session")
        assert first_claim == (a.member.me.owner, "", False)
        assert await b.member.claim("session") == (a.member.me.owner, a.member.me.owner, False)
        second_claim = await a.member.claim("session")
        assert second_claim == (a.member.me.owner, a.member.me.owner, False)
        assert not second_claim.taken_over


async def test_many_claims_at_once_have_one_winner() -> None:
    async with redis_server() as server, replicas(server, 5) as joined:
        claims = await asyncio.gather(*(claimed(replica) for replica in joined for _ in range(20)))
        assert len([claim for claim in claims if not claim.before]) <= 1  # the first answer may have come too late
        assert {claim.owner.partition(":")[0] for claim in claims} <= {replica.member.me.id for replica in joined}
        assert len({(await claimed(replica)).owner for replica in joined}) == 1


async def claimed(replica: Replica) -> Claim:
    """Claims until the store answers in time, which it may not do on a busy machine; returns the claim."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(StoreUnavailable):
                if (claim := await replica.member.claim("session")).owner:
                    return claim
            await asyncio.sleep(0.01)


async def test_ownership_of_a_dead_replica_is_taken_over_once_with_its_notes() -> None:
    async with redis_server() as server, replicas(server, 3) as (a, b, c):
        assert not (await a.member.claim("session", own=True)).own
        a.cut_off()
        await until(lambda: b.member.count == c.member.count == 2)
        claims = await asyncio.gather(*(replica.member.claim("session") for replica in (b, c, b, c)))
        assert len({claim.owner for claim in claims}) == 1
        (takeover,) = [claim for claim in claims if claim.taken_over]
        assert takeover.own


async def test_a_replica_whose_lease_ended_owns_nothing() -> None:
    async with redis_server() as server, replicas(server, 2) as (a, b):
        before = a.member.me.owner
        a.skipped += LEASE
        await b.store.execute("DEL", b.store.key(f"member:{before}"))
        assert (await a.member.claim("session")).owner in ("", a.member.me.owner)  # it may have joined again by now
        assert (await b.member.claim("session")).owner != before


async def test_what_a_leaving_replica_owned_can_be_claimed_at_once() -> None:
    async with redis_server() as server, replicas(server, 2) as (a, b):
        await a.member.claim("session")
        await a.member.leave()
        claim = await b.member.claim("session")
        assert (claim.owner, claim.taken_over) == (b.member.me.owner, True)


async def test_ownership_can_be_handed_over_by_a_live_replica_that_stays_reachable() -> None:
    async with redis_server() as server, replicas(server, 2) as (a, b):
        await a.member.claim("session")
        await a.member.hand_over()
        claim = await b.member.claim("session")
        assert (claim.owner, claim.taken_over) == (b.member.me.owner, True)
        assert (await a.member.claim("session")).owner == b.member.me.owner
        await until(lambda: b.member.others[a.member.me.id].leaving)
        assert not a.member.holds
        assert b.member.find(a.member.me.owner) == a.member.me


async def test_a_paused_replica_does_not_trust_its_remembered_ownership() -> None:
    async with redis_server() as server, replicas(server, 2) as (a, b):
        await a.member.claim("session")
        before = a.member.me.owner
        assert a.member.holds
        a.skipped += LEASE  # its clock goes on while it is paused, and its record ends
        await b.store.execute("DEL", b.store.key(f"member:{before}"))
        assert not a.member.holds
        assert (await b.member.claim("session")).taken_over
        await until(lambda: a.lost == 1 and a.member.holds)
        assert a.member.me.owner != before
        assert (await a.member.claim("session")).owner == b.member.me.owner
        assert b.lost == 0


async def test_a_paused_replica_keeps_what_no_other_replica_took_over() -> None:
    async with redis_server() as server, replicas(server, 1) as (a,):
        await a.member.claim("session")
        before = a.member.me.owner
        a.skipped += LEASE
        await a.store.execute("DEL", a.store.key(f"member:{before}"))
        await until(lambda: a.lost == 1 and a.member.holds)
        claim = await a.member.claim("session")
        assert (claim.owner, claim.before, claim.taken_over) == (a.member.me.owner, before, False)


async def test_a_replica_cut_off_from_the_store_gives_up_its_ownership() -> None:
    async with redis_server() as server, replicas(server, 1) as (a,):
        await a.member.claim("session")
        server.pause()
        await until(lambda: a.store.is_unavailable and not a.member.holds)
        await until(lambda: a.lost == 1)
        with pytest.raises(StoreUnavailable):
            await a.member.claim("session")
        server.resume()
        await until(lambda: a.member.holds)
        assert a.lost == 1


async def test_a_replica_cut_off_from_the_store_owns_nothing_once_another_takes_over(tmp_path: Path) -> None:
    async with redis_server() as server:
        line = Line(server, tmp_path / "line.sock")
        async with await line.listen():
            a, b = Replica(line), Replica(server)
            for replica in (a, b):
                await replica.member.join()
            await a.member.claim("session")
            line.cut()
            async with asyncio.timeout(PATIENCE):
                while not (await claimed(b)).taken_over:
                    await asyncio.sleep(0.01)
            assert not a.member.holds
            line.mend()
            await until(lambda: a.lost == 1 and a.member.holds)
            assert (await claimed(a)).owner == b.member.me.owner
            for replica in (a, b):
                await replica.member.leave()
                await replica.store.close()


async def test_a_late_reply_to_a_renewal_does_not_undo_a_later_one(tmp_path: Path) -> None:
    async with redis_server() as server:
        line = Line(server, tmp_path / "line.sock")
        async with await line.listen():
            a, b = Replica(line), Replica(server)
            await a.member.join()
            line.hold_next_reply()
            async with asyncio.timeout(PATIENCE):
                await line.holding.wait()  # the next renewal of `a`, which the store has executed
            await b.member.join()
            await a.member.refresh()
            assert a.member.others == {b.member.me.id: b.member.me}
            count = len(a.heard)
            line.release()
            await until(lambda: len(a.heard) > count)
            assert (a.gone, a.lost) == ([], 0)
            assert a.member.others == {b.member.me.id: b.member.me}
            for replica in (a, b):
                await replica.member.leave()
                await replica.store.close()


async def test_a_member_record_signed_with_another_secret_is_ignored() -> None:
    async with redis_server() as server, replicas(server, 1) as (a,):
        stranger = Replica(server, ReplicaKeys([b"s" * 32]))
        await stranger.member.join()
        await until(lambda: len(a.heard) > 2)
        assert a.member.others == {}
        await stranger.member.leave()
        await stranger.store.close()


@pytest.mark.parametrize(("age", "is_known"), [(-35.0, False), (-25.0, True), (25.0, True), (35.0, False)])
async def test_a_member_record_counts_for_thirty_seconds_from_its_signature(age: float, is_known: bool) -> None:
    async with redis_server() as server, replicas(server, 1) as (a,):
        member = Member("old", "life", "http://127.0.0.1:1")
        record = encode([time.time() - age, msgspec.structs.asdict(member)])
        signed = KEYS.sign("member", record).encode() + b" " + record
        await a.store.execute("SET", a.store.key("member:old:life"), signed)
        await a.store.execute("SADD", a.store.key("members"), "old:life")
        await a.member.refresh()
        assert a.member.others == ({"old": member} if is_known else {})


async def test_every_replica_hears_of_a_new_change() -> None:
    async with redis_server() as server, replicas(server, 3) as joined:
        await ChangeLog(joined[0].store, lambda: KEYS).append(Change("a", "reload", "", None))
        await until(lambda: all(replica.heard[-1] for replica in joined))


async def test_after_a_store_loss_each_item_has_one_owner_again() -> None:
    async with redis_server() as server, replicas(server, 2) as (a, b):
        await a.member.claim("session")
        await server.kill()
        await until(lambda: a.store.is_unavailable or b.store.is_unavailable)
        await server.start()
        await until(lambda: a.member.holds and b.member.holds and a.member.count == b.member.count == 2)
        claims = await asyncio.gather(a.member.claim("session"), b.member.claim("session"))
        assert len({claim.owner for claim in claims}) == 1
