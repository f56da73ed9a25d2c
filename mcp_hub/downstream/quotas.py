"""What each principal may have at the same time and per second, so that none takes what is there for all."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final

from mcp_hub.config.listen import CallerLimits, Listen
from mcp_hub.errors import Overloaded
from mcp_hub.policy.bucket import Bucket
from mcp_hub.protocol import era as eras
from mcp_hub.security.principals import Principal

MAX_CALLS: Final = 8192
"""Requests at once of all principals together."""
MAX_PRINCIPALS: Final = 10_000
"""Whose rate is remembered; the longest unseen goes first."""
SESSION_AGAIN: Final = 60.0
"""Seconds; sessions nobody uses are looked for that often."""

FREE: Final = frozenset({"initialize", "ping", eras.DISCOVER, "logging/setLevel"})
"""Answered from what is known, and needed before anything else."""
_LONG: Final = frozenset({eras.LISTEN})
"""Streams rather than calls; the transports bound them."""


class Quotas:
    """Of one listener; None: of the only client there is, over stdio, which has no bounds of this kind."""

    def __init__(self, listen: Listen | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._listen = listen
        self._clock = clock
        self._running: Counter[Principal] = Counter()
        self._all = 0
        self._sessions: Counter[Principal] = Counter()
        self._buckets: OrderedDict[Principal, Bucket] = OrderedDict()

    def take(self, listen: Listen) -> None:
        """Other limits from now on."""
        self._listen = listen

    def _of(self, principal: Principal) -> CallerLimits | None:
        if self._listen is None:
            return None
        own = self._listen.principals.get(principal) if principal.label is not None else None
        return own.limits if own is not None and own.limits is not None else self._listen.limits

    def enter(self, principal: Principal, method: str) -> Callable[[], None]:
        """A request of the principal begins; what is returned is called when it ends. Raises Overloaded."""
        limits = self._of(principal)
        if limits is None or method in FREE:
            return _nothing
        self._check_rate(principal, method, limits)
        if method in _LONG:
            return _nothing
        if self._running[principal] >= limits.calls:
            text = f"{limits.calls} requests of this principal are running already (setting: listen.limits.calls)."
            raise Overloaded(text, retry_after=1.0, executed=False)
        if self._all >= MAX_CALLS:
            raise Overloaded(f"{MAX_CALLS} requests are running already.", retry_after=1.0, executed=False)
        self._running[principal] += 1
        self._all += 1
        return partial(self._leave, principal)

    def _leave(self, principal: Principal) -> None:
        self._all -= 1
        _one_less(self._running, principal)

    def _check_rate(self, principal: Principal, method: str, limits: CallerLimits) -> None:
        # Lists come from memory, and every client asks for all of them when it starts.
        if limits.rate is None or method.endswith("/list"):
            return
        now = self._clock()
        bucket = self._buckets.pop(principal, None) or Bucket.full(limits.rate, now, limits.burst)
        self._buckets[principal] = bucket
        while len(self._buckets) > MAX_PRINCIPALS:
            self._buckets.popitem(last=False)
        if (wait := bucket.wait(now)) > 0:
            text = f"A principal may send {limits.rate:g} calls a second (setting: listen.limits.rate)."
            raise Overloaded(f"{text} Try again in {wait:.1f} s.", retry_after=round(wait, 3), executed=False)

    def open_session(self, principal: Principal) -> None:
        """A session or stream of the principal begins. Raises Overloaded."""
        limits = self._of(principal)
        if limits is not None and self._sessions[principal] >= limits.sessions:
            text = f"{limits.sessions} sessions of this principal are open (setting: listen.limits.sessions)."
            raise Overloaded(text, retry_after=SESSION_AGAIN, executed=False)
        self._sessions[principal] += 1

    def close_session(self, principal: Principal) -> None:
        """It has ended."""
        _one_less(self._sessions, principal)


def _nothing() -> None:
    pass


def _one_less(counted: Counter[Principal], principal: Principal) -> None:
    counted[principal] -= 1
    if not counted[principal]:
        del counted[principal]
