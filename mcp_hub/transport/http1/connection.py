"""One connection: a request at a time, and its answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from mcp_hub.transport.http1.failures import BrokenOff, ConnectionBroke, HttpFailure, NotHttp, Unanswered
from mcp_hub.transport.http1.response import HttpResponse

MAX_HEAD: Final = 64 * 1024
"""Bytes of an answer that are not its body: its head, every `1xx` before it, its trailers."""
MAX_FIELDS: Final = 128
"""Headers of an answer."""
AT_ONCE: Final = 256 * 1024
"""Bytes that are handed to the transport in one piece."""
SMALL: Final = 64 * 1024
"""Bytes of a good answer in JSON that nobody is woken for before all are here."""
LINE: Final = 16
"""Bytes counted for a line beside its names and values."""

_IDLE, _HEAD, _BODY, _ENDED = range(4)
_BODILESS: Final = frozenset({101, 204, 304})


Told = Callable[[HttpResponse | HttpFailure], None]
"""What is called once, on the loop, with the answer from its head on (a small one is whole), or why there is none."""


class Keeper(Protocol):
    """Who has the connections."""

    def released(self, connection: HttpConnection) -> None:
        """An exchange is over, and another may follow it."""

    def lost(self, connection: HttpConnection) -> None:
        """The connection is gone."""


class HttpConnection(asyncio.Protocol):
    """Made by its loop for a `keeper`. Whatever is not in order is the end of the connection, not only of an answer."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: HttpResponseParser | None = None
        self._state = _IDLE
        self._told: Told | None = None
        self._news: HttpResponse | None = None
        """Told when the parser is done with a piece."""
        self._response: HttpResponse | None = None
        self._fields: list[tuple[bytes, bytes]] = []
        self._head = 0
        self._unfinished = 0
        """Bytes that came since there was anything to hand on."""
        self._to_the_end = False
        """Whether only the connection's end is the body's."""
        self._keep = False
        self._sent = False
        self._surplus = False
        self._paused = False
        self._full: asyncio.Future[None] | None = None
        """The transport takes no more for now."""
        self.used = False
        """Whether an answer came on it before."""
        self.idle_since = 0.0
        """In the loop's time."""
        self.socket: socket.socket | None = None
        """That below its transport, to look at."""

    @property
    def alive(self) -> bool:
        """Whether it can take a request, as far as its transport knows."""
        return self._state is _IDLE and self._transport is not None and not self._transport.is_closing()

    @property
    def transport(self) -> asyncio.Transport | None:
        """None when it is gone."""
        return self._transport

    def begin(self, data: bytes, told: Told) -> None:
        """Send a request that is small; `told` may be called until `cancel`."""
        assert self._transport is not None
        self._expect(told)
        self._sent = True
        self._transport.write(data)

    def _expect(self, told: Told) -> None:
        self._state = _HEAD
        self._head = self._unfinished = 0
        self._keep = self._surplus = False
        self._fields = []
        self._told = told

    async def exchange(self, head: bytes, body: bytes | None) -> HttpResponse:
        """Send a request; the answer, from its head on. Raises HttpFailure; cancelled, it closes the connection."""
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
                late.close()  # the connection may be somebody else's by now
            raise
        if isinstance(given, HttpFailure):
            raise given
        return given

    def cancel(self) -> None:
        """Tell nothing of the request under way, which is the end of the connection."""
        self._told = None
        self.abort()

    async def _send(
        self, transport: asyncio.Transport, rest: memoryview, waiter: asyncio.Future[HttpResponse | HttpFailure]
    ) -> None:
        """In pieces, as the other end takes them; no more of them once it has answered."""
        while rest and not waiter.done():
            transport.write(bytes(rest[:AT_ONCE]))
            rest = rest[AT_ONCE:]
            if self._full is not None:
                await asyncio.wait((self._full, waiter), return_when=asyncio.FIRST_COMPLETED)
        self._sent = not rest

    def abort(self) -> None:
        """Close it at once, whatever it is doing."""
        self._state = _ENDED
        self._keep = False
        self._fail(Unanswered() if self._response is None else BrokenOff())
        self._response = self._news = None
        if self._transport is not None:
            self._transport.abort()

    def done(self) -> None:
        """The answer was read to its end: another may follow, if both sides are ready for it."""
        if self._state is _ENDED and self._keep and self._transport is not None and not self._transport.is_closing():
            self._state = _IDLE
            self.used = True
            self._keeper.released(self)

    def close(self) -> None:
        """Close an idle connection, over TLS with the word that says so."""
        self._state = _ENDED
        if self._transport is not None:
            self._transport.close()

    def pause(self) -> None:
        """Read no more for now."""
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    # What the loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's are no asyncio.Transport by their class
        self._parser = parser = HttpResponseParser(self)
        # What some servers do wrong, and every client takes.
        parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if parser is None or self._state is _IDLE or self._state is _ENDED:
            self.abort()  # nobody has asked
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
        state, self._state, self._keep = self._state, _ENDED, False
        self._transport = self._parser = None  # the parser holds on to this object
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
        self._full = self._loop.create_future()

    def resume_writing(self) -> None:
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

    # What the parser tells.

    def on_message_begin(self) -> None:
        if self._state is not _HEAD:
            raise NotHttp("more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value) + LINE
        if self._head > MAX_HEAD:
            raise NotHttp("its head is too large")
        if self._state is _HEAD:
            self._fields.append((name.lower(), value))
            if len(self._fields) > MAX_FIELDS:
                raise NotHttp("it has too many headers")

    def on_headers_complete(self) -> None:
        parser = self._parser
        assert parser is not None
        status = parser.get_status_code()
        self._unfinished = 0
        if status < 200 and status != 101:
            self._head += LINE
            if self._head > MAX_HEAD:
                raise NotHttp("it is never done with what comes before an answer")
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
        self._unfinished = 0
        if self._response is not None:
            self._response.feed(piece)

    def on_message_complete(self) -> None:
        response = self._response
        if response is None:  # of a 1xx
            return
        self._response = None
        self._state = _ENDED
        response.end()
        self._news = response
