"""Writes the responses to POSTed JSON-RPC: a refusal, the answer as JSON, or an event stream with notifications."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Literal

from mcp_hub.downstream import (
    Connection,
    Send,
    declined,
    encode_answer,
    encoded,
    error_response,
    event_stream,
    not_delivered,
)
from mcp_hub.downstream.event_stream import EventLog, Outbox
from mcp_hub.downstream.handshake_session import REMEMBERED, Resumable
from mcp_hub.errors import INTERNAL_ERROR, INVALID_REQUEST, CallCancelled, Overloaded, ProtocolError
from mcp_hub.policy.quotas import LARGE, QueuedAnswer, Share
from mcp_hub.protocol.era import Era
from mcp_hub.protocol.frames import Message
from mcp_hub.transport import RequestId
from mcp_hub.transport.http1.exchange import JSON, BodyTooLarge, BodyTooSlow, ClientGone, HttpReply, HttpRequest
from mcp_hub.transport.http1.heads import HeaderLines, is_json
from mcp_hub.transport.sse_codec import COMMENT

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher

log = logging.getLogger("mcp_hub.downstream")

Work = Callable[[Send], Coroutine[Any, Any, Any]]
"""Does the work of a request: takes a function that sends notifications, and returns one message or a list of them."""

PRIME_AFTER: Final = 2.0
"""Seconds until an unanswered request gets a stream with an event id, so that its client can resume it."""

BROKEN: Final = "The hub failed to answer; its log says why."


class Responder:
    """Answers the POSTed requests of one listener, each on the response to its own POST."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._running: set[asyncio.Task[Any]] = set()
        self._idle: asyncio.Future[None] | None = None
        self._prime_timeouts = TimeoutQueue(lambda: PRIME_AFTER)
        self._keep_alive_timeouts = TimeoutQueue(lambda: event_stream.KEEP_ALIVE)

    def __len__(self) -> int:
        return len(self._running)

    async def answer(self, connection: Connection, message: Message, send: Send, era: Era) -> Message:
        """Returns the answer to one request, also if the hub cancels it, as an HTTP exchange needs a response.

        Raises CancelledError for a request that the client itself has cancelled: it must not be answered.
        """
        try:
            return await self._dispatcher.answer(connection, message, send, era)
        except asyncio.CancelledError:
            if message.get("id") in connection.given_up:
                raise
            _uncancel()
            error = CallCancelled("The call was cancelled before it was answered.")
            return error_response(message.get("id"), error, message.get("method"), message.get("params"))

    async def respond(
        self,
        request: HttpRequest,
        reply: HttpReply,
        work: Work,
        payload: Any,
        share: Share,
        *,
        streams: bool,
        status: Callable[[Any], int] | None = None,
        request_id: RequestId | None = None,
        resumable: Resumable | None = None,
    ) -> None:
        """Does `work` and writes the response. `payload`: the request or batch. `share`: its caller's.

        The work is cancelled when the client goes away, unless its stream has begun and is `resumable`. `streams`:
        whether the client accepts an event stream; else notifications are dropped and questions refused.
        `status(answer)` returns the HTTP status of an answer that is not a stream, which is 200 without it. Raises
        ClientGone.
        """
        task = reply.task or asyncio.current_task()
        assert task is not None  # this coroutine runs in a task
        if request.disconnected:
            raise ClientGone
        size = request.length or 0
        if (refusal := share.begin(payload, size)) is not None:
            await _decline(reply, declined(payload, refusal), status)
            return
        reply.charge_to(share)
        writer = ResponseWriter(request, reply, share, resumable, task)
        self._running.add(task)
        timeouts = self._prime_timeouts if writer.primes else self._keep_alive_timeouts
        if streams:
            timeouts.begin(writer, writer.on_silence)
        request.watch(writer.client_gone)
        failed = False
        try:
            answer = await work(writer.put if streams else not_delivered)
        except asyncio.CancelledError:
            _uncancel()
            answer = None
        except Exception:
            log.exception("a request failed inside the hub")
            failed = True
            answer = {"jsonrpc": "2.0", "id": request_id, "error": {"code": INTERNAL_ERROR, "message": BROKEN}}
        finally:
            if size >= LARGE:
                share.end(size)
            writer.work_done = True
            timeouts.end(writer)
            self._running.discard(task)
            if self._idle is not None and not self._running and not self._idle.done():
                self._idle.set_result(None)
        data = None if answer is None else encode_answer(share, answer, payload)
        code = 202 if answer is None else 500 if failed else 200 if status is None else status(answer)
        del answer  # only the text is kept until it is read
        if writer.streams:
            writer.put_answer(data)
            del data
            await writer.finish()
            return
        queued = QueuedAnswer(len(data)) if data is not None and len(data) >= LARGE else None
        if queued is not None:
            share.watch(queued)
        await reply.send(code, data or b"", JSON)

    async def drained(self) -> None:
        """Waits until no request is being answered; not bounded in time."""
        while self._running:
            if self._idle is None or self._idle.done():
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def abort(self) -> None:
        """Cancels all requests; each is answered with an error that says so."""
        for task in tuple(self._running):
            task.cancel()


async def _decline(reply: HttpReply, answer: Any, status: Callable[[Any], int] | None) -> None:
    await reply.send(200 if status is None else status(answer), encoded(answer), JSON)


def _uncancel() -> None:
    """Takes back the cancellation of the current task, which still has to answer."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


class ResponseWriter:
    """Writes the response to one request, which the task `task` works on.

    With the first notification the response becomes an event stream, which a separate task writes.
    """

    __slots__ = (
        *("_detached", "_log", "_outbox", "_reply", "_request", "_resumable", "_share", "_task", "_writer", "primes"),
        *("streams", "work_done"),
    )

    def __init__(
        self, request: HttpRequest, reply: HttpReply, share: Share, resumable: Resumable | None, task: asyncio.Task[Any]
    ) -> None:
        self._request = request
        self._reply = reply
        self._share = share
        self._resumable = resumable
        self._task = task
        self._outbox: Outbox | None = None
        self._log: EventLog | None = None
        """The outbox, if the client may resume the stream."""
        self._writer: asyncio.Task[None] | None = None
        self.streams = False
        """Whether the response is an event stream."""
        self.primes = resumable is not None and resumable.primes
        """Whether its stream begins with an event id to resume from."""
        self.work_done = False
        """Whether the work is done or given up."""
        self._detached = False
        """Whether the client has gone and may come back."""

    def put(self, message: Message) -> None:
        """Sends a notification or question to the client (Send)."""
        self._open().put(message)

    def on_silence(self) -> None:
        """Begins the stream after a long silence: to give the client an event id, or as a sign of life."""
        if not self._request.disconnected:
            self._open(silent=True)

    def _open(self, silent: bool = False) -> Outbox:
        """Returns the outbox, after starting the task that writes it."""
        outbox = self._outbox
        if outbox is None:
            if self._resumable is not None:
                self._log = outbox = self._outbox = self._resumable.streams.new()
                self._resumable.streams.begin(self._log, self._hand_over)
            else:
                outbox = self._outbox = Outbox(self._share)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write(outbox, silent))
            self.streams = True
        return outbox

    async def _write(self, outbox: Outbox, silent: bool) -> None:
        """Writes the outbox to the stream until the work is done and it is empty, or the client has gone."""
        request, reply, log = self._request, self._reply, self._log
        keeper = None if log is None else log.keeper
        if request.disconnected:
            return
        try:
            if log is not None and keeper is not None and self._resumable is not None:
                await keeper.begin(log.number, self._resumable.asked)
            await reply.start()
            if self.primes and log is not None:
                await reply.write(log.first())
            elif silent:
                await reply.write(COMMENT)
            while not (request.disconnected or self._detached):
                event = outbox.take_event()
                if event is not None:
                    if log is not None and keeper is not None:
                        await log.keep_written(keeper)
                    await reply.write(event)
                elif self.work_done:
                    return
                elif not await event_stream.news_within(outbox.news, event_stream.KEEP_ALIVE):
                    await reply.write(COMMENT)
        except ClientGone:
            return

    def client_gone(self) -> None:
        """Cancels the work, or keeps it for a client that can resume the stream; the client has gone.

        By the specification, closing the stream cancels the request in the modern era only. In the handshake era the
        work is cancelled only if the client has no event id, without which it cannot come back for the answer.
        """
        if self._outbox is not None:
            self._outbox.news.set()  # ends the writing task
        if self.work_done:
            return
        if self._log is not None and self._reply.streams and (self.primes or self._log.written):
            self._detach()
        else:
            self._task.cancel()

    def _detach(self) -> None:
        """Keeps the stream for a client that comes back."""
        self._detached = True
        if self._log is not None and self._resumable is not None:
            if self.work_done:
                self._resumable.streams.keep(self._log, None, REMEMBERED)
            else:
                self._resumable.streams.keep(self._log, self._task.cancel)

    def _hand_over(self) -> None:
        """Hands the stream over to another response, as its client has come back already."""
        self._request.unwatch()
        if self._outbox is not None:
            self._outbox.news.set()  # ends the writing task
        self._detach()
        self._reply.give_up()

    def put_answer(self, answer: bytes | None) -> None:
        """Puts the answer's text at the end of the stream; None: there is no answer. Call `finish` next."""
        log, outbox = self._log, self._open()
        if answer is not None:
            outbox.put(answer)
        if log is not None:
            log.done = True
            if self._detached and self._resumable is not None:
                self._resumable.streams.finish(log)
        outbox.news.set()

    async def finish(self) -> None:
        """Waits until the stream has been written or its client is gone, and ends it."""
        log, streams = self._log, self._resumable.streams if self._resumable is not None else None
        if self._writer is not None:
            await self._writer
        if streams is not None and log is not None:
            streams.end(log)
            if log.keeper is not None:
                await log.keep_end(log.keeper)
        if log is None and self._outbox is not None:
            self._outbox.clear()
        if self._reply.streams and not self._detached:
            await self._reply.end()
            if streams is not None and log is not None:
                streams.keep(log, None, REMEMBERED)  # the end may have been written without arriving


class TimeoutQueue:
    """Timeouts of equal length with one timer of the event loop: they expire in the order in which they begin.

    `seconds()` returns the length.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._deadlines: dict[object, tuple[float, Callable[[], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """Cached: `get_running_loop` costs a system call."""

    def __len__(self) -> int:
        return len(self._deadlines)

    def begin(self, key: object, on_timeout: Callable[[], None]) -> None:
        """Calls `on_timeout()` once, unless `end(key)` is called in time."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds()
        self._deadlines[key] = (deadline, on_timeout)
        if self._timer is None:
            self._timer = loop.call_at(deadline, self._expire)

    def end(self, key: object) -> None:
        """Removes the timeout of `key`, expired or not."""
        self._deadlines.pop(key, None)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._deadlines:
            key, (deadline, on_timeout) = next(iter(self._deadlines.items()))
            if deadline > loop.time() + 0.001:  # event loops count in milliseconds
                self._timer = loop.call_at(deadline, self._expire)
                return
            del self._deadlines[key]
            on_timeout()


Shape = Literal["request", "notification", "response"]


async def read_body(request: HttpRequest, reply: HttpReply, max_body: int, share: Share | None = None) -> bytes | None:
    """Returns the body of a POST of JSON; None if the request has been refused. Raises ClientGone.

    `share`: that of its sender in the bytes of bodies that are not complete; None if these are not bounded.
    """
    if not is_json(request.values(b"content-type")):
        await refuse(reply, 415, INVALID_REQUEST, "Content-Type must be application/json.")
        return None
    try:
        return await request.body(max_body, share)
    except Overloaded as error:
        await refuse_with(reply, 503, error, headers=[(b"retry-after", b"1")])
    except BodyTooLarge:
        await refuse(reply, 413, INVALID_REQUEST, f"The body is larger than {max_body:,} bytes (listen.max_body).")
    except BodyTooSlow:
        close: HeaderLines = [(b"connection", b"close")]
        await refuse_with(reply, 408, ProtocolError(INVALID_REQUEST, "The body took too long."), headers=close)
    return None


def id_of(message: Any) -> RequestId | None:
    """Returns the id with which a message can be answered; None if it has no valid one."""
    request_id = message.get("id") if isinstance(message, dict) else None
    return request_id if isinstance(request_id, int | str) and not isinstance(request_id, bool) else None


def shape_of(message: Any) -> Shape | None:
    """Returns the shape of a message; None for invalid JSON-RPC."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return None
    if "method" in message:
        if not isinstance(message["method"], str):
            return None
        if "id" not in message:
            return "notification"
        request_id = message["id"]
        return "request" if isinstance(request_id, int | str) and not isinstance(request_id, bool) else None
    return "response" if "id" in message and ("result" in message or "error" in message) else None


async def refuse(reply: HttpReply, status: int, code: int, text: str, request_id: RequestId | None = None) -> None:
    """Refuses a request with a JSON-RPC error, before it is dispatched."""
    await refuse_with(reply, status, ProtocolError(code, text), request_id)


async def refuse_with(
    reply: HttpReply,
    status: int,
    error: BaseException,
    request_id: RequestId | None = None,
    headers: HeaderLines | None = None,
) -> None:
    """Refuses a request with the JSON-RPC error for an exception, before it is dispatched."""
    await reply.json(status, error_response(request_id, error), headers)
