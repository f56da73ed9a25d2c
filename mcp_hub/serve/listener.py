"""What the connections of one listener share: who answers, how many there may be, and how they all end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from mcp_hub.serve.connection import Connection
from mcp_hub.serve.http import Reply, Request

log = logging.getLogger("mcp_hub.serve")

CUT_WITHIN: Final = 0.2
"""Seconds for what is cancelled to end."""

Handler = Callable[[Request, Reply], Awaitable[None]]
"""Answers one request; it may go on when its client has gone."""


class Listener:
    """`most`: connections at the same time; one more is refused. Made in the loop that it serves in."""

    def __init__(self, handler: Handler, most: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self.ending = False
        """Whether a connection ends with its answer."""
        self._handler = handler
        self._most = most
        self.tasks: set[asyncio.Task[None]] = set()
        """What is being answered."""
        self._empty: asyncio.Future[None] | None = None

    def __call__(self) -> Connection:
        """The protocol of a new connection."""
        return Connection(self)

    # --- told by connections -----------------------------------------------------------------------------------

    def joined(self, connection: Connection) -> bool:
        """A connection is there; False if that is one too many."""
        self.connections.add(connection)
        return len(self.connections) <= self._most and not self.ending

    def left(self, connection: Connection) -> None:
        """It is not any more."""
        self.connections.discard(connection)
        if not self.connections and self._empty is not None and not self._empty.done():
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
        for connection in tuple(self.connections):
            connection.shut()
        if self.connections:
            self._empty = self.loop.create_future()
            await asyncio.wait({self._empty}, timeout=grace)

    async def cut(self) -> None:
        """Drop whoever is there, and cancel what is being answered."""
        self.ending = True
        for connection in tuple(self.connections):
            connection.abort()
        tasks = self.tasks.copy()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CUT_WITHIN)
