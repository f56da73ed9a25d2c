"""Limits of each caller: requests, sessions and rate of a principal, and the bytes that wait to be read."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

import msgspec

from mcp_hub.config.listen import CallerLimits, Listen, UnreadLimits
from mcp_hub.errors import Overloaded
from mcp_hub.policy.sharing import Sharing
from mcp_hub.protocol import era as eras
from mcp_hub.security import Principal
from mcp_hub.security.callers import Caller, CallerSlot
from mcp_hub.security.counters import InFlight, TokenBuckets

MAX_IN_FLIGHT: Final = 1024
"""The fewest requests of one caller that may run at the same time, where no principal's limit is higher."""
MAX_CALLS: Final = 8192
"""Requests of all principals at the same time."""
MAX_PRINCIPALS: Final = 10_000
"""Principals whose rate is remembered; the least recently seen is dropped first."""
SESSION_AGAIN: Final = 60.0
"""Seconds after which a client may try again to open a session: idle sessions are closed at this interval."""

FREE: Final = frozenset({"initialize", "ping", eras.DISCOVER, "logging/setLevel"})
"""Methods without quotas: they cost nothing, and clients need them first."""


class Quotas:
    """The quotas of the principals of one listener. Without `listen` (stdio, one client) there are none."""

    def __init__(
        self,
        listen: Listen | None = None,
        clock: Callable[[], float] = time.monotonic,
        sharing: Sharing | None = None,
    ) -> None:
        self._listen = listen
        self._sharing = sharing or Sharing()
        self._running = InFlight[Principal]()
        self._sessions = InFlight[Principal]()
        self._listening = InFlight[Principal]()
        """The `subscriptions/listen` among the sessions."""
        self._buckets = TokenBuckets[Principal](MAX_PRINCIPALS, clock)

    def take(self, listen: Listen) -> None:
        """Applies the limits of another configuration."""
        self._listen = listen

    def _limits(self, listen: Listen, principal: Principal) -> CallerLimits:
        settings = listen.principals.get(principal) if principal.label is not None else None
        return settings.limits if settings is not None and settings.limits is not None else listen.limits

    def _setting(self, principal: Principal) -> str:
        """Returns the key of the configuration that has the limits of a principal."""
        own = self._listen.principals.get(principal) if self._listen and principal.label is not None else None
        return f"listen.principals.{principal}.limits" if own and own.limits is not None else "listen.limits"

    async def check_shared(self, principal: Principal, method: str) -> None:
        """Counts a request against the rate of its principal at all replicas, before `enter`. Raises Overloaded."""
        if self._listen is None or method in FREE or method.endswith("/list") or self._sharing.bucket is None:
            return
        limits = self._limits(self._listen, principal)
        if limits.rate is not None:
            name = f"principal {principal}"
            wait = await self._sharing.bucket.take(name, limits.rate, principal, limits.burst)
            self._refuse(principal, limits.rate, wait)

    def enter(self, principal: Principal, method: str, *, in_place: bool = False) -> Callable[[], None]:
        """Counts a request that begins; returns the function to call when it ends, `uncounted` if it is not counted.

        Raises Overloaded. `in_place`: it runs in the place of another one that waits, so it counts only as to its rate.
        """
        if method in FREE:
            return uncounted
        if self._listen is None:
            return self._listen_to(principal) if method == eras.LISTEN else uncounted
        limits = self._listen.limits if principal.label is None else self._limits(self._listen, principal)
        # Lists are answered from memory, and every client requests all of them when it starts.
        if (
            limits.rate is not None
            and not method.endswith("/list")
            and not (method and self._sharing.bucket is not None)
        ):
            self._refuse(principal, limits.rate, self._buckets.take(principal, limits.rate, limits.burst))
        if method == eras.LISTEN:
            return self._listen_to(principal)
        if in_place:
            return uncounted
        if self._running[principal] >= limits.calls:
            text = f"{limits.calls} requests of this principal are running already"
            raise Overloaded(f"{text} (setting: {self._setting(principal)}.calls).", retry_after=1.0, executed=False)
        if self._running.total() >= MAX_CALLS:
            raise Overloaded(f"{MAX_CALLS} requests are running already.", retry_after=1.0, executed=False)
        self._running[principal] += 1
        return partial(self._running.leave, principal)

    def _listen_to(self, principal: Principal) -> Callable[[], None]:
        """Counts a `subscriptions/listen` as a session: it lasts as long as its client. Raises Overloaded."""
        self.open_session(principal)
        self._listening[principal] += 1
        return partial(self._stop_listening, principal)

    def _stop_listening(self, principal: Principal) -> None:
        self._listening.leave(principal)
        self.close_session(principal)

    def has_room(self, principal: Principal, running: int) -> bool:
        """Returns whether a caller with so many running requests may send another; `subscriptions/listen` are apart."""
        calls = 0 if self._listen is None else self._limits(self._listen, principal).calls
        return running - self._listening[principal] < max(calls, MAX_IN_FLIGHT)

    def _refuse(self, principal: Principal, rate: float, wait: float) -> None:
        if wait > 0:
            setting = f"(setting: {self._setting(principal)}.rate){self._sharing.note}"
            text = f"A principal may send {rate:g} call{'s' * (rate != 1)} a second {setting}."
            raise Overloaded(f"{text} Try again in {wait:.1f} s.", retry_after=round(wait, 3), executed=False)

    def open_session(self, principal: Principal) -> None:
        """Counts a session or stream that begins. Raises Overloaded if the principal has too many."""
        limits = self._limits(self._listen, principal) if self._listen is not None else CallerLimits()
        if self._sessions[principal] >= (limit := limits.sessions):
            text = f"{limit} sessions of this principal are open (setting: {self._setting(principal)}.sessions)."
            raise Overloaded(text, retry_after=SESSION_AGAIN, executed=False)
        self._sessions[principal] += 1

    def close_session(self, principal: Principal) -> None:
        """Counts a session or stream that has ended."""
        self._sessions.leave(principal)


def uncounted() -> None:
    """Ends a request that was not counted."""


LARGE: Final = 64 * 1024
"""The fewest bytes of a message that is counted. The number of requests and connections bounds smaller ones."""
STALLED: Final = 5.0
"""Seconds without a byte read after which a connection may be dropped, if its memory is needed for others."""
RETRY_AFTER: Final = 1.0


class ByteQueue(Protocol):
    """Something that holds bytes for one client; it supports weak references."""

    @property
    def unread(self) -> int:
        """Returns the number of bytes that it holds now."""

    def drop_unread(self) -> bool:
        """Drops the bytes together with their connection; returns False if it cannot."""


class QueuedAnswer:
    """An answer that waits for its turn on a connection (ByteQueue)."""

    __slots__ = ("__weakref__", "unread")

    def __init__(self, unread: int) -> None:
        self.unread = unread

    def drop_unread(self) -> bool:
        """Returns False: the answer is dropped with its connection only."""
        return False


class _Seen(msgspec.Struct):
    """The size of a queue and the time when it last changed: one that shrinks is being read."""

    unread: int
    since: float


class Share:
    """Counts the bytes that wait for one caller, and decides whether more may wait."""

    __slots__ = ("__weakref__", "_backlog", "_queues", "_requests")

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._queues: WeakKeyDictionary[ByteQueue, _Seen] | None = None
        """None until something is large enough to be counted, which is never for most callers."""
        self._requests = 0

    @property
    def waiting(self) -> int:
        """Bytes that wait now: the caller's own large requests, and what it has not read."""
        if self._queues is None:
            return self._requests
        now, total = self._backlog.clock(), self._requests
        for queue, observed in list(self._queues.items()):
            unread = queue.unread
            if not unread:
                del self._queues[queue]
            elif unread != observed.unread:
                observed.unread, observed.since = unread, now
            total += unread
        return total

    @property
    def full(self) -> bool:
        """Whether the caller has so much unread that no more of its requests should be handled."""
        return self._queues is not None and self.waiting >= self._backlog.bounds().caller

    def watch(self, queue: ByteQueue) -> None:
        """Counts what is in a queue, until it is empty."""
        if self._queues is None:
            self._queues = WeakKeyDictionary()
        if queue not in self._queues:
            self._backlog.active.add(self)
            self._queues[queue] = _Seen(queue.unread, self._backlog.clock())

    def stalled(self) -> list[tuple[int, ByteQueue]]:
        """Returns the queues that nobody has read from for STALLED seconds, with the bytes they hold."""
        oldest = self._backlog.clock() - STALLED
        queues = list(self._queues.items()) if self._queues is not None else []
        return [(observed.unread, queue) for queue, observed in queues if observed.since <= oldest]

    def refusal(self, size: int) -> Overloaded | None:
        """Returns why `size` more bytes may not wait; None if they may, which is always so while nothing waits."""
        waiting, bounds = self.waiting, self._backlog.bounds()
        if waiting and waiting + size > bounds.caller:
            text = f"{waiting:,} bytes wait for this client, and {bounds.caller:,} may (setting: unread.caller)."
        elif self._backlog.has_room(size, max(bounds.total, bounds.caller)):
            return None
        else:
            text = f"Too much waits for other clients: {bounds.total:,} bytes may (setting: unread.total)."
        return Overloaded(f"{text} There is no room for {size:,} more.", retry_after=RETRY_AFTER)

    def begin(self, request: Any, size: int) -> Overloaded | None:
        """Counts a request or batch of `size` bytes until `end`; returns the reason if it is refused."""
        if size < LARGE and self._queues is None:
            return None
        if self.full and not (isinstance(request, dict) and str(request.get("method")) in FREE):
            text = f"{self.waiting:,} bytes wait for this client: read them before sending more requests"
            bound = f"{self._backlog.bounds().caller:,} bytes may (setting: unread.caller)"
            return Overloaded(f"{text}; {bound}.", retry_after=RETRY_AFTER, executed=False)
        if size < LARGE:
            return None
        refusal = self.refusal(size)
        if refusal is not None:
            refusal.executed = False
        else:
            self._requests += size
            self._backlog.active.add(self)
        return refusal

    def end(self, size: int) -> None:
        """Ends what `begin` has counted."""
        if size >= LARGE:
            self._requests -= size


class Backlog:
    """The bytes that wait for all callers, counted for each and bounded for each and in total.

    An answer that must be queued is accepted while there is room, and otherwise replaced by `overloaded`. Only what is
    large is counted; most clients read at once and never get here. `bounds()` returns the limits in force, `clock()`
    seconds.
    """

    def __init__(
        self, bounds: Callable[[], UnreadLimits] = UnreadLimits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.bounds = bounds
        self.clock = clock
        self.active: set[Share] = set()
        """Shares with something in them; empty ones are removed at the next count."""
        self._shares = CallerSlot(partial(Share, self))

    def share(self) -> Share:
        """Returns a new share, for a caller with a session or connection of its own."""
        return Share(self)

    def of(self, caller: Caller) -> Share:
        """Returns the share of a caller without a session or connection of its own."""
        return self._shares.of(caller)

    @property
    def waiting(self) -> int:
        """Bytes that wait for all callers."""
        total = 0
        for share in list(self.active):
            waiting = share.waiting
            if not waiting:
                self.active.discard(share)
            total += waiting
        return total

    def has_room(self, size: int, bound: int) -> bool:
        """Returns whether `size` more bytes may wait. Drops stalled connections where that makes room."""
        waiting = self.waiting
        if not waiting or waiting + size <= bound:
            return True
        stalled = sorted((entry for share in self.active for entry in share.stalled()), key=lambda entry: -entry[0])
        for unread, queue in stalled:
            if waiting + size <= bound:
                break
            if queue.drop_unread():
                waiting -= unread
        return waiting + size <= bound


def uploads_of(backlog: Backlog, max_body: int) -> Backlog:
    """Returns the count of the bytes in bodies that are not complete: within the bounds of `backlog`, beside it.

    One body of `max_body` bytes is always accepted.
    """

    def bounds() -> UnreadLimits:
        limits = backlog.bounds()
        return UnreadLimits(caller=max(limits.caller, max_body), total=limits.total)

    return Backlog(bounds)


class Allowance:
    """What the programs of one caller may use: its quotas, and the room for bytes that wait for it."""

    def __init__(self, quotas: Quotas, principal: Principal, share: Share) -> None:
        self._quotas = quotas
        self._principal = principal
        self._in_place = False
        """Whether a call runs in the place of the request that runs the program, which waits for it."""
        self.share = share

    async def enter(self, method: str) -> Callable[[], None]:
        """Counts a call that begins; returns the function to call when it ends. Raises Overloaded."""
        await self._quotas.check_shared(self._principal, method)
        leave = self._quotas.enter(self._principal, method, in_place=not self._in_place)
        if self._in_place:
            return leave
        self._in_place = True
        return self._leave_place

    def _leave_place(self) -> None:
        self._in_place = False
