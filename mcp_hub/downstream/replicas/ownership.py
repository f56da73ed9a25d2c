"""Finds and claims owners: the one replica that holds the state of a client's session, or of a principal.

This state is what servers keep for one client alone, its subscriptions and its standing stream. "Something" below is
such a session or principal.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Final

import msgspec

from mcp_hub.downstream.replicas.forwarding import NotOwner
from mcp_hub.errors import CallError
from mcp_hub.store import Store, StoreUnavailable
from mcp_hub.store.membership import OWNED_FOR, Claim, Member, Membership

CLAIM_AGAIN: Final = OWNED_FOR / 8
"""Seconds after which this replica renews a claim, so that the store does not drop it."""
RECLAIM_WAIT: Final = 2.0
"""Seconds without new claims after the store was unreachable, so that former owners can claim first."""
ASK_AGAIN: Final = 0.1
"""Seconds until an owner is looked up again."""
SURE_WITHIN: Final = 30
"""The most times that this replica asks whether it still owns something."""
AT_ONCE: Final = 8
"""Concurrent claims when this replica has come back."""


class SessionRestarted(CallError):
    """The owner of a session or principal is gone, and with it what servers kept for that client alone."""

    code, rpc_code, retryable = "session_restarted", -32010, True


RESTARTED: Final = (
    "The replica that had this session is gone. Servers with a session of their own for it begin anew: pages and "
    "logins of before are lost. This call was not carried out; begin again."
)


class Ownership(msgspec.Struct, eq=False):
    """What this replica knows of the owner of a session or principal. `name` identifies it at all replicas."""

    name: str
    key: Hashable
    """The key under which the hub keeps its own sessions with servers."""
    let_go: Callable[[], object] | None = None
    """Ends what this replica has open for it, when another one owns it."""
    load: Callable[[], Awaitable[None]] | None = None
    """Reads its state from the store, when another replica owned it until now. Raises StoreUnavailable."""
    taken_over: Callable[[], object] | None = None
    """Restores what can be restored of a former owner's state."""
    on_store_loss: Callable[[], Awaitable[None]] | None = None
    """Writes its state to the store again, when the store has lost it. Raises StoreUnavailable."""
    owner: str | None = None
    claimed: float = float("-inf")
    """When this replica last began a claim that succeeded, in seconds of the clock."""
    began_here: bool = True
    """Whether it began at this replica, so that no other one can have owned it before."""
    restarted: bool = False
    """Whether its client still has to be told that its own sessions with servers were lost."""
    own: bool = False
    """Whether it has, or may have, sessions of its own with servers, and the store says so."""
    unrecorded: bool = False
    """Whether the store has lost its claim and its state, and was not given them again yet."""
    attempt: str = ""
    """The id of the claim that the store has not answered yet; "" for none."""
    claiming: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class Owners:
    """Finds the owners of sessions and principals, and claims those that have none. `clock` returns seconds.

    `ask_others(name)` makes each other replica check whether it still owns something (`check`); returns when all have.
    """

    def __init__(
        self,
        store: Store,
        members: Membership,
        ask_others: Callable[[str], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._members = members
        self._ask_others = ask_others
        self._clock = clock
        self._mine: dict[str, Ownership] = {}
        """What this replica owns, or owned until its lease ended."""
        self._not_before = float("-inf")
        self._reclaiming: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._mine)

    def is_here(self, what: Ownership) -> bool:
        """Returns whether this replica owns something, as far as it knows without asking the store."""
        return what.owner == self._members.me.owner

    async def begin(self, what: Ownership) -> None:
        """Claims something that has just begun here. If the store is unreachable, the first use claims it."""
        try:
            await self._claim(what)
        except (StoreUnavailable, NotOwner):
            return

    async def elsewhere(self, what: Ownership) -> Member | None:
        """Returns the replica that owns something, None if it is this one; claims it here if it has no owner.

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

    async def check(self, name: str) -> None:
        """Claims something again if this replica believes it owns it, which shows whether another one does."""
        if (what := self._mine.get(name)) is not None:
            with suppress(NotOwner, StoreUnavailable):
                await self._claim(what)

    async def still_here(self, what: Ownership) -> bool:
        """Returns whether this replica still owns something; it asks the store if its last claim is too old.

        Returns True while the store is unreachable, as no other replica can take it over then. But if this replica was
        paused meanwhile, others may have reached the store; so this one first asks again for three seconds.
        """
        here = False
        for _ in range(SURE_WITHIN):
            try:
                return await self.elsewhere(what) is None
            except NotOwner:
                here = False
            except StoreUnavailable:
                here = True
                if not self._store.unknown:
                    break
            await asyncio.sleep(ASK_AGAIN)
        return here

    def _anybody(self) -> Member:
        """Returns a replica that can own something, in the place of this one. Raises NotOwner."""
        found = next((one for one in self._members.others.values() if not one.leaving), None)
        if found is None:
            raise NotOwner
        return found

    async def _claim(self, what: Ownership) -> Member | None:
        """Claims something; returns its owner if that is another one. Raises StoreUnavailable, NotOwner.

        A loss of state has to be reported to the client before any other request runs. So neither the request that
        caused this claim nor those that wait for it run before it is known whether there was a loss.
        """
        async with what.claiming:
            members = self._members
            asked, me = self._clock(), members.me.owner
            what.attempt = what.attempt or secrets.token_hex(6)
            claim = await members.claim(what.name, own=what.own or what.restarted, attempt=what.attempt)
            what.attempt = ""
            if not claim.owner:
                raise NotOwner
            what.owner, what.claimed, lost = claim.owner, float("-inf"), False  # it counts once all below is done
            if claim.owner != me or claim.taken_over:
                lost = what.own
                self._lose(what)
            if claim.owner != me:
                known = members.find(claim.owner)
                if known is None:
                    raise NotOwner
                return known
            what.restarted = what.restarted or lost
            what.unrecorded = what.unrecorded or not claim.before
            if not members.holds or members.me.owner != me:
                raise NotOwner
            known_here = what.name in self._mine
            if not known_here and (claim.before or not what.began_here):
                await self._inherit(what, claim)
            if what.unrecorded and what.on_store_loss is not None:
                await what.on_store_loss()
            what.unrecorded = False
            self._mine[what.name], what.claimed, what.began_here = what, asked, True
            return None

    async def _inherit(self, what: Ownership, claim: Claim) -> None:
        """Takes over something from a former owner: another replica, this one, or one that the store has lost."""
        if what.unrecorded:
            await self._ask_others(what.name)  # its owner may be alive, if the store has lost only this key
        if what.load is not None:
            await what.load()
        # With `unrecorded`, the store has lost whether something was open.
        if what.restarted or claim.own or what.unrecorded:
            what.restarted = True
            await self.note_own(what)  # the next owner has to tell the client, if this one does not get to it
        if what.taken_over is not None:
            what.taken_over()

    async def note_own(self, what: Ownership) -> None:
        """Notes in the store that servers may keep something for it alone. Raises StoreUnavailable."""
        if not what.own:
            key = self._store.key(f"state:{what.name}")
            await self._store.execute("HSET", key, "own", "1")
            await self._store.execute("EXPIRE", key, OWNED_FOR)
            what.own = True

    def forget(self, what: Ownership) -> None:
        """Forgets something that has ended here. If it comes again, what was open for it is lost."""
        if self._mine.get(what.name) is what:
            del self._mine[what.name]

    def _lose(self, what: Ownership) -> None:
        """Ends what is open here for something that another replica owns now."""
        what.own = what.restarted = what.began_here = what.unrecorded = False
        if self._mine.pop(what.name, None) is not None and what.let_go is not None:
            what.let_go()

    # --- after the store was unreachable, or this replica was paused -----------------------------------------------

    def reclaim(self) -> None:
        """Claims again what this replica owned, and ends what is open for things that others own by now."""
        self._not_before = self._clock() + RECLAIM_WAIT
        if self._reclaiming is None or self._reclaiming.done():
            self._reclaiming = asyncio.get_running_loop().create_task(self._reclaim())

    async def _reclaim(self) -> None:
        """Repeats the claims of what this replica owned until each is answered, so that no other's stays here."""
        members, me = self._members, ""
        while me != members.me.owner and not members.me.leaving:  # its lease may end meanwhile
            me, left = members.me.owner, list(self._mine.values())
            await asyncio.gather(*(self._reclaim_each(left, me) for _ in range(AT_ONCE)))

    async def _reclaim_each(self, left: list[Ownership], me: str) -> None:
        while left and self._members.me.owner == me:
            what = left.pop()
            try:
                await self._claim(what)
            except (NotOwner, StoreUnavailable):  # the store is unreachable again, or too slow for so many claims
                if self._mine.get(what.name) is what:
                    left.append(what)
                    await asyncio.sleep(ASK_AGAIN)

    async def close(self) -> None:
        """Stops claiming."""
        if self._reclaiming is not None:
            self._reclaiming.cancel()
            await asyncio.wait([self._reclaiming])
