"""Which replica owns what: sessions of clients and principals that have sessions of their own with servers."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

import msgspec

from mcp_hub.downstream.replicas.forwarding import NotOwner
from mcp_hub.errors import CallError
from mcp_hub.store import Store, StoreUnavailable
from mcp_hub.store.membership import OWNED_FOR, Member, Membership

CLAIM_AGAIN: Final = OWNED_FOR / 8
"""Seconds after which what is owned here is claimed again, so that the store does not forget it."""
RECLAIM_WAIT: Final = 1.0
"""Seconds for which nothing new is claimed after the store was away: the owners of before come first."""
MAX_ENDED: Final = 10_000
"""Things that are remembered after they have ended here."""
AT_ONCE: Final = 8
"""Claims at once when this replica has come back."""


class SessionRestarted(CallError):
    """The replica that owned something is gone, and with it what servers kept for one client alone."""

    code, rpc_code, retryable = "session_restarted", -32010, True


RESTARTED: Final = (
    "The replica that had this session is gone. Servers with a session of their own for it begin anew: pages and "
    "logins of before are lost. This call was not carried out; begin again."
)


class Ownership(msgspec.Struct, eq=False):
    """Whose something is, as far as this replica knows. `name`: what the replicas call it."""

    name: str
    key: Hashable
    """Under which the hub keeps the sessions with servers that belong to it alone."""
    let_go: Callable[[], object] | None = None
    """Ends what this replica has open for it, as another one owns it now."""
    taken_over: Callable[[], object] | None = None
    """Restores what can be, after another replica is gone."""
    owner: str | None = None
    claimed: float = 0.0
    """When this replica has claimed it last."""
    began_here: bool = True
    """Whether no replica can have known it before this one."""
    restarted: bool = False
    """Whether its client has to be told that another replica has lost what was open for it alone."""
    own: bool = False
    """Whether the other replicas can know that something is open for it alone."""


class Owners:
    """Finds the owner of things, and claims what has none. `clock` returns seconds."""

    def __init__(self, store: Store, members: Membership, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._members = members
        self._clock = clock
        self._mine: dict[str, Ownership] = {}
        """What this replica owns, or has owned until its lease ended."""
        self._not_before = float("-inf")
        self._reclaiming: asyncio.Task[None] | None = None
        self._ended: OrderedDict[str, None] = OrderedDict()
        """Names of what was owned here, had something open and has ended, as after a long idleness."""

    def __len__(self) -> int:
        return len(self._mine)

    def is_here(self, what: Ownership) -> bool:
        """Returns whether this replica owns something, as far as it knows without asking."""
        return what.owner == self._members.me.owner

    async def begin(self, what: Ownership) -> None:
        """Claims something that has just begun here. A store that is away is no error: the first use claims it."""
        try:
            await self._claim(what)
        except (StoreUnavailable, NotOwner):
            return

    async def elsewhere(self, what: Ownership) -> Member | None:
        """Returns the replica that owns something; None: this one does. What has no owner becomes this one's.

        Raises StoreUnavailable, and NotOwner while the owner is not known here yet.
        """
        members = self._members
        if what.owner == members.me.owner and members.holds and self._clock() - what.claimed < CLAIM_AGAIN:
            return None
        if what.owner is not None and (known := members.find(what.owner)) is not None:
            return known
        if members.me.leaving:
            return self._anybody()
        if self._clock() < self._not_before and what.name not in self._mine:
            raise NotOwner  # its owner may be about to claim it again
        return await self._claim(what)

    def _anybody(self) -> Member:
        """Returns a replica that can own something, in the place of this one. Raises NotOwner."""
        found = next((one for one in self._members.others.values() if not one.leaving), None)
        if found is None:
            raise NotOwner
        return found

    async def _claim(self, what: Ownership) -> Member | None:
        """Claims something; returns its owner if that is another one. Raises StoreUnavailable, NotOwner."""
        members = self._members
        asked, me = self._clock(), members.me.owner
        claim = await members.claim(what.name)
        what.owner = claim.owner
        if claim.owner != me:
            self._lose(what)
            known = members.find(claim.owner)
            if known is None:
                raise NotOwner
            return known
        if not members.holds or members.me.owner != me:
            raise NotOwner
        what.claimed, known_here = asked, what.name in self._mine
        self._mine[what.name] = what
        if claim.taken_over:
            self._drop(what)
            what.restarted = await self._has_own(what)
        elif not claim.before and not what.began_here and not known_here:
            what.restarted = True  # the store has forgotten whose it was, and what was open for it
        elif self._ended.pop(what.name, claim) is None:
            what.restarted = True
        elif what.own and not claim.before:
            what.own = False  # the store has forgotten it, and whoever comes after this replica must know
            await self.note_own(what)
        if what.taken_over is not None and (claim.taken_over or what.restarted):
            what.taken_over()
        what.began_here = True
        return None

    async def note_own(self, what: Ownership) -> None:
        """Notes for the other replicas that something is open for it alone. Raises StoreUnavailable."""
        if not what.own:
            key = self._store.key(f"state:{what.name}")
            await self._store.execute("HSET", key, "own", "1")
            await self._store.execute("EXPIRE", key, OWNED_FOR)
            what.own = True

    async def _has_own(self, what: Ownership) -> bool:
        return bool(await self._store.execute("HGET", self._store.key(f"state:{what.name}"), "own"))

    def forget(self, what: Ownership) -> None:
        """Forgets something that has ended here. If it comes again, what was open for it is lost."""
        if self._mine.get(what.name) is not what:
            return
        del self._mine[what.name]
        if what.own:
            self._ended[what.name] = None
            while len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)

    def _lose(self, what: Ownership) -> None:
        """Ends what is open here for something that another replica owns now."""
        if self._mine.pop(what.name, None) is not None:
            self._drop(what)

    def _drop(self, what: Ownership) -> None:
        what.own = what.restarted = False
        if what.let_go is not None:
            what.let_go()

    # --- after the store was away, or this replica was paused -----------------------------------------------------

    def reclaim(self) -> None:
        """Claims again what this replica owned, and ends what is open for things that others own by now."""
        self._not_before = self._clock() + RECLAIM_WAIT
        if self._reclaiming is None or self._reclaiming.done():
            self._reclaiming = asyncio.get_running_loop().create_task(self._reclaim())

    async def _reclaim(self) -> None:
        left = list(self._mine.values())

        async def next_ones() -> None:
            while left:
                what = left.pop()
                try:
                    await self._claim(what)
                except NotOwner:
                    continue
                except StoreUnavailable:
                    return  # it is away once more; it is tried again when it is back

        await asyncio.gather(*(next_ones() for _ in range(AT_ONCE)))

    async def close(self) -> None:
        """Ends what is under way."""
        if self._reclaiming is not None:
            self._reclaiming.cancel()
            await asyncio.wait([self._reclaiming])
