"""Finds and claims owners: the one replica that holds the state of a client's session, or of a principal.

This state is what servers keep for one client alone, its subscriptions and its standing stream. "Something" below is
such a session or principal.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec

from mcp_hub.downstream.replicas.forwarding import NotOwner
from mcp_hub.errors import CallError
from mcp_hub.store import Store, StoreUnavailable
from mcp_hub.store.membership import OWNED_FOR, Claim, Member, Membership
from mcp_hub.transport.background import BACKGROUND

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
        self._owned: dict[str, Ownership] = {}
        """What this replica owns, or owned until its lease ended."""
        self._not_before = float("-inf")
        self._reclaiming: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._owned)

    def is_here(self, ownership: Ownership) -> bool:
        """Returns whether this replica owns something, as far as it knows without asking the store."""
        return ownership.owner == self._members.me.owner

    async def begin(self, ownership: Ownership) -> None:
        """Claims something that has just begun here. If the store is unreachable, the first use claims it."""
        try:
            await self._claim(ownership)
        except (StoreUnavailable, NotOwner):
            return

    async def owner_elsewhere(self, ownership: Ownership) -> Member | None:
        """Returns the replica that owns something, None if it is this one; claims it here if it has no owner.

        Raises StoreUnavailable, and NotOwner while the owner is not known here yet.
        """
        members = self._members
        if ownership.owner == members.me.owner and members.holds and self._clock() - ownership.claimed < CLAIM_AGAIN:
            return None
        if ownership.owner is not None and (owner := members.find(ownership.owner)) is not None:
            return owner
        if members.me.leaving:
            return self._any_peer()
        if self._clock() < self._not_before and ownership.name not in self._owned:
            raise NotOwner  # its owner may be about to claim it again
        return await self._claim(ownership)

    async def check(self, name: str) -> None:
        """Claims something again if this replica believes it owns it, which shows whether another one does."""
        if (ownership := self._owned.get(name)) is not None:
            with suppress(NotOwner, StoreUnavailable):
                await self._claim(ownership)

    async def still_here(self, ownership: Ownership) -> bool:
        """Returns whether this replica still owns something; it asks the store if its last claim is too old.

        Returns True while the store is unreachable, as no other replica can take it over then. But if this replica was
        paused meanwhile, others may have reached the store; so this one first asks again for three seconds.
        """
        is_here = False
        for _ in range(SURE_WITHIN):
            try:
                return await self.owner_elsewhere(ownership) is None
            except NotOwner:
                is_here = False
            except StoreUnavailable:
                is_here = True
                if not self._store.unknown:
                    break
            await asyncio.sleep(ASK_AGAIN)
        return is_here

    def _any_peer(self) -> Member:
        """Returns a replica that can own something, in the place of this one. Raises NotOwner."""
        peer = next((member for member in self._members.others.values() if not member.leaving), None)
        if peer is None:
            raise NotOwner
        return peer

    async def _claim(self, ownership: Ownership) -> Member | None:
        """Claims something; returns its owner if that is another one. Raises StoreUnavailable, NotOwner.

        A loss of state has to be reported to the client before any other request runs. So neither the request that
        caused this claim nor those that wait for it run before it is known whether there was a loss.
        """
        async with ownership.claiming:
            members = self._members
            start, me = self._clock(), members.me.owner
            ownership.attempt = ownership.attempt or secrets.token_hex(6)
            claim = await members.claim(
                ownership.name, own=ownership.own or ownership.restarted, attempt=ownership.attempt
            )
            ownership.attempt = ""
            if not claim.owner:
                raise NotOwner
            ownership.owner, ownership.claimed, is_lost = (
                claim.owner,
                float("-inf"),
                False,
            )  # it counts once all below is done
            if claim.owner != me or claim.taken_over:
                is_lost = ownership.own
                self._lose(ownership)
            if claim.owner != me:
                owner = members.find(claim.owner)
                if owner is None:
                    raise NotOwner
                return owner
            ownership.restarted = ownership.restarted or is_lost
            ownership.unrecorded = ownership.unrecorded or not claim.before
            if not members.holds or members.me.owner != me:
                raise NotOwner
            was_owned_here = ownership.name in self._owned
            if not was_owned_here and (claim.before or not ownership.began_here):
                await self._inherit(ownership, claim)
            if ownership.unrecorded and ownership.on_store_loss is not None:
                await ownership.on_store_loss()
            ownership.unrecorded = False
            self._owned[ownership.name], ownership.claimed, ownership.began_here = ownership, start, True
            return None

    async def _inherit(self, ownership: Ownership, claim: Claim) -> None:
        """Takes over something from a former owner: another replica, this one, or one that the store has lost."""
        if ownership.unrecorded:
            await self._ask_others(ownership.name)  # its owner may be alive, if the store has lost only this key
        if ownership.load is not None:
            await ownership.load()
        # With `unrecorded`, the store has lost whether something was open.
        if ownership.restarted or claim.own or ownership.unrecorded:
            ownership.restarted = True
            await self.note_own(ownership)  # the next owner has to tell the client, if this one does not get to it
        if ownership.taken_over is not None:
            ownership.taken_over()

    async def note_own(self, ownership: Ownership) -> None:
        """Notes in the store that servers may keep something for it alone. Raises StoreUnavailable."""
        if not ownership.own:
            key = self._store.key(f"state:{ownership.name}")
            await self._store.execute("HSET", key, "own", "1")
            await self._store.execute("EXPIRE", key, OWNED_FOR)
            ownership.own = True

    def forget(self, ownership: Ownership) -> None:
        """Forgets something that has ended here. If it comes again, what was open for it is lost."""
        if self._owned.get(ownership.name) is ownership:
            del self._owned[ownership.name]

    def _lose(self, ownership: Ownership) -> None:
        """Ends what is open here for something that another replica owns now."""
        ownership.own = ownership.restarted = ownership.began_here = ownership.unrecorded = False
        if self._owned.pop(ownership.name, None) is not None and ownership.let_go is not None:
            ownership.let_go()

    # --- after the store was unreachable, or this replica was paused -----------------------------------------------

    def reclaim(self) -> None:
        """Claims again what this replica owned, and ends what is open for things that others own by now."""
        self._not_before = self._clock() + RECLAIM_WAIT
        if self._reclaiming is None or self._reclaiming.done():
            self._reclaiming = BACKGROUND.keep("claims", self._reclaim)

    async def _reclaim(self) -> None:
        """Repeats the claims of what this replica owned until each is answered, so that no other's stays here."""
        members, me = self._members, ""
        while me != members.me.owner and not members.me.leaving:  # its lease may end meanwhile
            me, remaining = members.me.owner, list(self._owned.values())
            await asyncio.gather(*(self._reclaim_each(remaining, me) for _ in range(AT_ONCE)))

    async def _reclaim_each(self, remaining: list[Ownership], me: str) -> None:
        while remaining and self._members.me.owner == me:
            ownership = remaining.pop()
            try:
                await self._claim(ownership)
            except (NotOwner, StoreUnavailable):  # the store is unreachable again, or too slow for so many claims
                if self._owned.get(ownership.name) is ownership:
                    remaining.append(ownership)
                    await asyncio.sleep(ASK_AGAIN)

    async def close(self) -> None:
        """Stops claiming."""
        if self._reclaiming is not None:
            self._reclaiming.cancel()
            await asyncio.wait([self._reclaiming])
