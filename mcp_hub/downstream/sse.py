"""The legacy transport: one stream from `/sse` per client, its messages POSTed to a path the stream tells it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from mcp_hub.downstream.duplex import Duplex
from mcp_hub.downstream.event_stream import pump
from mcp_hub.downstream.http import EVENTS, Reply, Request
from mcp_hub.downstream.jsonrpc import read_body, refuse, refuse_with
from mcp_hub.downstream.outbox import Outbox
from mcp_hub.errors import INVALID_REQUEST, Overloaded
from mcp_hub.transport.sse import encode_event

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.quotas import Quotas
    from mcp_hub.security.principals import Principal

MESSAGES: Final = "/messages"
MAX_STREAMS: Final = 10_000


class _Connection:
    """One client: what it is told and what runs for it."""

    def __init__(self, dispatcher: Dispatcher, principal: Principal) -> None:
        self.id = secrets.token_urlsafe(24)
        self.share = dispatcher.backlog.share()
        self.outbox = Outbox(self.share)
        self.duplex = Duplex(dispatcher, self.outbox.put, self.share, principal)
        # Unasked notifications take the same way as answers, but repeat nothing that still waits.
        self.duplex.caller.notify = self.outbox.put_once
        self.ended = False

    def end(self) -> None:
        self.ended = True
        self.outbox.news.set()


class SseConnections:
    """Every open stream; a request on one may be of either era. `max_body` in bytes."""

    def __init__(self, dispatcher: Dispatcher, max_body: int, quotas: Quotas) -> None:
        self._dispatcher = dispatcher
        self._quotas = quotas
        self._max_body = max_body
        self._connections: dict[str, _Connection] = {}

    def __len__(self) -> int:
        return len(self._connections)

    async def open(self, request: Request, reply: Reply, principal: Principal) -> None:
        """GET /sse: the stream, until the client closes it."""
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
            reply.counts(connection.share)
            await reply.start()
            where = f"{MESSAGES}?session_id={connection.id}"
            await reply.write(encode_event(where.encode(), "endpoint"))
            await pump(request, reply, connection.outbox, lambda: connection.ended)
        finally:
            self._quotas.close_session(principal)
            del self._connections[connection.id]
            connection.duplex.close()
            connection.outbox.clear()

    async def post(self, request: Request, reply: Reply, principal: Principal) -> None:
        """POST /messages: one message; what there is to say to it goes to the stream."""
        if request.method != "POST":
            await reply.text(405, "Method Not Allowed", [(b"allow", b"POST")])
            return
        ids = parse_qs(request.query.decode("latin-1"), max_num_fields=10).get("session_id", [])
        if len(ids) != 1:
            await refuse(
                reply, 400, INVALID_REQUEST, "session_id must be said once; the stream's first event gives it."
            )
            return
        connection = self._connections.get(ids[0])
        if connection is None or connection.duplex.caller.principal != principal:
            await refuse(reply, 404, INVALID_REQUEST, "Session not found")
            return
        if connection.outbox.full:
            error = Overloaded("Read the stream first; too much waits there.", retry_after=1.0)
            await refuse_with(reply, 503, error, headers=[(b"retry-after", b"1")])
            return
        body = await read_body(request, reply, self._max_body)
        if body is None:
            return
        connection.duplex.received(body)
        await reply.whole(202)

    async def drained(self) -> None:
        """Return when nothing runs for any client; not bounded in time."""
        await asyncio.gather(*(connection.duplex.drained() for connection in self._connections.values()))

    def close_of(self, gone: Collection[tuple[str, str | None]]) -> None:
        """End the streams of principals, each with its profile."""
        for connection in self._connections.values():
            principal = connection.duplex.caller.principal
            if (principal, principal.profile) in gone:
                connection.duplex.caller.cancel_all()
                connection.end()

    def close_all(self) -> None:
        """End every stream once what waits has been written."""
        for connection in self._connections.values():
            connection.end()
