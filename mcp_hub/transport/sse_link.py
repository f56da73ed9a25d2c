"""The link to an upstream over HTTP with server-sent events, the older transport of MCP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mcp_hub import codes
from mcp_hub.config.models import Server
from mcp_hub.protocol.frames import FrameError, Message, decode, encode, has_method, is_noise, number_of, salvage_id
from mcp_hub.transport import (
    Authorization,
    Link,
    LinkError,
    LinkLost,
    LinkParts,
    Receiver,
    RequestId,
    Unwritable,
    messages_of_batch,
)
from mcp_hub.transport.background import TaskSet
from mcp_hub.transport.egress import Egress
from mcp_hub.transport.http1.client_response import HttpResponse
from mcp_hub.transport.http_client import EVENTS, JSON, HttpClient, content_type, is_json
from mcp_hub.transport.http_failures import link_failure, where
from mcp_hub.transport.http_stream import error_about
from mcp_hub.transport.lines import pieces
from mcp_hub.transport.sse_codec import OversizedEvent, SseEvent, SseParser

if TYPE_CHECKING:
    from yarl import URL

log = logging.getLogger("mcp_hub.transport")

MAX_URL: Final = 8192
"""Bytes of the URL that an upstream may announce."""
CLOSE: Final = 2.5
"""Seconds for the stream and the POSTs to end before the connections are closed."""


class SseLink(Link):
    """A Link with one event stream for what the upstream sends, and a POST for each message to it.

    The first event of the stream names the URL for the POSTs. The link is lost when the stream ends.
    """

    sole_era = "handshake"

    def __init__(
        self, server: Server, authorization: Authorization | None = None, egress: Egress | None = None
    ) -> None:
        self._http = HttpClient(server, authorization, egress)
        self._max_frame = server.max_frame
        self._write_deadline = server.deadlines.write
        self._receiver: Receiver | None = None
        self._endpoint: asyncio.Future[URL] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._requests: dict[RequestId, asyncio.Task[None]] = {}
        """The POSTs of the requests that have no answer yet."""
        self._posts = TaskSet()
        """The POSTs of requests that have not ended, answered or not."""
        self._taken = False
        """Whether a POST was accepted, so that the endpoint is right and a 404 means that the session is gone."""
        self._lost: LinkLost | None = None

    @classmethod
    def of(cls, server: Server, parts: LinkParts, clean: Callable[[str], str]) -> SseLink:
        """Makes the link to a server."""
        return cls(server, parts.authorization(server), parts.egress(server))

    async def open(self, receiver: Receiver) -> None:
        """Opens the stream and waits for its `endpoint`. Bounded in time only while connecting. Raises LinkError."""
        await self._http.open()
        response = await self._http.request("GET", self._http.url, {"Accept": EVENTS})
        try:
            if response.status != 200:
                raise (await self._http.refused(response, None))[0]
            kind = content_type(response)
            if kind != EVENTS:
                text = f"HTTP 200 with the content type {kind!r} instead of an event stream"
                raise LinkError(text, executed=False, status=200, code=codes.NO_MCP_HERE)
        except BaseException:
            response.close()
            raise
        self._receiver = receiver
        loop = asyncio.get_running_loop()
        self._endpoint = loop.create_future()
        self._reader = loop.create_task(self._read(response, self._endpoint))
        await self._endpoint

    async def _read(self, response: HttpResponse, endpoint: asyncio.Future[URL]) -> None:
        reason, code = f"the event stream of {where(self._http.url)} ended", None
        parser = SseParser(self._max_frame)
        is_id_pending = False
        try:
            while chunk := await self._http.chunk(response):
                for piece in pieces(chunk):
                    for event in parser.feed(piece):
                        if isinstance(event, SseEvent):
                            self._handle_event(event, endpoint)
                        else:
                            is_id_pending = self._too_large(event, is_id_pending=is_id_pending)
                    if piece is not chunk:
                        await asyncio.sleep(0)
        except Exception as error:
            failure = link_failure(error)
            reason, code = str(failure), failure.hub_code
        finally:
            response.close()
        self._lose(LinkLost(reason, code=code), endpoint)

    def _lose(self, error: LinkLost, endpoint: asyncio.Future[URL]) -> None:
        if self._lost is not None or self._ending is not None:
            return
        self._lost = error
        if not endpoint.done():
            endpoint.set_exception(
                LinkLost(f"{error} before it named its endpoint", executed=False, code=codes.NO_MCP_HERE)
            )
        elif self._receiver is not None and not endpoint.cancelled() and endpoint.exception() is None:
            self._receiver.lost(error)

    def _too_large(self, event: OversizedEvent, *, is_id_pending: bool) -> bool:
        """Fails the request that an oversized event answers; returns True if its id may be found at the event's end."""
        assert self._receiver is not None
        if has_method(event.head, event.tail or b""):
            log.warning("a message that is larger than max_frame and no answer was dropped")
            return False
        request_id = salvage_id(event.head, event.tail or b"")
        if event.tail is None and request_id is None:
            return True
        if event.tail is None or is_id_pending:
            self._answered(request_id)
            self._receiver.failed(request_id, self._http.too_large())
        return False

    def _handle_event(self, event: SseEvent, endpoint: asyncio.Future[URL]) -> None:
        if event.event == "endpoint":
            if not endpoint.done():
                self._set_endpoint(event.data, endpoint)
        elif event.event == "message" and is_json(event.data):
            self._take(event.data)

    def _set_endpoint(self, data: bytes | memoryview, endpoint: asyncio.Future[URL]) -> None:
        from yarl import URL

        base = self._http.url
        try:
            if len(data) > MAX_URL:
                raise ValueError
            url = base.join(URL(bytes(data).decode().strip())).with_user(None).with_fragment(None)
            is_same_origin = url.origin() == base.origin()
        except ValueError:
            endpoint.set_exception(_endpoint_error("the server announced an invalid endpoint URL"))
            return
        if is_same_origin:
            endpoint.set_result(url)
        else:
            text = f"the server announced the endpoint {where(url)}, which is not of the same origin as {where(base)}"
            endpoint.set_exception(_endpoint_error(text))

    def _take(self, data: bytes | memoryview) -> None:
        assert self._receiver is not None
        try:
            value = decode(data)
        except FrameError as error:
            head, tail = bytes(data[:4096]), bytes(data[-4096:])
            if has_method(head, tail) or is_noise(head, tail):
                log.warning("a message that is not valid JSON and no answer was dropped")
                return
            request_id = salvage_id(head, tail)
            self._answered(request_id)
            failure = LinkError(f"the answer is not valid JSON: {error}", code=codes.NO_MCP_HERE)
            failure.answered = True
            self._receiver.failed(request_id, failure)
            return
        for message in (value,) if isinstance(value, dict) else messages_of_batch(value):
            if isinstance(message, dict):
                self._receive(message)

    def _receive(self, message: Message) -> None:
        if "method" not in message:
            self._answered(message.get("id"))
        if self._lost is None and self._receiver is not None:
            self._receiver.received(message)

    def _answered(self, request_id: Any) -> None:
        """Gives the POST of a request the write deadline to end, as its answer has come on the stream."""
        request_id = number_of(request_id)
        post = self._requests.pop(request_id, None) if isinstance(request_id, int | str) else None
        if post is not None:
            self._taken = True
            timer = asyncio.get_running_loop().call_later(self._write_deadline, post.cancel)
            post.add_done_callback(lambda _: timer.cancel())

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Starts the POST of a request, or completes that of a notification or response. Raises LinkError.

        The write deadline does not hold for a request, as some servers end its POST only when its work is done.
        """
        if self._lost is not None:
            raise LinkLost(str(self._lost), executed=False, code=self._lost.hub_code)
        if self._ending is not None or self._endpoint is None:
            raise LinkLost("the connection is closed", executed=False)
        try:
            body = encode(message)
        except FrameError as error:
            raise Unwritable(error) from None
        url = self._endpoint.result()
        post_headers = {**(headers or {}), "Content-Type": JSON}
        if "method" in message and "id" in message:
            request_id = message["id"]
            self._requests[request_id] = self._posts.start(self._request(request_id, url, body, post_headers))
            return
        try:
            await self._post(url, body, post_headers, self._write_deadline)
        except TimeoutError:
            raise LinkError(f"it did not take the message within {self._write_deadline:g} s") from None

    async def _request(self, request_id: RequestId, url: URL, body: bytes, headers: Mapping[str, str]) -> None:
        """POSTs a request. A POST that fails fails its request, unless the answer has come on the stream before."""
        try:
            await self._post(url, body, headers, asked=request_id)
        except Exception as error:
            failure = link_failure(error)
            if request_id in self._requests and self._lost is None and self._receiver is not None:
                del self._requests[request_id]
                self._receiver.failed(request_id, failure)

    async def _post(
        self,
        url: URL,
        body: bytes,
        headers: Mapping[str, str],
        within: float | None = None,
        asked: RequestId | None = None,
    ) -> None:
        """POSTs a message; `asked` is the id of a request. Raises LinkError."""
        response = await self._http.request("POST", url, headers, body, within)
        self._taken = self._taken or 200 <= response.status < 300
        try:
            if 200 <= response.status < 300 and asked is None:
                await self._http.discard(response)
                return
            if 200 <= response.status < 300:
                with contextlib.suppress(LinkError):  # only what comes on the stream counts
                    while await self._http.chunk(response):
                        pass  # the body may end with the work, which the end of its connection would break off
                return
            # The session's id is in the endpoint's URL.
            session = max(url.query.values(), key=len, default=url.path)
            error, text = await self._http.refused(response, session if self._taken else None)
            if not self._taken and response.status in (404, 405):
                address = f"the server announced {where(url)} for messages, which answers HTTP {response.status}"
                text_of_error = f"{address}: a proxy in front of it may take off the beginning of the path"
                error = LinkError(text_of_error, executed=False, status=response.status, code=codes.NO_MCP_HERE)
            answer = None if asked is None else error_about(error, text, asked)
            if answer is None:
                raise error
            self._receive({**answer, "id": asked})
        finally:
            response.close()

    def abandon(self, request_id: RequestId) -> None:
        """Ends the POST of a request if it has not ended; a late response matches no request and is dropped."""
        post = self._requests.pop(request_id, None)
        if post is not None:
            post.cancel()

    async def end(self) -> None:
        """Closes the stream and all connections, in at most 3 s."""
        tasks = [*self._posts, *([self._reader] if self._reader is not None else [])]
        for task in tasks:
            task.cancel()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CLOSE):
                await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(Exception):
            await self._http.close()


def _endpoint_error(text: str) -> LinkError:
    return LinkError(text, executed=False, code=codes.NO_MCP_HERE)
