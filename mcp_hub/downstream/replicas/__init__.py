"""This hub as one of several replicas: sessions that each of them serves, and requests that belong to another one.

A session's id is sealed and says whose it is and what its client declared, so that any replica can serve it. What a
session has alone - its own sessions with servers, its subscriptions, its standing stream - is at one replica, its
owner; requests for these are forwarded there.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub.config.store import StoreSettings
from mcp_hub.downstream import Respondent
from mcp_hub.downstream.replicas.forwarding import (
    MISDIRECTED,
    ForwardClient,
    ForwardedRequest,
    ForwardGate,
    NotOwner,
    ReplicaGone,
)
from mcp_hub.downstream.responses import Shape, refuse_with
from mcp_hub.errors import CallError, Overloaded
from mcp_hub.protocol.era import CANCELLED, LOG_LEVELS, ROOTS_CHANGED, SET_LEVEL, SUBSCRIBE, UNSUBSCRIBE
from mcp_hub.protocol.frames import Message, encode
from mcp_hub.protocol.kinds import KINDS
from mcp_hub.security import Principal
from mcp_hub.store import Store, StoreUnavailable
from mcp_hub.store.membership import Member, Membership
from mcp_hub.store.replica_keys import MAX_SEALED, ReplicaKeys
from mcp_hub.store.shared_bucket import SharedBucket
from mcp_hub.transport import RequestId
from mcp_hub.transport.http1.exchange import HttpReply, HttpRequest

if TYPE_CHECKING:
    from mcp_hub.downstream.handshake import HandshakeSession, SessionStore
    from mcp_hub.hub import Engine

log = logging.getLogger("mcp_hub.replicas")

SESSION: Final = "session"
"""What ids of sessions are sealed as."""
RECORD_KEPT: Final = 24 * 3600
"""Seconds for which the store remembers a session after its last change."""
OWNER_WITHIN: Final = 5.0
"""Seconds for a session to have an owner that can be reached: longer than a lease."""
ASK_AGAIN: Final = 0.1
"""Seconds until the owner of a session is looked up again."""
KEYS_EVERY: Final = 60.0
"""Seconds between two looks for a new replica key."""
_ACTS: Final = {kind.act_method: kind for kind in KINDS}
_ANYWHERE: Final = frozenset({"ping", "initialize", SET_LEVEL})
_SUBSCRIPTIONS: Final = frozenset({SUBSCRIBE, UNSUBSCRIBE})


class SessionClaims(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a sealed id says of its session."""

    id: str
    principal: str
    version: str
    profile: str | None = None
    capabilities: dict[str, Any] = {}
    client_info: dict[str, Any] = {}


class NoOwner(CallError):
    """The owner of a session cannot be reached, and is not known to be gone. Nothing was executed."""

    code, rpc_code, retryable = "server_unavailable", -32010, True


class SessionRestarted(CallError):
    """The replica that owned a session is gone, and with it what servers kept for the session alone."""

    code, rpc_code, retryable = "session_restarted", -32010, True


_RESTARTED: Final = (
    "The replica that had this session is gone. Servers with a session of their own for it begin anew: pages, logins "
    "and subscriptions of before are lost. This call was not carried out; begin again."
)


class NoKeys(CallError):
    """This replica has no keys yet, as the store has not been there since it began."""

    code, rpc_code, retryable = "store_unavailable", -32010, True


class Replicas:
    """This replica among the others. It is made before the listener and begins with it.

    `hub` is the engine that calls go to; `max_body` bounds what is forwarded here.
    """

    def __init__(self, settings: StoreSettings, hub: Engine) -> None:
        self._settings = settings
        self._hub = hub
        self.store = Store(settings)
        self._keys = _configured(settings)
        self._asking: asyncio.Task[None] | None = None
        self._members = Membership(self.store, lambda: self.keys, settings.address or "")
        self.bucket = SharedBucket(self.store, lambda: self._members.count)
        """Where rates of all replicas are counted."""
        self._client = ForwardClient(lambda: self.keys)
        self.gate = ForwardGate(lambda: self.keys, self._members)

    @property
    def id(self) -> str:
        """What this replica is called."""
        return self._members.me.id

    @property
    def keys(self) -> ReplicaKeys:
        """The replica keys. Raises NoKeys."""
        if self._keys is None:
            raise NoKeys("The store has not given this replica its keys yet (setting: store).", retry_after=1.0)
        return self._keys

    def reached_at(self, address: str) -> None:
        """Takes the URL of this replica's listener, where the settings give none."""
        self._members.reached_at(self._settings.address or address)

    async def begin(self) -> None:
        """Joins the other replicas. Raises ConfigError if the store is of no use."""
        await self.store.open()
        if self._keys is None:
            try:
                self._keys = await ReplicaKeys.shared(self.store)
            except StoreUnavailable:
                log.warning("no session can begin before the store is there: it keeps the replica keys")
            self._asking = asyncio.get_running_loop().create_task(self._keep_asking())
        await self._members.join()

    async def _keep_asking(self) -> None:
        """Takes the keys of the store as soon as it is there, and newer ones as they are made."""
        while True:
            await asyncio.sleep(KEYS_EVERY if self._keys is not None else 0.5)
            try:
                self._keys = await ReplicaKeys.shared(self.store)
            except StoreUnavailable:
                continue

    async def close(self) -> None:
        """Leaves the other replicas; what was owned here is free at once. Never raises."""
        if self._asking is not None:
            self._asking.cancel()
        await self._members.leave()
        await self._client.close()
        await self.store.close()

    # --- sessions ------------------------------------------------------------------------------------------------

    async def _state(self, known_as: str) -> dict[str, str]:
        """Returns what the store knows of a session beyond its id; nothing, if the store is away.

        `ended`, `level` and `own`: whether anything was open for it alone.
        """
        try:
            found = await self.store.execute("HGETALL", self.store.key(f"state:{known_as}"))
        except StoreUnavailable:
            return {}
        return {key.decode(): value.decode() for key, value in dict(found).items()}

    async def _keep(self, session: HandshakeSession, name: str, value: str) -> None:
        """Keeps a fact about a session for replicas that come to serve it."""
        key = self.store.key(f"state:{session.known_as}")
        try:
            await self.store.execute("HSET", key, name, value)
            await self.store.execute("EXPIRE", key, RECORD_KEPT)
        except StoreUnavailable:
            log.warning("a change of a session reaches no other replica, as the store is away")

    async def begun(self, session: HandshakeSession) -> None:
        """Gives a session the id under which every replica knows it. It is owned here. Raises CallError."""
        caller = session.caller
        claims = SessionClaims(
            secrets.token_urlsafe(18),
            str(caller.principal),
            caller.protocol_version or "",
            caller.principal.profile,
            caller.envelope.capabilities,
            _short(caller.envelope.client_info or {}),
        )
        session.id = self.keys.seal(SESSION, msgspec.to_builtins(claims))
        if len(session.id) > MAX_SEALED:
            raise Overloaded("What this client declares is too long for a session that several replicas serve.")
        session.known_as = caller.known_as = claims.id
        with suppress(StoreUnavailable):  # then the first that needs an owner claims it
            session.owner = (await self._members.claim(f"session:{claims.id}")).owner

    async def adopted(self, sealed: str, principal: Principal, sessions: SessionStore) -> HandshakeSession | None:
        """Returns a session that began at another replica, from now on served here too; None if there is none."""
        claims = self._claims(sealed, principal)
        if claims is None:
            return None
        state = await self._state(claims.id)
        if "ended" in state or (known := sessions.find(sealed, principal)) is not None:
            return None if "ended" in state else known
        try:
            session = sessions.new(principal)
        except Overloaded:
            session = None
        if session is None:
            return None
        caller = session.caller
        session.id, session.known_as, caller.known_as = sealed, claims.id, claims.id
        caller.declare(claims.version, claims.capabilities, claims.client_info)
        caller.initialized = True
        if (level := state.get("level")) in LOG_LEVELS:
            caller.want_log_from(str(level))
        self._hub.clients.introduce(caller, Respondent(caller), "handshake")
        sessions.admit(session)
        return session

    def _claims(self, sealed: str, principal: Principal) -> SessionClaims | None:
        """Returns what a sealed id says; None if it is none, or another principal's."""
        try:
            said = msgspec.convert(self.keys.open(SESSION, sealed), SessionClaims)
        except (msgspec.ValidationError, NoKeys):
            return None
        return said if (said.principal, said.profile) == (str(principal), principal.profile) else None

    async def ended(self, request: HttpRequest, session: HandshakeSession) -> None:
        """Tells the other replicas that a client has ended its session."""
        if not isinstance(request, ForwardedRequest):
            await self._keep(session, "ended", "1")
            await self._tell_others("DELETE", session, b"")

    # --- requests ------------------------------------------------------------------------------------------------

    async def took(
        self, request: HttpRequest, reply: HttpReply, session: HandshakeSession, message: Message, shape: Shape
    ) -> bool:
        """Returns whether another replica has answered a message, in the place of this one."""
        forwarded = isinstance(request, ForwardedRequest)
        if shape == "request":
            if message["method"] == SET_LEVEL and not forwarded:
                level = message.get("params", {}).get("level") if isinstance(message.get("params"), dict) else None
                if level in LOG_LEVELS:
                    await self._keep(session, "level", str(level))
                    await self._tell_others("POST", session, encode(message))
            if not self._needs_owner(session, message):
                return False
            return await self._by_owner(request, reply, session, message, message["id"])
        if shape == "response":
            asker = self._members.others.get(_replica_in(message.get("id")))
            if asker is not None:
                await self._client.tell(asker, session.principal, _headers(session), encode(message))
                await reply.send(202)
            return asker is not None
        if not forwarded and message["method"] in (CANCELLED, ROOTS_CHANGED):
            await self._tell_others("POST", session, encode(message))
        return False

    async def took_stream(
        self, request: HttpRequest, reply: HttpReply, session: HandshakeSession, batch: list[Any] | None = None
    ) -> bool:
        """Returns whether the owner of a session has served its standing stream, or a batch, in this one's place."""
        ids = request.values(b"last-event-id")
        if ids and batch is None:
            writer = self._members.others.get(ids[0].partition(".")[0])
            if writer is None:
                return False
            try:
                await self._client.forward(writer, request, reply, session.principal, b"")
            except (NotOwner, ReplicaGone):
                return False
            return True
        return await self._by_owner(request, reply, session, batch, None)

    async def _by_owner(
        self,
        request: HttpRequest,
        reply: HttpReply,
        session: HandshakeSession,
        what: Message | list[Any] | None,
        request_id: RequestId | None,
    ) -> bool:
        body = b"" if what is None else encode(what)
        loop = asyncio.get_running_loop()
        until = loop.time() + OWNER_WITHIN
        while True:
            try:
                owner = await self.owner_elsewhere(session)
                if owner is None:
                    return await self._here(reply, session, request_id)
                if isinstance(request, ForwardedRequest):
                    await reply.text(MISDIRECTED, "Another replica owns this session.")
                    return True
                await self._client.forward(owner, request, reply, session.principal, body)
            except NotOwner:
                session.owner = None
                if loop.time() < until:
                    await asyncio.sleep(ASK_AGAIN)
                    continue
                error: CallError = NoOwner("The replica of this session cannot be reached; try again.", retry_after=1.0)
                await refuse_with(reply, 503, error, request_id)
            except (ReplicaGone, StoreUnavailable) as failed:
                await refuse_with(reply, 503 if isinstance(failed, StoreUnavailable) else 502, failed, request_id)
            return True

    async def _here(self, reply: HttpReply, session: HandshakeSession, request_id: RequestId | None) -> bool:
        """Lets this replica carry something out for a session that it owns, unless it has to be told of a loss."""
        if session.restarted and request_id is not None:
            session.restarted = False
            await refuse_with(reply, 200, SessionRestarted(_RESTARTED, retry_after=0.0, executed=False), request_id)
            return True
        if not session.own_kept:
            session.own_kept = True
            await self._keep(session, "own", "1")
        return False

    async def _tell_others(self, method: str, session: HandshakeSession, body: bytes) -> None:
        others = self._members.others.values()
        headers = _headers(session)
        telling = (self._client.tell(one, session.principal, headers, body, method) for one in others)
        await asyncio.gather(*telling)

    async def owner_elsewhere(self, session: HandshakeSession) -> Member | None:
        """Returns the replica that owns a session; None: this one does. A session without an owner becomes its own.

        Raises StoreUnavailable, and NotOwner while the owner is not known here yet.
        """
        members = self._members
        if session.owner == members.me.owner and members.holds:
            return None
        if session.owner is not None and (known := members.find(session.owner)) is not None:
            return known
        claim = await members.claim(f"session:{session.known_as}")
        session.owner = claim.owner
        if claim.owner != members.me.owner:
            known = members.find(claim.owner)
            if known is None:
                raise NotOwner
            return known
        if claim.taken_over:
            session.restarted = (await self._state(session.known_as)).get("own") == "1"
        return None

    def _needs_owner(self, session: HandshakeSession, message: Message) -> bool:
        """Returns whether only the owner of a session can carry a message out."""
        method = message["method"]
        if method in _SUBSCRIPTIONS or method == ROOTS_CHANGED:
            return True
        if method in _ANYWHERE or not self._hub.has_own_sessions:
            return False
        kind, params = _ACTS.get(method), message.get("params")
        name = params.get(kind.name_key) if kind is not None and isinstance(params, dict) else None
        if kind is None or not isinstance(name, str):
            return True  # lists too: a server may list for one client
        return self._hub.may_need_own_session(kind, name, session.caller)


def _configured(settings: StoreSettings) -> ReplicaKeys | None:
    given = [key.get_secret_value().encode() for key in settings.keys]
    return ReplicaKeys(given) if given else None


def _short(info: dict[str, Any]) -> dict[str, Any]:
    """Returns what of a client's name and version fits an id."""
    return {key: value[:100] for key, value in info.items() if key in ("name", "version") and isinstance(value, str)}


def _headers(session: HandshakeSession) -> dict[str, str]:
    version = session.caller.protocol_version or ""
    return {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-session-id": session.id,
        "mcp-protocol-version": version,
    }


def _replica_in(question: Any) -> str:
    """Returns the replica that has asked a question, by its id."""
    parts = question.split("-") if isinstance(question, str) else []
    return parts[1] if len(parts) == 3 else ""
