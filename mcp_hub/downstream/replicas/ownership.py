"""Which replica owns what: sessions of clients and principals that have sessions of their own with servers."""

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
"""Seconds after which what is owned here is claimed again, so that the store does not forget it."""
RECLAIM_WAIT: Final = 2.0
"""Seconds for which nothing new is claimed after the store was away: the owners of before come first."""
ASK_AGAIN: Final = 0.1
"""Seconds until an owner is looked up again."""
SURE_WITHIN: Final = 30
"""Times that this replica asks whether it owns something still."""
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
    load: Callable[[], Awaitable[None]] | None = None
    """Reads what the store knows of it, as another replica owned it until now. Raises StoreUnavailable."""
    taken_over: Callable[[], object] | None = None
    """Restores what can be, after another replica is gone."""
    forgotten: Callable[[], Awaitable[None]] | None = None
    """Tells the store again what it has forgotten. Raises StoreUnavailable."""
    owner: str | None = None
    claimed: float = float("-inf")
    """When this replica has claimed it last, and knew all that is to be known of it."""
    began_here: bool = True
    """Whether no replica can have known it before this one."""
    restarted: bool = False
    """Whether its client has to be told that another replica has lost what was open for it alone."""
    own: bool = False
    """Whether the other replicas can know that something is open for it alone."""
    untold: bool = False
    """Whether the store has forgotten it, and was not told again yet."""
    attempt: str = ""
    """The name of the claim that the store has not answered yet; "" for none."""
    claiming: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class Owners:
    """Finds the owner of things, and claims what has none. `clock` returns seconds.

    `ask_others(name)` has each other replica look whether it owns something still (`check`); returns when they have.
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
        """What this replica owns, or has owned until its lease ended."""
        self._not_before = float("-inf")
        self._reclaiming: asyncio.Task[None] | None = None

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

    async def check(self, name: str) -> None:
        """Claims something again, if this replica believes to own it, and so notices if another one does."""
        if (what := self._mine.get(name)) is not None:
            with suppress(NotOwner, StoreUnavailable):
                await self._claim(what)

    async def still_here(self, what: Ownership) -> bool:
        """Returns whether this replica owns something, which it asks if it was paused or cut off since it knew.

        While the store is away, nobody else can take it over.
        """
        for _ in range(SURE_WITHIN):
            try:
                return await self.elsewhere(what) is None
            except NotOwner:
                await asyncio.sleep(ASK_AGAIN)
            except StoreUnavailable:
                return True
        return False

    def _anybody(self) -> Member:
        """Returns a replica that can own something, in the place of this one. Raises NotOwner."""
        found = next((one for one in self._members.others.values() if not one.leaving), None)
        if found is None:
            raise NotOwner
        return found

    async def _claim(self, what: Ownership) -> Member | None:
        """Claims something; returns its owner if that is another one. Raises StoreUnavailable, NotOwner.

        Until all is known that has to be said of a loss, nothing is carried out: neither what has asked for this claim
        nor what asks meanwhile.
        """
        async with what.claiming:
            members = self._members
            asked, me = self._clock(), members.me.owner
            what.attempt = what.attempt or secrets.token_hex(6)
            claim = await members.claim(what.name, own=what.own or what.restarted, attempt=what.attempt)
            what.attempt = ""
            if not claim.owner:
                raise NotOwner
            what.owner, what.claimed, lost = claim.owner, float("-inf"), False  # nobody acts on half of it
            if claim.owner != me or claim.taken_over:
                lost = what.own
                self._lose(what)
            if claim.owner != me:
                known = members.find(claim.owner)
                if known is None:
                    raise NotOwner
                return known
            what.restarted = what.restarted or lost
            what.untold = what.untold or not claim.before
            if not members.holds or members.me.owner != me:
                raise NotOwner
            known_here = what.name in self._mine
            if not known_here and (claim.before or not what.began_here):
                await self._inherit(what, claim)
            if what.untold and what.forgotten is not None:
                await what.forgotten()
            what.untold = False
            self._mine[what.name], what.claimed, what.began_here = what, asked, True
            return None

    async def _inherit(self, what: Ownership, claim: Claim) -> None:
        """Takes something over that another replica owned, or this one before it ended here, or nobody knows who."""
        if what.untold:
            await self._ask_others(what.name)  # its owner may live, if the store has lost this key alone
        if what.load is not None:
            await what.load()
        if what.restarted or claim.own or what.untold:  # if nobody owned it, the store has forgotten what was open
            what.restarted = True
            await self.note_own(what)  # who comes after this replica before it is said must say it
        if what.taken_over is not None:
            what.taken_over()

    async def note_own(self, what: Ownership) -> None:
        """Notes for the other replicas that something is open for it alone. Raises StoreUnavailable."""
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
        what.own = what.restarted = what.began_here = what.untold = False
        if self._mine.pop(what.name, None) is not None and what.let_go is not None:
            what.let_go()

    # --- after the store was away, or this replica was paused -----------------------------------------------------

    def reclaim(self) -> None:
        """Claims again what this replica owned, and ends what is open for things that others own by now."""
        self._not_before = self._clock() + RECLAIM_WAIT
        if self._reclaiming is None or self._reclaiming.done():
            self._reclaiming = asyncio.get_running_loop().create_task(self._reclaim())

    async def _reclaim(self) -> None:
        """Claims what this replica owned until it has an answer for each: none may stay here that is another's."""
        members, me = self._members, ""
        while me != members.me.owner and not members.me.leaving:  # its lease may end meanwhile
            me, left = members.me.owner, list(self._mine.values())
            await asyncio.gather(*(self._reclaim_each(left, me) for _ in range(AT_ONCE)))

    async def _reclaim_each(self, left: list[Ownership], me: str) -> None:
        while left and self._members.me.owner == me:
            what = left.pop()
            try:
                await self._claim(what)
            except (NotOwner, StoreUnavailable):  # away once more, or too slow for so many
                if self._mine.get(what.name) is what:
                    left.append(what)
                    await asyncio.sleep(ASK_AGAIN)

    async def close(self) -> None:
        """Ends what is under way."""
        if self._reclaiming is not None:
            self._reclaiming.cancel()
            await asyncio.wait([self._reclaiming])
