"""`session: client`: a conversation with the upstream for each caller alone, so that no one sees another's state."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from typing import Final

import msgspec

from mcp_hub.config.models import Server
from mcp_hub.errors import Overloaded
from mcp_hub.protocol.asking import Json
from mcp_hub.protocol.frames import encode
from mcp_hub.upstream.session import Session

_SWEEP: Final = 60.0


_Key = tuple[Hashable, bytes]
"""A caller, and what its server was told."""
Connect = Callable[[Hashable, Json | None], Coroutine[None, None, Session]]


class _Place(msgspec.Struct, eq=False):
    opening: asyncio.Task[Session]
    in_flight: int = 0
    last_used: float = msgspec.field(default_factory=time.monotonic)

    @property
    def dead(self) -> bool:
        """Whether it can serve no further request."""
        task = self.opening
        if not task.done():
            return False
        return task.cancelled() or task.exception() is not None or task.result().lost.is_set()


class ClientSessions:
    """At most `bound` sessions of one upstream, each kept `idle` seconds after its last request.

    A caller has one; one that declares other things with other requests has one for each, as a server of the
    handshake era is told once. `connect(caller, told)` opens a new one.
    """

    def __init__(self, upstream: str, bound: int, idle: float, connect: Connect) -> None:
        self._upstream = upstream
        self._bound = bound
        self._idle = idle
        self._connect = connect
        self._places: dict[_Key, _Place] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._places)

    @contextlib.asynccontextmanager
    async def of(self, caller: Hashable, told: Json | None = None) -> AsyncIterator[Session]:
        """The caller's session, opened where there is none. Raises Overloaded, and what `connect` raises.

        `told` is what the server is told it may ask; None: any session of the caller will do.
        """
        key = self._key(caller, told)
        place = self._places.get(key)
        if place is not None and place.dead:
            self._end(self._places.pop(key))
            place = None
        if place is None:
            place = self._places[key] = self._new_place(caller, told)
        place.in_flight += 1
        try:
            yield await asyncio.shield(place.opening)
        finally:
            place.in_flight -= 1
            place.last_used = time.monotonic()

    def _key(self, caller: Hashable, told: Json | None) -> _Key:
        if told is None:
            return next((key for key in reversed(self._places) if key[0] == caller), (caller, b""))
        return caller, encode(told) if told else b""

    def existing(self, caller: Hashable) -> Session | None:
        """The caller's session, if it is open."""
        place = self._places.get(self._key(caller, None))
        return place.opening.result() if place is not None and place.opening.done() and not place.dead else None

    def _new_place(self, caller: Hashable, told: Json | None) -> _Place:
        if len(self._places) >= self._bound:
            self._sweep(0.0, at_most=1)
        if len(self._places) >= self._bound:
            setting = f"servers.{self._upstream}.max_sessions"
            text = f"{self._upstream!r} has sessions of {self._bound} other callers open (setting: {setting})."
            raise Overloaded(text, server=self._upstream, retry_after=_SWEEP)
        self._schedule()
        return _Place(asyncio.get_running_loop().create_task(self._connect(caller, told)))

    def forget(self, caller: Hashable) -> None:
        """The caller is gone; what it has ends in the background."""
        for key in [key for key in self._places if key[0] == caller]:
            self._end(self._places.pop(key))

    def _schedule(self) -> None:
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(min(_SWEEP, self._idle), self._sweep_idle)

    def _sweep_idle(self) -> None:
        self._sweeper = None
        self._sweep(self._idle, at_most=len(self._places))
        if self._places:
            self._schedule()

    def _sweep(self, life: float, at_most: int) -> None:
        """End the longest unused sessions that are dead or idle for `life` seconds."""
        now = time.monotonic()
        idle = [
            (place.last_used, key)
            for key, place in self._places.items()
            if place.dead or (life and not place.in_flight and now - place.last_used > life)
        ]
        for _, key in sorted(idle, key=lambda pair: pair[0])[:at_most]:
            self._end(self._places.pop(key))

    def _end(self, place: _Place) -> None:
        task = asyncio.get_running_loop().create_task(_close(place))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End all sessions at the same time. Never raises."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for caller, _ in list(self._places):
            self.forget(caller)
        if self._ending:
            await asyncio.wait(self._ending)


async def _close(place: _Place) -> None:
    place.opening.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        session = await place.opening
        await session.close()


def entry_for(server: Server, caller: Hashable) -> Server:
    """The entry as one caller's own session is opened from it.

    A profile is kept for principals only: a session of the handshake era never comes back, and what it left behind
    is nobody else's to see.
    """
    if server.profile is None:
        return server
    own = None
    if isinstance(caller, str):
        digest = hashlib.sha256(caller.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        own = server.profile.with_name(f"{server.profile.name}-callers") / digest
    return server.model_copy(update={"profile": own})
