"""The link to an upstream over streamable HTTP: a POST for each message, and a standing stream."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from mcp_hub.config.models import Server
from mcp_hub.protocol.frames import FrameError, Message, encode
from mcp_hub.transport import (
    Authorization,
    Link,
    LinkError,
    LinkLost,
    LinkParts,
    Receiver,
    RequestId,
    Unwritable,
    http_stream,
)
from mcp_hub.transport.egress import Egress
from mcp_hub.transport.http1.client_connection import ClientConnection
from mcp_hub.transport.http1.client_response import HttpFailure, HttpResponse
from mcp_hub.transport.http_client import EVENTS, JSON, HttpClient, content_type
from mcp_hub.transport.http_failures import HostUnreachable, wrong_type_text
from mcp_hub.transport.http_stream import EventReader, EventStream, error_about, messages_of
from mcp_hub.transport.session_headers import SESSION, SessionHeaders

log = logging.getLogger("mcp_hub.transport")

RESUMES: Final = 5
"""Attempts in a row to resume a broken response stream after which it fails, if none of them brings an event."""
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
        self._tasks: set[asyncio.Task[None]] = set()
        self._standing: asyncio.Task[None] | None = None
        self._stands = asyncio.Event()
        """Set when the standing stream is open, or could not be opened."""
        self._gone: LinkLost | None = None
        self._lost: LinkLost | None = None
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, server: Server, parts: LinkParts, clean: Callable[[str], str]) -> HttpLink:
        """Makes the link to a server."""
        return cls(server, parts.authorization(server), parts.egress(server))

    @property
    def last_words(self) -> tuple[str, ...]:
        """Empty: there is no process."""
        return ()

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
        if self._closing is not None or self._receiver is None:
            raise LinkLost("the connection is closed", executed=False)
        if self._lost is not None:
            raise LinkLost(str(self._lost), executed=False, code=self._lost.hub_code)
        try:
            body = encode(message)
        except FrameError as error:
            raise Unwritable(error) from None
        begins = message.get("method") == "initialize"
        if begins:
            self._session.forget()
            self._http.forget_cookies()
        said = {**self._session.headers(headers), "Accept": f"{JSON}, {EVENTS}", "Content-Type": JSON}
        if "method" not in message or "id" not in message:
            await self._deliver(body, said)
            return
        request_id = message["id"]
        if not begins and self._begun(request_id, body, said):
            return
        self._requests[request_id] = self._start(self._request(EventStream(request_id), body, said, begins=begins))

    def _begun(self, request_id: RequestId, body: bytes, said: dict[str, str]) -> bool:
        """Sends a request on an idle connection; returns False if there is none.

        A small JSON response is handled without a task.
        """
        stream = EventStream(request_id)

        def told(news: HttpResponse | HttpFailure) -> None:
            if isinstance(news, HttpFailure):
                self._requests[request_id] = self._start(self._request(stream, body, said, news))
            elif not self._at_once(news, stream):
                self._requests[request_id] = task = self._start(self._request(stream, body, said, news))
                task.add_done_callback(lambda _: news.close())  # a task cancelled before it begins does not close it

        carrier = self._http.begin(said, body, told)
        if carrier is None:
            return False
        self._requests[request_id] = carrier
        return True

    def _at_once(self, response: HttpResponse, stream: EventStream) -> bool:
        """Handles a successful JSON response that has arrived completely; returns False for any other response."""
        good = 200 <= response.status < 300 and content_type(response) == JSON
        body = self._http.whole(response) if good else None
        if body is None:
            return False
        self._gone = None
        try:
            self._take(body, stream)
            if not stream.answered:
                raise LinkError("its answer does not belong to the request", status=response.status)
        except LinkError as error:
            self._fail(stream, error)
        except Exception as error:
            self._unexpected(stream, error)
        finally:
            if stream.request is not None:
                self._requests.pop(stream.request, None)
            self._tell_if_lost()
        return True

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _deliver(self, body: bytes, headers: dict[str, str]) -> None:
        try:
            response = await self._http.request("POST", self._http.url, headers, body, self._write_deadline)
            self._gone = None
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
        news: HttpResponse | HttpFailure | None = None,
        *,
        begins: bool = False,
    ) -> None:
        request_id = stream.request
        assert request_id is not None
        try:
            if news is None:
                response = await self._http.request("POST", self._http.url, headers, body)
            else:
                response = await self._http.finish(headers, body, news)
            self._gone = None
            try:
                await self._answer(response, stream, headers, begins)
            finally:
                response.close()
        except LinkError as error:
            self._fail(stream, error)
        except Exception as error:
            self._unexpected(stream, error)
        finally:
            if request_id in self._requests and self._requests[request_id] is asyncio.current_task():
                del self._requests[request_id]
            self._tell_if_lost()

    def _unexpected(self, stream: EventStream, error: Exception) -> None:
        log.error("a request over HTTP failed with an unexpected %s", type(error).__name__)
        self._fail(stream, LinkError(f"unexpected {type(error).__name__}"))

    def _fail(self, stream: EventStream, error: LinkError) -> None:
        if isinstance(error, HostUnreachable) and self._gone is None:
            self._gone = LinkLost(str(error), executed=False, code=error.hub_code)
        if not stream.answered and self._lost is None and self._receiver is not None:
            stream.answered = True
            self._receiver.failed(stream.request, error)

    async def _answer(self, response: HttpResponse, stream: EventStream, headers: dict[str, str], begins: bool) -> None:
        if not 200 <= response.status < 300:
            error, body = await self._http.refused(response, headers.get(SESSION))
            answer = error_about(body, stream) if type(error) is LinkError and error.retry_after is None else None
            if answer is None:
                raise error
            self._receive(answer, stream)
            return
        if begins:
            self._session.begin(response)
        kind = content_type(response)
        if kind == EVENTS:
            await self._events_of(response, stream, headers)
            return
        if kind != JSON:
            raise LinkError(wrong_type_text(response.status, kind), status=response.status)
        self._take(await self._http.read(response), stream)
        if not stream.answered:
            raise LinkError("its answer does not belong to the request", status=response.status)

    async def _events_of(self, response: HttpResponse, stream: EventStream, headers: dict[str, str]) -> None:
        fruitless = 0
        while True:
            arrived = stream.arrived
            broken = await self._events.follow(response, stream)
            if stream.answered:
                return
            ended = broken or LinkError("the stream of the answer ended without it")
            fruitless = 0 if stream.arrived > arrived else fruitless + 1
            if stream.last_event_id is None or fruitless >= RESUMES:
                raise ended
            while True:
                await asyncio.sleep(stream.delay(fruitless))
                try:
                    response = await self._resume(stream, headers)
                    break
                except HostUnreachable:
                    fruitless += 1  # the server may be restarting
                    if fruitless >= RESUMES:
                        raise ended from None

    async def _resume(self, stream: EventStream, headers: dict[str, str]) -> HttpResponse:
        said = {**headers, "Accept": EVENTS, "Last-Event-ID": stream.last_event_id or ""}
        del said["Content-Type"]
        response = await self._http.request("GET", self._http.url, said)
        if response.status == 200 and content_type(response) == EVENTS:
            return response
        response.close()
        text = f"the stream of the answer broke off and cannot be resumed (HTTP {response.status})"
        raise LinkError(text, status=response.status)

    def _take(self, data: bytes | memoryview, stream: EventStream) -> None:
        """Handles one JSON text. Raises LinkError if it is invalid and may be the response to the stream's request."""
        for message in messages_of(data, stream):
            self._receive(message, stream)

    def _receive(self, message: Message, stream: EventStream) -> None:
        if stream.request is not None and "method" not in message:
            given = message.get("id")
            if given is None and message.get("error") is not None:
                message["id"] = given = stream.request  # an error on this stream can only be about its request
            if given == stream.request and type(given) is type(stream.request):
                if stream.answered:
                    return
                stream.answered = True
                self._requests.pop(stream.request, None)
        if self._lost is None and self._receiver is not None:
            self._receiver.received(message, stream.request)

    def open_standing_stream(self, headers: Mapping[str, str] | None = None) -> None:
        """Keeps a GET stream open for unsolicited messages. Call it again after a new handshake."""
        if self._closing is not None or self._lost is not None:
            return
        if self._standing is not None:
            self._standing.cancel()
        self._stands.clear()
        self._standing = self._start(self._stand(self._session.headers(headers)))
        self._standing.add_done_callback(lambda _: self._stands.set())

    async def standing_stream(self) -> None:
        """Waits until the standing stream is open, or could not be opened. Not bounded in time."""
        await self._stands.wait()

    async def _stand(self, headers: dict[str, str]) -> None:
        stream = EventStream(None)
        opened, fruitless = False, 0
        loop = asyncio.get_running_loop()
        headers["Accept"] = EVENTS
        while True:
            began, arrived = loop.time(), stream.arrived
            try:
                if stream.last_event_id is not None:
                    headers["Last-Event-ID"] = stream.last_event_id
                response = await self._http.request("GET", self._http.url, headers)
                self._gone = None
                self._stands.set()
                if response.status == 200 and content_type(response) == EVENTS:
                    opened = True
                    await self._events.follow(response, stream)
                else:
                    response.close()
                    if not self._stands_after(response.status, opened=opened):
                        return
            except HostUnreachable as error:
                self._unreachable(error)
                if self._lost is not None:
                    return
            except LinkError as error:
                log.debug("the standing stream could not be opened: %s", error)
                if error.status is not None:
                    return  # it redirects to another origin
            self._stands.set()
            fruitless = 0 if stream.arrived > arrived or loop.time() - began > http_stream.MAX_DELAY else fruitless + 1
            await asyncio.sleep(stream.delay(max(fruitless - 1, 0)))

    def _stands_after(self, status: int, *, opened: bool) -> bool:
        """Returns whether to retry a refused GET. If the stream was open before, 400 and 404 mean a lost session."""
        if opened and status in (400, 404) and self._session.id is not None:
            self._gone = LinkLost(f"HTTP {status} on the standing stream: the session is gone", status=status)
            self._tell_if_lost()
            return False
        return status >= 500 or status in (408, 425, 429)

    def _unreachable(self, error: HostUnreachable) -> None:
        self._gone = LinkLost(str(error), executed=False, code=error.hub_code)
        self._tell_if_lost()

    def _tell_if_lost(self) -> None:
        """Reports the loss once no request is in flight: each request has its own stream, which may still work."""
        if self._gone is None or self._lost is not None or self._requests or self._closing is not None:
            return
        self._lost = self._gone
        if self._receiver is not None:
            self._receiver.lost(self._lost)

    def abandon(self, request_id: RequestId) -> None:
        """Closes the stream of one request, which cancels it in the modern era."""
        carrier = self._requests.pop(request_id, None)
        if carrier is not None:
            carrier.cancel()
            asyncio.get_running_loop().call_soon(self._tell_if_lost)

    async def close(self) -> None:
        """Closes the session and all connections, in at most 3 s. Idempotent; never raises."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._end())
        await asyncio.shield(self._closing)

    async def _end(self) -> None:
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
        if self._session.id is None or self._gone is not None:
            return
        with contextlib.suppress(LinkError, TimeoutError):
            async with asyncio.timeout(END_SESSION):
                response = await self._http.request("DELETE", self._http.url, self._session.headers())
                await self._http.discard(response)
