"""How many calls one upstream gets at once and per second, and how many may wait for a place."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mcp_hub.catalog import Item
from mcp_hub.config import rules
from mcp_hub.config.models import Server
from mcp_hub.errors import Overloaded
from mcp_hub.policy import Call, Json, Next
from mcp_hub.policy.bucket import Bucket
from mcp_hub.principals import Principal, principal_of

MAX_CALLERS: Final = 10_000
"""Callers whose rate is remembered; the longest unseen goes first."""


class _Waiting(NamedTuple):
    """A call without a place."""

    caller: Hashable | None
    future: asyncio.Future[None]


class _Places:
    """The places of one upstream. The principal with the fewest is next, among equals one after the other; of one
    principal's calls the first, passing over callers that have all theirs.
    """

    def __init__(self, server: str, limits: rules.Limits) -> None:
        self._server = server
        self._limits = limits
        self._taken = 0
        self._of_caller: Counter[Hashable] = Counter()
        self._of_principal: Counter[Principal] = Counter()
        self._queues: dict[Principal, deque[_Waiting]] = {}
        """In the order in which it is their turn."""
        self.waiting = 0

    def take(self, caller: Hashable | None) -> bool:
        """Take a place if there is one now and nobody who may have it waits for it."""
        if not self._free_for(caller) or self._next() is not None:
            return False
        self._enter(caller)
        return True

    def _free_for(self, caller: Hashable | None) -> bool:
        own = self._limits.per_caller
        return self._taken < self._limits.at_once and (own is None or self._of_caller[caller] < own)

    def _enter(self, caller: Hashable | None) -> None:
        self._taken += 1
        self._of_caller[caller] += 1
        self._of_principal[principal_of(caller)] += 1

    async def wait(self, caller: Hashable | None) -> None:
        """Wait for a place and take it. Raises Overloaded where too many wait."""
        if self.waiting >= self._limits.waiting:
            self._make_room(principal_of(caller))
        entry = _Waiting(caller, asyncio.get_running_loop().create_future())
        self._queues.setdefault(principal_of(caller), deque()).append(entry)
        self.waiting += 1
        try:
            await entry.future
        except asyncio.CancelledError:
            if entry.future.done() and not entry.future.cancelled() and entry.future.exception() is None:
                self.leave(caller)
            elif entry in self._queues.get(principal_of(caller), ()):
                self._remove(entry)
            raise

    def _make_room(self, principal: Principal) -> None:
        """Who has most calls waiting gives up its last, for one who has fewer. Raises Overloaded."""
        text = f"{self._server!r} has {self.waiting} calls waiting already; try again in a moment."
        error = Overloaded(text, server=self._server, retry_after=1.0, executed=False)
        most = max(self._queues, key=lambda one: len(self._queues[one]), default=principal)
        last = next((one for one in reversed(self._queues.get(most, ())) if not one.future.done()), None)
        if last is None or len(self._queues[most]) <= len(self._queues.get(principal, ())) + 1:
            raise error
        self._remove(last)
        last.future.set_exception(error)

    def _remove(self, entry: _Waiting) -> None:
        principal = principal_of(entry.caller)
        self._queues[principal].remove(entry)
        self.waiting -= 1
        if not self._queues[principal]:
            del self._queues[principal]

    def leave(self, caller: Hashable | None) -> None:
        """Give a place back; the next one gets it."""
        self._taken -= 1
        _one_less(self._of_caller, caller)
        _one_less(self._of_principal, principal_of(caller))
        entry = self._next()
        if entry is not None:
            self._remove(entry)
            principal = principal_of(entry.caller)
            if principal in self._queues:
                self._queues[principal] = self._queues.pop(principal)  # to the end
            self._enter(entry.caller)
            entry.future.set_result(None)

    def _next(self) -> _Waiting | None:
        """Who gets the next place; None if there is none, or nobody who may have it."""
        if self._taken >= self._limits.at_once or not self.waiting:
            return None
        first = (
            next((one for one in queue if self._free_for(one.caller) and not one.future.done()), None)
            for queue in self._queues.values()
        )
        return min(
            (one for one in first if one is not None),
            key=lambda one: self._of_principal[principal_of(one.caller)],
            default=None,
        )


class Limits:
    """At most `at_once` calls per upstream; up to `waiting` more queue in order, the rest is answered `overloaded`."""

    def __init__(self, servers: Mapping[str, Server], clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = {id: server.limits for id, server in servers.items()}
        self._places = {id: _Places(id, limits) for id, limits in self._limits.items()}
        self._buckets: dict[tuple[str, Hashable], Bucket] = {}
        self._clock = clock

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Nothing changes in a list."""
        return items

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Raises Overloaded, with the seconds after which it is worth another try."""
        server = call.route.upstream
        self._check_rate(server, call)
        places = self._places[server]
        if not places.take(call.caller):
            call.notes.append("limits: waited for a place")
            await places.wait(call.caller)
        try:
            return await call_next(call)
        finally:
            places.leave(call.caller)

    def _check_rate(self, server: str, call: Call) -> None:
        limits = self._limits[server]
        now = self._clock()
        for rate, key, whose in (
            (limits.rate_per_caller, (server, call.caller), "one caller"),
            (limits.rate, (server, Limits), "all callers together"),
        ):
            if rate is None:
                continue
            bucket = self._buckets.pop(key, None) or Bucket.full(rate, now)
            self._buckets[key] = bucket
            while len(self._buckets) > MAX_CALLERS:
                del self._buckets[next(iter(self._buckets))]
            if (wait := bucket.wait(now)) > 0:
                text = f"{server!r} takes {rate:g} calls a second of {whose}; try again in {wait:.1f} s."
                raise Overloaded(text, server=server, retry_after=round(wait, 3), executed=False)


def _one_less(counted: Counter[Any], key: Hashable | None) -> None:
    counted[key] -= 1
    if not counted[key]:
        del counted[key]
