"""The handshake era over HTTP: the sessions, their requests and batches, and their standing streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.downstream import Connection, Send, batch_fault, unless_given_up
from mcp_hub.downstream.event_stream import EventLog, pump
from mcp_hub.downstream.handshake_session import HandshakeSession, Resumable, RetentionBudget
from mcp_hub.downstream.responses import Responder, Shape, Work, id_of, refuse, refuse_with, shape_of
from mcp_hub.errors import INVALID_REQUEST, CallError, Overloaded
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.era import era_of
from mcp_hub.protocol.frames import Message
from mcp_hub.transport import RequestId
from mcp_hub.transport.http1.exchange import EVENTS, HttpReply, HttpRequest
from mcp_hub.transport.http1.heads import HeaderLines

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.replicas.request_router import RequestRouter
    from mcp_hub.downstream.replicas.shared_sessions import SharedSessions
    from mcp_hub.policy.quotas import Quotas
    from mcp_hub.security import Principal

SESSION_HEADER: Final = b"mcp-session-id"
LAST_EVENT_ID: Final = b"last-event-id"
RETRY_AFTER: Final = 60
"""Seconds until a refused client may try again; idle sessions are closed at this interval (SWEEP_EVERY)."""


class HandshakeEndpoint:
    """Serves `/mcp` to clients of the handshake era."""

    def __init__(self, dispatcher: Dispatcher, responder: Responder, quotas: Quotas) -> None:
        self._dispatcher = dispatcher
        self._responder = responder
        self.sessions = SessionStore(dispatcher, quotas)
        self.replicas: RequestRouter | None = None
        """Forwards requests that belong to other replicas of this hub; None if there is one process only."""

    async def post(
        self,
        request: HttpRequest,
        reply: HttpReply,
        principal: Principal,
        message: Message,
        shape: Shape,
        ids: Sequence[str],
        *,
        streams: bool,
    ) -> None:
        """Answers one POSTed message.

        `ids`: the values of Mcp-Session-Id. `streams`: whether the client accepts an event stream.
        """
        is_request = shape == "request"
        begins = is_request and message["method"] == "initialize"
        if begins and not ids:
            await self._initialize(reply, principal, message)
            return
        session = self.sessions.find(ids[0], principal) if len(ids) == 1 else None
        if session is None:
            request_id, initialize = message["id"] if is_request else None, message if begins else None
            session = await self._session(request, reply, principal, request_id, initialize)
            if session is None:
                return
        if (
            self.replicas is not None
            and is_request
            and await self.replicas.try_answer(request, reply, session, message)
        ):
            return
        session.busy += 1
        try:
            if is_request:
                await self._deliver(request, reply, session, message, streams)
                return
            await self._take(request, session, [message])
            await reply.send(202)
        finally:
            self.sessions.finish(session)

    async def post_batch(
        self, request: HttpRequest, reply: HttpReply, principal: Principal, messages: list[Any], *, streams: bool
    ) -> None:
        """Answers a POSTed batch; only one protocol revision has batches."""
        session = await self._session(request, reply, principal)
        if session is None:
            return
        if session.connection.protocol_version != eras.BATCHING_REVISION:
            await refuse(reply, 400, INVALID_REQUEST, "A batch is not part of this revision.")
            return
        if (fault := batch_fault(messages)) is not None:
            await refuse_with(reply, 400, fault)
            return
        if any(isinstance(message, dict) and message.get("method") == "initialize" for message in messages):
            await refuse(reply, 400, INVALID_REQUEST, "A batch must not have an initialize in it.")
            return
        self.sessions.begin(session)
        try:
            requests: list[Any] = []
            others: list[Message] = []
            for message in messages:
                (requests if shape_of(message) in ("request", None) else others).append(message)
            await self._take(request, session, others)
            if not requests:
                await reply.send(202)
            elif self.replicas is None or not await self.replicas.try_batch(request, reply, session, requests):
                await self._deliver(request, reply, session, requests, streams)
        finally:
            self.sessions.finish(session)

    async def _take(self, request: HttpRequest, session: HandshakeSession, messages: list[Message]) -> None:
        """Takes notifications and answers, here or at the replicas that they concern."""
        if self.replicas is not None:
            messages = await self.replicas.pass_on(request, session, messages)
        for message in messages:
            if "method" in message:
                self._dispatcher.notification(session.connection, message)
            else:
                session.connection.take_answer(message)

    async def get(self, request: HttpRequest, reply: HttpReply, principal: Principal) -> None:
        """Answers GET: serves the session's standing stream, for unsolicited messages, or resumes another stream."""
        session = await self._session(request, reply, principal)
        if session is None:
            return
        if self.replicas is not None and await self.replicas.try_stream(request, reply, session):
            return
        if not request.accepts(EVENTS):
            await refuse(reply, 406, INVALID_REQUEST, "Accept must allow text/event-stream.")
            return
        log = self._requested_stream(request, session)
        if log is None:
            text = "Last-Event-ID is not an event of this session, or the event is not stored any more."
            await refuse(reply, 400, INVALID_REQUEST, text)
            return
        if log.reader is not None and not request.values(LAST_EVENT_ID):
            await refuse(reply, 409, INVALID_REQUEST, "The session's stream is open already.")
            return
        reader = log.reader = object()  # this ends the response that has carried the stream until now
        log.news.set()
        session.streams.begin_reading(log)
        self.sessions.begin(session)
        try:
            reply.charge_to(session.share)
            await reply.start([(SESSION_HEADER, session.id.encode())])
            if log is session.streams.standing and _primes(session.connection):
                await reply.write(log.first())
            await pump(
                *(request, reply, log, lambda: session.is_ended or (log.done and not len(log))),
                replaced=lambda: log.reader is not reader,
            )
        finally:
            if log.reader is reader:
                log.reader = None
                session.streams.end_reading(log)
            self.sessions.finish(session)

    def _requested_stream(self, request: HttpRequest, session: HandshakeSession) -> EventLog | None:
        """Returns the stream that a GET asks for, rewound to the client's last event; None if it is not kept."""
        ids = request.values(LAST_EVENT_ID)
        if not ids or (self.replicas is not None and self.replicas.continues_here(ids)):
            return session.streams.standing
        return session.streams.resume(ids[0]) if len(ids) == 1 else None

    async def delete(self, request: HttpRequest, reply: HttpReply, principal: Principal) -> None:
        """Answers DELETE: closes the session."""
        session = await self._session(request, reply, principal)
        if session is not None:
            if self.replicas is not None:
                await self.replicas.note_end(request, session)
            self.sessions.close(session)
            await reply.send(204)

    async def _initialize(self, reply: HttpReply, principal: Principal, message: Message) -> None:
        retry_headers: HeaderLines = [(b"retry-after", b"%d" % RETRY_AFTER)]
        try:
            session = self.sessions.new(principal)
        except Overloaded as error:
            await refuse_with(reply, 429, error, message["id"], retry_headers)
            return
        if session is None:
            overload = Overloaded("Too many sessions are open.", retry_after=float(RETRY_AFTER))
            await refuse_with(reply, 503, overload, message["id"], retry_headers)
            return
        headers: HeaderLines = []
        try:
            answer = await self._responder.answer(session.connection, message, session.standing.put, "handshake")
            if "result" in answer:
                if self.sessions.shared is not None:
                    await self.sessions.shared.share_new(session)
                self.sessions.admit(session)
                headers.append((SESSION_HEADER, session.id.encode()))
        except CallError as error:  # the session could not be stored for the other replicas
            await refuse_with(reply, 503, error, message["id"], retry_headers)
            return
        finally:
            if not headers:
                self.sessions.close(session)
        await reply.json(200, answer, headers)

    async def _session(
        self,
        request: HttpRequest,
        reply: HttpReply,
        principal: Principal,
        request_id: RequestId | None = None,
        initialize: Message | None = None,
    ) -> HandshakeSession | None:
        """Returns the session that a request names; None if the request has been answered.

        An `initialize` with the id of a session that is gone begins a new one, as some clients keep the id.
        """
        ids = request.values(SESSION_HEADER)
        if len(ids) != 1:
            text = "Mcp-Session-Id must appear once; its value is in the answer to initialize."
            await refuse(reply, 400, INVALID_REQUEST, text, request_id)
            return None
        session = self.sessions.find(ids[0], principal)
        if session is None and self.sessions.shared is not None:
            try:
                session = await self.sessions.shared.adopted(ids[0], principal, self.sessions)
            except Overloaded as error:
                await refuse_with(reply, 429, error, request_id, [(b"retry-after", b"%d" % RETRY_AFTER)])
                return None
        if session is None and initialize is not None:
            await self._initialize(reply, principal, initialize)
        elif session is None:
            await refuse(reply, 404, INVALID_REQUEST, "Session not found", request_id)
        return session

    def _deliver(
        self,
        request: HttpRequest,
        reply: HttpReply,
        session: HandshakeSession,
        payload: Message | list[Any],
        streams: bool,
    ) -> Awaitable[None]:
        """Answers a request or a batch."""
        if isinstance(payload, dict):
            work: Work = partial(self._responder.answer, session.connection, payload, era="handshake")
        else:
            work = partial(self._batch, session.connection, payload)
        return self._responder.respond(
            request,
            reply,
            work,
            payload,
            session.share,
            streams=streams,
            request_id=payload["id"] if isinstance(payload, dict) else None,
            resumable=Resumable(session.streams, _primes(session.connection), payload),
        )

    async def _batch(self, connection: Connection, messages: list[Any], send: Send) -> list[Message] | None:
        """Returns the answers to the members of a batch; None if the client has cancelled all of them."""
        answers = await asyncio.gather(*(self._answer_member(connection, message, send) for message in messages))
        return [answer for answer in answers if answer is not None] or None

    async def _answer_member(self, connection: Connection, message: Any, send: Send) -> Message | None:
        if shape_of(message) is None:
            return self._dispatcher.answer_malformed(connection, id_of(message))
        return await unless_given_up(
            connection, message, self._responder.answer(connection, message, send, era_of(message))
        )


def _primes(connection: Connection) -> bool:
    """Returns whether a client accepts events without a message; clients of earlier revisions fail on them."""
    return connection.protocol_version == eras.LATEST_HANDSHAKE


MAX_SESSIONS: Final = 10_000
IDLE_TIMEOUT: Final = 1800.0
"""Seconds without a request, a running call or an open stream until a session is closed."""
SWEEP_EVERY: Final = 60.0


class SessionStore:
    """The sessions of one listener. `clock` returns seconds."""

    def __init__(self, dispatcher: Dispatcher, quotas: Quotas, clock: Callable[[], float] = time.monotonic) -> None:
        self._dispatcher = dispatcher
        self._quotas = quotas
        self._clock = clock
        self._sessions: dict[str, HandshakeSession] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._total = RetentionBudget()
        self.shared: SharedSessions | None = None
        """Makes sessions known to other replicas; None if there are no other replicas."""

    def __len__(self) -> int:
        return len(self._sessions)

    def new(self, principal: Principal) -> HandshakeSession | None:
        """Returns a session that cannot be found before `admit`, and must be closed; None if there are too many.

        Raises Overloaded if the principal has too many.
        """
        if len(self._sessions) >= MAX_SESSIONS:
            self.forget_idle()
        if len(self._sessions) >= MAX_SESSIONS:
            return None
        self._quotas.open_session(principal)
        share = self._dispatcher.backlog.share()
        return HandshakeSession(principal, self._clock(), self._total, share)

    def admit(self, session: HandshakeSession) -> None:
        """Adds a session, after a successful `initialize`."""
        self._sessions[session.id] = session
        session.connection.end = partial(self.end, session)
        self._dispatcher.join(session.connection)
        self._schedule()

    def find(self, session_id: str, principal: Principal) -> HandshakeSession | None:
        """Returns the session with this id; None if there is none or it belongs to another principal."""
        session = self._sessions.get(session_id)
        return session if session is not None and session.principal.key == principal.key else None

    def begin(self, session: HandshakeSession) -> None:
        """Counts an exchange of the session that begins."""
        session.busy += 1

    def finish(self, session: HandshakeSession) -> None:
        """Counts an exchange of the session that has ended."""
        session.busy -= 1
        session.used = self._clock()

    async def end(self, session: HandshakeSession) -> None:
        """Ends a session for good, at every replica that serves it."""
        if self.shared is not None:
            await self.shared.note_end(session)
        self.close(session)

    def close(self, session: HandshakeSession) -> None:
        """Closes a session, admitted or not: cancels its calls and ends its streams. Idempotent."""
        self._sessions.pop(session.id, None)
        if not session.is_ended:
            self._dispatcher.leave(session.connection)  # `initialize` has introduced it, also if it failed later
            self._quotas.close_session(session.principal)
        session.end()

    def close_of(self, principals: Collection[tuple[str, str | None]]) -> None:
        """Closes the sessions of some principals, each given with its profile."""
        for session in list(self._sessions.values()):
            if session.principal.key in principals:
                self.close(session)

    def close_all(self) -> None:
        """Closes every session; the listener ends."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for session in list(self._sessions.values()):
            self.close(session)

    def forget_idle(self) -> None:
        """Closes sessions that were idle for IDLE_TIMEOUT seconds."""
        oldest = self._clock() - IDLE_TIMEOUT
        for session in list(self._sessions.values()):
            if not session.busy and session.used < oldest:
                self.close(session)

    def _schedule(self) -> None:
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_EVERY, self._on_sweep)

    def _on_sweep(self) -> None:
        self._sweep = None
        self.forget_idle()
        if self._sessions:
            self._schedule()
