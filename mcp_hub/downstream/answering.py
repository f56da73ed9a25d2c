"""One POSTed request while it is answered: JSON where that is all there is to say, an event stream otherwise."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from mcp_hub.downstream import event_stream
from mcp_hub.downstream.backlog import Share
from mcp_hub.downstream.event_log import REMEMBERED, EventLog, Streams
from mcp_hub.downstream.http import ClientGone, Reply, Request
from mcp_hub.downstream.outbox import Outbox
from mcp_hub.protocol.frames import Message
from mcp_hub.transport.sse import COMMENT


class Resumable(msgspec.Struct, frozen=True):
    """The streams of the session a request is of; `primes`: whether its client knows events without a message."""

    streams: Streams
    primes: bool


class Answering:
    """Belongs to the task that works; a stream is written by a task of its own, from the first thing it has to say."""

    __slots__ = (
        *("_left", "_log", "_outbox", "_reply", "_request", "_resumable", "_share", "_task", "_worked", "_writer"),
    )

    def __init__(
        self, request: Request, reply: Reply, share: Share, resumable: Resumable | None, task: asyncio.Task[Any]
    ) -> None:
        self._request = request
        self._reply = reply
        self._share = share
        self._resumable = resumable
        self._task = task
        self._outbox: Outbox | None = None
        self._log: EventLog | None = None
        """The outbox, where the client may come back for what is in it."""
        self._writer: asyncio.Task[None] | None = None
        self._worked = False
        self._left = False
        """Whether the client has gone, and may come back."""

    @property
    def streams(self) -> bool:
        """Whether there is more to say than an answer."""
        return self._writer is not None

    @property
    def primes(self) -> bool:
        """Whether its stream begins with a place to come back to."""
        return self._resumable is not None and self._resumable.primes

    def put(self, message: Message) -> None:
        """A notification for the client. Never blocks, never raises."""
        self._open().put(message)

    def late(self) -> None:
        """There has been silence for long: the stream begins, for the client to come back to or as a sign of life."""
        if not self._request.disconnected:
            self._open(silent=True)

    def _open(self, silent: bool = False) -> Outbox:
        """The outbox, which somebody writes."""
        outbox = self._outbox
        if outbox is None:
            if self._resumable is not None:
                self._log = outbox = self._outbox = self._resumable.streams.new()
            else:
                outbox = self._outbox = Outbox(self._share)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write(outbox, silent))
        return outbox

    async def _write(self, outbox: Outbox, silent: bool) -> None:
        """Write what comes, until the work is done and nothing waits, or the client has gone."""
        request, reply = self._request, self._reply
        if request.disconnected:
            return
        try:
            await reply.start()
            if self.primes and self._log is not None:
                await reply.write(self._log.first())
            elif silent:
                await reply.write(COMMENT)
            while not request.disconnected:
                event = outbox.take_event()
                if event is not None:
                    await reply.write(event)
                elif self._worked:
                    return
                elif not await event_stream.news_within(outbox.news, event_stream.KEEP_ALIVE):
                    await reply.write(COMMENT)
        except ClientGone:
            return

    def gone(self) -> None:
        """The client has gone.

        In the modern era a closed stream is how a request is cancelled. In the handshake era it is not, says the
        specification; but without an event id nobody can come back for the answer.
        """
        if self._outbox is not None:
            self._outbox.news.set()  # whoever writes it ends
        if self._worked:
            return
        if self._resumable is not None and self._log is not None and self._reply.streams:
            self._left = True
            self._resumable.streams.leave(self._log, self._task.cancel)
        else:
            self._task.cancel()

    def worked(self) -> None:
        """The work is done, or given up."""
        self._worked = True

    def end_with(self, answer: bytes | None) -> None:
        """The text of the answer is the last of the stream; None: there is none. `finish` follows."""
        log, outbox = self._log, self._open()
        if self._left and self._resumable is not None and log is not None:
            self._resumable.streams.leave_be(log)  # first: room for the answer may have to be made
        if answer is not None:
            outbox.put(answer)
        if log is not None:
            log.done = True
        outbox.news.set()

    async def finish(self) -> None:
        """Return when the stream has been written, or its client is gone."""
        log, kept = self._log, self._resumable.streams if self._resumable is not None else None
        if self._writer is not None:
            await self._writer
        if log is None and self._outbox is not None:
            self._outbox.clear()
        if self._reply.streams and not self._left:
            await self._reply.end()
            if kept is not None and log is not None:
                kept.leave(log, None, REMEMBERED)  # its end may have been written and not have arrived
