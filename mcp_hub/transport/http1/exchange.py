"""One HTTP exchange on the server: the request with its bounded body, and the reply, whole or as an event stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from mcp_hub.errors import HubError, Overloaded
from mcp_hub.protocol.frames import encode
from mcp_hub.transport.http1.heads import EVENT_STREAM, HeaderLines, RequestHead, closes, start, written
from mcp_hub.transport.http1.peers import Peer
from mcp_hub.transport.http1.send_buffer import UnreadAccount


class ExchangeConnection(Protocol):
    """The connection as its request and reply see it."""

    port: int | None
    """The port of the listening socket; it is never taken from a header."""
    peer: str
    """The client's address."""
    proven: Peer | None
    """What the connection proves about its client; None: nothing."""
    paused: bool
    """Whether the write buffer is full, so that nothing should be added."""
    share: UnreadAccount | None
    """The account of the caller that the current reply is for."""
    stranger: bool
    """Whether no request of the connection has been let in yet."""

    def write(self, data: bytes) -> None:
        """Sends bytes; does nothing if the client is gone."""

    async def writable(self) -> None:
        """Waits until it is not `paused`, or the client is gone."""

    def regulate(self) -> None:
        """Pauses or resumes reading, depending on the room in the buffers."""

    def stream_begun(self) -> None:
        """Called when the head of a reply is written before its body."""

    def answered(self, *, keep: bool) -> None:
        """Called when a reply is complete. `keep` says whether another request may follow on the connection."""

    def abort(self) -> None:
        """Drops the connection and what is in its buffers."""

    def let_in(self) -> None:
        """Called when a request of the connection was authenticated, or needs no authentication."""

    def speaks_for(self, peer: str) -> None:
        """Called when a trusted proxy sends a request of the client with the address `peer`."""


class BodyAccount(Protocol):
    """Counts the bytes of one caller's bodies that are not complete."""

    def begin(self, request: Any, size: int) -> Overloaded | None:
        """Counts `size` more bytes until `end`; returns the reason if there is no room for them."""

    def end(self, size: int) -> None:
        """Ends what `begin` has counted."""


BODY_DEADLINE: Final = 60.0
"""Seconds a client may take to send a body: 70 KB/s for the largest body by default."""
STALLED_AFTER: Final = 120.0
"""Seconds a client may leave a full write buffer unread before its stream is given up."""
MAX_UNASKED: Final = 64 * 1024
"""Bytes of a body that are kept before the handler requests it; beyond that, reading is paused."""
MAX_JOINED: Final = 64 * 1024
"""Bytes of a body up to which it is joined with its head into one write."""

JSON: Final = b"application/json"
EVENTS: Final = b"text/event-stream"
PLAIN: Final = b"text/plain; charset=utf-8"

_BODY_OF: Final = {
    kind: b"content-type: " + kind + b"\r\nx-content-type-options: nosniff\r\ncontent-length: "
    for kind in (JSON, PLAIN)
}
_STREAM: Final = written(EVENT_STREAM)
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class ClientGone(HubError):
    """The client closed the connection, so no reply can be sent."""


class BodyTooLarge(HubError):
    """The body is larger than its limit. What was received of it is discarded."""


class BodyTooSlow(HubError):
    """The body was not complete within BODY_DEADLINE."""


class HttpRequest:
    """The request of one exchange.

    `length`: bytes of the body, where the head says so; otherwise it is known once the body is complete. `expects`: the
    client waits for `100 Continue`. `body`: the whole body, if it came with the head.
    """

    __slots__ = (
        *("_account", "_body", "_counted", "_expects", "_limit", "_on_disconnect", "_refusal", "_size", "_waiter"),
        "_wire",
        *("accepts", "complete", "disconnected", "dropped", "head", "length", "method", "path", "proven"),
        "values",
    )

    def __init__(
        self,
        wire: ExchangeConnection,
        head: RequestHead,
        length: int | None = None,
        *,
        expects: bool = False,
        body: bytes | None = None,
    ) -> None:
        self.head = head
        self.method = head.method
        self.path = head.path
        self.length = length
        self.complete = body is not None
        """Whether the whole body has been received."""
        self.dropped = False
        """Whether the rest of the body is discarded."""
        self.disconnected = False
        self.values = head.values
        """`RequestHead.values`: returns every value of one header (name in lower case), in order."""
        self.accepts = head.accepts
        """`RequestHead.accepts`: whether the client accepts a media type (`type/subtype`)."""
        self.proven = wire.proven
        self._wire = wire
        self._expects = expects
        self._body: bytes | bytearray = body or b""
        self._size, self._limit = len(self._body), 0
        self._waiter: asyncio.Future[None] | None = None
        self._account: BodyAccount | None = None
        self._counted = 0
        """Bytes of the body that its sender's account has counted."""
        self._refusal: Overloaded | None = None
        self._on_disconnect: Callable[[], object] | None = None

    @property
    def wire(self) -> ExchangeConnection:
        """The connection that it came on."""
        return self._wire

    @property
    def query(self) -> bytes:
        """The query of the target, without the question mark."""
        return self.head.query

    @property
    def headers(self) -> HeaderLines:
        """Every header line but Content-Length."""
        return self.head.lines

    @property
    def port(self) -> int | None:
        """The port of the listening socket."""
        return self._wire.port

    @property
    def peer(self) -> str:
        """The client's address."""
        return self._wire.peer

    def let_in(self) -> None:
        """Notes that the sender is authenticated, or does not have to be."""
        if self._wire.stranger:
            self._wire.let_in()

    def speaks_for(self, peer: str) -> None:
        """Counts a connection without an authenticated request towards the client that a trusted proxy names."""
        if self._wire.stranger:
            self._wire.speaks_for(peer)

    def arrived_body(self, limit: int) -> bytes | None:
        """Returns the body if all of it has arrived and is at most `limit` bytes; else None: then use `body`."""
        if not self.complete or self._size > limit or self._expects:
            return None
        body, self._body = self._body, b""
        return bytes(body)

    async def body(self, limit: int, account: BodyAccount | None = None) -> bytes:
        """Returns the whole body, of at most `limit` bytes. `account`: that of its sender.

        Raises BodyTooLarge, BodyTooSlow, ClientGone, and Overloaded if the account has no room for it.
        """
        if self.length is not None and self.length > limit:
            self.drop()
            raise BodyTooLarge
        if self._expects:
            self._expects = False
            self._wire.write(_CONTINUE)
        if not self.complete and self._size <= limit:
            self._account = account
            await self._wait_for_body(limit)
        if self._refusal is not None:
            self.drop()
            raise self._refusal
        if self._size > limit:
            self.drop()
            raise BodyTooLarge
        if not self.complete:
            raise ClientGone
        body, self._body = self._body, b""
        return bytes(body)

    async def _wait_for_body(self, limit: int) -> None:
        """Waits until the body is complete or larger than `limit`, or the client is gone. Raises BodyTooSlow."""
        if self.disconnected:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        self._limit = limit
        self._wire.regulate()
        try:
            async with asyncio.timeout(BODY_DEADLINE):
                await self._waiter
        except TimeoutError:
            self.drop()
            raise BodyTooSlow from None
        finally:
            self._waiter = None
            if self._account is not None:
                self._account.end(self._counted)
                self._counted = 0

    # --- called by the connection ------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether no more of the body may be received before the handler requests it."""
        return self._waiter is None and self._size > MAX_UNASKED and not self.dropped

    def feed(self, piece: bytes) -> None:
        """Adds a piece of the body."""
        if self.dropped or self._refusal is not None:
            return
        if not self._size:
            self._body = piece  # usually the whole body, so it is not copied
        else:
            if not isinstance(self._body, bytearray):
                self._body = bytearray(self._body)
            self._body += piece
        self._size += len(piece)
        if self._waiter is None:
            return
        if self._size > self._limit:
            self._wake()
        elif self._account is not None and self._size > max(MAX_UNASKED, 2 * self._counted):
            self._count(self._account)

    def _count(self, account: BodyAccount) -> None:
        """Counts what was received, each time that has doubled; refuses the body if there is no room for it."""
        increment = self._size - self._counted
        self._refusal = account.begin(None, increment)
        if self._refusal is None:
            self._counted += increment
        else:
            account.end(self._counted)  # at once, so that others have room
            self._counted = 0
            self._wake()

    def end(self) -> None:
        """Marks the body as complete."""
        self.complete = True
        if self.length is None:
            self.length = self._size
        if self._waiter is not None:
            self._wake()

    def lose(self) -> None:
        """Called when the client is gone or sends invalid HTTP; wakes the reader of the body."""
        self.disconnected = True
        if self._waiter is not None:
            self._wake()
        callback, self._on_disconnect = self._on_disconnect, None
        if callback is not None:
            callback()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- called by the handler -------------------------------------------------------------------------------

    def drop(self) -> None:
        """Discards the body: what was received and what follows."""
        self.dropped = True
        self._body = b""
        self._size = 0
        if not self.complete:
            self._wire.regulate()

    def watch(self, on_disconnect: Callable[[], object]) -> None:
        """Calls `on_disconnect()` once, when the client closes the connection. The rest of the body is discarded."""
        if self.disconnected:
            on_disconnect()
            return
        self._on_disconnect = on_disconnect
        if not self.complete:
            self.drop()

    def unwatch(self) -> None:
        """Cancels `watch`."""
        self._on_disconnect = None


class HttpReply:
    """The reply of one exchange: either `send`, or `start` and then `write` until `end`.

    `bodiless`: it answers a HEAD. `keep`: the connection may be kept. `chunks`: the client understands chunks; else a
    stream ends with its connection.
    """

    __slots__ = ("_bodiless", "_chunks", "_keep", "_wire", "complete", "extra", "lost", "started", "streams", "task")

    def __init__(
        self, wire: ExchangeConnection, *, bodiless: bool = False, keep: bool = True, chunks: bool = True
    ) -> None:
        self._wire = wire
        self._bodiless = bodiless
        self._keep = keep and chunks
        self._chunks = chunks
        self.lost = False
        """Whether the client is gone; what is written is discarded."""
        self.started = False
        self.complete = False
        self.streams = False
        """Whether it was started as an event stream."""
        self.extra: HeaderLines | None = None
        """Header lines that are added to any reply."""
        self.task: asyncio.Task[None] | None = None
        """The task that answers; the reference keeps it from being garbage collected."""

    def charge_to(self, share: UnreadAccount) -> None:
        """Charges unread bytes of this reply to a caller's account."""
        self._wire.share = share

    async def send(
        self, status: int, body: bytes = b"", kind: bytes = PLAIN, headers: HeaderLines | None = None
    ) -> None:
        """Sends a complete reply. Without a body there is no Content-Type either."""
        if self._wire.paused:
            await self._wire.writable()
        head = start(status)
        if body:
            body_fields = _BODY_OF.get(kind)
            if body_fields is None:
                body_fields = (
                    written([(b"content-type", kind), (b"x-content-type-options", b"nosniff")]) + b"content-length: "
                )
            head += b"%b%d\r\n" % (body_fields, len(body))
        elif status not in (204, 304):
            head += b"content-length: 0\r\n"
        if headers or self.extra or not self._keep:
            head = self._finish_head(head, headers)
        else:
            head += b"\r\n"
        self.started = True
        if not self.lost:
            if len(body) <= MAX_JOINED or self._bodiless:
                self._wire.write(head if self._bodiless else head + body)
            else:
                self._wire.write(head)
                self._wire.write(body)
        self._complete()

    def _finish_head(self, head: bytes, headers: HeaderLines | None) -> bytes:
        """Returns the head with all further lines and the empty line."""
        if headers or self.extra:
            lines = [*(headers or []), *(self.extra or [])]
            head += written(lines)
            if closes(lines):
                self._keep = False
                return head + b"\r\n"
        return head + b"\r\n" if self._keep else head + b"connection: close\r\n\r\n"

    async def text(self, status: int, text: str, headers: HeaderLines | None = None) -> None:
        """Sends a complete reply of plain text."""
        await self.send(status, text.encode() + b"\n", PLAIN, headers)

    async def json(self, status: int, value: Any, headers: HeaderLines | None = None) -> None:
        """Sends a complete reply of JSON."""
        await self.send(status, encode(value), JSON, headers)

    async def start(self, headers: HeaderLines | None = None) -> None:
        """Begins an event stream."""
        if self._wire.paused:
            await self._wire.writable()
        self.started = self.streams = True
        head = self._finish_head(start(200) + _STREAM, headers)
        if self._chunks:
            head = head[:-2] + b"transfer-encoding: chunked\r\n\r\n"
        if not self.lost:
            self._wire.stream_begun()
            self._wire.write(head)

    async def write(self, data: bytes) -> None:
        """Writes to the event stream; waits while the client does not read, at most STALLED_AFTER seconds.

        Raises ClientGone after that.
        """
        if self._wire.paused:
            try:
                async with asyncio.timeout(STALLED_AFTER):
                    await self._wire.writable()
            except TimeoutError:
                self.give_up()
                raise ClientGone from None
        if data and not self.lost:
            self._wire.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunks else data)

    def give_up(self) -> None:
        """Drops the connection and what is in its buffers; closing it would wait for the client to read them."""
        if not self.lost:
            self.lost = True
            self._wire.abort()

    async def end(self) -> None:
        """Ends the event stream."""
        if self._wire.paused:
            await self._wire.writable()
        if self._chunks and not self.lost:
            self._wire.write(b"0\r\n\r\n")
        self._complete()

    def _complete(self) -> None:
        self.complete = True
        if not self.lost:
            self._wire.answered(keep=self._keep)

    def lose(self) -> None:
        """Notes that the client is gone."""
        self.lost = True
