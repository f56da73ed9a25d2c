"""The connections to one origin: kept while they are idle, bounded, and shared in turn."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from typing import Final

from mcp_hub.transport.http1.connection import AT_ONCE, HttpConnection, Told
from mcp_hub.transport.http1.dialler import Dialler
from mcp_hub.transport.http1.failures import ConnectionBroke, ConnectTimeout, PoolClosed, Unanswered
from mcp_hub.transport.http1.response import HttpResponse

LOOK_AFTER: Final = 0.05
"""Seconds after which an idle connection's socket is looked at: the loop may not know of its end yet."""
CUT: Final = 0.5
"""Seconds for connections to close by themselves."""
_REPEATABLE: Final = frozenset({"GET", "DELETE"})


class HttpPool:
    """At most `limit` connections by one dialler. `connect`: seconds to get one; `keep`: seconds it may be idle."""

    def __init__(self, dialler: Dialler, *, limit: int, connect: float, keep: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._dialler = dialler
        self._limit = limit
        self._connect = connect
        self._keep = keep
        self._idle: deque[HttpConnection] = deque()
        """The one used last is at the right."""
        self._waiting: deque[asyncio.Future[HttpConnection | None]] = deque()
        """They get a connection, or None: a place to make one in."""
        self._taken = 0
        """Places: connections, and those under way."""
        self._made: set[HttpConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        self._empty: asyncio.Future[None] | None = None

    @property
    def sockets(self) -> list[socket.socket]:
        """Those of all connections there are."""
        return [made.socket for made in self._made if made.socket is not None]

    async def exchange(self, method: str, head: bytes, body: bytes | None) -> HttpResponse:
        """One request and its answer, from its head on. Raises HttpFailure.

        What may be repeated is sent once more where a kept connection turns out to be dead; a POST never is.
        """
        connection = self._kept() or await self._got()
        again = connection.used and method in _REPEATABLE
        try:
            return await connection.exchange(head, body)
        except (Unanswered, ConnectionBroke):
            if not again:
                raise
        connection = await self._got()
        return await connection.exchange(head, body)

    def begin(self, head: bytes, body: bytes, told: Told) -> HttpConnection | None:
        """The same on a kept connection, without waiting: `told` gets the answer, or why there is none.

        None: nothing was done, as there is no idle connection or the body is large.
        """
        connection = self._kept() if len(body) <= AT_ONCE else None
        if connection is not None:
            connection.begin(head + body, told)
        return connection

    def _kept(self) -> HttpConnection | None:
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.alive and not self._looks_dead(connection):
                return connection
            connection.abort()
        return None

    def _looks_dead(self, connection: HttpConnection) -> bool:
        """Whether its time is over, or its end, or what nobody asked for, waits at its socket."""
        age = self._loop.time() - connection.idle_since
        if age < LOOK_AFTER or connection.socket is None:
            return False
        if age >= self._keep:
            return True
        try:
            connection.socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            pass
        return True

    async def _got(self) -> HttpConnection:
        try:
            async with asyncio.timeout(self._connect):
                return await self._in_turn()
        except TimeoutError:
            raise ConnectTimeout from None

    async def _in_turn(self) -> HttpConnection:
        while not self._closed:
            if self._taken < self._limit:
                self._taken += 1
                return await self._dialled()
            turn: asyncio.Future[HttpConnection | None] = self._loop.create_future()
            self._waiting.append(turn)
            try:
                given = await turn
            except BaseException:
                if turn.done() and not turn.cancelled():
                    self._pass_on(turn.result())
                raise
            if self._closed:
                self._pass_on(given)
                break
            if given is None:
                return await self._dialled()
            if given.alive:
                return given
        raise PoolClosed

    async def _dialled(self) -> HttpConnection:
        """A new connection, in a place that is taken already."""
        try:
            connection, handle = await self._dialler.dial(lambda: HttpConnection(self))
            connection.socket = handle
            if self._closed or not connection.alive:
                connection.abort()
                raise PoolClosed if self._closed else Unanswered
        except BaseException:
            self._place()
            raise
        self._made.add(connection)
        return connection

    def _pass_on(self, given: HttpConnection | None) -> None:
        """What somebody was given who wants it no more."""
        if given is None:
            self._place()
        elif given.alive:
            self.released(given)

    def _place(self) -> None:
        """One place is free again."""
        turn = self._next()
        if turn is None:
            self._taken -= 1
        else:
            turn.set_result(None)

    def _next(self) -> asyncio.Future[HttpConnection | None] | None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                return turn
        return None

    # What the connections tell.

    def released(self, connection: HttpConnection) -> None:
        """An exchange is over, and another may follow it."""
        if self._closed:
            connection.abort()
            return
        turn = self._next()
        if turn is not None:
            turn.set_result(connection)
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._keep, self._close_old)

    def _close_old(self) -> None:
        idle, until = self._idle, self._loop.time() - self._keep
        while idle and idle[0].idle_since <= until:
            idle.popleft().close()
        self._sweep = self._loop.call_at(idle[0].idle_since + self._keep, self._close_old) if idle else None

    def lost(self, connection: HttpConnection) -> None:
        """The connection is gone."""
        with contextlib.suppress(ValueError):
            self._idle.remove(connection)
        if connection in self._made:
            self._made.discard(connection)
            self._place()
        if self._empty is not None and not self._made and not self._empty.done():
            self._empty.set_result(None)

    async def close(self) -> None:
        """Close all connections, those in use too; in at most CUT. Who waits for one gets none."""
        self._closed = True
        self._dialler.close()
        if self._sweep is not None:
            self._sweep.cancel()
        while (turn := self._next()) is not None:
            turn.set_result(None)
            self._taken += 1  # its place, which it gives back
        self._idle.clear()
        for connection in list(self._made):
            connection.abort()
        if self._made:
            self._empty = self._loop.create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CUT):
                    await self._empty
