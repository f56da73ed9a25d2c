"""Limits of one upstream: calls at once, calls per second, and the fair queue of calls that wait for a slot."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Final, NamedTuple

from msgspec import Meta

from mcp_hub.config.models import Server
from mcp_hub.config.settings import EntryKey, Frozen, model_key
from mcp_hub.errors import Overloaded
from mcp_hub.policy import Call, Json, Next, Policy, PolicyParts
from mcp_hub.policy.sharing import Sharing
from mcp_hub.security import Principal
from mcp_hub.security.callers import Caller, CallerSlot
from mcp_hub.security.counters import InFlight, TokenBuckets


class LimitSettings(Frozen):
    """Limits of concurrent calls and of their rate. Beyond them the hub answers with `overloaded`."""

    SHORT: ClassVar[Mapping[type, str]] = {int: "at_once"}

    at_once: Annotated[int, Meta(ge=1)] = 64
    """Concurrent calls of all callers together."""
    per_caller: Annotated[int, Meta(ge=1)] | None = None
    """Concurrent calls of one caller."""
    waiting: Annotated[int, Meta(ge=0)] = 1024
    """Calls that may wait for a slot."""
    rate: Annotated[float, Meta(gt=0)] | None = None
    """Calls per second of all callers together. The calls of one second may come at once."""
    rate_per_caller: Annotated[float, Meta(gt=0)] | None = None
    """Calls per second of one caller."""


LIMITS: Final = EntryKey("limits", model_key(LimitSettings), LimitSettings(), in_defaults=True, restricts=True)


class QueuedCall(NamedTuple):
    """A call that waits for a slot."""

    caller: Caller
    future: asyncio.Future[None]


class FairQueue:
    """The fair queue: principals take turns, then callers of a principal, then calls of a caller in order."""

    def __init__(self) -> None:
        self._principals: OrderedDict[Principal, _PrincipalQueue] = OrderedDict()
        self.size = 0

    def add(self, caller: Caller) -> QueuedCall:
        """Adds a call behind the other calls of its caller."""
        entry = QueuedCall(caller, asyncio.get_running_loop().create_future())
        self._principals.setdefault(caller.principal, _PrincipalQueue()).add(entry)
        self.size += 1
        return entry

    def has(self, entry: QueuedCall) -> bool:
        """Returns whether a call still waits."""
        queue = self._principals.get(entry.caller.principal)
        return queue is not None and queue.has(entry)

    def remove(self, entry: QueuedCall, *, served: bool = False) -> None:
        """Removes a call; with `served` its caller goes behind all others."""
        principal = entry.caller.principal
        queue = self._principals[principal]
        queue.remove(entry, served=served)
        self.size -= 1
        if not queue.size:
            del self._principals[principal]
        elif served:
            self._principals.move_to_end(principal)

    def next(self, free_for: Callable[[Caller], bool], in_use: Mapping[Principal, int]) -> QueuedCall | None:
        """Returns the next call: one of the principal with the fewest slots in `in_use`.

        None if no caller may have one.
        """
        heads = [(in_use.get(principal, 0), queue.first(free_for)) for principal, queue in self._principals.items()]
        return min(
            ((count, entry) for count, entry in heads if entry is not None), key=lambda pair: pair[0], default=(0, None)
        )[1]

    def room_for(self, caller: Caller) -> QueuedCall | None:
        """Returns the call to drop for a new one of `caller`: the newest of the principal or caller with most calls.

        Returns None if `caller` itself has as many, so that its new call must be refused.
        """
        principal = caller.principal
        busiest = max(self._principals, key=lambda candidate: self._principals[candidate].size, default=principal)
        if busiest == principal:
            queue = self._principals.get(principal)
            return queue.room_for(caller) if queue is not None else None
        own = self._principals.get(principal)
        if self._principals[busiest].size <= (own.size if own is not None else 0) + 1:
            return None
        return self._principals[busiest].last()


class _PrincipalQueue:
    """The waiting calls of one principal."""

    def __init__(self) -> None:
        self._callers: OrderedDict[Caller, deque[QueuedCall]] = OrderedDict()
        self.size = 0

    def add(self, entry: QueuedCall) -> None:
        self._callers.setdefault(entry.caller, deque()).append(entry)
        self.size += 1

    def has(self, entry: QueuedCall) -> bool:
        return entry in self._callers.get(entry.caller, ())

    def remove(self, entry: QueuedCall, *, served: bool) -> None:
        queue = self._callers[entry.caller]
        queue.remove(entry)
        self.size -= 1
        if not queue:
            del self._callers[entry.caller]
        elif served:
            self._callers.move_to_end(entry.caller)

    def first(self, free_for: Callable[[Caller], bool]) -> QueuedCall | None:
        for caller, queue in self._callers.items():
            if (
                free_for(caller)
                and (entry := next((queued for queued in queue if not queued.future.done()), None)) is not None
            ):
                return entry
        return None

    def last(self) -> QueuedCall | None:
        """Returns the newest call of the caller with most calls."""
        queue = max(self._callers.values(), key=len)
        return next((queued for queued in reversed(queue) if not queued.future.done()), None)

    def room_for(self, caller: Caller) -> QueuedCall | None:
        if self.size == len(self._callers):
            return None  # each caller has one call only
        longest = max(map(len, self._callers.values()))
        return self.last() if longest > len(self._callers.get(caller, ())) + 1 else None


MAX_SERVERS: Final = 10_000
"""Servers whose rate is kept, for each caller and for all together."""


class _Slots:
    """The concurrency slots of one upstream."""

    def __init__(self, server: str, limits: LimitSettings) -> None:
        self._server = server
        self._limits = limits
        self.in_use = InFlight[Caller]()
        """Slots taken by each caller."""
        self.waiting = FairQueue()

    def take(self, caller: Caller) -> bool:
        """Takes a slot if one is free, and returns whether it did. A free slot never has a call waiting for it."""
        per_caller = self._limits.per_caller
        if self.in_use.total() >= self._limits.at_once or (per_caller and self.in_use[caller] >= per_caller):
            return False
        self.in_use[caller] += 1
        return True

    async def wait(self, caller: Caller) -> None:
        """Waits for a slot and takes it. Raises Overloaded if too many calls wait."""
        if self.waiting.size >= self._limits.waiting:
            self._make_room(caller)
        entry = self.waiting.add(caller)
        try:
            await entry.future
        except asyncio.CancelledError:
            if self.waiting.has(entry):
                self.waiting.remove(entry)
            elif not entry.future.cancelled() and entry.future.exception() is None:
                self.in_use.leave(caller)
                self.serve_next()
            raise

    def _make_room(self, caller: Caller) -> None:
        """Drops a waiting call for a new one of `caller` (`FairQueue.room_for`).

        Raises Overloaded if the new call must be refused.
        """
        text = f"{self._server!r} has {self.waiting.size} calls waiting already; try again in a moment."
        error = Overloaded(text, server=self._server, retry_after=1.0, executed=False)
        last = self.waiting.room_for(caller)
        if last is None:
            raise error
        self.waiting.remove(last)
        last.future.set_exception(error)

    def serve_next(self) -> None:
        """Gives the slot that has become free to the next call that waits."""
        if not self.waiting.size or self.in_use.total() >= self._limits.at_once:
            return
        of_principal: Counter[Principal] = Counter()
        for caller, count in self.in_use.items():
            of_principal[caller.principal] += count
        per_caller = self._limits.per_caller
        entry = self.waiting.next(lambda caller: not per_caller or self.in_use[caller] < per_caller, of_principal)
        if entry is not None:
            self.waiting.remove(entry, served=True)
            self.take(entry.caller)
            entry.future.set_result(None)


class LimitsPolicy(Policy):
    """Runs at most `at_once` calls per upstream. Up to `waiting` more wait in a fair queue, and others are refused."""

    name = "limits"
    keys = (LIMITS,)

    def __init__(
        self,
        servers: Mapping[str, Server],
        clock: Callable[[], float] = time.monotonic,
        sharing: Sharing | None = None,
    ) -> None:
        self._sharing = sharing or Sharing()
        self._limits = {id: LIMITS.of(server) for id, server in servers.items()}
        self._slots = {id: _Slots(id, limits) for id, limits in self._limits.items()}
        self._rate_limited = frozenset(
            id for id, limits in self._limits.items() if limits.rate is not None or limits.rate_per_caller is not None
        )
        """The servers with a rate."""
        self._buckets = TokenBuckets[str](MAX_SERVERS, clock)
        """Of all callers together, by server."""
        self._own_buckets = CallerSlot(lambda: TokenBuckets[str](MAX_SERVERS, clock))

    @classmethod
    def of(cls, parts: PolicyParts) -> LimitsPolicy:
        """Makes the policy of a configuration."""
        return cls(parts.servers, sharing=parts.sharing)

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Runs the call when it has a slot. Raises Overloaded, with the seconds to wait before another try."""
        server = call.route.upstream
        if server in self._rate_limited and not call.has_token:
            await self._check_rate(server, call)
            call.has_token = True
        if call.nested:
            return await call_next(call)  # the outer call holds a slot: waiting for another could deadlock
        slots = self._slots[server]
        if not slots.take(call.caller):
            call.notes.append("limits: waited for a slot")
            await slots.wait(call.caller)
        try:
            return await call_next(call)
        finally:
            slots.in_use.leave(call.caller)
            if slots.waiting.size:
                slots.serve_next()

    async def _check_rate(self, server: str, call: Call) -> None:
        limits = self._limits[server]
        for rate, of_one, scope in (
            (limits.rate_per_caller, True, "one caller"),
            (limits.rate, False, "all callers together"),
        ):
            if rate is not None and (wait := await self._take(server, rate, call, of_one=of_one)) > 0:
                calls = f"{rate:g} call{'s' * (rate != 1)} a second of {scope}{self._sharing.note}"
                text = f"{server!r} takes {calls}; try again in {wait:.1f} s."
                raise Overloaded(text, server=server, retry_after=round(wait, 3), executed=False)

    async def _take(self, server: str, rate: float, call: Call, *, of_one: bool) -> float:
        """Takes a token of the caller, or of all; returns 0, or the seconds until there is one."""
        bucket = self._sharing.bucket
        name = call.caller.key if of_one else ""
        if bucket is not None and name is not None:
            wait = await bucket.take(f"{server}/{name}", rate, call.caller.principal)
            if bucket.parts > 1:
                call.notes.append("limits: the store is unavailable; this replica allows its share of the rate")
            return wait
        buckets = self._own_buckets.of(call.caller) if of_one else self._buckets
        return buckets.take(server, rate)
