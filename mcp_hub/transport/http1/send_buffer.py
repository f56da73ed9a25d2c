"""The sending half of a server's connection, and its timers: unread bytes, deadlines, half-closed clients."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, Protocol

UNREAD_DEADLINE: Final = 120.0
"""Seconds in which a client may read nothing of its reply; then its connection is dropped."""


class UnreadQueue(Protocol):
    """Bytes that wait for one client."""

    @property
    def unread(self) -> int:
        """Returns the number of bytes that it holds now."""

    def drop_unread(self) -> bool:
        """Drops the bytes together with their connection; returns False if it cannot."""


class UnreadAccount(Protocol):
    """Counts the bytes that one client has not read yet."""

    def watch(self, queue: UnreadQueue) -> None:
        """Adds the bytes in a queue to the account until the queue is empty."""


class SendBuffer(asyncio.Protocol):
    """Knows how full the write buffer is, and for how long. `_transport` is set by `connection_made`."""

    __slots__ = ("__weakref__", "_loop", "_transport", "_unread_timer", "_unwritten", "_writable", "paused", "share")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport
        self.paused = False
        """Whether the write buffer is full, so that nothing should be added."""
        self.share: UnreadAccount | None = None
        """The account of the caller that the current reply is for."""
        self._writable: asyncio.Future[None] | None = None
        self._unwritten = 0
        self._unread_timer: asyncio.TimerHandle | None = None

    async def writable(self) -> None:
        """Waits until it is not `paused`, or the client is gone."""
        while self.paused:
            self._writable = self._loop.create_future()
            await self._writable

    def abort(self) -> None:
        """Drops the connection and what is in its buffers."""
        self._transport.abort()

    @property
    def unread(self) -> int:
        """Bytes that are written and that the client's system has not accepted (UnreadQueue)."""
        return self._transport.get_write_buffer_size()

    def drop_unread(self) -> bool:
        """Drops the connection and what is in its buffers (UnreadQueue)."""
        self.abort()
        return True

    # --- callbacks of the event loop ------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Starts the deadline for unread bytes: without it they would stay in memory as long as the client likes."""
        self.paused = True
        if self.share is not None:
            self.share.watch(self)
        self._start_unread_timer()

    def resume_writing(self) -> None:
        """Ends the deadline and wakes the writer; the buffer has drained, or the client is gone."""
        self.paused = False
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def _start_unread_timer(self) -> None:
        self._unwritten = self._transport.get_write_buffer_size()
        self._unread_timer = self._loop.call_later(UNREAD_DEADLINE, self._check_unread)

    def _check_unread(self) -> None:
        if self._transport.get_write_buffer_size() >= self._unwritten:
            self._transport.abort()
        else:
            self._start_unread_timer()


class LazyTimer:
    """Calls `callback()` when the deadline that was last set has passed.

    A deadline is often postponed and rarely passes, so the event loop's timer is moved only when it fires.
    """

    __slots__ = ("_callback", "_due_at", "_loop", "_timer")

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._due_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Sets the deadline to so many seconds from now."""
        self._due_at = due_at = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= due_at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due_at, self._on_timer)

    def close(self) -> None:
        """Removes the deadline and drops the reference to `callback`; it must not be set again."""
        self._due_at = None
        self._callback = _nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        if self._due_at is None:
            return
        if self._loop.time() < self._due_at - 0.001:  # event loops count in milliseconds
            self._timer = self._loop.call_at(self._due_at, self._on_timer)
            return
        self._due_at = None
        self._callback()


def _nothing() -> None:
    pass


FIRST_LOOK: Final = 0.01
"""Seconds until the first probe; most replies are complete by then. The intervals double up to LAST_LOOK."""
LAST_LOOK: Final = 15.0
"""Seconds between two probes at most. The first probe and those at this interval write a sign of life."""
_SIGN_OF_LIFE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
"""A living client ignores it before a response; the system of a client that has gone resets the connection."""


class HalfCloseProbe:
    """Finds out whether a client that has ended its half of the connection still reads.

    A half-closed and a closed connection look the same until something is written. `deadline` calls back for the next
    probe; `transport` is aborted when the system reports that the client is gone.
    """

    __slots__ = ("_deadline", "_interval", "_transport")

    def __init__(self, transport: asyncio.Transport, deadline: LazyTimer) -> None:
        self._transport = transport
        self._deadline = deadline
        self._interval = FIRST_LOOK
        deadline.set(FIRST_LOOK)

    def look(self, *, unanswered: bool) -> None:
        """Probes once. `unanswered`: no reply has begun, so that a sign of life may be written."""
        connection: socket.socket | None = self._transport.get_extra_info("socket")
        if connection is not None and connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._transport.abort()
            return
        if unanswered and self._interval in (FIRST_LOOK, LAST_LOOK) and not self._transport.is_closing():
            self._transport.write(_SIGN_OF_LIFE)
        self._deadline.set(self._interval)
        self._interval = min(2 * self._interval, LAST_LOOK)
