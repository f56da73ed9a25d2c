"""A pool of sessions that are opened when first needed, lent to requests, and ended after an idle time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterator
from typing import Any, Final, Generic, TypeVar

import msgspec

from mcp_hub.errors import HubError
from mcp_hub.transport.background import TaskSet
from mcp_hub.upstream.lifecycle import Backoff
from mcp_hub.upstream.session import UpstreamSession

_SWEEP: Final = 60.0
"""Seconds between two searches for idle sessions."""

Open = Callable[[], Coroutine[Any, Any, UpstreamSession]]
K = TypeVar("K", bound=Hashable)


class PooledSession(msgspec.Struct, eq=False):
    """A session of a pool, open or being opened. Each `take` of it needs a `give_back`."""

    opening: asyncio.Task[UpstreamSession]
    in_flight: int = 0
    last_used: float = msgspec.field(default_factory=time.monotonic)

    @property
    def dead(self) -> bool:
        """Whether it cannot serve another request."""
        task = self.opening
        if not task.done():
            return False
        return task.cancelled() or task.exception() is not None or task.result().lost.is_set()

    def give_back(self) -> None:
        """Notes that a request no longer uses it."""
        self.in_flight -= 1
        self.last_used = time.monotonic()


class SessionPool(Generic[K]):
    """Sessions by key. One is ended `idle` seconds after its last request, and as soon as it is lost.

    `closed_error()` makes the error of a request whose session is ended while it is being opened. `in_use(key)` says
    whether a session is kept although it is idle, and opened again when it is lost.
    """

    def __init__(
        self, idle: float, closed_error: Callable[[], HubError], in_use: Callable[[K], bool] = lambda key: False
    ) -> None:
        self._idle = idle
        self._closed_error = closed_error
        self._in_use = in_use
        self._slots: dict[K, PooledSession] = {}
        self._ending = TaskSet()
        self._watching = TaskSet()
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def keys(self) -> Iterator[K]:
        """The keys of the sessions, from the newest to the oldest."""
        return reversed(self._slots)

    @contextlib.asynccontextmanager
    async def lend(self, key: K, open_session: Open, *, once: bool = False) -> AsyncIterator[UpstreamSession]:
        """Lends the session of a key for the block, and opens one if there is none. Raises as `opened` does.

        `once`: it is ended after the block.
        """
        slot = self.take(key, open_session)
        try:
            yield await self.opened(slot)
        finally:
            slot.give_back()
            if once and self._slots.get(key) is slot:
                await asyncio.shield(self.end(key))

    async def opened(self, slot: PooledSession) -> UpstreamSession:
        """Waits until a session is open. Raises what opening it raises; `closed_error()` if it is ended meanwhile."""
        try:
            return await asyncio.shield(slot.opening)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if slot.opening.cancelled() and task is not None and not task.cancelling():
                raise self._closed_error() from None  # nobody has cancelled the request itself
            raise

    def take(self, key: K, open_session: Open) -> PooledSession:
        """Takes the session of a key, and begins to open one if there is none. The caller must `give_back` it."""
        slot = self._slots.get(key)
        if slot is not None and slot.dead:
            self.end(key)
            slot = None
        if slot is None:
            slot = self._begin(key, open_session, Backoff())
        slot.in_flight += 1
        return slot

    def _begin(self, key: K, open_session: Open, backoff: Backoff) -> PooledSession:
        loop = asyncio.get_running_loop()
        slot = self._slots[key] = PooledSession(loop.create_task(open_session()))
        self._watching.start(self._until_lost(key, slot, open_session, backoff))
        self._schedule()
        return slot

    async def _until_lost(self, key: K, slot: PooledSession, open_session: Open, backoff: Backoff) -> None:
        """Ends a session as soon as it is lost or could not be opened, and opens one that is in use again."""
        started_at = time.monotonic()
        await asyncio.wait([slot.opening])
        connected = not slot.dead
        if connected:
            await slot.opening.result().lost.wait()
        if self._slots.get(key) is not slot:
            return
        self.end(key)
        if self._in_use(key):
            backoff.count_failure(time.monotonic() - started_at, connected=connected)
            await backoff.wait(asyncio.Event(), at_once=connected and backoff.failures <= 1)
            if self._in_use(key) and key not in self._slots:
                self._begin(key, open_session, backoff)

    def has(self, key: K) -> bool:
        """Returns whether a session of this key is open or being opened."""
        slot = self._slots.get(key)
        return slot is not None and not slot.dead

    def existing(self, key: K) -> UpstreamSession | None:
        """Returns the session of a key if it is open."""
        return self._slots[key].opening.result() if self.has(key) and self._slots[key].opening.done() else None

    def end(self, key: K) -> asyncio.Task[None]:
        """Ends the session of a key in the background; returns the task that does it."""
        return self._ending.start(_close(self._slots.pop(key)))

    def _schedule(self) -> None:
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(min(_SWEEP, self._idle), self._sweep_idle)

    def _sweep_idle(self) -> None:
        self._sweeper = None
        now = time.monotonic()
        for key, slot in list(self._slots.items()):
            if not slot.in_flight and now - slot.last_used > self._idle and not self._in_use(key):
                self.end(key)
        if self._slots:
            self._schedule()

    async def close(self) -> None:
        """Ends all sessions at the same time. Never raises."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for task in self._watching:
            task.cancel()
        for key in list(self._slots):
            self.end(key)
        if self._ending:
            await asyncio.wait(self._ending)


async def _close(slot: PooledSession) -> None:
    slot.opening.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        session = await slot.opening
        await session.close()
