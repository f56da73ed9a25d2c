"""The client's connection pool for one origin, and the encoder of request heads.

The pool is bounded, keeps connections alive, and serves requests in order of arrival.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from mcp_hub.security.lru import Lru
from mcp_hub.transport.http1.client_connection import WRITE_SIZE, ClientConnection, ResponseCallback
from mcp_hub.transport.http1.client_response import (
    ACCEPTED,
    ConnectionBroke,
    EmptyReply,
    HttpResponse,
    PoolClosed,
)
from mcp_hub.transport.http1.dialler import Dialler
from mcp_hub.version import VERSION

if TYPE_CHECKING:
    from yarl import URL

LOOK_AFTER: Final = 0.05
"""Seconds of idleness after which a socket is checked before use: the event loop may have missed that it was closed."""
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
        self._waiters: deque[asyncio.Future[ClientConnection | None]] = deque()
        """Each future gets a connection, or None as the permission to make one."""
        self._connection_count = 0
        """Connections that exist or are being made."""
        self._connections: set[ClientConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False
        self._empty: asyncio.Future[None] | None = None

    @property
    def sockets(self) -> list[socket.socket]:
        """The sockets of all connections."""
        return [connection.socket for connection in self._connections if connection.socket is not None]

    async def exchange(self, method: str, head: bytes, body: bytes | None) -> HttpResponse:
        """Sends one request and returns its response once the head has arrived. Raises HttpFailure.

        A GET or DELETE is sent once more if a kept connection turns out to be dead; a POST never is.
        """
        connection = self._pop_idle() or await self._acquire()
        may_repeat = connection.used and method in _REPEATABLE
        try:
            return await connection.exchange(head, body)
        except (EmptyReply, ConnectionBroke):
            if not may_repeat:
                raise
        connection = await self._acquire()
        return await connection.exchange(head, body)

    def begin(self, head: bytes, body: bytes, on_response: ResponseCallback) -> ClientConnection | None:
        """Sends a request on an idle connection without waiting; `on_response` gets the response or the failure.

        Returns None, and does nothing, if no connection is idle or the body is larger than WRITE_SIZE.
        """
        connection = self._pop_idle() if len(body) <= WRITE_SIZE else None
        if connection is not None:
            connection.begin(head + body, on_response)
        return connection

    def _pop_idle(self) -> ClientConnection | None:
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

    async def _acquire(self) -> ClientConnection:
        try:
            async with asyncio.timeout(self._connect):
                return await self._wait_for_connection()
        except TimeoutError:
            raise self._dialler.late() from None

    async def _wait_for_connection(self) -> ClientConnection:
        while not self._closed:
            if self._connection_count < self._limit:
                self._connection_count += 1
                return await self._dial()
            waiter: asyncio.Future[ClientConnection | None] = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                connection = await waiter
            except BaseException:
                if waiter.done() and not waiter.cancelled():
                    self._give_back(waiter.result())
                raise
            if self._closed:
                self._give_back(connection)
                break
            if connection is None:
                return await self._dial()
            if connection.alive:
                return connection
        raise PoolClosed

    async def _dial(self) -> ClientConnection:
        """Makes a connection; it is counted in `_connection_count` already."""
        try:
            connection, handle = await self._dialler.dial(lambda: ClientConnection(self))
            connection.socket = handle
            try:
                await self.greet(connection)
            except BaseException:
                connection.abort()
                raise
            if self._closed or not connection.alive:
                connection.abort()
                raise PoolClosed if self._closed else EmptyReply
        except BaseException:
            self._free_slot()
            raise
        self._connections.add(connection)
        return connection

    async def greet(self, connection: ClientConnection) -> None:
        """Does nothing. A subclass may exchange something on each new connection first. Raises HttpFailure."""

    def _give_back(self, connection: ClientConnection | None) -> None:
        """Takes back a connection, or the permission to make one (None), that its waiter cannot use any more."""
        if connection is None:
            self._free_slot()
        elif connection.alive:
            self.released(connection)

    def _free_slot(self) -> None:
        """Lets the next waiter make a connection instead of one that is closed."""
        waiter = self._next_waiter()
        if waiter is None:
            self._connection_count -= 1
        else:
            waiter.set_result(None)

    def _next_waiter(self) -> asyncio.Future[ClientConnection | None] | None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    # --- called by the connections ---------------------------------------------------------------------------------

    def released(self, connection: ClientConnection) -> None:
        """Takes back a connection whose exchange is over and that can carry another."""
        if connection not in self._connections:
            return  # it is still being greeted
        if self._closed:
            connection.abort()
            return
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(connection)
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._keep, self._close_expired)

    def _close_expired(self) -> None:
        idle, until = self._idle, self._loop.time() - self._keep
        while idle and idle[0].idle_since <= until:
            idle.popleft().close()
        self._sweep = self._loop.call_at(idle[0].idle_since + self._keep, self._close_expired) if idle else None

    def lost(self, connection: ClientConnection) -> None:
        """Forgets a connection that is closed."""
        with contextlib.suppress(ValueError):
            self._idle.remove(connection)
        if connection in self._connections:
            self._connections.discard(connection)
            self._free_slot()
        if self._empty is not None and not self._connections and not self._empty.done():
            self._empty.set_result(None)

    async def close(self) -> None:
        """Closes all connections, including those in use, in at most CUT seconds. Waiters get PoolClosed."""
        self._closed = True
        self._dialler.close()
        if self._sweep is not None:
            self._sweep.cancel()
        while (waiter := self._next_waiter()) is not None:
            waiter.set_result(None)
            self._connection_count += 1  # the waiter will give it back
        self._idle.clear()
        for connection in list(self._connections):
            connection.abort()
        if self._connections:
            self._empty = self._loop.create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CUT):
                    await self._empty


KEPT: Final = 64
"""Heads that are cached; they differ by method, tool name and session."""
KEPT_SIZE: Final = 4096
"""Bytes of a head up to which it is cached."""

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET: Final = re.compile(r"[\x21-\x7e]+")
_NO_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def is_header(name: str, value: str) -> bool:
    """Returns whether a header can be sent: its name is a token and its value has no control characters."""
    return bool(_NAME.fullmatch(name)) and not _NO_VALUE.search(value)


class RequestHeadEncoder:
    """Encodes heads of requests to one origin, and caches them.

    Headers of a request override `common`, which override the defaults (Host, User-Agent, Accept, Accept-Encoding).
    """

    def __init__(self, origin: URL, common: Mapping[str, str], *, absolute: bool = False) -> None:
        """`absolute`: request targets are whole URLs, as a forward proxy requires."""
        defaults = {
            "Host": origin.host_port_subcomponent or "",
            "User-Agent": f"mcp-hub/{VERSION}",
            "Accept": "*/*",
            "Accept-Encoding": ACCEPTED,
        }
        self._common = _merged(defaults, common)
        self._target_prefix = str(origin.origin()) if absolute else ""
        self._cache: Lru[tuple[object, ...], bytes] = Lru(KEPT)

    def head(self, method: str, target: str, headers: Mapping[str, str], size: int | None) -> bytes:
        """Returns the head of one request to `target`, a path with its query.

        `size`: bytes of the body; None: there is no body. Raises ValueError for an invalid target or header.
        """
        key = (method, target, *headers.items())
        lines = self._cache.get(key)
        if lines is None:
            lines = self._encode(method, target, headers)
            if len(lines) <= KEPT_SIZE:
                self._cache[key] = lines
        return lines + b"\r\n" if size is None else b"%bContent-Length: %d\r\n\r\n" % (lines, size)

    def _encode(self, method: str, target: str, headers: Mapping[str, str]) -> bytes:
        fields = _merged(self._common, headers)
        if not _TARGET.fullmatch(target) or not all(is_header(name, value) for name, value in fields.items()):
            raise ValueError("a header or the target is not valid")
        lines = [
            f"{method} {self._target_prefix}{target} HTTP/1.1",
            *(f"{name}: {value}" for name, value in fields.items()),
        ]
        return ("\r\n".join(lines) + "\r\n").encode()


def _merged(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str]:
    """Returns all headers; the second mapping wins where both have a name, in any case."""
    names = {name.lower() for name in second}
    return {**{name: value for name, value in first.items() if name.lower() not in names}, **second}
