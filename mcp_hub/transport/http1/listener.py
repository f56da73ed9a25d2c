"""What the connections of one listener share: the handler, the slots for connections, and the shutdown."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from mcp_hub.transport.http1.exchange import HttpReply, HttpRequest

log = logging.getLogger("mcp_hub.downstream")

ABORT_WITHIN: Final = 0.2
"""Seconds that `abort` waits for the tasks it has cancelled."""

Handler = Callable[[HttpRequest, HttpReply], Awaitable[None]]
"""Answers one request. It may continue after its client has gone."""


class RefusalSink:
    """Receives each refused connection and request. This base class ignores them."""

    def note(self, cause: str, peer: str, status: int | None = None, said: str | None = None) -> None:
        """Records one refusal: `cause`, the client's address, and the HTTP status if there was an answer."""


class Listener:
    """Runs `handler` for the requests of at most `max_connections` connections. Create it in its event loop.

    `exempt(peer)` says whether an address, such as a trusted proxy's, may hold more than one address's share of slots.
    """

    def __init__(
        self,
        handler: Handler,
        max_connections: int,
        *,
        refusals: RefusalSink | None = None,
        exempt: Callable[[str], bool] = lambda peer: False,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.refusals = refusals or RefusalSink()
        self.slots = ConnectionSlots(max_connections, self.refusals, exempt, self.loop.time)
        self.open: set[ConnectionSlot] = set()
        """The slots of connections whose descriptors are open."""
        self.ending = False
        """Whether each connection is closed after its current reply."""
        self.handler = handler
        self.tasks: set[asyncio.Task[None]] = set()
        """Tasks that answer a request or do a TLS handshake."""
        self._empty: asyncio.Future[None] | None = None

    # --- called by connections ---------------------------------------------------------------------------------

    def acquire_slot(self, holder: SlotHolder, peer: str) -> ConnectionSlot | None:
        """Returns the slot for a connection that was accepted; None if it has to be refused."""
        slot = None if self.ending else self.slots.acquire(holder, peer)
        if slot is not None:
            self.open.add(slot)
        return slot

    def release_slot(self, slot: ConnectionSlot) -> None:
        """Frees the slot of a connection that is closed."""
        self.slots.release(slot)
        self.open.discard(slot)
        if not self.open and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    # --- the end -----------------------------------------------------------------------------------------------

    async def close(self, grace: float) -> None:
        """Closes each connection once its reply is written and read; waits at most `grace` seconds for that."""
        self.ending = True
        for slot in tuple(self.open):
            slot.holder.close_when_idle()
        if self.open:
            self._empty = self.loop.create_future()
            await asyncio.wait({self._empty}, timeout=grace)

    async def abort(self) -> None:
        """Drops all connections and cancels the tasks that answer requests."""
        self.ending = True
        for slot in tuple(self.open):
            slot.holder.abort()
        tasks = self.tasks.copy()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=ABORT_WITHIN)


SHARE: Final = 4
"""One address may hold 1/SHARE of all slots with connections of strangers, so that others get some too."""
NEWCOMER: Final = 1.0
"""Seconds in which a stranger is not closed for another of the same address: many clients may start at once."""
EVICTED_STRANGERS: Final = 2
"""Strangers of one address that are closed for one newcomer: more than one, so that a surplus shrinks."""


class SlotHolder(Protocol):
    """A connection, or a TLS handshake, that holds a slot."""

    def close_when_idle(self) -> None:
        """Closes as soon as nothing is being answered."""

    def abort(self) -> None:
        """Drops the connection and what is in its buffers."""


class ConnectionSlot:
    """The slot of one connection, from the moment it is accepted until its descriptor is closed."""

    __slots__ = ("holder", "network", "peer", "since", "stranger")

    def __init__(self, holder: SlotHolder, peer: str, since: float) -> None:
        self.holder = holder
        self.peer = peer
        """The client's address; `""` where it has none."""
        self.network = _network(peer)
        self.since = since
        self.stranger = True


class ConnectionSlots:
    """The slots of one listener, for at most `max_connections` connections.

    A stranger is a connection on which no request has been let in (authenticated) yet. If no slot is free, the oldest
    stranger is closed for the newcomer. An address that uses up its share of slots loses its own oldest strangers,
    unless it is `exempt`. A connection on which a request was let in keeps its slot.
    """

    def __init__(
        self,
        max_connections: int,
        refusals: RefusalSink,
        exempt: Callable[[str], bool] = lambda peer: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_connections = max_connections
        self._share = max(1, max_connections // SHARE)
        self._refusals = refusals
        self._exempt = exempt
        self._clock = clock
        self._slots: set[ConnectionSlot] = set()
        self._strangers: OrderedDict[ConnectionSlot, None] = OrderedDict()
        """Oldest first."""
        self._by_network: dict[str, OrderedDict[ConnectionSlot, None]] = {}
        """The strangers by network, oldest first."""

    def acquire(self, holder: SlotHolder, peer: str) -> ConnectionSlot | None:
        """Returns a slot for a connection that was accepted; None if none is free and no stranger can be closed."""
        slot = ConnectionSlot(holder, peer, self._clock())
        self._make_room(slot)
        if len(self._slots) >= self._max_connections:
            stranger = next(iter(self._strangers), None)
            if stranger is None:
                self._refusals.note("full", peer, 503)
                return None
            self._close(stranger, "crowded")
        self._slots.add(slot)
        self._strangers[slot] = None
        self._by_network.setdefault(slot.network, OrderedDict())[slot] = None
        return slot

    def _make_room(self, newcomer: ConnectionSlot) -> None:
        """Closes the oldest strangers of the newcomer's address if they use up its share of the slots."""
        strangers = self._by_network.get(newcomer.network)
        if strangers is None or len(strangers) < self._share or self._exempt(newcomer.peer):
            return
        now = self._clock()
        for _ in range(EVICTED_STRANGERS):
            oldest = next(iter(strangers), None)
            if oldest is None or len(strangers) < self._share or now - oldest.since < NEWCOMER:
                break
            self._close(oldest, "crowded")

    def speaks_for(self, slot: ConnectionSlot, peer: str) -> None:
        """Counts the connection of a stranger towards the client that its trusted proxy names."""
        network = _network(peer)
        if not slot.stranger or slot not in self._strangers or network == slot.network:
            return
        self._leave_network(slot)
        slot.peer, slot.network = peer, network
        self._make_room(slot)
        self._by_network.setdefault(network, OrderedDict())[slot] = None

    def _close(self, slot: ConnectionSlot, cause: str) -> None:
        self.release(slot)
        self._refusals.note(cause, slot.peer)
        slot.holder.abort()

    def let_in(self, slot: ConnectionSlot) -> None:
        """Keeps the slot of a connection for good, as a request on it was authenticated or needs no authentication."""
        if slot.stranger:
            slot.stranger = False
            self._forget(slot)

    def release(self, slot: ConnectionSlot) -> None:
        """Frees the slot of a connection that is closed or about to be."""
        self._slots.discard(slot)
        if slot.stranger:
            self._forget(slot)

    def _forget(self, slot: ConnectionSlot) -> None:
        self._strangers.pop(slot, None)
        self._leave_network(slot)

    def _leave_network(self, slot: ConnectionSlot) -> None:
        strangers = self._by_network.get(slot.network)
        if strangers is not None:
            strangers.pop(slot, None)
            if not strangers:
                del self._by_network[slot.network]


def _network(peer: str) -> str:
    """Returns the part that counts as one address: of IPv6 the first 64 bits, as one customer usually has all below.

    A socket that takes both families has IPv4 addresses as `::ffff:192.0.2.1`, all with the same first bits.
    """
    if ":" not in peer:
        return peer
    try:
        address = ipaddress.IPv6Address(peer.partition("%")[0])
    except ValueError:
        return peer
    return str(address.ipv4_mapped) if address.ipv4_mapped is not None else address.packed[:8].hex()
