"""The answers to POSTed requests: plain JSON where that is all there is to say, an event stream otherwise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub.errors import INTERNAL_ERROR, CallCancelled, to_wire
from mcp_hub.serve.callers import Caller, Send
from mcp_hub.serve.event_log import REMEMBERED, EventLog, Streams
from mcp_hub.serve.event_stream import KEEP_ALIVE, news_within
from mcp_hub.serve.http import JSON, ClientGone, Reply, Request
from mcp_hub.serve.outbox import Outbox, encoded
from mcp_hub.wire.frames import Message
from mcp_hub.wire.link import RequestId
from mcp_hub.wire.sse import COMMENT, encode_event

if TYPE_CHECKING:
    from mcp_hub.serve.dispatcher import Dispatcher

log = logging.getLogger("mcp_hub.serve")

Work = Callable[[Send], Coroutine[Any, Any, Any]]
"""Given where notifications go, the work whose result (a message, or a list of them) is the answer."""

PRIME_AFTER: Final = 2.0
"""Seconds until a request that is not answered gets a stream with an event id, so that its client can come back."""

SOON: Final = 0.05
"""Seconds in which most requests are answered, so that nobody has to watch whether their client has gone."""

BROKEN: Final = "The hub failed to answer; its log says why."


class Resumable(msgspec.Struct, frozen=True):
    """The streams of the session a request is of; `primes`: whether its client knows events without a message."""

    streams: Streams
    primes: bool


class Answers:
    """Every request of one listener that is being answered on the response to its own POST."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._running: set[asyncio.Task[Any]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._running)

    async def one(self, caller: Caller, message: Message, send: Send) -> Message:
        """The response to one request, also to one that the hub cancels: an HTTP exchange has to end somehow.

        What the client itself gave up stays cancelled: it must not be answered.
        """
        try:
            return await self._dispatcher.answer(caller, message, send)
        except asyncio.CancelledError:
            if message.get("id") in caller.given_up:
                raise
            params = message.get("params")
            name = params.get("name") if isinstance(params, dict) else None
            error = CallCancelled("The call was cancelled before it was answered.")
            return {"jsonrpc": "2.0", "id": message.get("id"), **to_wire(error, message.get("method"), name)}

    async def deliver(
        self,
        request: Request,
        reply: Reply,
        work: Work,
        *,
        streams: bool,
        status: Callable[[Any], int],
        request_id: RequestId | None = None,
        resumable: Resumable | None = None,
    ) -> None:
        """Run `work` and write what comes of it.

        It is cancelled when the client goes away, unless its stream has begun and is `resumable`. `streams`: whether
        the client takes an event stream; else notifications are dropped. `status` is asked for the HTTP status of an
        answer that is no stream.
        """
        loop = asyncio.get_running_loop()
        log = resumable.streams.new() if resumable is not None and streams else None
        outbox = log if log is not None else Outbox()
        task = loop.create_task(work(outbox.put if streams else _drop))
        self._track(task, outbox)
        gone: asyncio.Task[None] | None = None
        primes = log if resumable is not None and resumable.primes else None
        try:
            while gone is None or not gone.done():
                if not reply.started and primes is not None and len(outbox):
                    await _event(reply, primes.first())
                event = outbox.take_event()
                if event is not None:
                    await _event(reply, event)
                elif task.done():
                    await self._finish(reply, task, status, request_id, log)
                    return
                elif gone is None:
                    # Who has begun to read may come back for the rest, as soon as it is known to have gone.
                    if reply.started or not await news_within(outbox.news, SOON):
                        gone = loop.create_task(request.gone())
                        gone.add_done_callback(lambda _: outbox.news.set())
                elif not await news_within(outbox.news, _patience(reply, primes)) and streams:
                    await _event(reply, COMMENT if reply.started or primes is None else primes.first())
        except ClientGone:
            return
        finally:
            if gone is not None:
                gone.cancel()
            if resumable is not None and log is not None and reply.streams:
                self._leave(resumable.streams, log, task, request_id)
            else:
                # In the modern era a closed stream is how a request is cancelled. In the handshake era it is not, says
                # the specification; but without an event id nobody can come back for the answer.
                task.cancel()

    def _leave(self, streams: Streams, log: EventLog, task: asyncio.Task[Any], request_id: RequestId | None) -> None:
        """The connection of a stream has ended, before its answer or with it: its client may come back."""
        if log.done:
            streams.leave(log, None, REMEMBERED)
            return
        streams.leave(log, task.cancel)
        task.add_done_callback(lambda _: None if log.done else self._end(streams, log, task, request_id))

    def _end(self, streams: Streams, log: EventLog, task: asyncio.Task[Any], request_id: RequestId | None) -> None:
        streams.leave_be(log)
        if not task.cancelled():
            log.end(_answer(task, request_id))
        log.done = True
        log.news.set()

    def _track(self, task: asyncio.Task[Any], outbox: Outbox) -> None:
        self._running.add(task)
        self._idle.clear()

        def done(task: asyncio.Task[Any]) -> None:
            self._running.discard(task)
            if not self._running:
                self._idle.set()
            if not task.cancelled() and task.exception() is not None:
                log.error("a request failed inside the hub", exc_info=task.exception())
            outbox.news.set()

        task.add_done_callback(done)

    async def _finish(
        self,
        reply: Reply,
        task: asyncio.Task[Any],
        status: Callable[[Any], int],
        request_id: RequestId | None,
        log: EventLog | None,
    ) -> None:
        if task.cancelled():
            if log is not None:
                log.done = True
            await (reply.end() if reply.started else reply.whole(202))
            return
        answer = _answer(task, request_id)
        if not reply.started:
            await reply.whole(500 if task.exception() is not None else status(answer), encoded(answer), JSON)
            return
        if log is None:
            await reply.write(encode_event(encoded(answer)))
        else:
            log.end(answer)
            event = log.take_event()
            await reply.write(event or b"")
        await reply.end()

    async def drained(self) -> None:
        """Return when no request is being answered; not bounded in time."""
        await self._idle.wait()

    def abort(self) -> None:
        """Cancel what still runs; each is answered that it was."""
        for task in tuple(self._running):
            task.cancel()


async def _event(reply: Reply, data: bytes) -> None:
    if not reply.started:
        await reply.start()
    await reply.write(data)


def _answer(task: asyncio.Task[Any], request_id: RequestId | None) -> Any:
    """What a finished task has to say to the client."""
    if task.exception() is not None:
        return {"jsonrpc": "2.0", "id": request_id, "error": {"code": INTERNAL_ERROR, "message": BROKEN}}
    return task.result()


def _patience(reply: Reply, primes: EventLog | None) -> float:
    """Seconds of silence until something is written: soon a place to come back to, later a sign of life."""
    return PRIME_AFTER if primes is not None and not reply.started else KEEP_ALIVE


def _drop(message: Message) -> None:
    """Where notifications go that the client has no stream for."""
