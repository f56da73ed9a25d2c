"""Places for connections: how many there may be, and how many of them for strangers.

A stranger is a connection on which no request has been let in yet. Strangers give way: where there is no place left,
the oldest of them is closed for the newcomer, and an address that has its share loses its own oldest one. A connection
on which a request was let in keeps its place.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from mcp_hub.downstream.refusals import Refusals

SHARE: Final = 4
"""One address may have one of so many places for strangers: the others are left, whatever it sends."""
NEWCOMER: Final = 1.0
"""Seconds in which a stranger need not give way to others of its address: many clients may start at the same time."""
AT_ONCE: Final = 2
"""Strangers of one address that give way to one newcomer, so that an address that has too many loses some."""


def peer_of(transport: asyncio.BaseTransport) -> str:
    """The address on the other side; `""` where it has none."""
    name = transport.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) else ""


class Holder(Protocol):
    """A connection as the listener sees it."""

    def shut(self) -> None:
        """Close when nothing is being answered, or as soon as that is."""

    def abort(self) -> None:
        """Drop the connection with what is in its buffers."""


class Place:
    """What one connection has, from the moment it is accepted until its descriptor is closed."""

    __slots__ = ("holder", "network", "peer", "since", "stranger")

    def __init__(self, holder: Holder, peer: str, since: float) -> None:
        self.holder = holder
        self.peer = peer
        """The address on the other side of the socket; `""` where it has none."""
        self.network = _network(peer)
        self.since = since
        self.stranger = True


class Places:
    """`most` places. Connections of an `exempt` address, a trusted proxy's, have no share that could be used up."""

    def __init__(
        self,
        most: int,
        refusals: Refusals,
        exempt: Callable[[str], bool] = lambda peer: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._share = max(1, most // SHARE)
        self._refusals = refusals
        self._exempt = exempt
        self._clock = clock
        self._taken: set[Place] = set()
        self._strangers: OrderedDict[Place, None] = OrderedDict()
        """The oldest one first."""
        self._of_network: dict[str, OrderedDict[Place, None]] = {}
        """The same, for each address."""

    def take(self, holder: Holder, peer: str) -> Place | None:
        """A place for a connection that was accepted; None where there is none and nobody can give way."""
        now = self._clock()
        place = Place(holder, peer, now)
        same = self._of_network.get(place.network) or OrderedDict()
        if len(same) >= self._share and not self._exempt(peer):
            for _ in range(AT_ONCE):
                oldest = next(iter(same), None)
                if oldest is None or len(same) < self._share or now - oldest.since < NEWCOMER:
                    break
                self._close(oldest, "crowded")
        if len(self._taken) >= self._most:
            stranger = next(iter(self._strangers), None)
            if stranger is None:
                self._refusals.note("full", peer, 503)
                return None
            self._close(stranger, "crowded")
        self._taken.add(place)
        self._strangers[place] = None
        self._of_network.setdefault(place.network, OrderedDict())[place] = None
        return place

    def _close(self, place: Place, cause: str) -> None:
        self.leave(place)
        self._refusals.note(cause, place.peer)
        place.holder.abort()

    def let_in(self, place: Place) -> None:
        """A request of the connection was let in: it keeps its place."""
        if place.stranger:
            place.stranger = False
            self._forget(place)

    def leave(self, place: Place) -> None:
        """The connection has ended, or is about to."""
        self._taken.discard(place)
        if place.stranger:
            self._forget(place)

    def _forget(self, place: Place) -> None:
        self._strangers.pop(place, None)
        same = self._of_network.get(place.network)
        if same is not None:
            same.pop(place, None)
            if not same:
                del self._of_network[place.network]


def _network(peer: str) -> str:
    """What counts as one address: of IPv6 the first 64 bits, because whoever has one address there has them all."""
    if ":" not in peer:
        return peer
    try:
        return ipaddress.IPv6Address(peer.partition("%")[0]).packed[:8].hex()
    except ValueError:
        return peer
