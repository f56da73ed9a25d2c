"""The answers to POSTed requests: who is still being answered, and what becomes of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.downstream import event_stream
from mcp_hub.downstream.answering import Answering, Resumable
from mcp_hub.downstream.backlog import LARGE, Held, Share, declined, encoded
from mcp_hub.downstream.callers import Caller, Send
from mcp_hub.downstream.http import JSON, ClientGone, Reply, Request
from mcp_hub.downstream.patience import Patience
from mcp_hub.errors import INTERNAL_ERROR, CallCancelled, to_wire
from mcp_hub.protocol.frames import Message
from mcp_hub.transport.link import RequestId

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher

log = logging.getLogger("mcp_hub.downstream")

Work = Callable[[Send], Coroutine[Any, Any, Any]]
"""Given where notifications go, the work whose result (a message, or a list of them) is the answer."""

PRIME_AFTER: Final = 2.0
"""Seconds until a request that is not answered gets a stream with an event id, so that its client can come back."""

BROKEN: Final = "The hub failed to answer; its log says why."


class Answers:
    """Every request of one listener that is being answered on the response to its own POST."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._running: set[asyncio.Task[Any]] = set()
        self._idle: asyncio.Future[None] | None = None
        self._unprimed = Patience(lambda: PRIME_AFTER)
        self._silent = Patience(lambda: event_stream.KEEP_ALIVE)

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
            _go_on()
            params = message.get("params")
            name = params.get("name") if isinstance(params, dict) else None
            error = CallCancelled("The call was cancelled before it was answered.")
            return {"jsonrpc": "2.0", "id": message.get("id"), **to_wire(error, message.get("method"), name)}

    async def deliver(
        self,
        request: Request,
        reply: Reply,
        work: Work,
        asked: Any,
        share: Share,
        *,
        streams: bool,
        status: Callable[[Any], int],
        request_id: RequestId | None = None,
        resumable: Resumable | None = None,
    ) -> None:
        """Do `work` and write what comes of it. `asked` is the request, or the list of them, `share` its caller's.

        It is cancelled when the client goes away, unless its stream has begun and is `resumable`. `streams`: whether
        the client takes an event stream; else notifications are dropped. `status` is asked for the HTTP status of an
        answer that is no stream. Raises ClientGone.
        """
        task = reply.task or asyncio.current_task()
        assert task is not None  # a coroutine
        if request.disconnected:
            raise ClientGone
        size = request.length or 0
        if (refusal := share.begin(asked, size)) is not None:
            answer = declined(asked, refusal)
            await reply.whole(status(answer), encoded(answer), JSON)
            return
        reply.counts(share)
        answering = Answering(request, reply, share, resumable, task)
        self._running.add(task)
        patience = self._unprimed if answering.primes else self._silent
        if streams:
            patience.begin(answering, answering.late)
        request.watch(answering.gone)
        broken = False
        try:
            answer = await work(answering.put if streams else _drop)
        except asyncio.CancelledError:
            _go_on()
            answer = None
        except Exception:
            log.exception("a request failed inside the hub")
            broken = True
            answer = {"jsonrpc": "2.0", "id": request_id, "error": {"code": INTERNAL_ERROR, "message": BROKEN}}
        finally:
            share.end(size)
            answering.worked()
            patience.end(answering)
            self._running.discard(task)
            if self._idle is not None and not self._running and not self._idle.done():
                self._idle.set_result(None)
        data = None if answer is None else share.encoded(answer, asked)
        code = 202 if answer is None else 500 if broken else status(answer)
        del answer  # what is kept until it is read is its text, and once
        if answering.streams:
            answering.end_with(data)
            del data
            await answering.finish()
            return
        if data is None:
            await reply.whole(code)
            return
        held = Held(len(data)) if len(data) >= LARGE else None
        if held is not None:
            share.watch(held)
        await reply.whole(code, data, JSON)

    async def drained(self) -> None:
        """Return when no request is being answered; not bounded in time."""
        while self._running:
            if self._idle is None or self._idle.done():
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def abort(self) -> None:
        """Cancel what still runs; each is answered that it was."""
        for task in tuple(self._running):
            task.cancel()


def _go_on() -> None:
    """The task that was cancelled has something left to say."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


def _drop(message: Message) -> None:
    """Where notifications go that the client has no stream for."""
