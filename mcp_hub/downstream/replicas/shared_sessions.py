"""Sessions of the handshake era that every replica can serve: their sealed ids, and what the store knows of them."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from mcp_hub.downstream import Respondent, error_response, not_delivered
from mcp_hub.downstream.event_stream import KEEP_ALIVE
from mcp_hub.downstream.replicas.forwarding import PUSH, RESTORE, ForwardClient, Headers
from mcp_hub.downstream.replicas.ownership import Owners, Ownership
from mcp_hub.downstream.replicas.shared_changes import SharedChanges
from mcp_hub.downstream.replicas.watched_resources import AGAIN_AFTER, WatchedResources
from mcp_hub.errors import CallError, Overloaded, ProtocolError
from mcp_hub.protocol.era import LOG_LEVELS, UPDATED
from mcp_hub.protocol.frames import FrameError, Message, decode, encode
from mcp_hub.security import Principal
from mcp_hub.store import Store, StoreUnavailable
from mcp_hub.store.membership import Membership
from mcp_hub.store.replica_keys import MAX_SEALED, ReplicaKeys
from mcp_hub.store.stored_stream import LOOK_EVERY, StoredEvent, StoredStream
from mcp_hub.transport.background import TaskSet
from mcp_hub.transport.http1.exchange import ClientGone, HttpReply, HttpRequest
from mcp_hub.transport.sse_codec import COMMENT, encode_event

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.handshake import SessionStore
    from mcp_hub.downstream.handshake_session import HandshakeSession

MAX_ID: Final = 80
"""The most characters of an event id."""
MAX_DIGITS: Final = 18
"""The most digits of its numbers: the store refuses those above 64 bits."""


class EventId(NamedTuple):
    """The id of an event: the replica that has written it first, its stream, and its number there."""

    replica: str
    stream: int
    number: int

    @classmethod
    def of(cls, text: str) -> EventId | None:
        """Reads an id; None if no replica has made it."""
        replica, _, remainder = text.partition(".")
        stream, _, number = remainder.partition("-")
        numbers = (stream, number)
        if len(text) > MAX_ID or any(len(part) > MAX_DIGITS for part in numbers):
            return None
        if not all(part.isascii() and part.isdecimal() for part in numbers):
            return None
        return cls(replica, int(stream), int(number))


class SessionEvents:
    """Keeps the events that this replica writes for one session (EventKeeper).

    `owned()` returns whether this replica still has the session's standing stream.
    """

    def __init__(
        self,
        store: Store,
        keys: Callable[[], ReplicaKeys],
        session: str,
        replica: str,
        owned: Callable[[], Awaitable[bool]],
    ) -> None:
        self._is_owned = owned
        self._store = store
        self._keys = keys
        self._session = session
        self._replica = replica
        self.prefix = f"{replica}."

    def _stream(self, number: int) -> StoredStream:
        return StoredStream(self._store, self._keys, f"{self._session}:{self._replica}:{number}")

    async def begin(self, stream: int, asked: Any) -> None:
        """Keeps `asked`, the request or batch that a stream answers."""
        with suppress(StoreUnavailable):
            await self._stream(stream).begin(encode(_requests_of(asked)))

    async def keep(self, stream: int, number: int, data: bytes | None) -> bool:
        """Keeps an event; `data` None ends the stream. Returns False if another replica has taken over the stream."""
        if not stream and not await self._is_owned():
            return False
        with suppress(StoreUnavailable):
            await self._stream(stream).append(number, data)
        return True


class ReplicaLost(CallError):
    """The replica that answered a request is gone. The call may have been executed."""

    code, rpc_code, retryable = "session_restarted", -32010, True


_BROKEN_OFF: Final = (
    "The replica that carried out this call is gone. It may have been carried out; it is not sent again."
)


def stream_of(store: Store, keys: Callable[[], ReplicaKeys], session: str, event: EventId) -> StoredStream:
    """Returns the stream of a session to which an event belongs."""
    return StoredStream(store, keys, f"{session}:{event.replica}:{event.stream}")


async def rest_of(stream: StoredStream, last: EventId) -> list[bytes] | None:
    """Returns the messages of a stream after an event, as far as they are kept; None if they are not.

    Raises StoreUnavailable.
    """
    messages: list[bytes] = []
    after = last.number
    while events := await stream.read(after):
        messages += [event.data for event in events if event.data is not None]
        after = events[-1].number
    return messages if events is not None else None


async def write_rest(
    request: HttpRequest, reply: HttpReply, stream: StoredStream, last: EventId, lives: Callable[[], bool]
) -> bool:
    """Writes another replica's stream after the event `last`, as it grows; returns False if that is not kept any more.

    If that replica dies before the stream ends (`lives()` is false), its open requests are answered with an error.
    Raises StoreUnavailable before anything is written, and ClientGone.
    """
    after, idle_seconds = last.number, 0.0
    was_alive, events = lives(), await stream.read(after)
    if events is None or (not events and not after and await stream.requests() is None):
        return False
    await reply.start()
    while not request.disconnected:
        for event in events:
            if event.data is None:
                await reply.end()
                return True
            await reply.write(encode_event(event.data, id=f"{last.replica}.{last.stream}-{event.number}"))
            after, idle_seconds = event.number, 0.0
        if not events and not was_alive:
            events = await _end_with_errors(stream, after)
            continue
        if not events:
            await asyncio.sleep(LOOK_EVERY)
            idle_seconds += LOOK_EVERY
            if idle_seconds >= KEEP_ALIVE:
                idle_seconds = 0.0
                await reply.write(COMMENT)
        try:
            was_alive, events = lives(), await stream.read(after) or []
        except StoreUnavailable:
            reply.give_up()  # the client comes back with its last event
            raise ClientGone from None
    return True


async def _end_with_errors(stream: StoredStream, after: int) -> list[StoredEvent]:
    """Ends a stream whose replica is gone with errors for the requests that it has not answered."""
    try:
        requests = msgspec.convert(
            decode(await stream.requests() or b"[]"), list[tuple[str | int, str | None, str | None]]
        )
    except (FrameError, msgspec.ValidationError):
        requests = []
    answered_ids = {id for event in await stream.all_events() for id in _answered_ids(event.data)}
    unanswered = [request for request in requests if encode(request[0]) not in answered_ids]
    answers = [
        error_response(request[0], ReplicaLost(_BROKEN_OFF), request[1], {"name": request[2]}) for request in unanswered
    ]
    number = after + 1
    for answer in answers:
        await stream.append(number, encode(answer))
        number += 1
    await stream.append(number, None)
    return await stream.read(after) or [StoredEvent(number, None)]


def _answered_ids(data: bytes | None) -> set[bytes]:
    """Returns the ids, as JSON, of the requests that an event answers: one, or those of a batch."""
    try:
        content = decode(data or b"{}")
    except FrameError:
        return set()
    messages = content if isinstance(content, list) else [content]
    return {
        encode(message["id"])
        for message in messages
        if isinstance(message, dict) and "id" in message and "method" not in message
    }


def _requests_of(payload: Any) -> list[list[Any]]:
    """Returns id, method and name of each request in what a stream answers."""
    messages = payload if isinstance(payload, list) else [payload]
    requests = []
    for message in messages:
        if isinstance(message, dict) and "id" in message:
            params = message.get("params")
            name = params.get("name") if isinstance(params, dict) else None
            requests.append([message["id"], message.get("method"), name if isinstance(name, str) else None])
    return requests


log = logging.getLogger("mcp_hub.replicas")

SESSION: Final = "session"
"""The kind of sealed text that a session's id is."""
LIFE: Final = 7 * 24 * 3600
"""Seconds after a session's begin until replicas that do not know it yet refuse it."""
MAX_PUSHED: Final = 256
"""The most messages to one client that wait for the replica that has its standing stream; more are dropped."""


class SessionClaims(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of a session's sealed id."""

    id: str
    principal: str
    version: str
    owner: str
    """The replica that it began at."""
    at: int
    """When it began, in seconds since 1970."""
    profile: str | None = None
    capabilities: dict[str, Any] = {}
    client_info: dict[str, Any] = {}


class HandedOver(msgspec.Struct, frozen=True, array_like=True):
    """The URIs that a session subscribes to, as its former owner hands them over, and the turn of that owner."""

    turn: int
    uris: list[str]


class SharedSessions:
    """Makes sessions known to the other replicas, and serves those that have begun there. `keys()` may raise NoKeys."""

    def __init__(
        self,
        store: Store,
        keys: Callable[[], ReplicaKeys],
        members: Membership,
        owners: Owners,
        client: ForwardClient,
        dispatcher: Dispatcher,
        changes: SharedChanges,
    ) -> None:
        self._store = store
        self._changes = changes
        self._keys = keys
        self._members = members
        self._owners = owners
        self._client = client
        self._dispatcher = dispatcher
        self._push_queues: dict[str, deque[Message]] = {}
        self._tasks = TaskSet()

    # --- begin and end ---------------------------------------------------------------------------------------------

    async def share_new(self, session: HandshakeSession) -> None:
        """Gives a new session the id by which every replica knows it, and claims it for this one. Raises CallError."""
        caller, connection = session.caller, session.connection
        claims = SessionClaims(
            secrets.token_urlsafe(18),
            str(caller.principal),
            connection.protocol_version or "",
            self._members.me.owner,
            int(time.time()),
            caller.principal.profile,
            connection.envelope.capabilities,
            connection.envelope.client_info or {},
        )
        sealed = self._keys().seal(SESSION, msgspec.to_builtins(claims))
        if len(sealed) > MAX_SEALED:
            raise Overloaded("What this client declares is too long for a session that several replicas serve.")
        session.id = sealed
        await self._owners.begin(self._share(session, claims.id))

    async def adopted(self, sealed: str, principal: Principal, sessions: SessionStore) -> HandshakeSession | None:
        """Returns a session that began at another replica and is from now on served here too; None if there is none.

        Raises Overloaded.
        """
        claims = self._claims(sealed, principal)
        if claims is None:
            return None
        state = await self.state(claims.id)
        if "ended" in state:
            return None
        if (adopted := sessions.find(sealed, principal)) is not None:  # a concurrent request has adopted it
            return adopted
        session = sessions.new(principal)
        if session is None:
            raise Overloaded("Too many sessions are open.")
        session.id = sealed
        ownership, connection = self._share(session, claims.id), session.connection
        ownership.owner, ownership.began_here = claims.owner, False
        connection.declare(claims.version, claims.capabilities, claims.client_info)
        connection.complete_handshake()
        if (level := state.get("level")) in LOG_LEVELS:
            connection.want_log_from(str(level))
        hub = self._dispatcher.hub
        hub.clients.introduce(session.caller, Respondent(connection), "handshake")
        sessions.admit(session)
        self._changes.introduce(session.caller)
        return session

    def _share(self, session: HandshakeSession, known_as: str) -> Ownership:
        """Makes a session one that several replicas serve, with `known_as` as its id there."""
        connection, me = session.connection, self._members.me.id
        session.caller.share(known_as)
        connection.questions.prefix = f"hub-{me}-"
        session.ownership = ownership = Ownership(session.caller.store_key)
        is_owned = partial(self._owners.still_here, ownership)
        session.streams.keep_with(SessionEvents(self._store, self._keys, known_as, me, is_owned))
        session.watched = watched = WatchedResources(
            self._store, self._dispatcher, session, self._store.key(f"watches:{known_as}"), LIFE
        )
        ownership.let_go = partial(self._let_go, session)
        ownership.load = watched.load
        ownership.taken_over = lambda: self._tasks.start(watched.restore())
        ownership.on_store_loss = watched.keep
        session.passed_on = partial(self._pass_on, session, ownership)
        session.closed = partial(self._owners.forget, ownership)
        return ownership

    def _claims(self, sealed: str, principal: Principal) -> SessionClaims | None:
        """Returns the content of a sealed id; None if it is invalid, another principal's, or too old."""
        try:
            claims = msgspec.convert(self._keys().open(SESSION, sealed), SessionClaims)
        except msgspec.ValidationError:
            return None
        if (claims.principal, claims.profile) != (str(principal), principal.profile) or time.time() - claims.at > LIFE:
            return None
        return claims

    async def note_end(self, session: HandshakeSession) -> None:
        """Notes in the store that a session has ended, for replicas that do not serve it yet, and tells the others."""
        await self.keep(session, "ended", "1", LIFE)
        await self.tell_others(session, "DELETE", b"")

    async def tell_others(self, session: HandshakeSession, method: str, body: bytes) -> None:
        """Passes a request about a session on to all other replicas."""
        await self._members.wait_for_addresses()
        headers, members = headers_of(session), self._members.others.values()
        sends = (self._client.tell(member, session.principal, headers, body, method) for member in members)
        await asyncio.gather(*sends)

    # --- what the store knows --------------------------------------------------------------------------------------

    async def state(self, known_as: str) -> dict[str, str]:
        """Returns what the store knows of a session beyond its id; {} if the store is unreachable.

        Members: `ended`; `level`, that of logging; `own`, set if servers may have kept something for it alone.
        """
        try:
            fields = await self._store.execute("HGETALL", self._store.key(f"state:session:{known_as}"))
        except StoreUnavailable:
            return {}
        return {key.decode("latin-1"): value.decode("latin-1") for key, value in dict(fields).items()}

    async def keep(self, session: HandshakeSession, name: str, value: str, seconds: int = LIFE) -> None:
        """Stores a fact about a session for replicas that serve it later."""
        key = self._store.key(f"state:{session.caller.store_key}")
        try:
            await self._store.execute("HSET", key, name, value)
            await self._store.execute("EXPIRE", key, seconds)
        except StoreUnavailable:
            log.warning("a change of a session reaches no other replica, as the store is unavailable")

    async def watches(self, session: HandshakeSession, message: Message) -> None:
        """Stores that a client subscribes to or unsubscribes from a resource, for the next owner of the session.

        Raises StoreUnavailable: then it must not be carried out.
        """
        if session.watched is not None:
            await self._store.retry(partial(session.watched.note, message))

    def stored_stream(self, session: HandshakeSession, event: EventId) -> StoredStream:
        """Returns the stream in the store to which an event of a session belongs."""
        return stream_of(self._store, self._keys, session.caller.session_id or "", event)

    # --- another owner ---------------------------------------------------------------------------------------------

    def _let_go(self, session: HandshakeSession) -> None:
        """Ends what servers keep for a session alone, its subscriptions, and its standing stream."""
        for upstream in self._dispatcher.hub.upstreams.values():
            upstream.drop(session.caller)
        self._dispatcher.unsubscribe(session.caller)
        ownership, watched = session.ownership, session.watched
        if ownership is not None and watched is not None and not self._owners.is_here(ownership):
            turn, uris = watched.let_go()
            if uris:
                self._tasks.start(self._hand_over(session, ownership, encode(HandedOver(turn, uris))))
        session.let_stream_go()

    async def _hand_over(self, session: HandshakeSession, ownership: Ownership, body: bytes) -> None:
        """Tells the next owner what a client subscribes to, as the store may have lost it."""
        for pause in AGAIN_AFTER:
            if self._owners.is_here(ownership):  # this replica owns it again, and has loaded what the others stored
                return
            owner = await self._members.find_live((ownership.owner or "").partition(":")[0])
            headers = headers_of(session)
            if owner is not None and await self._client.tell(owner, session.principal, headers, body, RESTORE):
                return
            await asyncio.sleep(pause)

    def take(self, session: HandshakeSession, body: bytes) -> None:
        """Takes over the subscriptions that a former owner of a session has handed over."""
        handed_over = msgspec.json.decode(body, type=HandedOver)
        if session.watched is not None:
            self._tasks.start(session.watched.take(handed_over.turn, handed_over.uris))

    # --- the standing stream ---------------------------------------------------------------------------------------

    def _pass_on(self, session: HandshakeSession, ownership: Ownership, message: Message) -> bool:
        """Passes a message on to the replica that has a session's standing stream; returns False if it is this one."""
        owner = None if self._owners.is_here(ownership) else self._members.find(ownership.owner or "")
        if owner is None:
            return False
        if message.get("method") == UPDATED or str(message.get("method")).endswith("/list_changed"):
            return True  # the owner notices the change by itself, if its client is to hear of it
        queue = self._push_queues.get(session.id)
        if queue is None:
            self._push_queues[session.id] = deque([message])
            self._tasks.start(self._push(session))
        elif len(queue) < MAX_PUSHED:
            queue.append(message)
        else:
            not_delivered(message)
        return True

    async def _push(self, session: HandshakeSession) -> None:
        """Sends the messages that wait for the owner of a session, one after the other."""
        queue, ownership = self._push_queues[session.id], session.ownership
        try:
            while queue:
                owner = self._members.find((ownership and ownership.owner) or "")
                message = queue.popleft()
                try:
                    if owner is None:
                        session.standing.put_once(message)
                    elif not await self._client.tell(
                        owner, session.principal, headers_of(session), encode(message), PUSH
                    ):
                        not_delivered(message)
                except ProtocolError as error:
                    session.connection.take_answer(error_response(message["id"], error))
        finally:
            del self._push_queues[session.id]  # the next message begins another task

    async def close(self) -> None:
        """Cancels all background tasks."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def headers_of(session: HandshakeSession) -> Headers:
    """Returns the headers of a request about a session."""
    return [
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
        ("mcp-session-id", session.id),
        ("mcp-protocol-version", session.connection.protocol_version or ""),
    ]


def replica_asking(question_id: Any) -> str:
    """Returns the id of the replica that has asked a question, by the prefix of the question's id."""
    parts = question_id.split("-") if isinstance(question_id, str) else []
    return parts[1] if len(parts) == 3 else ""
