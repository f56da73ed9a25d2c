"""This hub as one of several replicas: sessions that each of them serves, and requests that belong to another one.

A session's id is sealed and says whose it is and what its client declared, so that any replica can serve it. What a
session has alone - its own sessions with servers, its subscriptions, its standing stream - is at one replica, its
owner; requests for these are forwarded there.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub.config.store import StoreSettings
from mcp_hub.downstream.replicas.forwarding import ForwardClient, ForwardGate
from mcp_hub.errors import CallError, Overloaded
from mcp_hub.protocol.era import LOG_LEVELS, ROOTS_CHANGED, SET_LEVEL, SUBSCRIBE, UNSUBSCRIBE
from mcp_hub.protocol.frames import Message
from mcp_hub.protocol.kinds import KINDS
from mcp_hub.security import Principal
from mcp_hub.store import Store, StoreUnavailable
from mcp_hub.store.membership import Member, Membership
from mcp_hub.store.replica_keys import MAX_SEALED, ReplicaKeys

if TYPE_CHECKING:
    from mcp_hub.downstream.handshake import HandshakeSession
    from mcp_hub.hub import Engine

log = logging.getLogger("mcp_hub.replicas")

SESSION: Final = "session"
"""What ids of sessions are sealed as."""
RECORD_KEPT: Final = 24 * 3600
"""Seconds for which the store remembers a session after its last change."""
KEYS_WITHIN: Final = 5.0
"""Seconds at the start for the store to give the replica keys."""
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
        self.members: Membership | None = None
        self._client: ForwardClient | None = None
        self.gate: ForwardGate | None = None

    @property
    def keys(self) -> ReplicaKeys:
        """The replica keys. Raises NoKeys."""
        if self._keys is None:
            raise NoKeys("The store has not given this replica its keys yet (setting: store).", retry_after=1.0)
        return self._keys

    async def begin(self, address: str) -> None:
        """Joins the other replicas, which reach this one's listener at `address`. Raises ConfigError."""
        await self.store.open()
        if self._keys is None:
            self._asking = asyncio.get_running_loop().create_task(self._keep_asking())
            await asyncio.wait([self._asking], timeout=0)
        self._client = ForwardClient(lambda: self.keys)
        self.members = Membership(self.store, lambda: self.keys, self._settings.address or address)
        self.gate = ForwardGate(lambda: self.keys, self.members)
        await self._have_keys()
        await self.members.join()

    async def _have_keys(self) -> None:
        if self._keys is None:
            try:
                self._keys = await ReplicaKeys.shared(self.store)
            except StoreUnavailable:
                log.warning("no session can begin before the store is there: it keeps the replica keys")

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
        if self.members is not None:
            await self.members.leave()
        if self._client is not None:
            await self._client.close()
        await self.store.close()

    # --- sessions ------------------------------------------------------------------------------------------------

    async def seal(self, session: HandshakeSession) -> str:
        """Returns the id under which every replica knows a session, which is owned here. Raises CallError."""
        caller = session.caller
        envelope = caller.envelope
        claims = SessionClaims(
            secrets.token_urlsafe(18),
            str(caller.principal),
            caller.protocol_version or "",
            caller.principal.profile,
            envelope.capabilities,
            _short(envelope.client_info or {}),
        )
        sealed = self.keys.seal(SESSION, msgspec.to_builtins(claims))
        if len(sealed) > MAX_SEALED:
            text = "What this client declares is too long for a session that several replicas serve."
            raise Overloaded(text)
        session.known_as = claims.id
        assert self.members is not None  # sessions begin after `begin`
        session.owner = (await self.members.claim(f"session:{claims.id}")).owner
        return sealed

    def claims(self, sealed: str, principal: Principal) -> SessionClaims | None:
        """Returns what a sealed id says; None if it is none, or another principal's."""
        try:
            said = msgspec.convert(self.keys.open(SESSION, sealed), SessionClaims)
        except (msgspec.ValidationError, NoKeys):
            return None
        return said if (said.principal, said.profile) == (str(principal), principal.profile) else None

    async def state(self, claims: SessionClaims) -> dict[str, str]:
        """Returns what the store knows of a session beyond its id: `ended`, `level`. Nothing, if the store is away."""
        try:
            found = await self.store.execute("HGETALL", self.store.key(f"state:{claims.id}"))
        except StoreUnavailable:
            return {}
        return {key.decode(): value.decode() for key, value in dict(found).items()}

    async def keep(self, session: HandshakeSession, name: str, value: str) -> None:
        """Keeps a fact about a session for replicas that come to serve it. Does nothing while the store is away."""
        key = self.store.key(f"state:{session.known_as}")
        try:
            await self.store.execute("HSET", key, name, value)
            await self.store.execute("EXPIRE", key, RECORD_KEPT)
        except StoreUnavailable:
            log.warning("a change of a session reaches no other replica, as the store is away")

    async def owner_elsewhere(self, session: HandshakeSession) -> Member | None:
        """Returns the replica that owns a session; None: this one does. Raises StoreUnavailable.

        A session whose owner is gone becomes this replica's.
        """
        members = self.members
        assert members is not None
        if session.owner == members.me.owner and members.holds:
            return None
        if session.owner is not None and (known := members.find(session.owner)) is not None:
            return known
        claim = await members.claim(f"session:{session.known_as}")
        session.owner = claim.owner
        session.taken_over = session.taken_over or claim.taken_over
        return None if claim.owner == members.me.owner else members.find(claim.owner)

    def needs_owner(self, session: HandshakeSession, message: Message) -> bool:
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


def is_level(text: str | None) -> bool:
    """Returns whether a text is a log level."""
    return text in LOG_LEVELS
