"""Which replicas are alive, and which of them owns what: leases of two seconds, fenced by an incarnation.

A replica is alive while its member record is in the store; it renews the record every half second. It owns objects,
such as sessions, while it is alive; after that another replica may take them over. A replica that was paused or cut
off executes nothing as an owner once its lease may have ended by its own clock, which is always before the store drops
the record.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from mcp_hub.protocol.frames import FrameError, decode, encode
from mcp_hub.store import Script, Store, StoreUnavailable
from mcp_hub.store.replica_keys import FRESH, ReplicaKeys
from mcp_hub.text import printable
from mcp_hub.transport.background import BACKGROUND, set_within

log = logging.getLogger("mcp_hub.store")

LEASE: Final = 2.0
"""Seconds for which a replica is alive without renewing its record."""
RENEW_EVERY: Final = 0.5
MARGIN: Final = 0.25
"""Seconds before the end of its lease from which a replica does not rely on it."""
OWNED_FOR: Final = 24 * 3600
"""Seconds for which the store remembers the owner of an object."""
ADDRESS_WAIT: Final = 1.0
"""Seconds within which a new replica announces its address."""
MAX_REFUSED: Final = 1000
"""Replicas whose records were refused for their time, and that are remembered, so that each is logged once."""
_MEMBER: Final = "member"

_RENEW: Final = Script("""
local known = redis.call('EXISTS', KEYS[1])
if ARGV[3] == '0' and known == 0 then return {0} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SADD', KEYS[2], ARGV[4])
local newest = redis.call('GET', KEYS[3]) or ''
local members = redis.call('SMEMBERS', KEYS[2])
local found = {}
for _, id in ipairs(members) do
    local record = redis.pcall('GET', ARGV[5] .. id)
    if type(record) == 'string' then table.insert(found, record) else redis.call('SREM', KEYS[2], id) end
end
return {1, newest, found}
""")
"""Renews a member record (KEYS[1]); with ARGV[3] = 0 only if it has not ended."""

_CLAIM: Final = Script("""
local owner = redis.call('GET', KEYS[1]) or ''
if owner ~= '' and owner ~= ARGV[1] and redis.call('EXISTS', ARGV[2] .. owner) == 1 then return {owner, owner, 0} end
if redis.call('EXISTS', ARGV[2] .. ARGV[1]) == 0 then return {'', owner, 0} end
local own = redis.call('HEXISTS', KEYS[2], 'own')
local attempt = redis.call('HMGET', KEYS[2], 'attempt', 'before', 'was')
if attempt[1] == ARGV[5] then
    owner, own = attempt[2] or '', tonumber(attempt[3]) or 1
else
    redis.call('HSET', KEYS[2], 'attempt', ARGV[5], 'before', owner, 'was', own)
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[3])
if ARGV[4] == '1' then redis.call('HSET', KEYS[2], 'own', '1') end
if redis.call('TTL', KEYS[2]) < tonumber(ARGV[3]) then redis.call('EXPIRE', KEYS[2], ARGV[3]) end
return {ARGV[1], owner, own}
""")
"""Claims an object (KEYS[1]) for an owner (ARGV[1]) that is alive, unless another owner that is alive has it.

Returns (owner, owner before, whether the object's state (KEYS[2]) notes that an owner has something open for it alone);
ARGV[4] = 1 sets that note. A repeated attempt (ARGV[5]) gets the same reply again, as the first one may have been lost.
"""


class Member(msgspec.Struct, frozen=True):
    """A replica that is alive."""

    id: str
    incarnation: str
    """A new one after each end of its lease."""
    address: str
    """The URL of its listener; "" for a replica that cannot be reached."""
    config: str = ""
    """The digest of its configuration."""
    leaving: bool = False
    """Whether it is about to stop: it owns nothing any more, and only finishes its running requests."""
    switched: dict[str, bool] = {}
    """The servers that are switched on or off there, unlike in its configuration."""

    @property
    def owner(self) -> str:
        """Its name as an owner."""
        return f"{self.id}:{self.incarnation}"


class Claim(NamedTuple):
    """The owner of an object, after a claim."""

    owner: str
    """ "" for none: the lease of the claiming replica has ended."""
    before: str
    """The owner until this claim; "" for none."""
    own: bool = False
    """Whether an owner has noted that something is open for it alone."""

    @property
    def taken_over(self) -> bool:
        """Whether this claim took the object from another replica, which is not alive."""
        return bool(self.before) and self.before.partition(":")[0] != self.owner.partition(":")[0]


class Lease:
    """The time for which a replica may rely on its ownership, by its own clock. A state machine without I/O.

    The lease in the store begins after the request was sent, at `sent_at`, and before the reply. So a lease that begins
    at `sent_at` never outlasts the one in the store, however long the reply took or the process was paused.
    """

    def __init__(self, seconds: float = LEASE, margin: float = MARGIN) -> None:
        self._seconds = seconds - margin
        self._until = float("-inf")

    def note_renewal(self, sent_at: float) -> None:
        """Records that the store has renewed the lease, by a request sent at `sent_at`."""
        self._until = max(self._until, sent_at + self._seconds)

    def note_end(self) -> None:
        """Records that the lease is lost or given back."""
        self._until = float("-inf")

    def holds(self, now: float) -> bool:
        """Returns whether the replica may rely on it."""
        return now < self._until


class Membership:
    """This replica among the others. `clock` returns seconds, also those in which the process is paused.

    `lost()` is called when others may own its objects by now, `rejoined()` when it can claim objects again after that,
    `gone(owners)` with owners that are no longer alive, and `newest(id)` at each renewal with the id of the newest
    change. `switched()` returns the member `switched` of this replica's record.
    """

    def __init__(
        self,
        store: Store,
        keys: Callable[[], ReplicaKeys],
        address: str,
        *,
        lost: Callable[[], None] = lambda: None,
        rejoined: Callable[[], None] = lambda: None,
        gone: Callable[[frozenset[str]], None] = lambda _: None,
        newest: Callable[[bytes], None] = lambda _: None,
        switched: Callable[[], dict[str, bool]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._keys = keys
        self._on_lost = lost
        self._on_rejoined = rejoined
        self._on_gone = gone
        self._on_newest = newest
        self._switched = switched
        self._clock = clock
        self._lease = Lease()
        self._may_own = False
        """Whether something may be owned: the lease has been renewed since this incarnation began."""
        self._sent = 0
        """The number of renewals that were sent."""
        self._newest = 0
        """The number of the newest renewal whose reply was taken."""
        self._renew_task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        """Set when the record has to be renewed at once."""
        self._refused: set[str] = set()
        """Ids of replicas whose records were refused for their time."""
        self.me = Member(secrets.token_hex(6), secrets.token_hex(4), address)
        self.others: dict[str, Member] = {}
        """The other replicas that are alive, by id."""

    @property
    def holds(self) -> bool:
        """Whether this replica may rely on its ownership."""
        return self._lease.holds(self._clock()) and not self.me.leaving

    @property
    def count(self) -> int:
        """The number of replicas that are alive, with this one."""
        return len(self.others) + 1

    @property
    def has_mixed_configurations(self) -> bool:
        """Whether replicas that are alive have different configurations."""
        return any(member.config != self.me.config for member in self.others.values())

    async def refresh(self) -> None:
        """Renews the lease now, and updates the other members. Raises StoreUnavailable."""
        await self._renew(fresh=False)

    async def join(self) -> None:
        """Joins the others, and stays until `leave`. Retries while the store is unavailable."""
        with contextlib.suppress(StoreUnavailable):
            await self._renew(fresh=True)
        self._renew_task = BACKGROUND.keep("membership", self._keep_renewing)

    async def leave(self) -> None:
        """Leaves the others: the objects of this replica are free at once. Never raises."""
        if self._renew_task is not None:
            self._renew_task.cancel()
            await asyncio.wait([self._renew_task])
        self._lease.note_end()
        with contextlib.suppress(StoreUnavailable):
            await self._store.execute("DEL", self._store.key(self._record_name))

    def reached_at(self, address: str) -> None:
        """Announces the URL of this replica to the others at once."""
        self.me = msgspec.structs.replace(self.me, address=address)
        self._wake.set()

    async def wait_for_addresses(self) -> None:
        """Waits until all other replicas have announced their addresses, at most ADDRESS_WAIT seconds."""
        until = self._clock() + ADDRESS_WAIT
        with contextlib.suppress(StoreUnavailable):
            while not all(member.address for member in self.others.values()) and self._clock() < until:
                await self._renew(fresh=False)
                await asyncio.sleep(ADDRESS_WAIT / 20)

    async def everybody(self) -> list[Member]:
        """Returns all other replicas, also those that have just joined."""
        with contextlib.suppress(StoreUnavailable):
            await self._renew(fresh=False)
        await self.wait_for_addresses()
        return list(self.others.values())

    async def find_live(self, id: str) -> Member | None:
        """Returns another replica by its id, also one that has just joined; None if it is not alive."""
        member = self.others.get(id)
        if (member is None or not member.address) and id not in ("", self.me.id):
            with contextlib.suppress(StoreUnavailable):
                await self._renew(fresh=False)
            await self.wait_for_addresses()
            member = self.others.get(id)
        return member

    def announce_config(self, digest: str) -> None:
        """Announces the digest of this replica's configuration with the next renewal."""
        self.me = msgspec.structs.replace(self.me, config=digest)

    async def hand_over(self) -> None:
        """Gives up all objects, so that others can take them at once, but stays reachable. Raises StoreUnavailable."""
        record = self._record_name
        self._lease.note_end()
        self._may_own = False
        self.me = msgspec.structs.replace(self.me, incarnation=secrets.token_hex(4), leaving=True)
        await self._renew(fresh=True)
        await self._store.execute("DEL", self._store.key(record))

    async def claim(self, name: str, *, own: bool = False, attempt: str = "") -> Claim:
        """Claims the object `name` unless another replica that is alive owns it. Raises StoreUnavailable.

        A claim is valid only if `holds` is true after it. `own`: notes that this replica has something open for the
        object alone. `attempt`: an id; a claim that repeats it after a lost reply returns the same.
        """
        attempt = attempt or secrets.token_hex(6)
        args = (self.me.owner, self._store.key(f"{_MEMBER}:"), OWNED_FOR, int(own), attempt)
        owner, before, noted = await _CLAIM.run(self._store, [f"owner:{name}", f"state:{name}"], *args)
        return Claim(owner.decode("utf-8", "replace"), before.decode("utf-8", "replace"), bool(noted))

    def find(self, owner: str) -> Member | None:
        """Returns the replica of an owner; None if it is not alive, or is this one."""
        member = self.others.get(owner.partition(":")[0])
        return member if member is not None and member.owner == owner else None

    @property
    def _record_name(self) -> str:
        return f"{_MEMBER}:{self.me.owner}"

    async def _keep_renewing(self) -> None:
        while True:
            await set_within(self._wake, RENEW_EVERY)
            self._wake.clear()
            with contextlib.suppress(StoreUnavailable):
                await self._renew(fresh=False)
            if not self.holds:
                self._give_up()
                with contextlib.suppress(StoreUnavailable):
                    await self._renew(fresh=True)
                if self.holds:
                    self._on_rejoined()

    def _give_up(self) -> None:
        """Gives up all objects, as others may have taken them over, and begins a new incarnation."""
        if not self._may_own or self.me.leaving:
            return
        self._may_own = False
        self._lease.note_end()
        self.me = msgspec.structs.replace(self.me, incarnation=secrets.token_hex(4))
        self._on_lost()

    async def _renew(self, *, fresh: bool) -> None:
        """Renews the record and takes the reply, unless that of a later renewal came first. Raises StoreUnavailable."""
        self._sent += 1
        sent_at, number, owner = self._clock(), self._sent, self.me.owner
        self.me = msgspec.structs.replace(self.me, switched=self._switched())
        record = encode([time.time(), msgspec.structs.asdict(self.me)])
        signed = f"{self._keys().sign(_MEMBER, record)} ".encode() + record
        answer = await _RENEW.run(
            self._store,
            [self._record_name, "members", "newest"],
            signed,
            int(LEASE * 1000),
            int(fresh),
            self.me.owner,
            self._store.key(f"{_MEMBER}:"),
        )
        if number < self._newest or owner != self.me.owner:
            return  # the reply describes the members, or this replica, as they were before what is known here
        self._newest = number
        if answer[0] == 0:
            self._lease.note_end()
            return
        self._lease.note_renewal(sent_at)
        self._may_own = True
        self._on_newest(answer[1])
        members = [member for entry in answer[2] if (member := self._member_of(entry)) is not None]
        self._replace_others({member.id: member for member in members if member.id != self.me.id})

    def _replace_others(self, members: dict[str, Member]) -> None:
        """Replaces the other members, and reports those that are no longer alive."""
        previous, self.others = self.others, members
        owners = {member.owner for member in members.values()}
        if ended_owners := frozenset(member.owner for member in previous.values() if member.owner not in owners):
            self._on_gone(ended_owners)

    def _member_of(self, signed: bytes) -> Member | None:
        """Returns the member of a record; None if no replica has signed it within FRESH seconds.

        Somebody may have put an old record back, whose replica is dead and whose address is a stranger's by now.
        """
        mac, _, record = signed.partition(b" ")
        if not self._keys().is_signed(_MEMBER, record, mac.decode("latin-1")):
            return None
        try:
            signed_at, member = msgspec.convert(decode(record), tuple[float, Member])
        except (FrameError, msgspec.ValidationError):
            return None
        difference = time.time() - signed_at
        if abs(difference) <= FRESH:
            return member
        if member.id not in self._refused and len(self._refused) < MAX_REFUSED:
            self._refused.add(member.id)
            text = (
                "a record of replica %s is ignored, as it was signed %.0f s ago by the clock here; compare the clocks"
            )
            log.warning(text, printable(member.id), difference)
        return None
