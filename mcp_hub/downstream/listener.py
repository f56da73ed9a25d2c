"""What the connections of one listener share: who answers, how many there may be, and how they all end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from mcp_hub.downstream.connection import Connection
from mcp_hub.downstream.http import Reply, Request
from mcp_hub.downstream.places import Holder, Place, Places
from mcp_hub.downstream.refusals import Refusals

log = logging.getLogger("mcp_hub.downstream")

CUT_WITHIN: Final = 0.2
"""Seconds for what is cancelled to end."""

Handler = Callable[[Request, Reply], Awaitable[None]]
"""Answers one request; it may go on when its client has gone."""


class Listener:
    """`most`: connections at the same time. Made in the loop that it serves in.

    `exempt`: addresses, of trusted proxies, that may have as many strangers as there are places.
    """

    def __init__(
        self,
        handler: Handler,
        most: int,
        *,
        refusals: Refusals | None = None,
        exempt: Callable[[str], bool] = lambda peer: False,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.refusals = refusals or Refusals()
        self.places = Places(most, self.refusals, exempt, self.loop.time)
        self.open: set[Place] = set()
        """Of the connections whose descriptors are open."""
        self.ending = False
        """Whether a connection ends with its answer."""
        self._handler = handler
        self.tasks: set[asyncio.Task[None]] = set()
        """What is being answered, and TLS handshakes."""
        self._empty: asyncio.Future[None] | None = None

    def __call__(self) -> Connection:
        """The protocol of a new connection without TLS."""
        return Connection(self)

    # --- told by connections -----------------------------------------------------------------------------------

    def arrived(self, holder: Holder, peer: str) -> Place | None:
        """The place of a connection that was accepted; None if that is one too many."""
        place = None if self.ending else self.places.take(holder, peer)
        if place is not None:
            self.open.add(place)
        return place

    def left(self, place: Place) -> None:
        """Its connection has ended."""
        self.places.leave(place)
        self.open.discard(place)
        if not self.open and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def answer(self, request: Request, reply: Reply) -> None:
        """Begin to answer a request."""
        reply.task = task = self.loop.create_task(self._answered(request, reply))
        self.tasks.add(task)

    async def _answered(self, request: Request, reply: Reply) -> None:
        try:
            await self._handler(request, reply)
            if not reply.complete and not reply.lost:
                log.error("a %s request was not answered", request.method)
        finally:
            if reply.task is not None:
                self.tasks.discard(reply.task)
            if not reply.complete:
                reply.give_up()

    # --- the end -----------------------------------------------------------------------------------------------

    async def shut(self, grace: float) -> None:
        """Close each connection once its answer is written and read; for those that do not read, `grace` seconds."""
        self.ending = True
        for place in tuple(self.open):
            place.holder.shut()
        if self.open:
            self._empty = self.loop.create_future()
            await asyncio.wait({self._empty}, timeout=grace)

    async def cut(self) -> None:
        """Drop whoever is there, and cancel what is being answered."""
        self.ending = True
        for place in tuple(self.open):
            place.holder.abort()
        tasks = self.tasks.copy()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CUT_WITHIN)
