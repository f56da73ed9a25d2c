"""How many calls one upstream gets at once and per second, and how many may wait for a place."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mcp_hub.catalog import Item
from mcp_hub.config import rules
from mcp_hub.config.models import Server
from mcp_hub.errors import Overloaded
from mcp_hub.policy import Call, Json, Next

MAX_CALLERS: Final = 10_000
"""Callers whose rate is remembered; the longest unseen goes first."""


@dataclass(slots=True)
class _Bucket:
    """Tokens that come back at `rate` a second, at most as many as come in one second, and at least one."""

    rate: float
    tokens: float
    seen: float

    def wait(self, now: float) -> float:
        """Seconds until the next token; 0 after taking one."""
        room = max(self.rate, 1.0)
        self.tokens = min(room, self.tokens + (now - self.seen) * self.rate)
        self.seen = now
        if self.tokens >= 1:
            self.tokens -= 1
            return 0.0
        return (1 - self.tokens) / self.rate


class _Places:
    """The places of one upstream. Callers that wait take turns, each with its calls in order, and those that have all
    their places are passed over: nobody waits for the whole queue of somebody else.
    """

    def __init__(self, limits: rules.Limits) -> None:
        self._limits = limits
        self._taken = 0
        self._of_caller: Counter[Hashable] = Counter()
        self._waiting: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        """By caller, the one whose turn is next first; none of the queues is empty."""
        self.waiting = 0
        """Calls, of all callers."""

    def take(self, caller: Hashable) -> bool:
        """Take a place if there is one now. Nobody who may have it waits: it would have been given away."""
        if not self._free_for(caller):
            return False
        self._enter(caller)
        return True

    def _free_for(self, caller: Hashable) -> bool:
        own = self._limits.per_caller
        return self._taken < self._limits.at_once and (own is None or self._of_caller[caller] < own)

    def _enter(self, caller: Hashable) -> None:
        self._taken += 1
        self._of_caller[caller] += 1

    def make_room(self, caller: Hashable, error: Exception) -> bool:
        """Whether `caller` may wait. Where too many do, the newest call of whoever has most gets `error` in its place,
        unless `caller` would then have as many.
        """
        if self.waiting < self._limits.waiting:
            return True
        if self.waiting == len(self._waiting):
            return False  # each of them has one only
        most = max(self._waiting, key=lambda other: len(self._waiting[other]))
        if len(self._waiting[most]) <= len(self._waiting.get(caller, ())) + 1:
            return False
        newest = self._waiting[most][-1]
        self._forget(most, newest)
        newest.set_exception(error)
        return True

    async def wait(self, caller: Hashable) -> None:
        """Wait for a place and take it. Raises what `make_room` was given, where room was made of this call."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(future)
        self.waiting += 1
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._forget(caller, future)
            elif future.done() and future.exception() is None:
                self.leave(caller)
            raise

    def _forget(self, caller: Hashable, future: asyncio.Future[None]) -> None:
        queue = self._waiting.get(caller)
        if queue is not None and future in queue:
            queue.remove(future)
            self.waiting -= 1
            if not queue:
                del self._waiting[caller]

    def leave(self, caller: Hashable) -> None:
        """Give a place back; the next who may have it gets it."""
        self._taken -= 1
        self._of_caller[caller] -= 1
        if not self._of_caller[caller]:
            del self._of_caller[caller]
        for other, queue in self._waiting.items():
            future = next((one for one in queue if not one.done()), None)  # cancelled ones are about to go themselves
            if future is not None and self._free_for(other):
                self._waiting.move_to_end(other)
                self._forget(other, future)
                self._enter(other)
                future.set_result(None)
                return


class Limits:
    """At most `at_once` calls per upstream; up to `waiting` more queue, callers in turn, the rest is `overloaded`."""

    def __init__(self, servers: Mapping[str, Server], clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = {id: server.limits for id, server in servers.items()}
        self._places = {id: _Places(limits) for id, limits in self._limits.items()}
        self._buckets: dict[tuple[str, Hashable], _Bucket] = {}
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
            text = f"{server!r} has {self._limits[server].waiting} calls waiting already; try again in a moment."
            error = Overloaded(text, server=server, retry_after=1.0, executed=False)
            if not places.make_room(call.caller, error):
                raise error
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
            bucket = self._buckets.pop(key, None) or _Bucket(rate, max(rate, 1.0), now)
            self._buckets[key] = bucket
            while len(self._buckets) > MAX_CALLERS:
                del self._buckets[next(iter(self._buckets))]
            if (wait := bucket.wait(now)) > 0:
                text = f"{server!r} takes {rate:g} calls a second of {whose}; try again in {wait:.1f} s."
                raise Overloaded(text, server=server, retry_after=round(wait, 3), executed=False)
