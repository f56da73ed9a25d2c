"""Streamable HTTP at `/mcp`: determines the era of each request, and serves those of the modern era."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Awaitable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub.downstream import PROGRAM, Connection, not_delivered, program_of
from mcp_hub.downstream.handshake import SESSION_HEADER, HandshakeEndpoint
from mcp_hub.downstream.responses import Responder, Shape, id_of, read_body, refuse, refuse_with, shape_of
from mcp_hub.errors import HEADER_MISMATCH, INVALID_REQUEST, PARSE_ERROR, Overloaded, ProtocolError
from mcp_hub.policy.quotas import uploads_of
from mcp_hub.protocol import era as eras
from mcp_hub.protocol import routing_headers
from mcp_hub.protocol.frames import FrameError, Message, decode_exactly
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security import ANONYMOUS
from mcp_hub.security.callers import Caller
from mcp_hub.transport.http1.exchange import EVENTS, JSON, HttpReply, HttpRequest
from mcp_hub.transport.http1.heads import is_json

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.replicas.request_router import RequestRouter
    from mcp_hub.downstream.replicas.shared_sessions import SharedSessions
    from mcp_hub.policy.quotas import Quotas
    from mcp_hub.security import Principal

VERSION_HEADER: Final = b"mcp-protocol-version"


class HeadFacts(msgspec.Struct, frozen=True):
    """The facts in the head of a request that the endpoint needs."""

    versions: Sequence[str]
    """The values of MCP-Protocol-Version."""
    sessions: Sequence[str]
    """The values of Mcp-Session-Id."""
    takes_json: bool
    takes_events: bool
    """Whether Accept allows JSON, and an event stream."""
    is_json: bool
    """Whether Content-Type is that of JSON."""
    program: str
    """The value of the cookie PROGRAM; "" if it was not sent once."""

    @classmethod
    def of(cls, request: HttpRequest) -> HeadFacts:
        """Reads the facts from a request's head, and stores them there for requests with an equal head."""
        facts = cls(
            request.values(VERSION_HEADER),
            request.values(SESSION_HEADER),
            request.accepts(JSON),
            request.accepts(EVENTS),
            is_json(request.values(b"content-type")),
            program_of(request.values(b"cookie")),
        )
        request.head.facts = facts
        return facts


class StreamableEndpoint:
    """Serves `/mcp`. `max_body`: bytes of a request's body."""

    def __init__(self, dispatcher: Dispatcher, max_body: int, quotas: Quotas) -> None:
        self._max_body = max_body
        self._callers = dispatcher.hub.callers
        self._uploads = uploads_of(dispatcher.backlog, max_body)
        self.responder = Responder(dispatcher)
        self.modern = ModernEndpoint(dispatcher, self.responder)
        self.handshake = HandshakeEndpoint(dispatcher, self.responder, quotas)
        self.sessions = self.handshake.sessions

    def __call__(self, request: HttpRequest, reply: HttpReply, principal: Principal) -> Awaitable[None]:
        """Answers one HTTP request of an authenticated sender."""
        cached = request.head.facts
        facts = cached if isinstance(cached, HeadFacts) else HeadFacts.of(request)
        if request.method == "POST" and len(facts.versions) <= 1:
            return self._post(request, reply, principal, facts)
        return self._get_or_delete(request, reply, principal, facts)

    def join(self, router: RequestRouter, sessions: SharedSessions) -> None:
        """Makes this the endpoint of one replica among several."""
        self.handshake.replicas = self.modern.replicas = router
        self.sessions.shared = sessions

    async def drained(self) -> None:
        """Waits until no request is being answered; not bounded in time."""
        await self.responder.drained()

    def close_of(self, principals: Collection[tuple[str, str | None]]) -> None:
        """Closes the sessions of some principals, each given with its profile, and cancels their requests."""
        self.sessions.close_of(principals)
        self.modern.cancel_of(principals)

    def close_all(self) -> None:
        """Cancels all requests, which are answered with an error, and closes every session."""
        self.responder.abort()
        self.sessions.close_all()

    async def _get_or_delete(
        self, request: HttpRequest, reply: HttpReply, principal: Principal, facts: HeadFacts
    ) -> None:
        """Answers requests other than POST, and refuses a request with several versions."""
        version = facts.versions[0] if facts.versions else None
        if len(facts.versions) > 1:
            await refuse(reply, 400, HEADER_MISMATCH, "MCP-Protocol-Version appears more than once.")
        elif request.method not in ("GET", "DELETE"):
            await reply.text(405, "Method Not Allowed", [(b"allow", b"GET, POST, DELETE")])
        elif version in eras.MODERN_REVISIONS:
            await reply.text(405, "This revision has no sessions", [(b"allow", b"POST")])
        elif version is not None and version not in eras.HANDSHAKE_REVISIONS:
            await refuse_with(reply, 400, eras.unsupported_version(version))
        elif request.method == "GET" and not facts.sessions and _is_of_browser(request):
            await reply.text(406, "This address is for MCP clients, not for web browsers; see / of this address.")
        elif request.method == "GET":
            await self.handshake.get(request, reply, principal)
        else:
            await self.handshake.delete(request, reply, principal)

    async def _post(self, request: HttpRequest, reply: HttpReply, principal: Principal, facts: HeadFacts) -> None:
        # A client that accepts no event stream is served without notifications. One that accepts no JSON is refused:
        # most answers and all errors are JSON.
        if not facts.takes_json:
            await refuse(reply, 406, INVALID_REQUEST, "Accept must allow application/json and text/event-stream.")
            return
        body = request.arrived_body(self._max_body) if facts.is_json else None
        if body is None:
            caller = self._callers.of(principal)
            body = await read_body(request, reply, self._max_body, self._uploads.of(caller))
            if body is None:
                return
            if caller.is_ended:  # a reload has removed its token, or changed its profile
                error = Overloaded("What this client may do has changed meanwhile. Send the request again.")
                await refuse_with(reply, 503, error, headers=[(b"retry-after", b"1")])
                return
        version = facts.versions[0] if facts.versions else None
        try:
            message = decode_exactly(body)
        except FrameError:
            await refuse(reply, 400, PARSE_ERROR, "Parse error: the body is not JSON.")
            return
        modern = version in eras.MODERN_REVISIONS or (isinstance(message, dict) and eras.era_of(message) == "modern")
        shape = shape_of(message)
        if version is not None and version not in (*eras.MODERN_REVISIONS, *eras.HANDSHAKE_REVISIONS):
            await refuse_with(reply, 400, eras.unsupported_version(version), id_of(message))
        elif isinstance(message, list) and not modern:
            await self.handshake.post_batch(request, reply, principal, message, streams=facts.takes_events)
        elif shape is None:
            await refuse(reply, 400, INVALID_REQUEST, "The body must be one JSON-RPC message.", id_of(message))
        elif modern:
            program = facts.program
            if principal == ANONYMOUS and not program:
                program = secrets.token_urlsafe(18)
                cookie = f"{PROGRAM}={program}; Path=/; HttpOnly; SameSite=Strict"
                reply.extra = [*(reply.extra or ()), (b"set-cookie", cookie.encode())]
            await self.modern.post(request, reply, principal, message, shape, program, streams=facts.takes_events)
        else:
            await self.handshake.post(
                request, reply, principal, message, shape, facts.sessions, streams=facts.takes_events
            )


def _is_of_browser(request: HttpRequest) -> bool:
    return any("text/html" in value.lower() for value in request.values(b"accept"))


class ModernEndpoint:
    """Serves the POSTs of the modern era: each is independent, and its headers repeat parts of its body."""

    def __init__(self, dispatcher: Dispatcher, responder: Responder) -> None:
        self._dispatcher = dispatcher
        self._callers = dispatcher.hub.callers
        self._responder = responder
        self._running: set[Connection] = set()
        """The requests that are being answered."""
        self.replicas: RequestRouter | None = None
        """Forwards requests that belong to other replicas of this hub; None if there is one process only."""

    async def post(
        self,
        request: HttpRequest,
        reply: HttpReply,
        principal: Principal,
        message: Message,
        shape: Shape,
        program: str,
        *,
        streams: bool,
    ) -> None:
        """Answers one POSTed message of a `program`. `streams`: whether the client accepts an event stream."""
        if shape == "notification":
            # No notification has a meaning here. A request is cancelled by closing its response, never by an id that
            # another client could guess.
            await reply.send(202)
            return
        if shape == "response":
            await refuse(reply, 400, INVALID_REQUEST, "No request was sent that this could answer.")
            return
        request_id = message["id"]
        if message["method"] == eras.LISTEN and not streams:
            await refuse(reply, 406, INVALID_REQUEST, "Accept must allow text/event-stream.", request_id)
            return
        caller = self._callers.of(principal)
        schema = self._schema(message, caller)
        if schema is not None and routing_headers.must_be_repeated(schema, request.head.text):
            with contextlib.suppress(ProtocolError):  # `check` reports it
                envelope = eras.read_envelope(message["params"])
                schema = await self._dispatcher.hub.listed_schema(message["params"]["name"], caller, envelope)
        mismatch = routing_headers.check(request.head.text, message, schema)
        if mismatch is not None:
            await refuse_with(reply, eras.HTTP_STATUS.get(mismatch.code, 400), mismatch, request_id)
            return
        if self.replicas is not None and await self.replicas.try_modern(request, reply, caller, message):
            return
        # Each request is a connection of its own: two clients of one principal may use the same id at the same time.
        # It cannot be reached outside of this request.
        connection = Connection(caller, not_delivered, program)
        self._running.add(connection)
        try:
            await self._responder.respond(
                request,
                reply,
                lambda send: self._responder.answer(connection, message, send, "modern"),
                message,
                self._dispatcher.backlog.of(caller),
                streams=streams,
                status=_status,
                request_id=request_id,
            )
        finally:
            self._running.discard(connection)

    def cancel_of(self, principals: Collection[tuple[str, str | None]]) -> None:
        """Cancels the requests of some principals, each given with its profile; subscriptions would never end."""
        for connection in tuple(self._running):
            if connection.principal.key in principals:
                connection.cancel_all()

    def _schema(self, message: Message, caller: Caller) -> Any:
        """Returns the input schema of the called tool, to check headers with; None if there is none."""
        params = message.get("params")
        name = params.get("name") if message["method"] == "tools/call" and isinstance(params, dict) else None
        entry = self._dispatcher.hub.entry(TOOLS, name, caller) if isinstance(name, str) else None
        return entry.get("inputSchema") if isinstance(entry, dict) else None


def _status(answer: Message) -> int:
    error = answer.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return eras.HTTP_STATUS.get(code, 200) if isinstance(code, int) else 200
