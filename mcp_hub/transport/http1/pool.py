"""A pool of HTTP connections to one origin: bounded, with keep-alive, served first come first served."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from typing import Final

from mcp_hub.transport.http1.client_connection import AT_ONCE, ClientConnection, ResponseCallback
from mcp_hub.transport.http1.client_response import (
    ConnectionBroke,
    ConnectTimeout,
    HttpResponse,
    PoolClosed,
    Unanswered,
)
from mcp_hub.transport.http1.dialler import Dialler

LOOK_AFTER: Final = 0.05
"""Seconds of idleness after which a socket is checked before use: the loop may not have noticed that it was closed."""
CUT: Final = 0.5
"""Seconds that `close` waits for the connections to be closed."""
_REPEATABLE: Final = frozenset({"GET", "DELETE"})


class HttpPool:
    """At most `limit` connections from one dialler.

    `connect`: seconds to get a connection. `keep`: seconds a connection may be idle.
    """

    def __init__(self, dialler: Dialler, *, limit: int, connect: float, keep: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._dialler = dialler
        self._limit = limit
        self._connect = connect
        self._keep = keep
        self._idle: deque[ClientConnection] = deque()
        """The most recently used is at the right."""
        self._waiting: deque[asyncio.Future[ClientConnection | None]] = deque()
        """Each gets a connection, or None: the permission to make one."""
        self._taken = 0
        """Connections that exist or are being made."""
        self._made: set[ClientConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        self._empty: asyncio.Future[None] | None = None

    @property
    def sockets(self) -> list[socket.socket]:
        """The sockets of all connections."""
        return [made.socket for made in self._made if made.socket is not None]

    async def exchange(self, method: str, head: bytes, body: bytes | None) -> HttpResponse:
        """Sends one request and returns its response once the head is here. Raises HttpFailure.

        A GET or DELETE is sent once more if a kept connection turns out to be dead; a POST never is.
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

    def begin(self, head: bytes, body: bytes, told: ResponseCallback) -> ClientConnection | None:
        """Sends a request on an idle connection without waiting; `told` gets the response or the failure.

        Returns None, and does nothing, if no connection is idle or the body is larger than AT_ONCE.
        """
        connection = self._kept() if len(body) <= AT_ONCE else None
        if connection is not None:
            connection.begin(head + body, told)
        return connection

    def _kept(self) -> ClientConnection | None:
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.alive and not self._looks_dead(connection):
                return connection
            connection.abort()
        return None

    def _looks_dead(self, connection: ClientConnection) -> bool:
        """Returns whether it was idle for too long, was closed by the server, or has unexpected bytes waiting."""
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

    async def _got(self) -> ClientConnection:
        try:
            async with asyncio.timeout(self._connect):
                return await self._in_turn()
        except TimeoutError:
            raise ConnectTimeout from None

    async def _in_turn(self) -> ClientConnection:
        while not self._closed:
            if self._taken < self._limit:
                self._taken += 1
                return await self._dialled()
            turn: asyncio.Future[ClientConnection | None] = self._loop.create_future()
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

    async def _dialled(self) -> ClientConnection:
        """Makes a connection; it is counted in `_taken` already."""
        try:
            connection, handle = await self._dialler.dial(lambda: ClientConnection(self))
            connection.socket = handle
            if self._closed or not connection.alive:
                connection.abort()
                raise PoolClosed if self._closed else Unanswered
        except BaseException:
            self._place()
            raise
        self._made.add(connection)
        return connection

    def _pass_on(self, given: ClientConnection | None) -> None:
        """Returns what was given to a waiter that was cancelled."""
        if given is None:
            self._place()
        elif given.alive:
            self.released(given)

    def _place(self) -> None:
        """Lets the next waiter make a connection, as one is gone."""
        turn = self._next()
        if turn is None:
            self._taken -= 1
        else:
            turn.set_result(None)

    def _next(self) -> asyncio.Future[ClientConnection | None] | None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                return turn
        return None

    # --- told by the connections ---------------------------------------------------------------------------------

    def released(self, connection: ClientConnection) -> None:
        """Takes back a connection whose exchange is over and that can carry another."""
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

    def lost(self, connection: ClientConnection) -> None:
        """Forgets a connection that is closed."""
        with contextlib.suppress(ValueError):
            self._idle.remove(connection)
        if connection in self._made:
            self._made.discard(connection)
            self._place()
        if self._empty is not None and not self._made and not self._empty.done():
            self._empty.set_result(None)

    async def close(self) -> None:
        """Closes all connections, those in use too, in at most CUT seconds. Waiters get PoolClosed."""
        self._closed = True
        self._dialler.close()
        if self._sweep is not None:
            self._sweep.cancel()
        while (turn := self._next()) is not None:
            turn.set_result(None)
            self._taken += 1  # the waiter will give it back
        self._idle.clear()
        for connection in list(self._made):
            connection.abort()
        if self._made:
            self._empty = self._loop.create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CUT):
                    await self._empty
