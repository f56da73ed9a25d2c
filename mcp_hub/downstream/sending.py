"""The sending half of a connection: what is written waits for its client to read, within a bound of time."""

from __future__ import annotations

import asyncio
from typing import Final

from mcp_hub.downstream.backlog import Share

UNREAD_DEADLINE: Final = 120.0
"""Seconds a client may take nothing of what is written for it; then its connection is dropped with what waits."""


class Sending(asyncio.Protocol):
    """Knows whether there is room for more. Its transport is set when the connection is made."""

    __slots__ = ("__weakref__", "_loop", "_transport", "_unread", "_unwritten", "_writable", "paused", "share")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport
        self.paused = False
        """Whether so much waits to be sent that nothing should be added."""
        self.share: Share | None = None
        """Of whom it is being written for."""
        self._writable: asyncio.Future[None] | None = None
        self._unwritten = 0
        self._unread: asyncio.TimerHandle | None = None

    def write(self, data: bytes) -> None:
        """Send; nothing happens when the client is gone."""
        if not self._transport.is_closing():
            self._transport.write(data)

    async def writable(self) -> None:
        """Return when it is not `paused`, or gone."""
        while self.paused:
            self._writable = self._loop.create_future()
            await self._writable

    def abort(self) -> None:
        """Drop the connection with what is in its buffers."""
        self._transport.abort()

    @property
    def unread(self) -> int:
        """Bytes that are written and that the client's system has not taken (Queue)."""
        return self._transport.get_write_buffer_size()

    def drop_unread(self) -> bool:
        """Drop the connection with what is in its buffers (Queue)."""
        self.abort()
        return True

    # --- told by the transport ---------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Much waits to be sent. What nobody reads would be kept for as long as the client likes, closed or not."""
        self.paused = True
        if self.share is not None:
            self.share.watch(self)
        self._watch()

    def resume_writing(self) -> None:
        """Little waits to be sent, or there is nobody to send it to."""
        self.paused = False
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    def _watch(self) -> None:
        self._unwritten = self._transport.get_write_buffer_size()
        self._unread = self._loop.call_later(UNREAD_DEADLINE, self._unread_still)

    def _unread_still(self) -> None:
        if self._transport.get_write_buffer_size() >= self._unwritten:
            self._transport.abort()
        else:
            self._watch()
