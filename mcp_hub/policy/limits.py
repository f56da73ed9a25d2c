"""How many calls one upstream gets at once, and how many may wait for a place."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from mcp_hub.catalog import Item
from mcp_hub.errors import Overloaded
from mcp_hub.policy import Call, Json, Next

AT_ONCE = 64
WAITING = 1024


class Limits:
    """At most `at_once` calls per upstream; up to `waiting` more queue in order, the rest is answered `overloaded`."""

    def __init__(self, at_once: int = AT_ONCE, waiting: int = WAITING) -> None:
        self._waiting_bound = waiting
        self._places: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(at_once))
        self._waiting: defaultdict[str, int] = defaultdict(int)

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Nothing changes in a list."""
        return items

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Raises Overloaded when the queue is full."""
        server = call.route.upstream
        places = self._places[server]
        if not places.locked():
            async with places:
                return await call_next(call)
        if self._waiting[server] >= self._waiting_bound:
            text = f"{server!r} has {self._waiting_bound} calls waiting already; try again in a moment."
            raise Overloaded(text, server=server, retry_after=1.0)
        self._waiting[server] += 1
        try:
            await places.acquire()
        finally:
            self._waiting[server] -= 1
        try:
            return await call_next(call)
        finally:
            places.release()
