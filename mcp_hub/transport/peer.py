"""JSON-RPC over a link: matches responses to requests by id, and handles progress and cancellation.

Every request is answered, failed or cancelled exactly once. A response without a request is counted and dropped.
"""

from __future__ import annotations

import asyncio
import logging
import reprlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec

from mcp_hub.errors import METHOD_NOT_FOUND, HubError, UpstreamAnswered, to_wire
from mcp_hub.protocol.era import CANCELLED, CancelReason, cancellation
from mcp_hub.protocol.frames import Message, number_of
from mcp_hub.security.lru import Lru
from mcp_hub.text import printable
from mcp_hub.transport import Link, LinkError, LinkLost, RequestId
from mcp_hub.transport.background import TaskSet

log = logging.getLogger("mcp_hub.transport")

MAX_BACKGROUND: Final = 256
"""Background writes (answers to pings, cancellations) at the same time; more are dropped."""

MAX_GIVEN_UP: Final = 1000
"""Requests given up whose late answers are recognised; that of the oldest one is not, so it counts as running."""

Progress = Callable[[dict[str, Any]], None]
Headers = Mapping[str, str]


class Cause(msgspec.Struct, eq=False):
    """The reason for a request, such as a client's call: messages of the upstream are attributed to it."""

    def given_up(self) -> None:
        """Notes that the request has ended without an answer: the upstream may still work on it."""

    def answered_late(self) -> None:
        """Notes that the upstream has answered the request after it was given up."""


NO_CAUSE: Final = Cause()
"""The `cause` of messages on the stream of a request that was sent without a cause, or that has ended."""


class _Pending(msgspec.Struct, eq=False):
    future: asyncio.Future[Any]
    on_progress: Progress | None
    received_before: int
    """`Peer.received_count` when the request was sent."""
    cause: Cause
    open_ended: bool


class Peer:
    """The hub's end of a conversation with one upstream.

    `notified(method, params, cause)` gets every notification but progress. `requested(method, params, cause)` answers
    the upstream's own requests with a result or by raising ProtocolError. `lost(error)` is called once, when the link
    is lost. `cause` is that of the request on whose stream the message came; None if all messages share one stream.
    `server` names the upstream in the log.
    """

    def __init__(
        self,
        link: Link,
        *,
        notified: Callable[[str, dict[str, Any], Cause | None], None],
        requested: Callable[[str, dict[str, Any], Cause | None], Awaitable[dict[str, Any]]],
        lost: Callable[[LinkLost], None],
        server: str = "a server",
    ) -> None:
        self.link = link
        self._server = server
        self.received_count = 0
        """Number of messages received from the upstream."""
        self.stray = 0
        """Number of responses that matched no request."""
        self._odd = ""
        """The latest answer that breaks the rules for ids."""
        self._loop = asyncio.get_running_loop()
        """Cached: `get_running_loop` costs a system call."""
        self._heard_at_cancel: int | None = None
        self._told_at = -1
        """`received_count` when the latest notification was sent."""
        self._notified = notified
        self._requested = requested
        self._lost_callback = lost
        self._lost: LinkLost | None = None
        self._pending: dict[RequestId, _Pending] = {}
        self._given_up: Lru[RequestId, Cause] = Lru(MAX_GIVEN_UP)
        """The causes of requests that have ended without an answer, which may still come."""
        self._last_id = 0
        self._background = TaskSet()
        self._answer_tasks: dict[RequestId, asyncio.Task[None]] = {}
        """Tasks that answer the upstream's own requests, by id."""

    @property
    def in_flight(self) -> int:
        """Number of requests that wait for their answer, but those that last as long as the session."""
        return sum(not pending.open_ended for pending in self._pending.values())

    async def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        headers: Headers | None = None,
        on_progress: Progress | None = None,
        cancellable: bool = True,
        cause: Cause = NO_CAUSE,
        open_ended: bool = False,
    ) -> Any:
        """Sends one request and returns its result, which may be any JSON value.

        `cause` is passed on with messages that come on the request's own stream, and told if it ends unanswered. When
        the task is cancelled, the upstream gets `notifications/cancelled`, unless `cancellable` is False (the
        specification forbids it for `initialize`). `open_ended`: it is answered only at its end, maybe never.

        Raises UpstreamAnswered for an error response, LinkError if the transport fails.
        """
        if (lost := self._lost) is not None:
            raise LinkLost(str(lost), executed=False, status=lost.status, code=lost.hub_code)
        self._last_id = request_id = self._last_id + 1
        if on_progress is not None:
            params = {**(params or {})}
            params["_meta"] = {**params.get("_meta", {}), "progressToken": request_id}
        message: Message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if params is not None:
            message["params"] = params
        future: asyncio.Future[Any] = self._loop.create_future()
        self._pending[request_id] = _Pending(future, on_progress, self.received_count, cause, open_ended)
        try:
            try:
                await self.link.send(message, headers)
            except LinkError:
                if not future.done():  # an answer counts, also if it comes before the request is taken
                    raise
            return await future
        except asyncio.CancelledError as error:
            if cancellable and request_id in self._pending:
                self._give_up(request_id, error)
            if not future.done() or future.cancelled():  # whoever awaits a future cancels it
                self._keep_cause(request_id, cause)
            raise
        except LinkError as error:
            if error.executed and not future.done():
                self._keep_cause(request_id, cause)
            raise
        finally:
            self._pending.pop(request_id, None)
            if future.done() and not future.cancelled():
                future.exception()  # marks it as retrieved, even if `send` failed first

    @property
    def owes(self) -> bool:
        """Whether the upstream has sent nothing since its oldest request was cancelled: it may hang or be dead."""
        return self._heard_at_cancel == self.received_count

    async def quiet(self, seconds: float) -> None:
        """Waits until the requests in flight have ended, at most `seconds`."""
        if futures := [pending.future for pending in self._pending.values() if not pending.open_ended]:
            await asyncio.wait(futures, timeout=seconds)

    def _give_up(self, request_id: RequestId, cause: BaseException) -> None:
        oldest = next((id for id, pending in self._pending.items() if not pending.open_ended), None)
        if self._pending[request_id].received_before == self.received_count and oldest == request_id:
            self._heard_at_cancel = self.received_count
        self._in_background(self.notify(CANCELLED, cancellation(request_id, cause, "the caller no longer waits")))
        self.link.abandon(request_id)

    def _keep_cause(self, request_id: RequestId, cause: Cause) -> None:
        """Notes that a request has ended without its answer."""
        cause.given_up()
        self._given_up[request_id] = cause

    def _take_stray(self, request_id: Any) -> None:
        """Takes the answer to a request that nobody waits for."""
        self.stray += 1
        if type(request_id) is int and (cause := self._given_up.pop(request_id, None)) is not None:
            cause.answered_late()
        elif type(request_id) is not int or not 0 < request_id <= self._last_id:
            self._note_odd(f"an answer with the id {reprlib.repr(request_id)}, which no request has")

    @property
    def oddity(self) -> str:
        """What the upstream sent and no answer could be read from, for the user; `""` if there was nothing."""
        return self._odd or self.link.noise

    def _note_odd(self, what: str) -> None:
        """Notes what the upstream sent; logs the first one."""
        first, self._odd = not self._odd, f"it sent {printable(what, 200)}"
        if first:
            log.warning("%s: %s", self._server, self._odd)

    async def notify(self, method: str, params: dict[str, Any] | None = None, headers: Headers | None = None) -> None:
        """Sends one notification. Raises LinkError."""
        self._told_at = self.received_count
        message: Message = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        await self.link.send(message, headers)

    def received(self, message: Message, stream: RequestId | None = None) -> None:
        """Takes one message of the upstream (Receiver)."""
        self.received_count += 1
        method = message.get("method")
        if method is None and "jsonrpc" not in message and not _has_outcome(message):
            self.stray += 1
            self._note_odd("a line that is no message, though it is JSON")
        elif method is None:
            request_id = message.get("id")
            if type(request_id) is not int:
                request_id = self._meant(request_id, message.get("error"))
            pending = self._pending.get(request_id) if type(request_id) is int else None
            if pending is None or pending.future.done():
                self._take_stray(request_id)
            elif message.get("error") is not None:
                pending.future.set_exception(UpstreamAnswered(message["error"]))
            else:
                pending.future.set_result(message.get("result"))
        elif not isinstance(method, str):
            self.stray += 1
        elif "id" in message:
            self._take_request(message["id"], method, _object(message.get("params")), self._cause_of(stream))
        else:
            self._handle_notification(method, _object(message.get("params")), stream)

    def _cause_of(self, stream: RequestId | None) -> Cause | None:
        if stream is None:
            return None
        pending = self._pending.get(stream)
        return pending.cause if pending is not None else NO_CAUSE

    def _take_request(self, request_id: Any, method: str, params: dict[str, Any], cause: Cause | None) -> None:
        task = self._in_background(self._answer(request_id, method, params, cause))
        if task is not None and isinstance(request_id, int | str):
            self._answer_tasks[request_id] = task
            task.add_done_callback(lambda _: self._answer_tasks.pop(request_id, None))

    def _handle_notification(self, method: str, params: dict[str, Any], stream: RequestId | None) -> None:
        if method == CANCELLED:
            request_id = params.get("requestId")
            task = self._answer_tasks.get(request_id) if isinstance(request_id, int | str) else None
            if task is not None:
                reason = params.get("reason")
                task.cancel(CancelReason(reason) if isinstance(reason, str) else None)
            return
        if method != "notifications/progress":
            self._notified(method, params, self._cause_of(stream))
            return
        token = number_of(params.get("progressToken"))
        if type(token) is not int or stream not in (None, token):
            return  # the hub's tokens are integers, and a request's stream carries the progress of that request only
        pending = self._pending.get(token)
        if pending is not None and pending.on_progress is not None and not pending.future.done():
            pending.on_progress(params)

    async def _answer(self, request_id: RequestId, method: str, params: dict[str, Any], cause: Cause | None) -> None:
        try:
            result = await self._requested(method, params, cause)
            reply: Message = {"jsonrpc": "2.0", "id": request_id, "result": result}
        except Exception as error:  # without an answer the upstream, and the call that made it ask, would wait
            if not isinstance(error, HubError):
                log.exception("%s: its request failed inside the hub", self._server)
            reply = {"jsonrpc": "2.0", "id": request_id, **to_wire(error)}
        await self.link.send(reply, None)

    def failed(self, request_id: RequestId | None, error: LinkError) -> None:
        """Fails one request (Receiver). None stands for the request in flight, if there is exactly one."""
        request_id = number_of(request_id)
        is_answered = request_id is not None and error.answered
        if request_id is None:
            request_id = self._sole_request()
        pending = self._pending.get(request_id) if request_id is not None else None
        if pending is None:
            self._take_stray(request_id)
        elif not pending.future.done():
            pending.future.set_exception(error)
            if error.executed and not is_answered and request_id is not None:
                self._keep_cause(request_id, pending.cause)

    def _sole_request(self) -> RequestId | None:
        """Returns the id of the request in flight; None if there is none, or several."""
        ids = [id for id, pending in self._pending.items() if not pending.open_ended]
        return ids[0] if len(ids) == 1 else None

    def _meant(self, sent_id: Any, error: Any) -> Any:
        """Returns the id of the request that an answer can only mean whose id is not that of a request.

        An error without an id ends the only request: a server that cannot read a request cannot name it. It may be
        about a notification instead, above all one after which nothing was received before the request.
        """
        if sent_id is not None or error is None:
            request_id = number_of(sent_id)
            if type(request_id) is int:
                what = f"an answer with the id {reprlib.repr(sent_id)} instead of {request_id}"
                self._note_odd(f"{what}, which is taken as meant")
            return request_id
        request_id = self._sole_request()
        is_unknown = isinstance(error, dict) and error.get("code") == METHOD_NOT_FOUND
        if request_id is None or is_unknown or self._told_at >= self._pending[request_id].received_before:
            return None
        self._note_odd("an error without an id, which is taken as the answer to the only request")
        self._keep_cause(request_id, self._pending[request_id].cause)
        return request_id

    def lost(self, error: LinkLost) -> None:
        """Fails every request in flight; the link is lost (Receiver)."""
        if self._lost is not None:
            return
        self._lost = error
        for task in self._answer_tasks.values():
            task.cancel()
        for pending in self._pending.values():
            if not pending.future.done():
                pending.future.set_exception(error)
        self._lost_callback(error)

    async def close(self) -> None:
        """Closes the link and fails what is in flight. Never raises."""
        for task in self._background:
            task.cancel()
        await self.link.close()
        self.lost(LinkLost("the connection was closed by the hub"))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        if len(self._background) >= MAX_BACKGROUND or self._lost is not None:
            work.close()
            return None
        task = self._background.start(self._run_logged(work))
        task.add_done_callback(lambda _: work.close())  # a task that is cancelled before it begins never awaits it
        return task

    async def _run_logged(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except LinkError as error:
            log.debug("a small message was not delivered: %s", error)


def _has_outcome(message: Message) -> bool:
    """Returns whether a message without `jsonrpc` is an answer all the same; programs also log JSON to their stdout."""
    return "result" in message or (message.get("id") is not None and "error" in message)


def _object(params: Any) -> dict[str, Any]:
    return params if isinstance(params, dict) else {}
