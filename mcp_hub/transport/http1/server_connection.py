"""One connection of the server: answers the requests that its machine reads in order, and bounds time and memory.

Invalid HTTP ends the connection. Pipelined requests are answered one after the other; while one waits for its turn,
reading is paused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from mcp_hub.transport.http1 import BODY, HEAD, IDLE, MUST_CLOSE, RequestMachine
from mcp_hub.transport.http1.exchange import HttpReply, HttpRequest
from mcp_hub.transport.http1.heads import RETRY, BadHead, RequestHead, last_answer
from mcp_hub.transport.http1.listener import ConnectionSlot
from mcp_hub.transport.http1.peers import Peer, address_of, certified_peer, unix_peer
from mcp_hub.transport.http1.send_buffer import HalfCloseProbe, LazyTimer, SendBuffer

if TYPE_CHECKING:
    from mcp_hub.transport.http1.listener import Listener

log = logging.getLogger("mcp_hub.downstream")

HEAD_DEADLINE: Final = 15.0
"""Seconds from the start of a connection or request until its head is complete."""
MAX_SPILL: Final = 64 * 1024 * 1024
"""Bytes of a refused request's body that are read and discarded, so that the client gets to see the reply."""
KEEP_CONNECTION: Final = 75.0
"""Seconds an idle connection is kept: longer than clients keep theirs, so that no request is sent on a closed one."""
PIECE: Final = 16 * 1024
"""Bytes that are parsed at once; this bounds the number of pipelined requests in memory."""


class ServerConnection(SendBuffer):
    """The asyncio protocol of one connection; `listener` holds what all connections share."""

    __slots__ = (
        *("_active_request", "_awaits_progress", "_deadline", "_error_reply", "_half_close_probe", "_listener"),
        *("_machine", "_pipelined", "_reading_paused", "_reply", "_request", "_slot", "_spilled_bytes", "_unparsed"),
        *("peer", "port", "proven", "stranger"),
    )

    def __init__(self, listener: Listener, slot: ConnectionSlot | None = None) -> None:
        """`slot`: the slot that the connection already holds, after a TLS handshake; None: it needs one."""
        super().__init__(listener.loop)
        self._listener = listener
        self._machine = RequestMachine(self)
        self._deadline = LazyTimer(self._on_deadline)
        self._awaits_progress = False
        """Whether the deadline is for a head or body that the client has begun, not for an idle connection."""
        # Reading.
        self._spilled_bytes = 0
        """Bytes discarded since the last message ended."""
        self._request: HttpRequest | None = None
        """The request whose body is being read, or was read last."""
        self._unparsed: bytes | memoryview = b""
        """Bytes that were received and not parsed yet."""
        self._reading_paused = False
        """Whether reading from the socket is paused."""
        self._error_reply = b""
        """The error reply that is sent before the connection is closed."""
        # Answering.
        self._active_request: HttpRequest | None = None
        self._reply: HttpReply | None = None
        self._pipelined: deque[tuple[HttpRequest, HttpReply]] = deque()
        self._slot = slot
        self.peer = "" if slot is None else slot.peer
        self.port: int | None = None
        self.proven: Peer | None = None
        self.stranger = True
        """Whether no request of the connection has been let in yet."""
        self._half_close_probe: HalfCloseProbe | None = None
        """Set when the client has ended its half of the connection but may still wait for replies."""

    # --- callbacks of the event loop------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins the connection; refuses it with 503 if no slot is free."""
        self._transport = transport
        address = transport.get_extra_info("sockname")
        self.port = int(address[1]) if isinstance(address, tuple) else None
        if self._slot is not None:
            self._slot.holder = self
            self.proven = certified_peer(transport, self.peer)
        else:
            if isinstance(address, str | bytes):
                self.proven = unix = unix_peer(transport)
                self.peer = unix.address
            else:
                self.peer = address_of(transport)
            self._slot = self._listener.acquire_slot(self, self.peer)
        if self._slot is None:
            self._machine.stop()
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

    def speaks_for(self, peer: str) -> None:
        """Counts the connection towards the client that its trusted proxy names."""
        if self._slot is not None:
            self._listener.slots.speaks_for(self._slot, peer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells the handler of the current request, and drops the waiting requests."""
        self._machine.close()
        self._deadline.close()
        self._pipelined.clear()
        self._unparsed = b""
        request, self._active_request = self._active_request, None
        if self._reply is not None:
            self._reply.lose()
        if request is not None:
            request.lose()
        self.resume_writing()
        slot, self._slot = self._slot, None  # it refers to the connection, too
        if slot is not None:
            self._listener.release_slot(slot)

    def eof_received(self) -> bool:
        """Keeps the connection open for a reply that has not begun; closes it otherwise (asyncio.Protocol).

        A client that has gone looks the same until something is written to it (HalfCloseProbe). A client that ends its
        half while a stream is open has gone. TLS cannot be half-closed, and HTTP/1.0 has no `100 Continue` as a probe.
        """
        self._machine.stop()
        reply, incomplete = self._reply, self._incomplete
        if self._pipelined and self._pipelined[-1][0] is incomplete:
            self._pipelined.pop()
        if reply is None or self._machine.ours is BODY or self._active_request is incomplete or self._unparsed:
            return False
        if self._transport.get_extra_info("ssl_object") is not None or self._machine.version != "1.1":
            return False
        self._half_close_probe = HalfCloseProbe(self._transport, self._deadline)
        return True

    def data_received(self, data: bytes) -> None:
        """Parses what was received, or keeps it until the requests before it are answered."""
        machine = self._machine
        if machine.theirs is IDLE and (match := machine.take_known(data)) is not None:
            head, body = match
            self._awaits_progress = False
            self._request = self._active_request = request = HttpRequest(self, head, len(body), body=body)
            self._reply = reply = HttpReply(self)
            self._start(request, reply)
        elif machine.shut:
            self._count_spill(len(data))
        elif self._unparsed or len(data) > PIECE:
            self._unparsed = memoryview(bytes(self._unparsed) + data)
            self._feed_unparsed()
        else:
            self._feed(data)
            if self._pipelined or machine.theirs is BODY:
                self.regulate()

    def _feed_unparsed(self) -> None:
        while self._unparsed and not (self._pipelined or self._machine.shut or self._is_full):
            piece, self._unparsed = self._unparsed[:PIECE], self._unparsed[PIECE:]
            self._feed(piece)
        self.regulate()

    def regulate(self) -> None:
        """Pauses or resumes reading, depending on the room in the buffers."""
        full, shut = self._is_full, self._machine.shut
        if self._unparsed and not (self._pipelined or shut or full):
            self._feed_unparsed()  # until nothing is left, or there is no room
            return
        stop = not shut and (full or bool(self._unparsed) or bool(self._pipelined))
        if stop is not self._reading_paused and not self._transport.is_closing():
            self._reading_paused = stop
            if stop:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    @property
    def _is_full(self) -> bool:
        return self._incomplete is not None and self._incomplete.full

    @property
    def _incomplete(self) -> HttpRequest | None:
        """The request whose body is being read."""
        return None if self._request is None or self._request.complete else self._request

    def _feed(self, piece: bytes | memoryview) -> None:
        machine = self._machine
        try:
            machine.receive(piece)
        except BadHead as refusal:
            self._refuse(refusal.status, refusal.cause)
            return
        if machine.theirs is HEAD or (self._reply is None and machine.blank):
            self._expect_progress()

    def _expect_progress(self, after: float = 0.0) -> None:
        """Sets the deadline for a head that began `after` seconds ago."""
        if not self._awaits_progress:
            self._awaits_progress = True
            self._deadline.set(max(0.0, HEAD_DEADLINE - after))

    # --- called by the machine -------------------------------------------------------------------------------------

    def request_begun(self, head: RequestHead, length: int | None, *, keep: bool, chunks: bool, expects: bool) -> None:
        """Starts to answer the request, or queues it behind the one that is being answered."""
        self._awaits_progress = False
        self._request = request = HttpRequest(self, head, length, expects=expects)
        reply = HttpReply(self, bodiless=head.method == "HEAD", keep=keep, chunks=chunks)
        if self._reply is None:
            self._begin(request, reply)
        else:
            self._pipelined.append((request, reply))

    def body_received(self, piece: bytes) -> None:
        """Adds a part of the body."""
        if self._request is None or self._request.dropped:
            self._count_spill(len(piece))
        else:
            self._request.feed(piece)

    def message_ended(self) -> None:
        """Completes the request and its body."""
        self._spilled_bytes = 0
        self._awaits_progress = False
        if self._request is not None:
            self._request.end()
        if self._reply is None:
            self._machine.start_next_cycle()
            self._deadline.set(KEEP_CONNECTION)

    def _count_spill(self, size: int) -> None:
        """Counts bytes that are discarded; beyond MAX_SPILL the connection is dropped."""
        self._spilled_bytes += size
        if self._spilled_bytes > MAX_SPILL:
            self._machine.stop()
            self._transport.abort()
        elif self._reply is None:
            self._expect_progress()

    def _refuse(self, status: int, cause: str) -> None:
        """Answers the requests before the invalid one, then sends an error and closes the connection."""
        self._listener.refusals.note(cause, self.peer, status)
        incomplete = self._incomplete
        self._unparsed = b""
        self._error_reply = last_answer(status)
        if self._pipelined and self._pipelined[-1][0] is incomplete:
            self._pipelined.pop()
        elif incomplete is not None and incomplete is self._active_request and self._reply is not None:
            reply, self._reply, self._active_request = self._reply, None, None
            reply.lose()
            incomplete.lose()
            if self._machine.ours is BODY:
                self._error_reply = b""  # a part of its reply has been written
        elif incomplete is not None and incomplete.dropped:
            self._error_reply = b""  # its reply has been sent already
        if self._reply is None or self._machine.ours is BODY:
            self._end()

    def _end(self) -> None:
        if self._reply is None and self._error_reply:
            self.write(self._error_reply)
        self._transport.close()

    # --- replies -----------------------------------------------------------------------------------------------

    def _begin(self, request: HttpRequest, reply: HttpReply) -> None:
        self._active_request, self._reply = request, reply
        self._start(request, reply)

    def _start(self, request: HttpRequest, reply: HttpReply) -> None:
        """Starts the task that answers a request."""
        reply.task = task = self._loop.create_task(self._run_handler(request, reply))
        self._listener.tasks.add(task)

    async def _run_handler(self, request: HttpRequest, reply: HttpReply) -> None:
        listener = self._listener
        try:
            await listener.handler(request, reply)
            if not reply.complete and not reply.lost:
                log.error("a %s request was not answered", request.method)
        finally:
            if reply.task is not None:
                listener.tasks.discard(reply.task)
            if not reply.complete:
                reply.give_up()

    def write(self, data: bytes) -> None:
        """Sends bytes; does nothing if the client is gone."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def stream_begun(self) -> None:
        """Notes that the head of a reply is written and its body follows."""
        self._machine.responding()

    def answered(self, *, keep: bool) -> None:
        """Called when a reply is complete: starts the next waiting request, or waits for one."""
        request, self._active_request, self._reply = self._active_request, None, None
        if request is not None:
            request.unwatch()
        machine = self._machine
        machine.note_response(keep=keep and not self._listener.ending, more=bool(self._pipelined))
        if machine.ours is MUST_CLOSE:
            self._transport.close()
        elif self._pipelined:
            self._begin(*self._pipelined.popleft())
            self.regulate()
        elif machine.shut:
            self._end()
        else:
            if request is not None and not request.complete:
                request.drop()
            elif request is self._request:
                self._request = None  # saves memory while idle
            if not self._awaits_progress:
                self._deadline.set(KEEP_CONNECTION)
            if self._unparsed or self._reading_paused:
                self.regulate()

    # --- the end -----------------------------------------------------------------------------------------------

    def _on_deadline(self) -> None:
        """Handles a deadline that has passed: the connection was idle for too long, or the client is too slow."""
        if self._half_close_probe is not None:
            self._half_close_probe.look(unanswered=self._reply is not None and self._machine.ours is not BODY)
        elif self._reply is not None and not self._awaits_progress:
            pass  # the deadline was that of an idle connection
        elif self._awaits_progress and self._machine.theirs is HEAD:
            self._machine.fail()
            self._refuse(408, "head_too_slow")
        else:
            if self._awaits_progress and not self._machine.under_way:
                self._listener.refusals.note("head_too_slow", self.peer)
            if self._slot is not None and self._slot.stranger:
                self._transport.abort()  # a TLS shutdown would wait for the client
            else:
                self._transport.close()

    def close_when_idle(self) -> None:
        """Closes the connection, unless a reply is under way: then it is closed after that."""
        if self._reply is None:
            self._machine.stop()
            self._transport.close()
