"""The legacy transport: one event stream from `/sse` for each client, which POSTs its messages to `/messages`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from mcp_hub.downstream.dispatcher import Duplex
from mcp_hub.downstream.event_stream import Outbox, pump
from mcp_hub.downstream.responses import read_body, refuse, refuse_with
from mcp_hub.errors import INVALID_REQUEST, Overloaded
from mcp_hub.policy.quotas import uploads_of
from mcp_hub.security.callers import Caller
from mcp_hub.transport.http1.exchange import EVENTS, HttpReply, HttpRequest
from mcp_hub.transport.sse_codec import encode_event

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.policy.quotas import Quotas
    from mcp_hub.security import Principal

MESSAGES: Final = "/messages"
MAX_STREAMS: Final = 10_000


class _Connection:
    """One client: its outbox and its running requests."""

    def __init__(self, dispatcher: Dispatcher, principal: Principal) -> None:
        self.id = secrets.token_urlsafe(24)
        self.principal = principal
        self.share = dispatcher.backlog.share()
        self.outbox = Outbox(self.share)
        self.duplex = Duplex(dispatcher, self.outbox.put, self.share, Caller(principal))
        self.duplex.connection.transport = "sse"
        # Unsolicited notifications go to the same stream as answers, but repeat nothing that still waits.
        self.duplex.connection.notify = self.outbox.put_once
        self.duplex.connection.end = self._end_at_once
        self.is_closed = False

    def end(self) -> None:
        self.is_closed = True
        self.outbox.news.set()

    async def _end_at_once(self) -> None:
        self.end()


class SseEndpoint:
    """Serves `/sse` and `/messages`. A request may be of either era. `max_body`: bytes."""

    def __init__(self, dispatcher: Dispatcher, max_body: int, quotas: Quotas) -> None:
        self._dispatcher = dispatcher
        self._callers = dispatcher.hub.callers
        self._quotas = quotas
        self._max_body = max_body
        self._uploads = uploads_of(dispatcher.backlog, max_body)
        self._connections: dict[str, _Connection] = {}

    def __len__(self) -> int:
        return len(self._connections)

    async def open(self, request: HttpRequest, reply: HttpReply, principal: Principal) -> None:
        """Answers GET /sse: serves the stream until the client closes it."""
        if request.method != "GET":
            await reply.text(405, "Method Not Allowed", [(b"allow", b"GET")])
            return
        if not request.accepts(EVENTS):
            await reply.text(406, "Accept must allow text/event-stream.")
            return
        if len(self._connections) >= MAX_STREAMS:
            await reply.text(503, "Too many streams are open.")
            return
        try:
            self._quotas.open_session(principal)
        except Overloaded as error:
            await refuse_with(reply, 429, error, headers=[(b"retry-after", b"1")])
            return
        connection = _Connection(self._dispatcher, principal)
        self._connections[connection.id] = connection
        try:
            reply.charge_to(connection.share)
            await reply.start()
            endpoint_url = f"{request.head.prefix}{MESSAGES}?session_id={connection.id}"
            await reply.write(encode_event(endpoint_url.encode(), "endpoint"))
            await pump(request, reply, connection.outbox, lambda: connection.is_closed)
        finally:
            self._quotas.close_session(principal)
            del self._connections[connection.id]
            connection.duplex.close()
            connection.outbox.clear()

    async def post(self, request: HttpRequest, reply: HttpReply, principal: Principal) -> None:
        """Answers POST /messages: takes one message; its answer goes to the stream."""
        if request.method != "POST":
            await reply.text(405, "Method Not Allowed", [(b"allow", b"POST")])
            return
        ids = parse_qs(request.query.decode("latin-1"), max_num_fields=10).get("session_id", [])
        if len(ids) != 1:
            await refuse(reply, 400, INVALID_REQUEST, "session_id must appear once; the stream's first event gives it.")
            return
        connection = self._connections.get(ids[0])
        if connection is None or connection.principal.key != principal.key:
            await refuse(reply, 404, INVALID_REQUEST, "Session not found")
            return
        if connection.outbox.full:
            error = Overloaded("Read the stream first; too much waits there.", retry_after=1.0)
            await refuse_with(reply, 503, error, headers=[(b"retry-after", b"1")])
            return
        body = await read_body(request, reply, self._max_body, self._uploads.of(self._callers.of(principal)))
        if body is None:
            return
        if connection.is_closed or connection.id not in self._connections:  # its stream has closed meanwhile
            await refuse(reply, 404, INVALID_REQUEST, "Session not found")
            return
        connection.duplex.received(body)
        await reply.send(202)

    async def drained(self) -> None:
        """Waits until no request is running; not bounded in time."""
        await asyncio.gather(*(connection.duplex.drained() for connection in self._connections.values()))

    def close_of(self, principals: Collection[tuple[str, str | None]]) -> None:
        """Ends the streams of some principals, each given with its profile."""
        for connection in self._connections.values():
            if connection.principal.key in principals:
                connection.duplex.cancel_all()
                connection.end()

    def close_all(self) -> None:
        """Ends every stream once its outbox has been written."""
        for connection in self._connections.values():
            connection.end()
