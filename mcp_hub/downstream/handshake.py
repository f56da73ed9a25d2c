"""The handshake era over HTTP: sessions, their requests and batches, their standing stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.downstream.answering import Resumable
from mcp_hub.downstream.answers import Answers
from mcp_hub.downstream.callers import Caller, Send
from mcp_hub.downstream.event_log import EventLog
from mcp_hub.downstream.event_stream import pump
from mcp_hub.downstream.exchange import batch_fault
from mcp_hub.downstream.heads import HeaderLines
from mcp_hub.downstream.http import EVENTS, Reply, Request
from mcp_hub.downstream.jsonrpc import Shape, id_of, refuse, refuse_with, shape_of
from mcp_hub.downstream.sessions import Session, Sessions
from mcp_hub.errors import INVALID_REQUEST, Overloaded
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.frames import Message
from mcp_hub.transport.link import RequestId

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.quotas import Quotas
    from mcp_hub.security.principals import Principal

SESSION_HEADER: Final = b"mcp-session-id"
LAST_EVENT_ID: Final = b"last-event-id"
RETRY_AFTER: Final = 60
"""Seconds; sessions are swept that often."""


class Handshake:
    """Takes what the handshake era sends to `/mcp`."""

    def __init__(self, dispatcher: Dispatcher, answers: Answers, quotas: Quotas) -> None:
        self._dispatcher = dispatcher
        self._answers = answers
        self.sessions = Sessions(dispatcher, quotas)

    async def take(self, request: Request, reply: Reply, principal: Principal, message: Message, shape: Shape) -> None:
        """Answer one POSTed message."""
        if shape == "request" and message["method"] == "initialize" and not request.values(SESSION_HEADER):
            await self._initialize(reply, principal, message)
            return
        session = await self._session(request, reply, principal, message["id"] if shape == "request" else None)
        if session is None:
            return
        self.sessions.begin(session)
        try:
            if shape == "request":
                await self._deliver(request, reply, session, message)
                return
            if shape == "notification":
                self._dispatcher.notification(session.caller, message)
            else:
                session.caller.questions.answered(message)
            await reply.whole(202)
        finally:
            self.sessions.finish(session)

    async def take_batch(self, request: Request, reply: Reply, principal: Principal, messages: list[Any]) -> None:
        """Answer a POSTed array, in the one revision that has them."""
        session = await self._session(request, reply, principal)
        if session is None:
            return
        if session.caller.protocol_version != eras.BATCHING_REVISION:
            await refuse(reply, 400, INVALID_REQUEST, "A batch is not part of this revision.")
            return
        if (fault := batch_fault(messages)) is not None:
            await refuse_with(reply, 400, fault)
            return
        if any(isinstance(each, dict) and each.get("method") == "initialize" for each in messages):
            await refuse(reply, 400, INVALID_REQUEST, "A batch must not have an initialize in it.")
            return
        self.sessions.begin(session)
        try:
            owed = []
            for each in messages:
                shape = shape_of(each)
                if shape == "notification":
                    self._dispatcher.notification(session.caller, each)
                elif shape == "response":
                    session.caller.questions.answered(each)
                else:
                    owed.append(each)
            if owed:
                await self._deliver(request, reply, session, owed)
            else:
                await reply.whole(202)
        finally:
            self.sessions.finish(session)

    async def stand(self, request: Request, reply: Reply, principal: Principal) -> None:
        """GET: the session's standing stream, for what the hub says unasked."""
        session = await self._session(request, reply, principal)
        if session is None:
            return
        if not request.accepts(EVENTS):
            await refuse(reply, 406, INVALID_REQUEST, "Accept must allow text/event-stream.")
            return
        log = self._asked_for(request, session)
        if log is None:
            text = "Last-Event-ID is no event of this session, or it is not kept any more."
            await refuse(reply, 400, INVALID_REQUEST, text)
            return
        if log.reader is not None and not request.values(LAST_EVENT_ID):
            await refuse(reply, 409, INVALID_REQUEST, "The session's stream is open already.")
            return
        reader = log.reader = object()  # whoever wrote it before stops
        log.news.set()
        session.streams.resumed(log)
        self.sessions.begin(session)
        try:
            reply.counts(session.share)
            await reply.start([(SESSION_HEADER, session.id.encode())])
            if log is session.streams.standing and _primes(session.caller):
                await reply.write(log.first())
            await pump(
                request, reply, log, lambda: session.ended or log.reader is not reader or (log.done and not len(log))
            )
        finally:
            if log.reader is reader:
                log.reader = None
                session.streams.left_again(log)
            self.sessions.finish(session)

    def _asked_for(self, request: Request, session: Session) -> EventLog | None:
        """The stream a GET is for, set back to where its client was; None if that is nowhere."""
        ids = request.values(LAST_EVENT_ID)
        if not ids:
            return session.streams.standing
        found = session.streams.find(ids[0]) if len(ids) == 1 else None
        if found is None or not found[0].rewind(found[1]):
            return None
        return found[0]

    async def delete(self, request: Request, reply: Reply, principal: Principal) -> None:
        """DELETE: the client is done with its session."""
        session = await self._session(request, reply, principal)
        if session is not None:
            self.sessions.close(session)
            await reply.whole(204)

    async def _initialize(self, reply: Reply, principal: Principal, message: Message) -> None:
        later: HeaderLines = [(b"retry-after", b"%d" % RETRY_AFTER)]
        try:
            session = self.sessions.new(principal)
        except Overloaded as error:
            await refuse_with(reply, 429, error, message["id"], later)
            return
        if session is None:
            too_many = Overloaded("Too many sessions are open.", retry_after=float(RETRY_AFTER))
            await refuse_with(reply, 503, too_many, message["id"], later)
            return
        headers: HeaderLines = []
        try:
            answer = await self._answers.one(session.caller, message, session.streams.standing.put)
            if "result" in answer:
                self.sessions.admit(session)
                headers.append((SESSION_HEADER, session.id.encode()))
        finally:
            if not headers:
                self.sessions.close(session)
        await reply.json(200, answer, headers)

    async def _session(
        self, request: Request, reply: Reply, principal: Principal, request_id: RequestId | None = None
    ) -> Session | None:
        """The session a request names; None when the request has been refused."""
        ids = request.values(SESSION_HEADER)
        if len(ids) != 1:
            text = "Mcp-Session-Id must be said once; the answer to initialize gives it."
            await refuse(reply, 400, INVALID_REQUEST, text, request_id)
            return None
        session = self.sessions.find(ids[0], principal)
        if session is None:
            await refuse(reply, 404, INVALID_REQUEST, "Session not found", request_id)
        return session

    async def _deliver(self, request: Request, reply: Reply, session: Session, what: Message | list[Any]) -> None:
        async def work(send: Send) -> Any:
            if isinstance(what, dict):
                return await self._answers.one(session.caller, what, send)
            return await asyncio.gather(*(self._part(session.caller, each, send) for each in what))

        streams = request.accepts(EVENTS)
        resumable = Resumable(session.streams, _primes(session.caller))
        await self._answers.deliver(
            request,
            reply,
            work,
            what,
            session.share,
            streams=streams,
            status=_ok,
            request_id=id_of(what),
            resumable=resumable,
        )

    async def _part(self, caller: Caller, message: Any, send: Send) -> Message:
        if shape_of(message) is None:
            return self._dispatcher.broken(caller, id_of(message))
        return await self._answers.one(caller, message, send)


def _primes(caller: Caller) -> bool:
    """Whether a client knows events without a message; earlier revisions take each for one."""
    return caller.protocol_version == eras.LATEST_HANDSHAKE


def _ok(answer: Any) -> int:
    """Errors of this era are in the body."""
    return 200
