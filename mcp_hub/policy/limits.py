"""How many calls one upstream gets at once and per second, and how many may wait for a place."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final

from mcp_hub.catalog.catalog import Item
from mcp_hub.config import rules
from mcp_hub.config.models import Server
from mcp_hub.errors import Overloaded
from mcp_hub.policy import Call, Json, Next
from mcp_hub.policy.bucket import Bucket
from mcp_hub.policy.waiting import Waiting
from mcp_hub.security.principals import Principal, principal_of

MAX_CALLERS: Final = 10_000
"""Callers whose rate is remembered; the longest unseen goes first."""


class _Places:
    """The places of one upstream."""

    def __init__(self, server: str, limits: rules.Limits) -> None:
        self._server = server
        self._limits = limits
        self._taken = 0
        self._of_caller: dict[Hashable, int] = {}
        self._of_principal: dict[Principal, int] = {}
        self.waiting = Waiting()

    def take(self, caller: Hashable | None) -> bool:
        """Take a place if there is one now. Nobody who may have it waits: it would have been given away."""
        if not self._free_for(caller):
            return False
        self._enter(caller)
        return True

    def _free_for(self, caller: Hashable | None) -> bool:
        own = self._limits.per_caller
        return self._taken < self._limits.at_once and (own is None or self._of_caller.get(caller, 0) < own)

    def _enter(self, caller: Hashable | None) -> None:
        self._taken += 1
        _one_more(self._of_caller, caller)
        _one_more(self._of_principal, principal_of(caller))

    async def wait(self, caller: Hashable | None) -> None:
        """Wait for a place and take it. Raises Overloaded where too many wait."""
        if self.waiting.size >= self._limits.waiting:
            self._make_room(caller)
        entry = self.waiting.add(caller)
        try:
            await entry.future
        except asyncio.CancelledError:
            if self.waiting.has(entry):
                self.waiting.remove(entry)
            elif not entry.future.cancelled() and entry.future.exception() is None:
                self.leave(caller)
            raise

    def _make_room(self, caller: Hashable | None) -> None:
        """Who has most calls waiting gives up its last, for one who has fewer. Raises Overloaded."""
        text = f"{self._server!r} has {self.waiting.size} calls waiting already; try again in a moment."
        error = Overloaded(text, server=self._server, retry_after=1.0, executed=False)
        last = self.waiting.room_for(caller)
        if last is None:
            raise error
        self.waiting.remove(last)
        last.future.set_exception(error)

    def leave(self, caller: Hashable | None) -> None:
        """Give a place back; the next one gets it."""
        self._taken -= 1
        _one_less(self._of_caller, caller)
        _one_less(self._of_principal, principal_of(caller))
        if self._taken >= self._limits.at_once or not self.waiting.size:
            return
        entry = self.waiting.next(self._free_for, self._of_principal)
        if entry is not None:
            self.waiting.remove(entry, served=True)
            self._enter(entry.caller)
            entry.future.set_result(None)


class Limits:
    """At most `at_once` calls per upstream; up to `waiting` more queue, in turn, the rest is answered `overloaded`."""

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
        if limits.rate is None and limits.rate_per_caller is None:
            return
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


def _one_more(counted: dict[Any, int], key: Hashable | None) -> None:
    counted[key] = counted.get(key, 0) + 1


def _one_less(counted: dict[Any, int], key: Hashable | None) -> None:
    left = counted[key] - 1
    if left:
        counted[key] = left
    else:
        del counted[key]
