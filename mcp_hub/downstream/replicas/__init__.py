"""Runs this hub as one of several replicas, which share the sessions of clients and forward requests to each other.

A session's id is sealed and holds its principal and what its client declared, so that any replica can serve it. State
that only this session has - its own sessions with servers, its subscriptions, its standing stream - is at one replica,
its owner; requests that need this state are forwarded there.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from mcp_hub import codes
from mcp_hub.config.listen import UNIX
from mcp_hub.config.store import StoreSettings
from mcp_hub.downstream.replicas.forward_endpoint import ForwardEndpoint, Knows
from mcp_hub.downstream.replicas.forwarding import CHECK, LOOK, ForwardClient, ForwardGate
from mcp_hub.downstream.replicas.ownership import Owners
from mcp_hub.downstream.replicas.request_router import RequestRouter
from mcp_hub.downstream.replicas.shared_changes import SharedChanges, served_config
from mcp_hub.downstream.replicas.shared_sessions import SharedSessions
from mcp_hub.errors import CallError, ConfigError
from mcp_hub.security import ANONYMOUS
from mcp_hub.store import Store, StoreUnavailable
from mcp_hub.store.change_log import ChangeLog
from mcp_hub.store.membership import Membership
from mcp_hub.store.replica_keys import ReplicaKeys
from mcp_hub.store.shared_bucket import SharedBucket
from mcp_hub.transport.background import BACKGROUND, set_within

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher
    from mcp_hub.downstream.streamable import StreamableEndpoint

log = logging.getLogger("mcp_hub.replicas")

EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})
"""Hosts of a listener on all addresses of a machine."""
GIVE_ADDRESS: Final = "give its URL, such as http://10.0.0.7:8808"
KEYS_EVERY: Final = 60.0
"""Seconds between two checks for a new replica key."""


class NoKeys(CallError):
    """This replica has no keys yet, as it could not reach the store since it began."""

    code, rpc_code, retryable = "store_unavailable", -32010, True


class Replicas:
    """Connects this replica with the others. It is made before the listener; `begin` joins the others."""

    def __init__(self, settings: StoreSettings, dispatcher: Dispatcher) -> None:
        self._settings = settings
        self._dispatcher = dispatcher
        self.store = Store(settings)
        self._keys = _configured_keys(settings)
        self._key_reader: asyncio.Task[None] | None = None
        self._own_address = ""
        self._store_back = asyncio.Event()
        self.store.changed = lambda away: None if away else self._store_back.set()
        self._client = client = ForwardClient(self.keys)
        switch = dispatcher.hub.switch
        self.changes = changes = SharedChanges(
            ChangeLog(self.store, self.keys), lambda: members.me.id, dispatcher, self._have_others_look
        )
        self.members = members = Membership(
            self.store,
            self.keys,
            settings.address or "",
            rejoined=self._rejoined,
            gone=client.gone,
            newest=changes.noticed,
            switched=switch.switched,
        )
        self._bucket = SharedBucket(self.store, lambda: members.count)
        self._owners = owners = Owners(self.store, members, self._have_others_check)
        self.sessions = SharedSessions(self.store, self.keys, members, owners, client, dispatcher, changes)
        self.router = RequestRouter(dispatcher, self.store, members, owners, client, self.sessions)

    def keys(self) -> ReplicaKeys:
        """Returns the replica keys. Raises NoKeys."""
        if self._keys is None:
            raise NoKeys("The store has not given this replica its keys yet (setting: store).", retry_after=1.0)
        return self._keys

    def reached_at(self, address: str) -> None:
        """Sets the URL at which others reach this replica: that of the settings, else `address`, its listener's."""
        self.members.reached_at(self._settings.address or self._reachable_url(address))

    def _reachable_url(self, address: str) -> str:
        """Returns a listener's URL; "all addresses" becomes the one from which this machine reaches the store."""
        parts = urlsplit(address)
        if parts.hostname not in EVERYWHERE or not self._own_address:
            return address
        host = f"[{self._own_address}]" if ":" in self._own_address else self._own_address
        return f"{parts.scheme}://{host}:{parts.port}"

    def serves(self, endpoint: StreamableEndpoint, max_body: int, knows: Knows) -> ForwardEndpoint:
        """Makes a listener's endpoint forward requests; returns the endpoint for those that others forward to this one.

        `knows` returns whether a principal that another replica has authenticated is known here too.
        """
        endpoint.join(self.router, self.sessions)
        gate = ForwardGate(self.keys, self.members)
        return ForwardEndpoint(gate, endpoint, self.router, max_body, knows, self._look, self._owners.check)

    async def begin(self, host: str = "") -> None:
        """Joins the other replicas. Raises ConfigError if the store is unusable, or this replica cannot be reached.

        `host`: that of the listener.
        """
        self._own_address = await asyncio.to_thread(_address_towards, self._settings.url.get_secret_value())
        if host in EVERYWHERE and self._settings.address is None and not self._own_address:
            message = (
                "store.address: the other replicas cannot tell how to reach this one, as listen.host is all addresses"
            )
            raise ConfigError(
                f"{message} and the host of the store is not known here; {GIVE_ADDRESS}", codes.VALUE_WRONG
            )
        await self.store.open()
        self._dispatcher.parked_calls.run = self.members.me.id
        if self._keys is None:
            try:
                self._keys = await ReplicaKeys.load_shared(self.store)
            except StoreUnavailable:
                log.warning("no client can begin a session until the store, which has the replica keys, can be used")
            self._key_reader = BACKGROUND.keep("replica keys", self._keep_reading_keys)
        self._use_keys()
        hub = self._dispatcher.hub
        hub.sharing.bucket = self._bucket
        hub.sharing.replica_name = self.members.me.id
        self.changes.begin()
        with suppress(NoKeys):
            await self._join()

    async def _join(self) -> None:
        """Joins the others. Raises NoKeys."""
        self._announce_config()
        await self.members.join()
        await self._settle(joins=True)

    async def _keep_reading_keys(self) -> None:
        """Reads the replica keys as soon as the store can be reached, and newer ones as they are made."""
        while True:
            await set_within(self._store_back, KEYS_EVERY if self._keys is not None else 0.5)
            # The store may have lost the keys meanwhile.
            self._store_back.clear()
            is_first = self._keys is None
            with suppress(StoreUnavailable):
                self._keys = await ReplicaKeys.load_shared(self.store, self._keys)
                self._use_keys()
                if is_first:
                    await self._join()

    def _use_keys(self) -> None:
        """Seals the ids of tasks with the replica keys, so that every replica opens them."""
        hub = self._dispatcher.hub
        if self._keys is not None:
            hub.task_ids.share(self._keys.derive("task"), self.members.me.id)

    def _rejoined(self) -> None:
        self._store_back.set()
        self._owners.reclaim()

    # --- changes ---------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Applies the changes that others have published, and looks which replicas are alive.

        So this replica's record has what the changes have switched.
        """
        with suppress(StoreUnavailable, NoKeys):
            await self.changes.catch_up()
            await self.members.refresh()

    async def _have_others_look(self) -> None:
        """Makes every other live replica look for changes; returns when all have."""
        with suppress(StoreUnavailable, NoKeys):
            await self.members.refresh()  # one that has just joined is told too
        await self._notify_others(LOOK, b"")

    async def _have_others_check(self, name: str) -> None:
        """Makes every other live replica check whether it still owns `name`; returns when all have."""
        await self._notify_others(CHECK, name.encode())

    async def _notify_others(self, method: str, body: bytes) -> None:
        members = list(self.members.others.values())
        await asyncio.gather(*(self._client.tell(member, ANONYMOUS, (), body, method) for member in members))

    async def _settle(self, *, joins: bool = False) -> None:
        """Brings this replica and the others up to date with each other.

        `joins`: servers are switched here as at those that have the same configuration, as the changes that have
        switched them may be older than this replica. Later changes come after that.
        """
        await self._have_others_look()
        with suppress(StoreUnavailable, NoKeys):
            if joins:
                await self.members.refresh()
                config, others = self.members.me.config, self.members.others.values()
                await self.changes.take_switches([member.switched for member in others if member.config == config])
            await self.changes.catch_up()

    def _announce_config(self) -> None:
        """Announces the configuration in force here, as a keyed digest that reveals nothing of it."""
        hub = self._dispatcher.hub
        content = served_config(hub.config, hub.generation.selection)
        key = self.keys().derive("config")[-1]
        self.members.announce_config(hmac.digest(key, content, "sha256").hex()[:32])

    async def have_others_reload(self) -> None:
        """Makes the other replicas load their files again, as this one does. Never raises."""
        with suppress(CallError):
            await self.changes.publish("reload", "", None)

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Announces while the block runs that the configuration changes here, and the new one after it.

        Meanwhile each session is served by its owner alone, so that it does not switch back and forth between two
        configurations.
        """
        self.members.announce_config(f"changing at {self.members.me.id}")
        await self._settle()
        try:
            yield
        finally:
            with suppress(NoKeys):
                self._announce_config()
            await self._settle()

    async def hand_over(self) -> None:
        """Releases all that this replica owns, so that others can claim it before this one stops. Never raises."""
        with suppress(StoreUnavailable, NoKeys):
            await self.members.hand_over()

    async def close(self) -> None:
        """Leaves the other replicas; what was owned here can be claimed at once. Never raises."""
        if self._key_reader is not None:
            self._key_reader.cancel()
        await self._owners.close()
        await self.changes.close()
        await self.sessions.close()
        await self.members.leave()
        await self._client.close()
        await self.store.close()

    @property
    def store_state(self) -> str:
        """The state of the store as health checks and the status show it: `ok` or `away`."""
        return "away" if self.store.is_unavailable or self._keys is None else "ok"

    def facts(self) -> dict[str, Any]:
        """Returns the facts about the replicas that the status shows."""
        return {
            "id": self.members.me.id,
            "store": self.store_state,
            "replicas": self.members.count,
            "leaving": self.members.me.leaving,
            "holds": self.members.holds,
            "one_configuration": not self.members.has_mixed_configurations,
            "part_of_rates": 1 / self._bucket.parts,
            "owned": len(self._owners),
            "forwarded": self._client.forwarded,
            "broken_forwards": self._client.broken,
            "store_uses": self.store.uses,
            "others": [
                {"id": member.id, "address": member.address, "leaving": member.leaving}
                for member in self.members.others.values()
            ],
        }


def _address_towards(store: str) -> str:
    """Returns the address from which this machine reaches a store; "" if that is not known. Nothing is sent."""
    url = urlsplit(store)
    if url.scheme == UNIX:
        return "127.0.0.1"
    try:
        for family, socket_type, protocol, _, address in socket.getaddrinfo(
            url.hostname, url.port or 6379, type=socket.SOCK_DGRAM
        ):
            with suppress(OSError), socket.socket(family, socket_type, protocol) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
    except OSError:
        pass
    return ""


def _configured_keys(settings: StoreSettings) -> ReplicaKeys | None:
    digests = [hashlib.sha256(key.get_secret_value().encode()).digest() for key in settings.keys]
    return ReplicaKeys(digests) if digests else None
