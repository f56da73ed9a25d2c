"""One connection of the server: parses requests, answers them in order, and bounds time and memory.

httptools parses; invalid HTTP ends the connection. Pipelined requests are answered one after the other, and while one
waits for its turn, reading is paused.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from typing import TYPE_CHECKING, Final

import httptools

from mcp_hub.transport.http1.exchange import HttpReply, HttpRequest
from mcp_hub.transport.http1.heads import (
    MAX_HEAD,
    MAX_KNOWN,
    RETRY,
    BadHead,
    HeaderLines,
    RequestHead,
    RequestHeadCache,
    last_answer,
)
from mcp_hub.transport.http1.listener import ConnectionSlot, peer_of
from mcp_hub.transport.http1.send_buffer import HalfCloseProbe, LazyTimer, SendBuffer

if TYPE_CHECKING:
    from mcp_hub.transport.http1.listener import Listener

log = logging.getLogger("mcp_hub.downstream")

HEAD_DEADLINE: Final = 15.0
"""Seconds from the start of a connection or request until its head is complete."""
MAX_SPILL: Final = 64 * 1024 * 1024
"""Bytes of a refused request's body that are read and discarded, so that the client gets to see the reply."""
KEEP_CONNECTION: Final = 75.0
"""Seconds an idle connection is kept: longer than clients keep theirs, so that no request meets a closed one."""
PIECE: Final = 16 * 1024
"""Bytes that are parsed at once; this bounds the pipelined requests that wait, parsed, for their turn."""

_LENGTH: Final = re.compile(rb"\r\ncontent-length: ?([0-9]{1,9})\r\n", re.IGNORECASE)

NOTHING, HEAD, BODY = range(3)
"""Which part of a request is being read."""

_CAUSES: Final = {400: "bad_request", 408: "head_too_slow", 431: "head_too_large"}


class ServerConnection(SendBuffer):
    """The asyncio protocol of one connection; `listener` has what all connections share."""

    __slots__ = (
        *("_answering", "_begun", "_deadline", "_error_reply", "_half_closed", "_head_size", "_heads", "_keeps"),
        *("_known", "_last", "_lines", "_listener", "_parser", "_reading", "_reply", "_request", "_rest", "_slot"),
        *("_spill", "_stopped", "_target", "_unused", "_waiting", "peer", "port", "stranger"),
    )

    def __init__(self, listener: Listener, slot: ConnectionSlot | None = None) -> None:
        """`slot`: the slot that the connection has already, after a TLS handshake."""
        super().__init__(listener.loop)
        self._listener = listener
        self._parser = httptools.HttpRequestParser(self)
        self._deadline = LazyTimer(self._late)
        self._begun = False
        """Whether the deadline is for something the client has begun, not for an idle connection."""
        # Reading.
        self._reading = NOTHING
        self._head_size = self._spill = 0
        self._target = b""
        self._lines: HeaderLines = []
        self._heads = RequestHeadCache()
        self._known: tuple[bytes, bytes, RequestHead] | None = None
        """The last head that came with its whole body: its bytes before and behind the digits of Content-Length."""
        self._keeps = True
        """Whether another request may follow the one being read."""
        self._unused = 0
        """Bytes of the current piece, or 0 once the parser has found something in it."""
        self._request: HttpRequest | None = None
        """The request whose body is being read, or was read last."""
        self._rest: bytes | memoryview = b""
        """Bytes that were received and not parsed yet."""
        self._stopped = False
        """Whether reading from the socket is paused."""
        self._last = False
        """Whether everything that is received from now on is ignored."""
        self._error_reply = b""
        """The error reply that is sent before the connection is closed."""
        # Answering.
        self._answering: HttpRequest | None = None
        self._reply: HttpReply | None = None
        self._waiting: deque[tuple[HttpRequest, HttpReply]] = deque()
        self._slot = slot
        self.peer = "" if slot is None else slot.peer
        self.port: int | None = None
        self.stranger = True
        """Whether no request of the connection has been let in yet."""
        self._half_closed: HalfCloseProbe | None = None
        """Set when the client has ended its half of the connection and may wait for replies."""

    # --- callbacks of the event loop------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins the connection; refuses it at once where there is no slot."""
        self._transport = transport
        address = transport.get_extra_info("sockname")
        self.port = int(address[1]) if isinstance(address, tuple) else None
        if self._slot is not None:
            self._slot.holder = self
        else:
            self.peer = peer_of(transport)
            self._slot = self._listener.acquire_slot(self, self.peer)
        if self._slot is None:
            self._last = True
            transport.write(last_answer(503, RETRY))
            transport.close()
            return
        self._expect_progress(self._loop.time() - self._slot.since)  # a TLS handshake has used some of it

    def let_in(self) -> None:
        """Keeps the connection's slot for good, as a request on it was authenticated or needs no authentication."""
        slot = self._slot
        if slot is not None and slot.stranger:
            self._listener.slots.let_in(slot)
            self.stranger = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells the handler, and drops the requests that wait."""
        self._last = True
        self._deadline.close()
        del self._parser  # it refers to the connection: without this they would be a cycle
        self._waiting.clear()
        self._rest = b""
        answering, self._answering = self._answering, None
        if self._reply is not None:
            self._reply.lose()
        if answering is not None:
            answering.lose()
        self.resume_writing()
        slot, self._slot = self._slot, None  # it refers to the connection, too
        if slot is not None:
            self._listener.release_slot(slot)

    def eof_received(self) -> bool:
        """Keeps the connection open for a reply that has not begun; closes it otherwise. The client sends no more.

        A client that has gone looks the same until something is written to it (HalfCloseProbe). A client that ends its
        half while a stream is open has gone. TLS cannot be half-closed, and HTTP/1.0 has no `100 Continue` as a probe.
        """
        self._last = True
        reply, broken = self._reply, self._request if self._reading == BODY else None
        if self._reading != NOTHING and self._waiting and self._waiting[-1][0] is broken:
            self._waiting.pop()
        if reply is None or reply.started or self._answering is broken or self._rest:
            return False
        if self._transport.get_extra_info("ssl_object") is not None or self._parser.get_http_version() != "1.1":
            return False
        self._half_closed = HalfCloseProbe(self._transport, self._deadline)
        return True

    def data_received(self, data: bytes) -> None:
        """Parses what was received, or keeps it until the requests before it are answered."""
        if self._last:
            self._spilt(len(data))
        elif self._rest or len(data) > PIECE:
            self._rest = memoryview(bytes(self._rest) + data)
            self._feed_rest()
        elif self._reading != NOTHING or self._reply is not None:
            self._feed(data)
            if self._waiting or self._reading == BODY:
                self.regulate()
        elif self._known is None or not self._take_known(data, *self._known):
            self._feed(data)
            if self._waiting or self._reading == BODY:
                self.regulate()
            else:
                self._learn(data)

    def _take_known(self, data: bytes, before: bytes, behind: bytes, head: RequestHead) -> bool:
        """Begins a request without the parser if its head has the bytes of `head`, which the parser has read.

        Only the digits of Content-Length may differ, and the whole body must be there. Returns whether it has begun.
        """
        end = data.find(b"\r\n\r\n") + 4
        length = _LENGTH.search(data, 0, end)
        if length is None or not data.startswith(before) or data[length.end(1) : end] != behind:
            return False
        if length.start(1) != len(before) or len(data) - end != int(length[1]):
            return False
        self._begun = False
        self._deadline.clear()
        self._request = self._answering = request = HttpRequest(self, head, len(data) - end, body=data[end:])
        self._reply = reply = HttpReply(self)
        self._listener.answer(request, reply)
        return True

    def _learn(self, data: bytes) -> None:
        """Keeps the head of the request that the parser has just found in `data`, if it is all there is in it."""
        request, end = self._request, data.find(b"\r\n\r\n") + 4
        if request is None or request is not self._answering or not request.complete or self._last:
            return
        length, head = _LENGTH.search(data, 0, end), request.head
        if length is None or head.method != "POST" or head.in_chunks or head.size > MAX_KNOWN:
            return
        if request.length == int(length[1]) == len(data) - end and not head.raw(b"expect"):
            self._known = (data[: length.start(1)], data[length.end(1) : end], head)

    def _feed_rest(self) -> None:
        while self._rest and not (self._waiting or self._last or self._full):
            piece, self._rest = self._rest[:PIECE], self._rest[PIECE:]
            self._feed(piece)
        self.regulate()

    def regulate(self) -> None:
        """Pauses or resumes reading, depending on the room for what comes."""
        full = self._full
        if self._rest and not (self._waiting or self._last or full):
            self._feed_rest()  # until nothing is left, or there is no room
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

    # --- the parser --------------------------------------------------------------------------------------------

    def _feed(self, piece: bytes | memoryview) -> None:
        before = self._reading
        while True:
            self._unused = len(piece)
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
            if before == NOTHING and self._reply is None and not self._begun and self._unused:
                self._expect_progress()  # only blank lines between requests
        elif self._reading == HEAD:
            self._head_size += len(piece)
            self._expect_progress()
            if self._head_size > MAX_HEAD:
                self._refuse(431)
        elif self._unused:
            self._head_size += self._unused  # framing of chunks, or trailers
            if self._head_size > MAX_HEAD:
                self._refuse(431)

    def _expect_progress(self, after: float = 0.0) -> None:
        """Sets the deadline for a head that began `after` seconds ago."""
        if not self._begun:
            self._begun = True
            self._deadline.set(max(0.0, HEAD_DEADLINE - after))

    def on_message_begin(self) -> None:
        """Resets the state for the head of the next request (callback of httptools)."""
        self._reading = HEAD
        self._head_size = -self._unused  # it is unknown how much of this piece belongs to the previous request
        self._request = None
        self._target = b""

    def on_url(self, part: bytes) -> None:
        """Adds a part of the target (httptools)."""
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Adds a header line (httptools). Trailers, behind a body in chunks, are ignored."""
        if self._reading == HEAD:
            self._lines.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Starts to answer the request, or queues it behind those before it (httptools)."""
        self._reading = BODY
        self._unused = self._head_size = 0
        self._begun = False
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
        self._request = request = HttpRequest(self, head, length, expects=expects)
        reply = HttpReply(self, bodiless=head.method == "HEAD", keep=keep, chunks=chunks)
        if self._reply is None:
            self._begin(request, reply)
        else:
            self._waiting.append((request, reply))

    def on_body(self, piece: bytes) -> None:
        """Adds a part of the body (httptools)."""
        self._unused = self._head_size = 0
        request = self._request
        if request is None or request.dropped:
            self._spilt(len(piece))
        else:
            request.more(piece)

    def on_message_complete(self) -> None:
        """Completes the request and its body (callback of httptools)."""
        self._reading = NOTHING
        self._unused = self._spill = 0
        self._begun = False
        if self._request is not None:
            self._request.end()
            self._last = self._last or not self._keeps
        if self._reply is None:
            self._deadline.set(KEEP_CONNECTION)
        else:
            self._deadline.clear()

    def _spilt(self, size: int) -> None:
        """Counts bytes that are discarded; beyond MAX_SPILL the connection is dropped."""
        self._spill += size
        if self._spill > MAX_SPILL:
            self._last = True
            self._transport.abort()
        elif self._reply is None:
            self._expect_progress()

    def _without_offer(self) -> bytes:
        """Returns the head without its `Upgrade`, to be parsed again: httptools does not go on behind an upgrade."""
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
            return  # garbage behind the last request
        found = error.__context__
        if isinstance(found, BadHead):
            self._refuse(found.status, found.cause)
            return
        if isinstance(error, httptools.HttpParserCallbackError):
            log.error("a request failed in the parser's callbacks", exc_info=found)
        self._refuse(400)

    def _refuse(self, status: int, cause: str | None = None) -> None:
        """Answers the requests before the invalid one, then sends an error and closes the connection."""
        self._listener.refusals.note(cause or _CAUSES[status], self.peer, status)
        error_reply = last_answer(status)
        broken = self._request if self._reading == BODY else None
        self._last = True
        self._rest = b""
        self._error_reply = error_reply
        if self._waiting and self._waiting[-1][0] is broken:
            self._waiting.pop()
        elif broken is not None and broken is self._answering and self._reply is not None:
            reply, self._reply, self._answering = self._reply, None, None
            reply.lose()
            broken.lose()
            if reply.started:
                self._error_reply = b""  # a part of its reply has been written
        elif broken is not None and broken.dropped:
            self._error_reply = b""  # its reply has been sent already
        if self._reply is None or self._reply.started:
            self._end()

    def _end(self) -> None:
        if self._reply is None and self._error_reply:
            self.write(self._error_reply)
        self._transport.close()

    # --- replies -----------------------------------------------------------------------------------------------

    def _begin(self, request: HttpRequest, reply: HttpReply) -> None:
        self._answering, self._reply = request, reply
        self._listener.answer(request, reply)

    def answered(self, *, keep: bool) -> None:
        """Starts the next request that waits, or waits for one; the reply is complete."""
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
                self._request = None  # saves memory while idle
            if not self._begun:
                self._deadline.set(KEEP_CONNECTION)
            if self._rest or self._stopped:
                self.regulate()

    # --- the end -----------------------------------------------------------------------------------------------

    def _late(self) -> None:
        """Handles the deadline: the connection was idle for too long, or the client too slow."""
        if self._half_closed is not None:
            self._half_closed.look(unanswered=self._reply is not None and not self._reply.started)
        elif self._begun and self._reading == HEAD:
            self._refuse(408)
        else:
            if self._begun and self._reading == NOTHING:
                self._listener.refusals.note("head_too_slow", self.peer)
            if self._slot is not None and self._slot.stranger:
                self._transport.abort()  # a TLS shutdown would wait for the client
            else:
                self._transport.close()

    def close_when_idle(self) -> None:
        """Closes the connection, unless a reply is under way: then it is closed after that."""
        if self._reply is None:
            self._last = True
            self._transport.close()
