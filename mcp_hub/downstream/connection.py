"""One connection of a client: bytes to requests and back, in order, within bounds of time and room.

httptools finds where a request ends; what it takes for no HTTP ends the connection. Requests that a client sends
ahead are answered one after the other, and while one waits nothing more is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

import httptools

from mcp_hub.downstream.deadline import Deadline
from mcp_hub.downstream.half_closed import HalfClosed
from mcp_hub.downstream.heads import MAX_HEAD, RETRY, BadHead, HeaderLines, Heads, last_answer
from mcp_hub.downstream.http import Reply, Request
from mcp_hub.downstream.places import Place, peer_of
from mcp_hub.downstream.sending import Sending

if TYPE_CHECKING:
    from mcp_hub.downstream.listener import Listener

log = logging.getLogger("mcp_hub.downstream")

HEAD_DEADLINE: Final = 15.0
"""Seconds from the start of a connection or request until its headers are complete."""
MAX_SPILL: Final = 64 * 1024 * 1024
"""Bytes of a body that are read after its request has been refused, so that the client gets to see the answer."""
KEEP_CONNECTION: Final = 75.0
"""Seconds an idle connection is kept; longer than clients keep theirs, so that none is closed under a request."""
PIECE: Final = 16 * 1024
"""Bytes that are parsed at once: as many as hold requests that are sent ahead and wait, parsed, for their turn."""

NOTHING, HEAD, BODY = range(3)
"""What of a request is being read."""

_CAUSES: Final = {400: "bad_request", 408: "head_too_slow", 431: "head_too_large"}


class Connection(Sending):
    """The server's half; `listener` has what all connections share."""

    __slots__ = (
        *("_deadline", "_keeps", "_heads", "_head_size", "_last", "_last_words", "_lines"),
        *("_listener", "_parser", "_reading", "_reply", "_request", "_rest", "_spill", "_stopped", "_void", "_target"),
        *("_trickles", "_waiting", "_answering", "_half_closed", "_place", "peer", "port"),
    )

    def __init__(self, listener: Listener, place: Place | None = None) -> None:
        """`place` is that of a connection which has begun with a TLS handshake."""
        super().__init__(listener.loop)
        self._listener = listener
        self._parser = httptools.HttpRequestParser(self)
        self._deadline = Deadline(self._late)
        self._trickles = False
        """Whether the deadline is for something that the client has begun, not for an idle connection."""
        # What is being read.
        self._reading = NOTHING
        self._head_size = self._spill = 0
        self._target = b""
        self._lines: HeaderLines = []
        self._heads = Heads()
        self._keeps = True
        """Whether a request may follow the one that is read."""
        self._void = 0
        """Bytes of this piece, until something is found in them."""
        self._request: Request | None = None
        """Whose body is being read, or was the last to be."""
        self._rest: bytes | memoryview = b""
        """Read, and not parsed."""
        self._stopped = False
        """Whether the transport does not read."""
        self._last = False
        """Whether nothing that comes from now on is a request."""
        self._last_words = b""
        """What is said to it before the connection ends."""
        # What is being answered.
        self._answering: Request | None = None
        self._reply: Reply | None = None
        self._waiting: deque[tuple[Request, Reply]] = deque()
        self._place = place
        self.peer = "" if place is None else place.peer
        self.port: int | None = None
        self._half_closed: HalfClosed | None = None
        """The client has ended its half, and waits for answers."""

    # --- the transport -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refused at once where there are too many."""
        self._transport = transport
        address = transport.get_extra_info("sockname")
        self.port = int(address[1]) if isinstance(address, tuple) else None
        if self._place is not None:
            self._place.holder = self
        else:
            self.peer = peer_of(transport)
            self._place = self._listener.arrived(self, self.peer)
        if self._place is None:
            self._last = True
            transport.write(last_answer(503, RETRY))
            transport.close()
            return
        self._begin_to_wait(self._loop.time() - self._place.since)  # a handshake took some of it

    def let_in(self) -> None:
        """A request was let in: this is no stranger any more."""
        place = self._place
        if place is not None and place.stranger:
            self._listener.places.let_in(place)

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever answers is told; what waits is not begun."""
        self._last = True
        self._deadline.close()
        del self._parser  # it knows the connection, which would wait for the collector
        self._waiting.clear()
        self._rest = b""
        answering, self._answering = self._answering, None
        if self._reply is not None:
            self._reply.lose()
        if answering is not None:
            answering.lose()
        self.resume_writing()
        place, self._place = self._place, None  # it knows the connection, too
        if place is not None:
            self._listener.left(place)

    def eof_received(self) -> bool:
        """The client sends no more. What it has asked for is answered; where that is nothing, the connection ends.

        A client that has gone looks the same until something is written to it. A stream is not told apart: a client
        that ends its half while one is open has gone. TLS has no half of a connection, HTTP/1.0 no sign of life.
        """
        self._last = True
        reply, broken = self._reply, self._request if self._reading == BODY else None
        if self._reading != NOTHING and self._waiting and self._waiting[-1][0] is broken:
            self._waiting.pop()
        if reply is None or reply.started or self._answering is broken or self._rest:
            return False
        if self._transport.get_extra_info("ssl_object") is not None or self._parser.get_http_version() != "1.1":
            return False
        self._half_closed = HalfClosed(self._transport, self._deadline)
        return True

    def data_received(self, data: bytes) -> None:
        """Parse what has come, or keep it until there is a turn for it."""
        if self._last:
            self._spilt(len(data))
        elif self._rest or len(data) > PIECE:
            self._rest = memoryview(bytes(self._rest) + data)
            self._feed_rest()
        else:
            self._feed(data)
            if self._waiting or self._reading == BODY:
                self.regulate()

    def _feed_rest(self) -> None:
        while self._rest and not (self._waiting or self._last or self._full):
            piece, self._rest = self._rest[:PIECE], self._rest[PIECE:]
            self._feed(piece)
        self.regulate()

    def regulate(self) -> None:
        """Read as long as there is room for what comes."""
        full = self._full
        if self._rest and not (self._waiting or self._last or full):
            self._feed_rest()  # until there is none left, or no room
            return
        stop = not self._last and (full or bool(self._rest) or bool(self._waiting))
        if stop is not self._stopped and not self._transport.is_closing():
            self._stopped = stop
            if stop:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    @property
    def _full(self) -> bool:
        return self._reading == BODY and self._request is not None and self._request.full

    # --- what comes --------------------------------------------------------------------------------------------

    def _feed(self, piece: bytes | memoryview) -> None:
        before = self._reading
        while True:
            self._void = len(piece)
            try:
                self._parser.feed_data(piece)
                break
            except httptools.HttpParserUpgrade as found:
                piece = self._without_offer() + bytes(piece[found.args[0] :])
                if self._last:
                    return
            except httptools.HttpParserError as error:
                self._break_off(error)
                return
        if self._reading == NOTHING:
            if before == NOTHING and self._reply is None and not self._trickles and self._void:
                self._begin_to_wait()  # blank lines between requests
        elif self._reading == HEAD:
            self._head_size += len(piece)
            self._begin_to_wait()
            if self._head_size > MAX_HEAD:
                self._refuse(431)
        elif self._void:
            self._head_size += self._void  # no body, but what stands between its chunks or behind the last
            if self._head_size > MAX_HEAD:
                self._refuse(431)

    def _begin_to_wait(self, after: float = 0.0) -> None:
        """What has begun, `after` seconds before now, has to go on in time."""
        if not self._trickles:
            self._trickles = True
            self._deadline.set(max(0.0, HEAD_DEADLINE - after))

    def on_message_begin(self) -> None:
        """The parser has found the start of a request."""
        self._reading = HEAD
        self._head_size = -self._void  # what of this piece belongs to the previous request is not known
        self._request = None
        self._target = b""

    def on_url(self, part: bytes) -> None:
        """A part of what is asked for."""
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of the head. What follows a body in chunks may say nothing that counts."""
        if self._reading == HEAD:
            self._lines.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is complete: the request begins, or waits for those before it."""
        self._reading = BODY
        self._void = self._head_size = 0
        self._trickles = False
        self._deadline.clear()
        parser = self._parser
        if self._last or parser.should_upgrade():
            return
        version = parser.get_http_version()
        chunks = version not in ("1.0", "0.9")
        self._keeps = keep = chunks and parser.should_keep_alive()
        lines, self._lines = self._lines, []
        head, length = self._heads.head(parser.get_method(), self._target, lines)
        if head.in_chunks and not chunks:
            raise BadHead("HTTP/1.0 has no transfer codings", cause="transfer_encoding")
        expects = chunks and b"100-continue" in [value.lower() for value in head.raw(b"expect")]
        self._request = request = Request(self, head, length, expects=expects)
        reply = Reply(self, bodiless=head.method == "HEAD", keep=keep, chunks=chunks)
        if self._reply is None:
            self._begin(request, reply)
        else:
            self._waiting.append((request, reply))

    def on_body(self, piece: bytes) -> None:
        """A part of the body."""
        self._void = self._head_size = 0
        request = self._request
        if request is None or request.dropped:
            self._spilt(len(piece))
        else:
            request.more(piece)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._reading = NOTHING
        self._void = self._spill = 0
        self._trickles = False
        if self._request is not None:
            self._request.end()
            self._last = self._last or not self._keeps
        if self._reply is None:
            self._deadline.set(KEEP_CONNECTION)
        else:
            self._deadline.clear()

    def _spilt(self, size: int) -> None:
        """Something came that nobody wants."""
        self._spill += size
        if self._spill > MAX_SPILL:
            self._last = True
            self._transport.abort()
        elif self._reply is None:
            self._begin_to_wait()

    def _without_offer(self) -> bytes:
        """Another protocol is offered: the head is read again without the offer, which no parser passes over."""
        method = self._parser.get_method()
        lines = [line for line in self._lines if line[0] != b"upgrade"]
        if method == b"CONNECT" or len(lines) == len(self._lines):
            self._refuse(400)
            return b""
        target, version = self._target, self._parser.get_http_version().encode()
        self._parser = httptools.HttpRequestParser(self)
        self._lines = []
        text = b"".join(b"%b: %b\r\n" % line for line in lines)
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, target, version, text)

    def _break_off(self, error: httptools.HttpParserError) -> None:
        if self._last and self._reading == NOTHING:
            return  # behind the last request
        found = error.__context__
        if isinstance(found, BadHead):
            self._refuse(found.status, found.cause)
            return
        if isinstance(error, httptools.HttpParserCallbackError):
            log.error("a request could not be taken", exc_info=found)
        self._refuse(400)

    def _refuse(self, status: int, cause: str | None = None) -> None:
        """What comes is no request: what came before is answered, then this is said and the connection ends."""
        self._listener.refusals.note(cause or _CAUSES[status], self.peer, status)
        last_words = last_answer(status)
        broken = self._request if self._reading == BODY else None
        self._last = True
        self._rest = b""
        self._last_words = last_words
        if self._waiting and self._waiting[-1][0] is broken:
            self._waiting.pop()
        elif broken is not None and broken is self._answering and self._reply is not None:
            reply, self._reply, self._answering = self._reply, None, None
            reply.lose()
            broken.lose()
            if reply.started:
                self._last_words = b""  # half of an answer has been written
        elif broken is not None and broken.dropped:
            self._last_words = b""  # it has been answered already
        if self._reply is None or self._reply.started:
            self._end()

    def _end(self) -> None:
        if self._reply is None and self._last_words:
            self.write(self._last_words)
        self._transport.close()

    # --- answers -----------------------------------------------------------------------------------------------

    def _begin(self, request: Request, reply: Reply) -> None:
        self._answering, self._reply = request, reply
        self._listener.answer(request, reply)

    def answered(self, *, keep: bool) -> None:
        """The reply is complete: the next request has its turn."""
        request, self._answering, self._reply = self._answering, None, None
        if request is not None:
            request.unwatch()
        if not keep or self._listener.ending:
            self._last = True
            self._transport.close()
        elif self._waiting:
            self._begin(*self._waiting.popleft())
            self.regulate()
        elif self._last:
            self._end()
        else:
            if request is not None and not request.complete:
                request.drop()
            elif request is self._request:
                self._request = None  # an idle connection keeps little
            if not self._trickles:
                self._deadline.set(KEEP_CONNECTION)
            if self._rest or self._stopped:
                self.regulate()

    # --- the end -----------------------------------------------------------------------------------------------

    def _late(self) -> None:
        """Idle for long, or too slow."""
        if self._half_closed is not None:
            self._half_closed.look(unanswered=self._reply is not None and not self._reply.started)
        elif self._trickles and self._reading == HEAD:
            self._refuse(408)
        else:
            if self._trickles and self._reading == NOTHING:
                self._listener.refusals.note("head_too_slow", self.peer)
            if self._place is not None and self._place.stranger:
                self._transport.abort()  # the end of TLS would wait for the client's
            else:
                self._transport.close()

    def shut(self) -> None:
        """Close when nothing is being answered, or as soon as that is."""
        if self._reply is None:
            self._last = True
            self._transport.close()
