"""HTTP exchanges over ASGI, for a hub that is mounted in another application.

The ASGI server of that application reads and writes HTTP. Requests and replies have the same interface as those of
the hub's own listener, so one handler serves both.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from mcp_hub.transport.background import TaskSet
from mcp_hub.transport.http1 import send_buffer
from mcp_hub.transport.http1.exchange import PLAIN, HttpReply, HttpRequest
from mcp_hub.transport.http1.heads import AROUND, EVENT_STREAM, LENGTH, MAX_HEAD, BadHead, HeaderLines, RequestHead
from mcp_hub.transport.http1.listener import Handler, RefusalSink
from mcp_hub.transport.http1.peers import Peer
from mcp_hub.transport.http1.send_buffer import UnreadAccount
from mcp_hub.transport.http1.server_connection import MAX_SPILL

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

MAX_PIECE: Final = 256 * 1024
"""Bytes that are passed to the ASGI server at once. While more than that is queued for it, writers are paused."""
MAX_RUNNING: Final = 10_000
"""Requests that are answered at once: as many as the listener has connections."""
_SAFE: Final = "/:@!$&'()*+,;=~-._"
"""Characters of a path that are not percent-encoded in a request target."""
_BODY: Final = "http.response.body"


class AsgiFront:
    """An ASGI application that passes every HTTP request to `handler`."""

    def __init__(self, handler: Handler, refusals: RefusalSink | None = None) -> None:
        self._handler = handler
        self._refusals = refusals or RefusalSink()
        self._tasks = TaskSet()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request. The handler may run on after its client has gone."""
        exchange = AsgiExchange(scope, receive, send)
        reply = AsgiReply(exchange, scope)
        try:
            head, length = _head(scope)
        except BadHead as refusal:
            self._refusals.note(refusal.cause, exchange.peer, refusal.status)
            await reply.text(refusal.status, "Invalid HTTP request received.", [(b"connection", b"close")])
            await exchange.carry(None, reply)
            return
        if len(self._tasks) >= MAX_RUNNING:
            self._refusals.note("full", exchange.peer, 503)
            await reply.text(503, "Too many requests are being answered.", [(b"retry-after", b"1")])
            await exchange.carry(None, reply)
            return
        request = HttpRequest(exchange, head, length)
        reply.task = self._tasks.start(self._answer(request, reply))
        await exchange.carry(request, reply)

    async def _answer(self, request: HttpRequest, reply: HttpReply) -> None:
        try:
            await self._handler(request, reply)
        finally:
            if not reply.complete:
                reply.give_up()

    async def close(self, grace: float) -> None:
        """Waits at most `grace` seconds until every request is answered, then cancels the others."""
        if self._tasks:
            _, unfinished = await asyncio.wait(self._tasks, timeout=grace)
            for task in unfinished:
                task.cancel()
            if unfinished:
                await asyncio.wait(unfinished, timeout=grace)


class AsgiExchange:
    """The connection of one request and its reply (ExchangeConnection); it queues messages for the ASGI server."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server, client = scope.get("server"), scope.get("client")
        self.port: int | None = server[1] if server else None
        self.peer = str(client[0]) if client else ""
        self.proven: Peer | None = None
        self.paused = False
        self.share: UnreadAccount | None = None
        self.stranger = False
        """Always False: the ASGI server limits connections, not the hub."""
        self.unread = 0
        """Bytes that are queued for the ASGI server (UnreadQueue)."""
        self._receive = receive
        self._send = send
        self._request: HttpRequest | None = None
        self._body_room = asyncio.Event()
        self._expects = any(name.lower() == b"expect" for name, _ in scope["headers"])
        """Whether the client waits for `100 Continue`, which ASGI servers send when the body is first received."""
        self._queue: deque[dict[str, Any]] = deque()
        self._changed = asyncio.Event()
        self._drained = asyncio.Event()
        self._is_over = False
        """Whether the reply is complete or given up, so that no more messages are queued."""
        self._send_timeout: asyncio.Timeout | None = None

    async def carry(self, request: HttpRequest | None, reply: HttpReply) -> None:
        """Receives the request and sends the reply, until the reply is complete or the client is gone."""
        self._request = request
        reading = None if request is None else asyncio.get_running_loop().create_task(self._read(request, reply))
        try:
            while not self._is_over or self._queue:
                if self._queue:
                    await self._send_message(self._queue.popleft())
                else:
                    self._changed.clear()
                    await self._changed.wait()
        except (OSError, TimeoutError):  # servers raise OSError when the client is gone
            pass
        finally:  # the server may cancel this when it ends
            if reading is not None:
                reading.cancel()
            self.abort()
            self._lose(reply)

    async def _send_message(self, message: dict[str, Any]) -> None:
        """Sends one message to the server, in pieces. Raises TimeoutError after UNREAD_DEADLINE for one piece."""
        remainder, more_body = memoryview(message.pop("body", b"")), message.pop("more_body", None)
        while True:
            piece, remainder = remainder[:MAX_PIECE], remainder[MAX_PIECE:]
            body = {} if more_body is None else {"body": bytes(piece), "more_body": more_body or bool(remainder)}
            try:
                async with asyncio.timeout(send_buffer.UNREAD_DEADLINE) as self._send_timeout:
                    await self._send({**message, **body})
            finally:
                self._send_timeout = None
            self.unread = max(0, self.unread - len(piece))
            if self.unread <= MAX_PIECE and self.paused:
                self._resume()
            if not remainder:
                return

    async def _read(self, request: HttpRequest, reply: HttpReply) -> None:
        discarded = 0
        while True:
            while request.full or self._expects:
                self._body_room.clear()
                await self._body_room.wait()
            message = await self._receive()
            if message["type"] == "http.disconnect":
                break
            if request.complete:
                continue
            piece = message.get("body", b"")
            discarded += len(piece) if request.dropped else 0
            if discarded > MAX_SPILL:
                break
            if piece:
                request.feed(piece)
            if not message.get("more_body", False):
                request.end()
        self.abort()
        self._lose(reply)

    def _lose(self, reply: HttpReply) -> None:
        """Tells the handler that the client is gone, unless its reply is complete."""
        if not reply.complete:
            reply.lose()
            if self._request is not None:
                self._request.lose()

    def _resume(self) -> None:
        self.paused = False
        self._drained.set()

    # --- the reply -----------------------------------------------------------------------------------------------

    def put(self, message: dict[str, Any]) -> None:
        """Queues a message for the server."""
        if self._is_over:
            return
        self._queue.append(message)
        self._changed.set()
        self.unread += len(message.get("body", b""))
        if self.unread > MAX_PIECE and not self.paused:
            self.paused = True
            self._drained.clear()
            if self.share is not None:
                self.share.watch(self)

    def drop_unread(self) -> bool:
        """Drops the connection and its queued messages (UnreadQueue)."""
        self.abort()
        return True

    # --- ExchangeConnection ------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Queues a part of an event stream for the server."""
        self.put({"type": _BODY, "body": data, "more_body": True})

    async def writable(self) -> None:
        """Waits until it is not `paused`, or the client is gone."""
        while self.paused:
            await self._drained.wait()

    def regulate(self) -> None:
        """Resumes receiving the body if there is room for it."""
        request = self._request
        if request is not None and not request.full and not (self._expects and request.dropped):
            self._expects = False
            self._body_room.set()

    def stream_begun(self) -> None:
        """Does nothing: the ASGI server tracks the state of the reply."""

    def answered(self, *, keep: bool) -> None:
        """Ends the exchange once all queued messages are sent."""
        self._is_over = True
        self._changed.set()

    def abort(self) -> None:
        """Ends the exchange; the server closes the connection if the reply is not complete."""
        self._is_over = True
        self._queue.clear()
        self.unread = 0
        self._resume()
        self._changed.set()
        if self._send_timeout is not None:
            self._send_timeout.reschedule(asyncio.get_running_loop().time())

    def let_in(self) -> None:
        """Does nothing: the hub does not limit the connections of the ASGI server."""

    def speaks_for(self, peer: str) -> None:
        """Does nothing: the hub does not limit connections by address here."""


class AsgiReply(HttpReply):
    """The reply of an exchange over ASGI."""

    __slots__ = ("_exchange", "_plain")

    def __init__(self, exchange: AsgiExchange, scope: Scope) -> None:
        super().__init__(exchange, bodiless=scope["method"] == "HEAD", chunks=False)
        self._exchange = exchange
        self._plain = str(scope.get("http_version", "1.1")).startswith("1")
        """Whether the request came over HTTP/1, the only version that has a Connection header."""

    async def send(
        self, status: int, body: bytes = b"", kind: bytes = PLAIN, headers: HeaderLines | None = None
    ) -> None:
        """Sends a complete reply. Without a body there is no Content-Type either."""
        if self._exchange.paused:
            await self._exchange.writable()
        lines: HeaderLines = []
        if body:
            lines = [(b"content-type", kind), (b"x-content-type-options", b"nosniff")]
        if body or status not in (204, 304):
            lines.append((b"content-length", b"%d" % len(body)))
        self._begin(status, [*lines, *(headers or [])])
        self._exchange.put({"type": _BODY, "body": b"" if self._bodiless else body, "more_body": False})
        self._complete()

    async def start(self, headers: HeaderLines | None = None) -> None:
        """Begins an event stream."""
        self.streams = True
        self._begin(200, [*EVENT_STREAM, *(headers or [])])

    async def end(self) -> None:
        """Ends the event stream."""
        if self._exchange.paused:
            await self._exchange.writable()
        self._exchange.put({"type": _BODY, "body": b"", "more_body": False})
        self._complete()

    def _begin(self, status: int, lines: HeaderLines) -> None:
        self.started = True
        lines = [*lines, *(self.extra or [])]
        if not self._plain:
            lines = [line for line in lines if line[0] != b"connection"]
        self._exchange.put({"type": "http.response.start", "status": status, "headers": lines})


def _head(scope: Scope) -> tuple[RequestHead, int | None]:
    """Returns the head of a request, with its path below the mount point, and its Content-Length. Raises BadHead."""
    prefix, path = scope.get("root_path", "").rstrip("/"), scope["path"]
    if prefix and (path == prefix or path.startswith(f"{prefix}/")):  # older servers pass the path without it
        path = path.removeprefix(prefix)
    lines = [(name.lower(), value) for name, value in scope["headers"] if name.lower() != b"content-length"]
    lengths = [value for name, value in scope["headers"] if name.lower() == b"content-length"]
    if len(lengths) > 1 or not all(length.isdigit() for length in lengths):
        raise BadHead("the length of the body is unknown")
    if scope.get("http_version") == "1.0" and any(name == b"transfer-encoding" for name, _ in lines):
        raise BadHead("HTTP/1.0 has no transfer coding", cause="transfer_encoding")
    query = scope.get("query_string", b"")
    target = quote(path or "/", safe=_SAFE).encode() + (b"?" + query if query else b"")
    head = RequestHead(scope["method"], target, lines)
    size = head.size + len(head.method) + len(target) + AROUND + sum(LENGTH + len(length) for length in lengths)
    if size > MAX_HEAD:
        raise BadHead("the head is too long", 431, "head_too_large")
    head.prefix = prefix
    return head, int(lengths[0]) if lengths else None
