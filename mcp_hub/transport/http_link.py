"""The link to an upstream over streamable HTTP: a POST for each message, and a standing stream."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Final

from mcp_hub.config.models import Server
from mcp_hub.protocol.frames import FrameError, Message, encode, number_of
from mcp_hub.transport import (
    Authorization,
    Link,
    LinkError,
    LinkLost,
    LinkParts,
    Receiver,
    RedirectNotFollowed,
    RequestId,
    SessionLost,
    Unwritable,
    http_stream,
)
from mcp_hub.transport.background import BACKGROUND, TaskSet
from mcp_hub.transport.egress import Egress
from mcp_hub.transport.http1.client_connection import ClientConnection
from mcp_hub.transport.http1.client_response import HttpFailure, HttpResponse
from mcp_hub.transport.http_client import (
    EVENTS,
    JSON,
    SESSION,
    HttpClient,
    SessionHeaders,
    content_type,
    is_transient,
    retry_after,
)
from mcp_hub.transport.http_failures import HostUnreachable, link_failure, wrong_type_text
from mcp_hub.transport.http_stream import EventReader, EventStream, error_about, messages_of

log = logging.getLogger("mcp_hub.transport")

RESUMES: Final = 5
"""Attempts in a row to resume a broken response stream after which it fails, if none of them brings an event.

Refusals that may pass (429, 503) do not count.
"""
END_SESSION: Final = 2.0
CLOSE: Final = 2.5
"""Seconds for the DELETE, and for all that `close` does before the connections are closed."""


class HttpLink(Link):
    """A Link for streamable HTTP. Requests run concurrently, and each fails independently.

    The link is lost when the host no longer accepts connections or the session is gone, once no request is in flight.
    """

    repeats_params = True

    def __init__(
        self, server: Server, authorization: Authorization | None = None, egress: Egress | None = None
    ) -> None:
        self._http = HttpClient(server, authorization, egress)
        self._events = EventReader(self._http, server.max_frame, self._take)
        self._write_deadline = server.deadlines.write
        self._receiver: Receiver | None = None
        self._session = SessionHeaders()
        self._requests: dict[RequestId, asyncio.Task[None] | ClientConnection] = {}
        self._tasks = TaskSet()
        self._standing_task: asyncio.Task[None] | None = None
        self._standing_ready = asyncio.Event()
        """Set when the standing stream is open, or could not be opened."""
        self._pending_loss: LinkLost | None = None
        self._lost: LinkLost | None = None

    @classmethod
    def of(cls, server: Server, parts: LinkParts, clean: Callable[[str], str]) -> HttpLink:
        """Makes the link to a server."""
        return cls(server, parts.authorization(server), parts.egress(server))

    @property
    def signing_in(self) -> bool:
        """Whether a request waits for a token rather than for the upstream."""
        return self._http.signing_in

    async def open(self, receiver: Receiver) -> None:
        """Creates the connection pool; nothing is sent yet. Raises LinkError for an invalid URL or header."""
        await self._http.open()
        self._receiver = receiver

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Starts the POST of a request, or completes that of a notification or response. Raises LinkError."""
        if self._ending is not None or self._receiver is None:
            raise LinkLost("the connection is closed", executed=False)
        if self._lost is not None:
            raise LinkLost(str(self._lost), executed=False, code=self._lost.hub_code)
        try:
            body = encode(message)
        except FrameError as error:
            raise Unwritable(error) from None
        is_initialize = message.get("method") == "initialize"
        if is_initialize:
            self._session.forget()
            self._http.forget_cookies()
        post_headers = {**self._session.headers(headers), "Accept": f"{JSON}, {EVENTS}", "Content-Type": JSON}
        if "method" not in message or "id" not in message:
            await self._deliver(body, post_headers)
            return
        request_id = message["id"]
        if not is_initialize and self._send_on_idle(request_id, body, post_headers):
            return
        self._requests[request_id] = self._tasks.start(
            self._request(EventStream(request_id), body, post_headers, is_initialize=is_initialize)
        )

    def _send_on_idle(self, request_id: RequestId, body: bytes, headers: dict[str, str]) -> bool:
        """Sends a request on an idle connection; returns False if there is none.

        A small JSON response is handled without a task.
        """
        stream = EventStream(request_id)

        def on_response(outcome: HttpResponse | HttpFailure) -> None:
            if isinstance(outcome, HttpFailure):
                self._requests[request_id] = self._tasks.start(self._request(stream, body, headers, outcome))
            elif not self._handle_complete(outcome, stream):
                self._requests[request_id] = task = self._tasks.start(self._request(stream, body, headers, outcome))
                task.add_done_callback(lambda _: outcome.close())  # a task cancelled before it begins does not close it

        connection = self._http.begin(headers, body, on_response)
        if connection is None:
            return False
        self._requests[request_id] = connection
        return True

    def _handle_complete(self, response: HttpResponse, stream: EventStream) -> bool:
        """Handles a successful JSON response that has arrived completely; returns False for any other response."""
        is_success = 200 <= response.status < 300 and content_type(response) == JSON
        body = self._http.arrived_body(response) if is_success else None
        if body is None:
            return False
        self._pending_loss = None
        try:
            self._take_answer(body, stream, response.status)
        except Exception as error:
            self._fail(stream, link_failure(error))
        finally:
            if stream.request is not None:
                self._requests.pop(stream.request, None)
            self._report_loss_when_idle()
        return True

    async def _deliver(self, body: bytes, headers: dict[str, str]) -> None:
        try:
            response = await self._http.request("POST", self._http.url, headers, body, self._write_deadline)
            self._pending_loss = None
            try:
                if not 200 <= response.status < 300:
                    raise (await self._http.refused(response, headers.get(SESSION)))[0]
                await self._http.discard(response)
            finally:
                response.close()
        except TimeoutError:
            raise LinkError(f"it did not take the message within {self._write_deadline:g} s") from None
        except HostUnreachable as error:
            self._unreachable(error)
            raise

    async def _request(
        self,
        stream: EventStream,
        body: bytes,
        headers: dict[str, str],
        outcome: HttpResponse | HttpFailure | None = None,
        *,
        is_initialize: bool = False,
    ) -> None:
        request_id = stream.request
        assert request_id is not None
        try:
            if outcome is None:
                response = await self._http.request("POST", self._http.url, headers, body)
            else:
                response = await self._http.finish(headers, body, outcome)
            self._pending_loss = None
            try:
                await self._answer(response, stream, headers, is_initialize)
            finally:
                response.close()
        except Exception as error:
            self._fail(stream, link_failure(error))
        finally:
            if request_id in self._requests and self._requests[request_id] is asyncio.current_task():
                del self._requests[request_id]
            self._report_loss_when_idle()

    def _fail(self, stream: EventStream, error: LinkError) -> None:
        if isinstance(error, HostUnreachable) and self._pending_loss is None:
            self._pending_loss = LinkLost(str(error), executed=False, code=error.hub_code)
        if not stream.answered and self._lost is None and self._receiver is not None:
            stream.answered = True
            self._receiver.failed(stream.request, error)

    async def _answer(
        self, response: HttpResponse, stream: EventStream, headers: dict[str, str], is_initialize: bool
    ) -> None:
        if not 200 <= response.status < 300:
            error, body = await self._http.refused(response, headers.get(SESSION))
            answer = error_about(error, body, stream.request)
            if answer is None:
                raise error
            self._receive(answer, stream)
            return
        if is_initialize:
            self._session.begin(response)
        kind = content_type(response)
        if kind == EVENTS:
            await self._follow_events(response, stream, headers)
            return
        if kind != JSON:
            raise LinkError(wrong_type_text(response.status, kind), status=response.status)
        self._take_answer(await self._http.read(response), stream, response.status)

    async def _follow_events(self, response: HttpResponse, stream: EventStream, headers: dict[str, str]) -> None:
        fruitless = 0
        while True:
            arrived = stream.arrived
            failure = await self._events.follow(response, stream)
            if stream.answered:
                return
            error = failure or LinkError("the stream of the answer ended without it")
            fruitless = 0 if stream.arrived > arrived else fruitless + 1
            if stream.last_event_id is None or fruitless >= RESUMES:
                raise error
            response = await self._resume(stream, headers, error, fruitless)

    async def _resume(
        self, stream: EventStream, headers: dict[str, str], error: LinkError, fruitless: int
    ) -> HttpResponse:
        """Opens a stream that broke off with `error` again; asks a server that refuses for a while again and again.

        Only the caller's deadline ends that. Raises LinkError; the request may have been executed.
        """
        get_headers = {**headers, "Accept": EVENTS, "Last-Event-ID": stream.last_event_id or ""}
        del get_headers["Content-Type"]
        refusals, wait = 0, 0.0
        while True:
            await asyncio.sleep(max(stream.delay(fruitless + refusals), wait))
            try:
                response = await self._http.request("GET", self._http.url, get_headers)
            except LinkError as failure:
                if failure.status is not None:
                    raise _not_resumed(str(failure), failure.status) from None
                fruitless, wait = fruitless + 1, 0.0  # the server may be restarting
                if fruitless >= RESUMES:
                    raise error from None
                continue
            if response.status == 200 and content_type(response) == EVENTS:
                return response
            response.close()
            if not is_transient(response.status):
                raise _not_resumed(f"HTTP {response.status}", response.status)
            refusals, wait = refusals + 1, retry_after(response) or 0.0

    def _take_answer(self, body: bytes | memoryview, stream: EventStream, status: int) -> None:
        """Handles the JSON body of a response. Raises LinkError if it has no answer to the stream's request."""
        self._take(body, stream)
        if not stream.answered:
            raise self._http.foreign_answer(status, body, self._session.id)

    def _take(self, data: bytes | memoryview, stream: EventStream) -> None:
        """Handles one JSON text. Raises LinkError if it is invalid and may be the response to the stream's request."""
        for message in messages_of(data, stream):
            self._receive(message, stream)

    def _receive(self, message: Message, stream: EventStream) -> None:
        if stream.request is not None and "method" not in message:
            message_id = message.get("id")
            if type(message_id) is not int:
                message_id = number_of(message_id)
            if message_id is None and message.get("error") is not None:
                message["id"] = message_id = stream.request  # an error on this stream can only be about its request
            if message_id == stream.request and type(message_id) is type(stream.request):
                if stream.answered:
                    return
                stream.answered = True
                self._requests.pop(stream.request, None)
        if self._lost is None and self._receiver is not None:
            self._receiver.received(message, stream.request)

    def open_standing_stream(self, headers: Mapping[str, str] | None = None) -> None:
        """Keeps a GET stream open for unsolicited messages. Call it again after a new handshake."""
        if self._ending is not None or self._lost is not None:
            return
        if self._standing_task is not None:
            self._standing_task.cancel()
        self._standing_ready.clear()
        work, common = self._run_standing_stream, self._session.headers(headers)
        self._standing_task = BACKGROUND.keep("standing stream of a server", work, common)
        self._standing_task.add_done_callback(lambda _: self._standing_ready.set())
        self._standing_task.add_done_callback(self._tasks.discard)
        self._tasks.add(self._standing_task)

    async def standing_stream(self) -> None:
        """Waits until the standing stream is open, or could not be opened. Not bounded in time."""
        await self._standing_ready.wait()

    async def _run_standing_stream(self, common: dict[str, str]) -> None:
        stream, headers = EventStream(None), {**common, "Accept": EVENTS}
        was_open, fruitless = False, 0
        loop = asyncio.get_running_loop()
        while True:
            started_at, arrived, wait = loop.time(), stream.arrived, 0.0
            resumed = {} if stream.last_event_id is None else {"Last-Event-ID": stream.last_event_id}
            try:
                response = await self._http.request("GET", self._http.url, {**headers, **resumed})
                self._pending_loss = None
                self._standing_ready.set()
                if response.status == 200 and content_type(response) == EVENTS:
                    was_open = True
                    await self._events.follow(response, stream)
                else:
                    response.close()
                    wait = retry_after(response) or 0.0
                    if response.status == 400 and resumed:
                        stream.last_event_id = None  # the server may not know the event any more
                    elif not self._should_reopen(response.status, was_open=was_open):
                        return
            except HostUnreachable as error:
                self._unreachable(error)
                if self._lost is not None:
                    return
            except LinkError as error:
                log.debug("the standing stream could not be opened: %s", error)
                if isinstance(error, RedirectNotFollowed):
                    return
            except Exception:
                self._standing_ready.set()
                raise
            self._standing_ready.set()
            fruitless = (
                0 if stream.arrived > arrived or loop.time() - started_at > http_stream.MAX_DELAY else fruitless + 1
            )
            await asyncio.sleep(max(stream.delay(max(fruitless - 1, 0)), wait))

    def _should_reopen(self, status: int, *, was_open: bool) -> bool:
        """Returns whether to retry a refused GET. If the stream was open before, 400, 404 and 410 mean a lost session.

        A server without a standing stream refuses the first GET for good.
        """
        if was_open and status in (400, 404, 410) and self._session.id is not None:
            self._pending_loss = SessionLost(
                f"HTTP {status} on the standing stream: the session is gone", status=status
            )
            self._report_loss_when_idle()
            return False
        return was_open or status in (401, 403, 409) or is_transient(status)

    def _unreachable(self, error: HostUnreachable) -> None:
        self._pending_loss = LinkLost(str(error), executed=False, code=error.hub_code)
        self._report_loss_when_idle()

    def _report_loss_when_idle(self) -> None:
        """Reports the loss once no request is in flight: each request has its own stream, which may still work."""
        if self._pending_loss is None or self._lost is not None or self._requests or self._ending is not None:
            return
        self._lost = self._pending_loss
        if self._receiver is not None:
            self._receiver.lost(self._lost)

    def abandon(self, request_id: RequestId) -> None:
        """Closes the stream of one request, which cancels it in the modern era."""
        exchange = self._requests.pop(request_id, None)
        if exchange is not None:
            exchange.cancel()
            asyncio.get_running_loop().call_soon(self._report_loss_when_idle)

    async def end(self) -> None:
        """Closes the session and all connections, in at most 3 s."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CLOSE):
                for request in list(self._requests.values()):
                    request.cancel()
                tasks = list(self._tasks)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await self._end_session()
        with contextlib.suppress(Exception):
            await self._http.close()

    async def _end_session(self) -> None:
        if self._session.id is None or self._pending_loss is not None:
            return
        with contextlib.suppress(LinkError, TimeoutError):
            async with asyncio.timeout(END_SESSION):
                response = await self._http.request("DELETE", self._http.url, self._session.headers())
                await self._http.discard(response)


def _not_resumed(reason: str, status: int) -> LinkError:
    return LinkError(f"the stream of the answer broke off and cannot be resumed ({reason})", status=status)
