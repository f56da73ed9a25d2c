"""An upstream over streamable HTTP: one POST a message, answers as JSON or as a stream, one standing GET stream."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from mcp_hub.config.models import Server
from mcp_hub.protocol.frames import FrameError, Message, encode
from mcp_hub.transport import http_stream
from mcp_hub.transport.authorization import Authorization
from mcp_hub.transport.http import EVENTS, JSON, HttpClient, Unreachable, content_type, is_json
from mcp_hub.transport.http1.connection import HttpConnection
from mcp_hub.transport.http1.failures import HttpFailure
from mcp_hub.transport.http1.response import HttpResponse
from mcp_hub.transport.http_session import SESSION, HttpSession
from mcp_hub.transport.http_stream import Stream, Unreadable, error_about, messages_of
from mcp_hub.transport.lines import pieces
from mcp_hub.transport.link import FrameTooLarge, LinkError, LinkLost, Receiver, RequestId
from mcp_hub.transport.sse import EventTooLarge, SseEvent, SseParser

log = logging.getLogger("mcp_hub.transport")

RESUMES: Final = 5
"""Attempts in a row to resume a broken answer that bring no event."""
LINGER: Final = 1.0
"""Seconds a stream has to end by itself behind its answer, so that its connection can be used again."""
END_SESSION: Final = 2.0
CLOSE: Final = 2.5
"""Seconds for the DELETE, and for everything `close` does before the connections are cut."""


class HttpLink:
    """A Link for streamable HTTP. Requests run side by side; each fails by itself.

    The link is lost when the host takes no connection any more (or the session is gone) and nothing is in flight.
    """

    def __init__(self, server: Server, authorization: Authorization | None = None) -> None:
        self._http = HttpClient(server, authorization)
        self._max_frame = server.max_frame
        self._write_deadline = server.deadlines.write
        self._receiver: Receiver | None = None
        self._session = HttpSession()
        self._requests: dict[RequestId, asyncio.Task[None] | HttpConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._standing: asyncio.Task[None] | None = None
        self._gone: LinkLost | None = None
        self._lost: LinkLost | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def last_words(self) -> tuple[str, ...]:
        """Empty: there is no process."""
        return ()

    @property
    def signing_in(self) -> bool:
        """Whether a request waits for a token, and not for the upstream."""
        return self._http.signing_in

    async def open(self, receiver: Receiver) -> None:
        """Make the connection pool. Raises LinkError for a URL or header that cannot be used; nothing is sent yet."""
        await self._http.open()
        self._receiver = receiver

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Start a request's POST, or see a notification or response through. Raises LinkError."""
        if self._closing is not None or self._receiver is None:
            raise LinkLost("the connection is closed", executed=False)
        if self._lost is not None:
            raise LinkLost(str(self._lost), executed=False)
        try:
            body = encode(message)
        except FrameError as error:
            raise LinkError(f"the message cannot be written as JSON: {error}", executed=False) from None
        begins = message.get("method") == "initialize"
        if begins:
            self._session.forget()
        said = {**self._session.headers(headers), "Accept": f"{JSON}, {EVENTS}", "Content-Type": JSON}
        if "method" not in message or "id" not in message:
            await self._deliver(body, said)
            return
        request_id = message["id"]
        if not begins and self._begun(request_id, body, said):
            return
        self._requests[request_id] = self._start(self._request(Stream(request_id), body, said, begins=begins))

    def _begun(self, request_id: RequestId, body: bytes, said: dict[str, str]) -> bool:
        """Send a request on a connection that is kept, if there is one; a task is made for all but a small answer."""
        stream = Stream(request_id)

        def told(news: HttpResponse | HttpFailure) -> None:
            if isinstance(news, HttpFailure):
                self._requests[request_id] = self._start(self._request(stream, body, said, news))
            elif not self._at_once(news, stream):
                self._requests[request_id] = task = self._start(self._request(stream, body, said, news))
                task.add_done_callback(lambda _: news.close())  # cancelled before it began, it has not

        carrier = self._http.begin(said, body, told)
        if carrier is None:
            return False
        self._requests[request_id] = carrier
        return True

    def _at_once(self, response: HttpResponse, stream: Stream) -> bool:
        """Take in an answer that is good, JSON, and here."""
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
                    raise (await self._http.refusal(response, headers.get(SESSION)))[0]
                await self._http.discard(response)
            finally:
                response.close()
        except TimeoutError:
            raise LinkError(f"it did not take the message within {self._write_deadline:g} s") from None
        except Unreachable as error:
            self._unreachable(error)
            raise

    async def _request(
        self,
        stream: Stream,
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
                response = await self._http.answered(headers, body, news)
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

    def _unexpected(self, stream: Stream, error: Exception) -> None:
        log.error("a request over HTTP failed with an unexpected %s", type(error).__name__)
        self._fail(stream, LinkError(f"unexpected {type(error).__name__}"))

    def _fail(self, stream: Stream, error: LinkError) -> None:
        if isinstance(error, Unreachable) and self._gone is None:
            self._gone = LinkLost(str(error), executed=False)
        if not stream.answered and self._lost is None and self._receiver is not None:
            stream.answered = True
            self._receiver.failed(stream.request, error)

    async def _answer(self, response: HttpResponse, stream: Stream, headers: dict[str, str], begins: bool) -> None:
        if not 200 <= response.status < 300:
            error, body = await self._http.refusal(response, headers.get(SESSION))
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
            said = f"the content type {kind[:60]!r}" if kind else "no content type"
            raise LinkError(f"HTTP {response.status} with {said} where JSON or events belong", status=response.status)
        self._take(await self._http.read(response), stream)
        if not stream.answered:
            raise LinkError("its answer does not belong to the request", status=response.status)

    async def _events_of(self, response: HttpResponse, stream: Stream, headers: dict[str, str]) -> None:
        fruitless = 0
        while True:
            arrived = stream.arrived
            broken = await self._follow(response, stream)
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
                except Unreachable:
                    fruitless += 1  # a restart, perhaps
                    if fruitless >= RESUMES:
                        raise ended from None

    async def _resume(self, stream: Stream, headers: dict[str, str]) -> HttpResponse:
        said = {**headers, "Accept": EVENTS, "Last-Event-ID": stream.last_event_id or ""}
        del said["Content-Type"]
        response = await self._http.request("GET", self._http.url, said)
        if response.status == 200 and content_type(response) == EVENTS:
            return response
        response.close()
        text = f"the stream of the answer broke off and cannot be resumed (HTTP {response.status})"
        raise LinkError(text, status=response.status)

    async def _follow(self, response: HttpResponse, stream: Stream) -> LinkError | None:
        """Take in events until the stream ends (None), breaks (why), or has answered its request.

        Raises FrameTooLarge and Unreadable, on a request's own stream.
        """
        parser = SseParser(self._max_frame)
        parser.last_event_id = stream.last_event_id
        try:
            while chunk := await self._http.chunk(response):
                await self._feed(parser, chunk, stream)
                if stream.answered:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LINGER):
                            while chunk := await self._http.chunk(response):
                                await self._feed(parser, chunk, stream)
                    break
        except (FrameTooLarge, Unreadable):
            raise  # would come again
        except LinkError as error:
            return error
        finally:
            response.close()
        return None

    async def _feed(self, parser: SseParser, chunk: bytes, stream: Stream) -> None:
        for piece in pieces(chunk):
            self._piece(parser, piece, stream)
            if piece is not chunk:
                await asyncio.sleep(0)

    def _piece(self, parser: SseParser, piece: bytes, stream: Stream) -> None:
        while True:
            try:
                events = parser.feed(piece)
                too_large = False
            except EventTooLarge as error:
                events, too_large = error.events, True
            for event in events:
                self._event(event, stream)
            stream.last_event_id = parser.last_event_id
            stream.retry = parser.retry if parser.retry is not None else stream.retry
            if not too_large:
                return
            if stream.request is not None:
                raise self._http.too_large()
            log.warning("a message on the standing stream is larger than max_frame and was left out")
            piece = b""

    def _event(self, event: SseEvent, stream: Stream) -> None:
        stream.arrived += 1
        if event.event == "message" and is_json(event.data):
            self._take(event.data, stream)

    def _take(self, data: bytes, stream: Stream) -> None:
        """Take in one JSON text. Raises LinkError when it cannot be read and may be the answer."""
        for message in messages_of(data, stream):
            self._receive(message, stream)

    def _receive(self, message: Message, stream: Stream) -> None:
        if stream.request is not None and "method" not in message:
            given = message.get("id")
            if given is None and message.get("error") is not None:
                message["id"] = given = stream.request  # on this stream it can be about nothing else
            if given == stream.request and type(given) is type(stream.request):
                if stream.answered:
                    return
                stream.answered = True
                self._requests.pop(stream.request, None)
        if self._lost is None and self._receiver is not None:
            self._receiver.received(message, stream.request)

    def open_standing_stream(self, headers: Mapping[str, str] | None = None) -> None:
        """Keep a GET stream open for what the upstream says unasked; again after a new handshake."""
        if self._closing is not None or self._lost is not None:
            return
        if self._standing is not None:
            self._standing.cancel()
        self._standing = self._start(self._stand(self._session.headers(headers)))

    async def _stand(self, headers: dict[str, str]) -> None:
        stream = Stream(None)
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
                if response.status == 200 and content_type(response) == EVENTS:
                    opened = True
                    await self._follow(response, stream)
                else:
                    response.close()
                    if not self._stands_after(response.status, opened=opened):
                        return
            except Unreachable as error:
                self._unreachable(error)
                if self._lost is not None:
                    return
            except LinkError as error:
                log.debug("the standing stream could not be opened: %s", error)
                if error.status is not None:
                    return  # it redirects elsewhere
            fruitless = 0 if stream.arrived > arrived or loop.time() - began > http_stream.MAX_DELAY else fruitless + 1
            await asyncio.sleep(stream.delay(max(fruitless - 1, 0)))

    def _stands_after(self, status: int, *, opened: bool) -> bool:
        """Whether to try again after a refused GET. What was open before and is unknown now: the session is gone."""
        if opened and status in (400, 404) and self._session.id is not None:
            self._gone = LinkLost(f"HTTP {status} on the standing stream: the session is gone", status=status)
            self._tell_if_lost()
            return False
        return status >= 500 or status in (408, 425, 429)

    def _unreachable(self, error: Unreachable) -> None:
        self._gone = LinkLost(str(error), executed=False)
        self._tell_if_lost()

    def _tell_if_lost(self) -> None:
        """Requests in flight have streams of their own and may live on: the loss is told behind the last of them."""
        if self._gone is None or self._lost is not None or self._requests or self._closing is not None:
            return
        self._lost = self._gone
        if self._receiver is not None:
            self._receiver.lost(self._lost)

    def abandon(self, request_id: RequestId) -> None:
        """Close the stream of one request, which is how the modern era says that it is cancelled."""
        carrier = self._requests.pop(request_id, None)
        if carrier is not None:
            carrier.cancel()
            asyncio.get_running_loop().call_soon(self._tell_if_lost)

    async def close(self) -> None:
        """End the session and all connections, in at most 3 s. Idempotent; never raises."""
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
