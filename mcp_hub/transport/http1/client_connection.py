"""One HTTP connection of the client: sends a request at a time and parses its response."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from mcp_hub.transport.http1.client_response import (
    BrokenOff,
    ConnectionBroke,
    HttpFailure,
    HttpResponse,
    NotHttp,
    Unanswered,
)

MAX_HEAD: Final = 64 * 1024
"""Bytes of a response outside its body: its head, every `1xx` before it, its trailers."""
MAX_FIELDS: Final = 128
"""Headers of one response."""
AT_ONCE: Final = 256 * 1024
"""Bytes that are handed to the asyncio transport in one piece."""
SMALL: Final = 64 * 1024
"""Bytes of a successful JSON response up to which the caller is called only once the whole body is here."""
LINE: Final = 16
"""Bytes counted for a header line beside its name and value."""

_IDLE, _HEAD, _BODY, _ENDED = range(4)
_BODILESS: Final = frozenset({101, 204, 304})


ResponseCallback = Callable[[HttpResponse | HttpFailure], None]
"""Called once, on the event loop, with the response as soon as its head is here (a small one: whole), or a failure."""


class ConnectionOwner(Protocol):
    """The pool that a connection belongs to."""

    def released(self, connection: ClientConnection) -> None:
        """Takes back a connection whose exchange is over and that can carry another."""

    def lost(self, connection: ClientConnection) -> None:
        """Forgets a connection that is closed."""


class ClientConnection(asyncio.Protocol):
    """The asyncio protocol of one connection. Any fault of the server closes the connection, not only the exchange."""

    def __init__(self, keeper: ConnectionOwner) -> None:
        self._keeper = keeper
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: HttpResponseParser | None = None
        self._state = _IDLE
        self._told: ResponseCallback | None = None
        self._news: HttpResponse | None = None
        """The response to report when the parser has consumed the current piece."""
        self._response: HttpResponse | None = None
        self._fields: list[tuple[bytes, bytes]] = []
        self._head = 0
        self._unfinished = 0
        """Bytes received since the parser last reported anything."""
        self._to_the_end = False
        """Whether the body ends only when the connection is closed."""
        self._keep = False
        self._sent = False
        self._surplus = False
        self._paused = False
        self._full: asyncio.Future[None] | None = None
        """Pending while the transport's write buffer is full."""
        self.used = False
        """Whether a response came on it before."""
        self.idle_since = 0.0
        """Event loop time in seconds."""
        self.socket: socket.socket | None = None
        """The socket below the asyncio transport."""

    @property
    def alive(self) -> bool:
        """Whether it can carry a request, as far as the asyncio transport knows."""
        return self._state is _IDLE and self._transport is not None and not self._transport.is_closing()

    @property
    def transport(self) -> asyncio.Transport | None:
        """The asyncio transport; None once the connection is closed."""
        return self._transport

    def begin(self, data: bytes, told: ResponseCallback) -> None:
        """Sends a request of at most AT_ONCE bytes; `told` may be called until `cancel`."""
        assert self._transport is not None
        self._expect(told)
        self._sent = True
        self._transport.write(data)

    def _expect(self, told: ResponseCallback) -> None:
        self._state = _HEAD
        self._head = self._unfinished = 0
        self._keep = self._surplus = False
        self._fields = []
        self._told = told

    async def exchange(self, head: bytes, body: bytes | None) -> HttpResponse:
        """Sends a request and returns the response once its head is here. Cancelling closes the connection.

        Raises HttpFailure.
        """
        transport = self._transport
        assert transport is not None
        waiter: asyncio.Future[HttpResponse | HttpFailure] = self._loop.create_future()

        def told(news: HttpResponse | HttpFailure) -> None:
            if not waiter.done():
                waiter.set_result(news)

        try:
            if body is None or len(body) <= AT_ONCE:
                self.begin(head if body is None else head + body, told)
            else:
                self._expect(told)
                self._sent = False
                transport.write(head)
                await self._send(transport, memoryview(body), waiter)
            given: HttpResponse | HttpFailure = await waiter
        except BaseException:
            if not waiter.done() or waiter.cancelled():
                self.cancel()
            elif isinstance(late := waiter.result(), HttpResponse):
                late.close()  # the connection may carry another exchange by now
            raise
        if isinstance(given, HttpFailure):
            raise given
        return given

    def cancel(self) -> None:
        """Gives up the request under way and closes the connection; the callback is not called any more."""
        self._told = None
        self.abort()

    async def _send(
        self, transport: asyncio.Transport, rest: memoryview, waiter: asyncio.Future[HttpResponse | HttpFailure]
    ) -> None:
        """Sends a large body in pieces as the server reads them; stops when the server has answered."""
        while rest and not waiter.done():
            transport.write(bytes(rest[:AT_ONCE]))
            rest = rest[AT_ONCE:]
            if self._full is not None:
                await asyncio.wait((self._full, waiter), return_when=asyncio.FIRST_COMPLETED)
        self._sent = not rest

    def abort(self) -> None:
        """Closes the connection at once, whatever it is doing."""
        self._state = _ENDED
        self._keep = False
        self._fail(Unanswered() if self._response is None else BrokenOff())
        self._response = self._news = None
        if self._transport is not None:
            self._transport.abort()

    def done(self) -> None:
        """Returns the connection to its pool, if it can be used again; the response was read to its end."""
        if self._state is _ENDED and self._keep and self._transport is not None and not self._transport.is_closing():
            self._state = _IDLE
            self.used = True
            self._keeper.released(self)

    def close(self) -> None:
        """Closes an idle connection, with a TLS shutdown where there is TLS."""
        self._state = _ENDED
        if self._transport is not None:
            self._transport.close()

    def pause(self) -> None:
        """Pauses reading from the socket."""
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Resumes reading from the socket."""
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    # --- callbacks of the event loop -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Prepares the parser (asyncio.Protocol)."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are not subclasses of it
        self._parser = parser = HttpResponseParser(self)
        # Some servers get these wrong, and every client accepts it.
        parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)

    def data_received(self, data: bytes) -> None:
        """Parses what the server sent (asyncio.Protocol)."""
        parser = self._parser
        if parser is None or self._state is _IDLE or self._state is _ENDED:
            self.abort()  # the server sends without a request
            return
        self._unfinished += len(data)
        try:
            parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if self._state is not _ENDED:
                own = error.__context__
                self._break(own if isinstance(own, NotHttp) else NotHttp(str(error)))
                return
            self._surplus = True
        if self._unfinished > MAX_HEAD and self._state is not _ENDED:
            self._break(NotHttp("its head is too large"))
            return
        ended = self._state is _ENDED
        if ended:
            self._keep = keep = self._keep and self._sent and not self._surplus
            self.resume()
        news, self._news = self._news, None
        if news is not None:
            self._tell(news)
        if ended and not keep:
            self.abort()

    def _break(self, failure: HttpFailure) -> None:
        self._fail(failure)
        self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Fails or ends the response that was on its way (asyncio.Protocol)."""
        state, self._state, self._keep = self._state, _ENDED, False
        self._transport = self._parser = None  # the parser refers to this object: without this they would be a cycle
        if state is _HEAD:
            self._fail(Unanswered() if error is None else ConnectionBroke(error))
        elif state is _BODY and self._response is not None:
            if self._to_the_end and error is None:
                self._response.end()
            else:
                self._fail(BrokenOff())
        self.resume_writing()
        self._keeper.lost(self)

    def pause_writing(self) -> None:
        """Makes writers wait, as the send buffer is full (asyncio.Protocol)."""
        self._full = self._loop.create_future()

    def resume_writing(self) -> None:
        """Wakes writers that wait for the send buffer (asyncio.Protocol)."""
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)

    def _fail(self, failure: HttpFailure) -> None:
        if self._response is None:
            self._tell(failure)
            return
        self._response.fail(failure if isinstance(failure, BrokenOff) else BrokenOff(str(failure)))
        self._tell(self._response)

    def _tell(self, news: HttpResponse | HttpFailure) -> None:
        told, self._told = self._told, None
        if told is not None:
            told(news)

    # --- callbacks of the parser ---------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Refuses a second response (callback of the parser)."""
        if self._state is not _HEAD:
            raise NotHttp("it sent more than one response")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header. Raises NotHttp if the head is too large (callback of the parser)."""
        self._head += len(name) + len(value) + LINE
        if self._head > MAX_HEAD:
            raise NotHttp("its head is too large")
        if self._state is _HEAD:
            self._fields.append((name.lower(), value))
            if len(self._fields) > MAX_FIELDS:
                raise NotHttp("it has too many headers")

    def on_headers_complete(self) -> None:
        """Makes the response of a complete head. Raises NotHttp if it is invalid (callback of the parser)."""
        parser = self._parser
        assert parser is not None
        status = parser.get_status_code()
        self._unfinished = 0
        if status < 200 and status != 101:
            self._head += LINE
            if self._head > MAX_HEAD:
                raise NotHttp("it sent too many 1xx responses")
            self._fields = []
            return
        response = HttpResponse(status, self._fields, self)
        coding = response.first.get(b"transfer-encoding")
        if coding is not None and (coding.strip().lower() != b"chunked" or len(response.all("transfer-encoding")) > 1):
            raise NotHttp("its transfer encoding is not just chunked")
        length = response.first.get(b"content-length")
        self._to_the_end = coding is None and length is None and status not in _BODILESS
        self._keep = status != 101 and parser.should_keep_alive()
        self._response = response
        self._state = _BODY
        small = length is not None and len(length) < 10 and int(length) <= SMALL
        if not small or not 200 <= status < 300 or b"json" not in response.first.get(b"content-type", b""):
            self._news = response

    def on_body(self, piece: bytes) -> None:
        """Passes a piece of the body to the response (callback of the parser)."""
        self._unfinished = 0
        if self._response is not None:
            self._response.feed(piece)

    def on_message_complete(self) -> None:
        """Ends the response (callback of the parser)."""
        response = self._response
        if response is None:  # the end of a 1xx response
            return
        self._response = None
        self._state = _ENDED
        response.end()
        self._news = response
