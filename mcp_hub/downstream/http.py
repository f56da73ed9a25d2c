"""One HTTP request and its reply: bounded bodies, whole answers, event streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from mcp_hub.downstream.backlog import Share
from mcp_hub.downstream.heads import Head, HeaderLines, closes, start, written
from mcp_hub.errors import HubError
from mcp_hub.protocol.frames import encode

BODY_DEADLINE: Final = 60.0
"""Seconds a client may take for a whole body, so that a trickle ends: 70 KB/s for the largest default body."""
STALLED_AFTER: Final = 120.0
"""Seconds a client may leave a full send buffer unread before its stream is given up."""
MAX_UNASKED: Final = 64 * 1024
"""Bytes of a body that are kept before anybody wants it; then its connection is not read."""
MAX_JOINED: Final = 64 * 1024
"""Bytes of a body that is copied behind its head, for one write; more are not copied."""

JSON: Final = b"application/json"
EVENTS: Final = b"text/event-stream"
PLAIN: Final = b"text/plain; charset=utf-8"

_BODY_OF: Final = {
    kind: b"content-type: " + kind + b"\r\nx-content-type-options: nosniff\r\ncontent-length: "
    for kind in (JSON, PLAIN)
}
_STREAM: Final = (
    b"content-type: text/event-stream\r\ncache-control: no-cache, no-transform\r\nx-accel-buffering: no\r\n"
)
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class ClientGone(HubError):
    """The connection ended; there is nobody to answer."""


class BodyTooLarge(HubError):
    """The body passes its limit. What has come of it so far is thrown away."""


class BodyTooSlow(HubError):
    """The body was not complete at its deadline."""


class Wire(Protocol):
    """The connection as a request and its reply see it."""

    port: int | None
    """Of the listener's own socket, never from the client's words."""
    peer: str
    """The address on the other side of the socket."""
    paused: bool
    """Whether so much waits to be sent that nothing should be added."""
    share: Share | None
    """Of whom it is being written for."""

    def write(self, data: bytes) -> None:
        """Send; nothing happens when the client is gone."""

    async def writable(self) -> None:
        """Return when it is not `paused`, or gone."""

    def regulate(self) -> None:
        """Read on if there is room for what comes."""

    def answered(self, *, keep: bool) -> None:
        """A reply is complete. `keep`: another request may follow."""

    def abort(self) -> None:
        """Drop the connection with what is in its buffers."""

    def let_in(self) -> None:
        """A request of the connection was let in."""


class Request:
    """The receiving half of one exchange. `length` is what it says its body has, `expects`: it waits to be asked."""

    __slots__ = (
        *("_body", "_expects", "_gone", "_limit", "_size", "_waiter", "_wire"),
        *("complete", "disconnected", "dropped", "head", "length", "method", "path"),
    )

    def __init__(self, wire: Wire, head: Head, length: int | None = None, *, expects: bool = False) -> None:
        self.head = head
        self.method = head.method
        self.path = head.path
        self.length = length
        self.complete = False
        """Whether all of the body has come."""
        self.dropped = False
        """Whether nobody wants the body, or what is left of it."""
        self.disconnected = False
        self._wire = wire
        self._expects = expects
        self._body: bytes | bytearray = b""
        self._size = self._limit = 0
        self._waiter: asyncio.Future[None] | None = None
        self._gone: Callable[[], object] | None = None

    @property
    def query(self) -> bytes:
        """What follows the path's question mark."""
        return self.head.query

    @property
    def headers(self) -> HeaderLines:
        """Every line but the body's length."""
        return self.head.lines

    @property
    def port(self) -> int | None:
        """Of the listener's own socket."""
        return self._wire.port

    @property
    def peer(self) -> str:
        """The address on the other side of the socket."""
        return self._wire.peer

    def let_in(self) -> None:
        """Whoever sends it is known, or need not be."""
        self._wire.let_in()

    def values(self, name: bytes) -> list[str]:
        """Every line of one header (name in lower case), in order."""
        return self.head.values(name)

    def accepts(self, kind: bytes) -> bool:
        """Whether an answer may be of `kind` (`type/subtype`)."""
        return self.head.accepts(kind)

    async def body(self, limit: int) -> bytes:
        """The whole body. Raises BodyTooLarge, BodyTooSlow and ClientGone."""
        if self.length is not None and self.length > limit:
            self.drop()
            raise BodyTooLarge
        if self._expects:
            self._expects = False
            self._wire.write(_CONTINUE)
        if not self.complete and self._size <= limit:
            await self._rest(limit)
        if self._size > limit:
            self.drop()
            raise BodyTooLarge
        if not self.complete:
            raise ClientGone
        body, self._body = self._body, b""
        return bytes(body)

    async def _rest(self, limit: int) -> None:
        """Wait until the body is complete, larger than `limit`, or its client gone. Raises BodyTooSlow."""
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

    # --- told by the connection --------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether more of the body has no place yet."""
        return self._waiter is None and self._size > MAX_UNASKED and not self.dropped

    def more(self, piece: bytes) -> None:
        """A piece of the body has come."""
        if self.dropped:
            return
        if not self._size:
            self._body = piece  # usually all of it, and not copied
        else:
            if not isinstance(self._body, bytearray):
                self._body = bytearray(self._body)
            self._body += piece
        self._size += len(piece)
        if self._waiter is not None and self._size > self._limit:
            self._wake()

    def end(self) -> None:
        """The body is complete."""
        self.complete = True
        if self._waiter is not None:
            self._wake()

    def lose(self) -> None:
        """The client is gone, or what it sends is no HTTP any more."""
        self.disconnected = True
        if self._waiter is not None:
            self._wake()
        gone, self._gone = self._gone, None
        if gone is not None:
            gone()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- asked by whoever answers ------------------------------------------------------------------------------

    def drop(self) -> None:
        """Nobody wants the body, or the rest of it."""
        self.dropped = True
        self._body = b""
        self._size = 0
        if not self.complete:
            self._wire.regulate()

    def watch(self, gone: Callable[[], object]) -> None:
        """Have `gone()` called once, when the client has closed the connection; the rest of the body is lost."""
        if self.disconnected:
            gone()
            return
        self._gone = gone
        if not self.complete:
            self.drop()

    def unwatch(self) -> None:
        """Whoever watched does not any more."""
        self._gone = None


class Reply:
    """The sending half: either `whole`, or `start` and then `write` until `end`.

    `bodiless`: the answer to HEAD. `chunks`: the client reads chunks, else a stream ends with its connection.
    """

    __slots__ = ("_bodiless", "_chunks", "_keep", "_wire", "complete", "extra", "lost", "started", "streams", "task")

    def __init__(self, wire: Wire, *, bodiless: bool = False, keep: bool = True, chunks: bool = True) -> None:
        self._wire = wire
        self._bodiless = bodiless
        self._keep = keep and chunks
        self._chunks = chunks
        self.lost = False
        """Whether there is nobody to answer; what is written goes nowhere."""
        self.started = False
        self.complete = False
        self.streams = False
        """Whether what was started is an event stream."""
        self.extra: HeaderLines | None = None
        """Lines that whatever is answered carries."""
        self.task: asyncio.Task[None] | None = None
        """Answers; kept here so that it is not collected while it waits."""

    def counts(self, share: Share) -> None:
        """What is written and not read counts as this caller's."""
        self._wire.share = share

    async def whole(
        self, status: int, body: bytes = b"", kind: bytes = PLAIN, headers: HeaderLines | None = None
    ) -> None:
        """A complete answer. Without a body it has no Content-Type either."""
        if self._wire.paused:
            await self._wire.writable()
        head = start(status)
        if body:
            known = _BODY_OF.get(kind)
            if known is None:
                known = (
                    written([(b"content-type", kind), (b"x-content-type-options", b"nosniff")]) + b"content-length: "
                )
            head += b"%b%d\r\n" % (known, len(body))
        elif status != 204:
            head += b"content-length: 0\r\n"
        head = self._finished(head, headers)
        self.started = True
        if not self.lost:
            if len(body) <= MAX_JOINED or self._bodiless:
                self._wire.write(head if self._bodiless else head + body)
            else:
                self._wire.write(head)
                self._wire.write(body)
        self._complete()

    def _finished(self, head: bytes, headers: HeaderLines | None) -> bytes:
        """The head with all further lines and the empty one."""
        if headers or self.extra:
            lines = [*(headers or []), *(self.extra or [])]
            head += written(lines)
            if closes(lines):
                self._keep = False
                return head + b"\r\n"
        return head + b"\r\n" if self._keep else head + b"connection: close\r\n\r\n"

    async def text(self, status: int, text: str, headers: HeaderLines | None = None) -> None:
        """A complete answer for a person."""
        await self.whole(status, text.encode() + b"\n", PLAIN, headers)

    async def json(self, status: int, value: Any, headers: HeaderLines | None = None) -> None:
        """A complete answer for a program."""
        await self.whole(status, encode(value), JSON, headers)

    async def start(self, headers: HeaderLines | None = None) -> None:
        """Begin an event stream."""
        if self._wire.paused:
            await self._wire.writable()
        self.started = self.streams = True
        head = self._finished(start(200) + _STREAM, headers)
        if self._chunks:
            head = head[:-2] + b"transfer-encoding: chunked\r\n\r\n"
        if not self.lost:
            self._wire.write(head)

    async def write(self, data: bytes) -> None:
        """More of an event stream; waits while the client does not read. Raises ClientGone when it never does."""
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
        """Drop the connection with what is in its buffers; closing it would wait for them to be read."""
        if not self.lost:
            self.lost = True
            self._wire.abort()

    async def end(self) -> None:
        """The end of an event stream."""
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
        """The client is gone."""
        self.lost = True


def is_json(values: list[str]) -> bool:
    """Whether Content-Type is said exactly once and is JSON, whatever its parameters."""
    return len(values) == 1 and values[0].partition(";")[0].strip().lower() == JSON.decode()
