"""Decides where a request is carried out: here, or at the replica that owns the state it needs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.catalog.exposed_ids import TASK_ID, TASK_METHODS
from mcp_hub.downstream import error_response
from mcp_hub.downstream.parked_calls import PREFIX
from mcp_hub.downstream.replicas.forwarding import (
    MISDIRECTED,
    ForwardClient,
    ForwardedRequest,
    NotOwner,
    ReplicaGone,
)
from mcp_hub.downstream.replicas.ownership import ASK_AGAIN, RESTARTED, Owners, Ownership, SessionRestarted
from mcp_hub.downstream.replicas.shared_sessions import (
    EventId,
    SharedSessions,
    headers_of,
    replica_asking,
    rest_of,
    write_rest,
)
from mcp_hub.downstream.responses import refuse, refuse_with
from mcp_hub.downstream.subscriptions import WATCHED, WATCHED_TASKS
from mcp_hub.errors import INVALID_REQUEST, CallError, ProtocolError
from mcp_hub.protocol.era import (
    CANCELLED,
    HTTP_STATUS,
    LISTEN,
    LOG_LEVELS,
    ROOTS_CHANGED,
    SET_LEVEL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Era,
)
from mcp_hub.protocol.frames import Message, encode
from mcp_hub.protocol.kinds import KINDS, RESOURCES
from mcp_hub.protocol.questions import place_in
from mcp_hub.protocol.skill_entries import READ_DIRECTORY
from mcp_hub.security import Principal
from mcp_hub.security.callers import Caller, CallerSlot
from mcp_hub.store import Store, StoreUnavailable
from mcp_hub.store.membership import Membership
from mcp_hub.transport.http1.exchange import HttpReply, HttpRequest

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.handshake_session import HandshakeSession

OWNER_WITHIN: Final = 5.0
"""Seconds to wait for an owner that can be reached: longer than a lease."""
LISTEN_AGAIN: Final = 30.0
"""Seconds after which a client that listens here without its owner has to listen again."""
_LAST_EVENT_ID: Final = b"last-event-id"
_KIND_BY_METHOD: Final = {kind.act_method: kind for kind in reversed(KINDS)} | {READ_DIRECTORY: RESOURCES}
"""Resources and templates have one method, which names a resource."""
_LIST_METHODS: Final = frozenset(kind.list_method for kind in KINDS)
_ANY_REPLICA_METHODS: Final = frozenset({"ping", "initialize", "server/discover", SET_LEVEL})
_SUBSCRIPTIONS: Final = frozenset({SUBSCRIBE, UNSUBSCRIBE})
_INITIALIZED: Final = "notifications/initialized"


class NoOwner(CallError):
    """The owner of a session or principal cannot be reached, but may be alive. Nothing was executed."""

    code, rpc_code, retryable = "server_unavailable", -32010, True


class RequestRouter:
    """Forwards requests to the replica that owns the state they need; all others are carried out where they arrive."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        store: Store,
        members: Membership,
        owners: Owners,
        client: ForwardClient,
        sessions: SharedSessions,
    ) -> None:
        self._dispatcher = dispatcher
        self._hub = dispatcher.hub
        self.callers = dispatcher.hub.callers
        self._store = store
        self._members = members
        self._owners = owners
        self._client = client
        self._sessions = sessions
        self._ownerships = CallerSlot[Ownership](end=self._forget)
        """Of the principals of the modern era."""

    # --- the handshake era -----------------------------------------------------------------------------------------

    async def try_answer(
        self, request: HttpRequest, reply: HttpReply, session: HandshakeSession, message: Message
    ) -> bool:
        """Returns whether a request was answered, by another replica or with an error; if not, handle it here."""
        forwarded, principal = isinstance(request, ForwardedRequest), session.principal
        if not forwarded:
            await self._spread_level(session, [message])
        if self._needs_owner(message, session.caller, "handshake"):
            return await self._by_session_owner(request, reply, session, message)
        return not forwarded and await self._read_elsewhere(request, reply, principal, message, session)

    async def try_batch(
        self, request: HttpRequest, reply: HttpReply, session: HandshakeSession, batch: list[Any]
    ) -> bool:
        """Returns whether the requests of a batch were answered, by the owner of its session or with an error."""
        if not isinstance(request, ForwardedRequest):
            await self._spread_level(session, batch)
        return await self._by_session_owner(request, reply, session, batch)

    async def _by_session_owner(
        self, request: HttpRequest, reply: HttpReply, session: HandshakeSession, payload: Message | list[Any]
    ) -> bool:
        """Returns whether the owner of a session has answered; if not, its subscriptions are stored."""
        if await self._by_owner(request, reply, session.ownership, session.principal, payload):
            return True
        try:
            for message in _messages(payload):
                if isinstance(message, dict) and message.get("method") in _SUBSCRIPTIONS:
                    await self._sessions.watches(session, message)
        except StoreUnavailable as error:
            await _fail(reply, error, payload, "handshake")
            return True
        return False

    async def pass_on(self, request: HttpRequest, session: HandshakeSession, messages: list[Message]) -> list[Message]:
        """Passes notifications and answers on to the replicas that they concern; returns those to handle here too."""
        if isinstance(request, ForwardedRequest):
            return messages
        here, answers, cancellations, news = [], dict[str, list[Message]](), [], []
        for message in messages:
            if "method" not in message:
                answers.setdefault(replica_asking(message.get("id")), []).append(message)
                continue
            here.append(message)
            if message["method"] == CANCELLED:
                cancellations.append(message)
            elif message["method"] in (_INITIALIZED, ROOTS_CHANGED):
                news.append(message)
        for asker_id, to_asker in answers.items():
            asker = await self._members.find_live(asker_id)
            if asker is None:
                here += to_asker
            else:
                await self._client.tell(asker, session.principal, headers_of(session), _body_of(to_asker))
        owner = self._members.find(session.ownership.owner or "") if session.ownership is not None else None
        if news and owner is not None:
            await self._client.tell(owner, session.principal, headers_of(session), _body_of(news))
        if cancellations:
            await self._sessions.tell_others(session, "POST", _body_of(cancellations))
        return here

    async def try_stream(self, request: HttpRequest, reply: HttpReply, session: HandshakeSession) -> bool:
        """Returns whether a GET was answered: by the session's owner, or by the replica with the stream it resumes."""
        ids = request.values(_LAST_EVENT_ID)
        last = EventId.of(ids[0]) if len(ids) == 1 else None
        if last is not None and last.replica != self._members.me.id:
            writer = self._members.others.get(last.replica)
            if writer is not None and not isinstance(request, ForwardedRequest):
                try:
                    await self._client.forward(writer, request, reply, session.principal, b"")
                except (NotOwner, ReplicaGone):
                    pass  # its events are in the store
                else:
                    return True
            if last.stream:
                return await self._resume(request, reply, session, last)
        elif last is not None and (last.stream or self._has_stream(session)):
            return False
        if await self._by_owner(request, reply, session.ownership, session.principal, None):
            return True
        if last is not None and last.replica != self._members.me.id and not await self._take_standing(session, last):
            await refuse(reply, 400, INVALID_REQUEST, "The events after Last-Event-ID are not kept any more.")
            return True
        return False

    def _has_stream(self, session: HandshakeSession) -> bool:
        return session.ownership is not None and self._owners.is_here(session.ownership)

    def continues_here(self, ids: list[str]) -> bool:
        """Returns whether a GET continues here the standing stream that another replica had."""
        last = EventId.of(ids[0]) if len(ids) == 1 else None
        return last is not None and last.stream == 0 and last.replica != self._members.me.id

    async def _resume(self, request: HttpRequest, reply: HttpReply, session: HandshakeSession, last: EventId) -> bool:
        """Continues the stream of a request that another replica has begun to answer."""
        stream = self._sessions.stored_stream(session, last)
        try:
            return await write_rest(request, reply, stream, last, lambda: last.replica in self._members.others)
        except StoreUnavailable as error:
            await refuse_with(reply, 503, error)
            return True

    async def _take_standing(self, session: HandshakeSession, last: EventId) -> bool:
        """Puts what the former owner wrote after the event `last` on the standing stream.

        If the client resumes from the same event once more, it has not received what was written here since, and that
        is written again. Returns False if it is not kept any more.
        """
        standing = session.standing
        if session.continued is not None and session.continued[0] == last:
            return standing.rewind(session.continued[1])
        try:
            events = await rest_of(self._sessions.stored_stream(session, last), last)
        except StoreUnavailable:
            events = []
        if events is None:
            return False
        session.continued = last, standing.written
        for data in events:
            standing.put(data)
        return True

    def take(self, session: HandshakeSession, handed_over: bytes) -> bool:
        """Takes over the subscriptions of a former owner of a session; returns False if it is not owned here."""
        is_owned = self._has_stream(session)
        if is_owned:
            self._sessions.take(session, handed_over)
        return is_owned

    async def note_end(self, request: HttpRequest, session: HandshakeSession) -> None:
        """Tells the other replicas that a client has ended its session."""
        if not isinstance(request, ForwardedRequest):
            await self._sessions.note_end(session)

    async def _spread_level(self, session: HandshakeSession, messages: list[Any]) -> None:
        """Sets the level of logging at every replica, as the last of these messages asks that does."""
        for message in reversed(messages):
            is_level = isinstance(message, dict) and message.get("method") == SET_LEVEL
            level = _object(message.get("params")).get("level") if is_level else None
            if level in LOG_LEVELS:
                session.connection.want_log_from(str(level))
                await self._sessions.keep(session, "level", str(level))
                await self._sessions.tell_others(session, "POST", encode(message))
                return

    # --- the modern era --------------------------------------------------------------------------------------------

    async def try_modern(self, request: HttpRequest, reply: HttpReply, caller: Caller, message: Message) -> bool:
        """Returns whether a request of the modern era was answered, by another replica or with an error."""
        principal, holder = caller.principal, self._holder(caller, message)
        if holder and await self._at_holder(request, reply, principal, message, holder):
            return True
        if self._needs_owner(message, caller, "modern"):
            return await self._by_owner(request, reply, self._ownership(caller), principal, message, "modern")
        forwarded = isinstance(request, ForwardedRequest)
        return not forwarded and await self._read_elsewhere(request, reply, principal, message, None)

    def _holder(self, caller: Caller, message: Message) -> str:
        """Returns the replica whose process alone has a request's parked call or task, by its id; "" if none.

        Of several tasks that a client listens to, the first one counts.
        """
        params = _object(message.get("params"))
        state = params.get("requestState")
        if isinstance(state, str):
            return state.removeprefix(PREFIX).partition(":")[0] if state.startswith(PREFIX) else place_in(state)
        sealed = params.get(TASK_ID) if message["method"] in TASK_METHODS else None
        if message["method"] == LISTEN:
            watched = _object(params.get("notifications")).get(WATCHED_TASKS)
            sealed = watched[0] if isinstance(watched, list) and watched else None
        try:
            return self._hub.task_ids().place_of(caller, sealed) if isinstance(sealed, str) else ""
        except ProtocolError:
            return ""

    async def _at_holder(
        self, request: HttpRequest, reply: HttpReply, principal: Principal, message: Message, holder: str
    ) -> bool:
        """Forwards a request to the `holder` of its parked call or task; returns False if that is this one or gone."""
        member = None if isinstance(request, ForwardedRequest) else await self._members.find_live(holder)
        if member is None:
            return False
        try:
            await self._client.forward(member, request, reply, principal, encode(message))
        except NotOwner:
            return False  # it is gone, and the parked call or task with it
        except ReplicaGone as error:
            await _fail(reply, error, message, "modern")
        return True

    def _ownership(self, caller: Caller) -> Ownership:
        ownership = self._ownerships.get(caller)
        if ownership is None:
            ownership = self._ownerships[caller] = Ownership(caller.store_key)
            ownership.let_go = partial(self._let_go, caller)
        return ownership

    def _forget(self, caller: Caller, ownership: Ownership) -> None:
        self._owners.forget(ownership)

    def _let_go(self, caller: Caller) -> None:
        """Ends what is open here for a principal that another replica owns. Its client listens there from now on."""
        for upstream in self._hub.upstreams.values():
            upstream.drop(caller)
        self._dispatcher.end_listening(caller)

    # --- both ------------------------------------------------------------------------------------------------------

    def _needs_owner(self, message: Message, caller: Caller, era: Era) -> bool:
        """Returns whether only the owner of a session, or of a principal, can carry a request out."""
        method = message["method"]
        if era == "handshake" and method in _SUBSCRIPTIONS:
            return True
        if method in _ANY_REPLICA_METHODS:
            return False
        if era == "handshake" and self._members.has_mixed_configurations and not self._store.is_unavailable:
            return True  # one session is served by one configuration
        if not self._hub.generation.has_own_sessions:
            return False
        if method in _LIST_METHODS or method == LISTEN:
            return self._hub.generation.has_own_lists or not _is_about_lists(message)
        kind = _KIND_BY_METHOD.get(method)
        name = _object(message.get("params")).get(kind.name_key) if kind is not None else None
        if kind is None or not isinstance(name, str):
            return kind is not None or method in TASK_METHODS or method == "completion/complete"
        route = self._hub.catalogs.of(caller).resolve(kind, name)
        upstream = self._hub.upstreams.get(route.upstream) if route is not None else None
        return upstream is None or upstream.server.session == "client"

    async def _by_owner(
        self,
        request: HttpRequest,
        reply: HttpReply,
        ownership: Ownership | None,
        principal: Principal,
        payload: Message | list[Any] | None,
        era: Era = "handshake",
    ) -> bool:
        """Returns whether the owner has answered a request; False: this replica carries it out.

        It does so as the owner, or with the common lists if the owner of a modern client's lists cannot be reached.
        """
        if ownership is None:
            return False
        has_common_answer = era == "modern" and isinstance(payload, dict) and _is_about_lists(payload)
        try:
            return await self._at_owner(request, reply, ownership, principal, payload, era, again=has_common_answer)
        except CallError as error:
            if not has_common_answer:
                await _fail(reply, error, payload, era)
                return True
        if isinstance(payload, dict) and payload["method"] == LISTEN:
            asyncio.get_running_loop().call_later(
                LISTEN_AGAIN, self._dispatcher.end_listening, self.callers.of(principal)
            )
        return False

    async def _at_owner(
        self,
        request: HttpRequest,
        reply: HttpReply,
        ownership: Ownership,
        principal: Principal,
        payload: Message | list[Any] | None,
        era: Era,
        *,
        again: bool,
    ) -> bool:
        """Returns whether the owner has answered; False if it is this replica. Raises CallError if none can be reached.

        `again`: whether the request may be forwarded once more after an owner has failed.
        """
        body = b"" if payload is None else encode(payload)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + OWNER_WITHIN
        while True:
            try:
                owner = await self._store.retry(partial(self._owners.owner_elsewhere, ownership))
                if owner is None:
                    return await self._report_loss(reply, ownership, payload, era)
                if isinstance(request, ForwardedRequest):
                    await reply.text(MISDIRECTED, "Another replica owns this.")
                else:
                    await self._client.forward(owner, request, reply, principal, body)
                return True
            except NotOwner:
                if not self._owners.is_here(ownership):
                    ownership.owner = None
                if isinstance(request, ForwardedRequest):
                    await reply.text(MISDIRECTED, "This replica does not own this.")
                    return True
                if loop.time() >= deadline:
                    text = "The replica that this belongs to cannot be reached; try again."
                    raise NoOwner(text, retry_after=1.0, executed=False) from None
            except ReplicaGone:
                if not again or loop.time() >= deadline:
                    raise
            await asyncio.sleep(ASK_AGAIN)

    async def _report_loss(
        self, reply: HttpReply, ownership: Ownership, payload: Message | list[Any] | None, era: Era
    ) -> bool:
        """Returns False if this replica, the owner, has to carry a request out; True if it reported a loss of state."""
        requests = [message for message in _messages(payload) if _is_kind_request(message)]
        if ownership.restarted and requests:
            await _fail(reply, SessionRestarted(RESTARTED, retry_after=0.0, executed=False), payload, era)
            ownership.restarted = False  # not if `_fail` raised, as the client was gone: then it is told the next time
            return True
        if requests and self._hub.generation.has_own_sessions:
            await self._store.retry(partial(self._owners.note_own, ownership))
        return False

    async def _read_elsewhere(
        self,
        request: HttpRequest,
        reply: HttpReply,
        principal: Principal,
        message: Message,
        session: HandshakeSession | None,
    ) -> bool:
        """Forwards the read of a resource to a replica that knows its URI, if this one does not.

        A URI in a result is known only to the replica that returned the result.
        """
        reads = _KIND_BY_METHOD.get(message["method"]) is RESOURCES
        uri = _object(message.get("params")).get("uri") if reads else None
        if not isinstance(uri, str) or self.knows(
            uri, self.callers.of(principal) if session is None else session.caller
        ):
            return False
        headers = () if session is None else headers_of(session)
        members = await self._members.everybody()
        answers = await asyncio.gather(*(self._client.knows(member, principal, headers, uri) for member in members))
        for member, is_known in zip(members, answers, strict=True):
            if is_known:
                try:
                    await self._client.forward(member, request, reply, principal, encode(message))
                except (NotOwner, ReplicaGone):
                    continue  # a resource can be read again at another replica without harm
                return True
        return False

    def knows(self, uri: str, caller: Caller) -> bool:
        """Returns whether this replica can read a resource for a client."""
        hub = self._hub
        if hub.long_results.owns(uri):
            return hub.long_results.read(uri, caller) is not None
        return hub.catalogs.of(caller).resolve(RESOURCES, uri) is not None or hub.uris.route_of(caller, uri) is not None


def _messages(payload: Message | list[Any] | None) -> list[Any]:
    return payload if isinstance(payload, list) else [payload]


def _body_of(messages: list[Message]) -> bytes:
    """Returns the body of a POST; several messages are those of a batch."""
    return encode(messages[0] if len(messages) == 1 else messages)


def _is_about_lists(message: Message) -> bool:
    """Returns whether a request asks for a list, or to be told of changes of lists alone."""
    if message["method"] != LISTEN:
        return message["method"] in _LIST_METHODS
    return not _object(_object(message.get("params")).get("notifications")).get(WATCHED)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_kind_request(message: Any) -> bool:
    return isinstance(message, dict) and "id" in message and message.get("method") in _KIND_BY_METHOD


async def _fail(reply: HttpReply, error: CallError, payload: Message | list[Any] | None, era: Era) -> None:
    """Answers a request, or each of a batch, with an error."""
    requests = [message for message in _messages(payload) if isinstance(message, dict) and "id" in message]
    answers = [
        error_response(request["id"], error, request.get("method"), request.get("params"), era) for request in requests
    ]
    if not answers:
        await refuse_with(reply, 503, error)
        return
    code = answers[0].get("error", {}).get("code")
    status = HTTP_STATUS.get(code, 200) if era == "modern" and isinstance(code, int) else 200
    await reply.json(status, answers if isinstance(payload, list) else answers[0])
