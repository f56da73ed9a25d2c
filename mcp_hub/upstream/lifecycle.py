"""The parts of an upstream's supervision: states, connection attempts, backoff, start limit, visibility and health."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import random
import time
from collections.abc import AsyncIterator, Callable
from enum import StrEnum
from typing import Final
from weakref import WeakKeyDictionary

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.entry_rules import HealthSettings
from mcp_hub.errors import CallError, ProtocolError
from mcp_hub.protocol import era as eras
from mcp_hub.transport import LinkError, LinkLost
from mcp_hub.transport.background import BACKGROUND, set_within
from mcp_hub.upstream.session import UpstreamSession

# --- states ----------------------------------------------------------------------------------------------------


class UpstreamState(StrEnum):
    """The state of one upstream."""

    IDLE = "idle"
    """Not started: the server is lazy, or its cached catalog serves until the server is needed."""
    CONNECTING = "connecting"
    READY = "ready"
    FAILING = "failing"
    """Connected, but the last ping was not answered."""
    BACKING_OFF = "backing off"
    STOPPED = "stopped"
    DISABLED = "disabled"


class UpstreamEvent(StrEnum):
    """An event that may move an upstream to another state."""

    WAKE = "wake"
    CONNECTED = "connected"
    FAILED = "failed"
    LOST = "lost"
    LEFT_OUT = "left out"
    SICK = "sick"
    WELL = "well"
    STOP = "stop"


CONNECTED_STATES: Final = frozenset({UpstreamState.READY, UpstreamState.FAILING})

TRANSITIONS: Final[dict[tuple[UpstreamState, UpstreamEvent], UpstreamState]] = {
    (UpstreamState.IDLE, UpstreamEvent.WAKE): UpstreamState.CONNECTING,
    (UpstreamState.BACKING_OFF, UpstreamEvent.WAKE): UpstreamState.CONNECTING,
    (UpstreamState.CONNECTING, UpstreamEvent.CONNECTED): UpstreamState.READY,
    (UpstreamState.CONNECTING, UpstreamEvent.FAILED): UpstreamState.BACKING_OFF,
    (UpstreamState.CONNECTING, UpstreamEvent.LEFT_OUT): UpstreamState.DISABLED,
    (UpstreamState.READY, UpstreamEvent.LEFT_OUT): UpstreamState.DISABLED,
    (UpstreamState.FAILING, UpstreamEvent.LEFT_OUT): UpstreamState.DISABLED,
    (UpstreamState.READY, UpstreamEvent.LOST): UpstreamState.BACKING_OFF,
    (UpstreamState.READY, UpstreamEvent.SICK): UpstreamState.FAILING,
    (UpstreamState.FAILING, UpstreamEvent.WELL): UpstreamState.READY,
    (UpstreamState.FAILING, UpstreamEvent.LOST): UpstreamState.BACKING_OFF,
    (UpstreamState.FAILING, UpstreamEvent.STOP): UpstreamState.STOPPED,
    (UpstreamState.IDLE, UpstreamEvent.STOP): UpstreamState.STOPPED,
    (UpstreamState.CONNECTING, UpstreamEvent.STOP): UpstreamState.STOPPED,
    (UpstreamState.READY, UpstreamEvent.STOP): UpstreamState.STOPPED,
    (UpstreamState.BACKING_OFF, UpstreamEvent.STOP): UpstreamState.STOPPED,
    (UpstreamState.STOPPED, UpstreamEvent.STOP): UpstreamState.STOPPED,
    (UpstreamState.DISABLED, UpstreamEvent.STOP): UpstreamState.DISABLED,
}
"""The next state by state and event. An event that is not listed for a state does not change it."""

# --- connecting ------------------------------------------------------------------------------------------------

FIRST_DELAY: Final = 0.5
"""Upper end in seconds of the wait after the first failure; it doubles with each further one."""
_RANDOM: Final = random.Random()
"""A separate generator: a program that embeds the hub may have seeded the global one."""
LOOK: Final = 2.0
"""Seconds between two checks for a reason to try sooner."""
LONGEST_DELAY: Final = 30.0
FAILURES_TO_FAIL_FAST: Final = 3
"""Failures in a row after which a call fails at once, instead of waiting for another attempt."""
TRY_AGAIN: Final = 1.0
"""Seconds since the last attempt after which a call that fails at once triggers another attempt for later calls."""
SHORT_LIFE: Final = 10.0
"""Seconds; a connection that lived shorter counts as one more failure, not as a recovery."""
REFUSAL_WAIT: Final = 1.0
"""Seconds that the other requests on a lost session have to be refused by the server, too."""
RENEWAL: Final = 30.0
"""Seconds from one connection that replaces a lost session to the next, as a server may lose every session."""
STARTS_AT_ONCE: Final = 4
SLOT_HELD: Final = 3.0
"""Seconds a starting upstream holds its slot; a hanging one must not hold up the others."""


class ConnectAttempt:
    """The connection attempt that calls wait for. While none is running, calls wait for the next one."""

    def __init__(self) -> None:
        self._pending: asyncio.Future[UpstreamSession] | None = None
        self._refusal: CallError | None = None

    def begin(self) -> asyncio.Future[UpstreamSession]:
        """Returns the future of the attempt that is running or comes next."""
        if self._pending is None or self._pending.done():
            self._pending = asyncio.get_running_loop().create_future()
        return self._pending

    async def outcome(self) -> UpstreamSession:
        """Waits for the session that the attempt opens. Cancelling one waiter does not disturb the others.

        Raises:
            CallError: the attempt failed.
        """
        return await asyncio.shield(self.begin())

    def succeeded(self, session: UpstreamSession) -> None:
        """Hands the session to every waiting call."""
        self._refusal = None
        self.begin().set_result(session)

    def failed(self, refusal: CallError) -> None:
        """Fails every waiting call with `refusal`."""
        self._refusal = refusal
        pending = self.begin()
        pending.set_exception(refusal)
        pending.exception()  # marks it as retrieved, even if no call waits for it

    @property
    def refusal(self) -> CallError | None:
        """A copy of the last attempt's error, to be raised again; None before the first failure."""
        return copy.copy(self._refusal)


class Backoff:
    """Exponential backoff with full jitter. `failures` counts the attempts in a row that failed or did not last.

    `longest` is the upper end in seconds of a delay.
    """

    def __init__(self, longest: float = LONGEST_DELAY) -> None:
        self.failures = 0
        self._longest = longest
        self._held_until = 0.0
        self._renewed_at = -RENEWAL
        """`time.monotonic()` of the last attempt that replaces a lost session, past or to come."""
        self.next_attempt: float | None = None
        """`time.monotonic()` of the next attempt; None while not waiting for one."""

    @property
    def fails_fast(self) -> bool:
        """Whether so many attempts have failed that a call fails at once, instead of waiting for another one."""
        return self.failures >= FAILURES_TO_FAIL_FAST

    def count_failure(self, seconds: float, *, connected: bool) -> None:
        """Counts an attempt that has failed, or whose connection has ended, `seconds` after its begin."""
        self.failures = 0 if connected and seconds > SHORT_LIFE else self.failures + 1

    def delay(self) -> float:
        """Returns the seconds until the next attempt, a random number below an end that grows with each failure."""
        return _RANDOM.uniform(0, min(self._longest, FIRST_DELAY * 2 ** max(0, min(self.failures - 1, 16))))

    def hold(self, seconds: float) -> None:
        """Lets no call bring the next attempt forward for `seconds`, as the server wants to be left alone."""
        self._held_until = max(self._held_until, time.monotonic() + seconds)

    def hold_renewal(self) -> None:
        """Holds the next attempt, which replaces a lost session, until RENEWAL seconds after the last of this kind."""
        self._renewed_at = max(time.monotonic(), self._renewed_at + RENEWAL)
        self._held_until = max(self._held_until, self._renewed_at)

    @property
    def held(self) -> float:
        """Seconds until which no call brings the next attempt forward; 0.0 for none."""
        return max(0.0, self._held_until - time.monotonic())

    async def wait(self, woken: asyncio.Event, *, at_once: bool, sooner: Callable[[], bool] = lambda: False) -> None:
        """Waits until the next attempt is due, `woken` is set, or `sooner()` returns True, checked every LOOK seconds.

        `woken` counts only while nothing holds the attempt. With `at_once`, the next attempt is due immediately.
        """
        self.next_attempt = time.monotonic() + (0.0 if at_once else self.delay())
        self.next_attempt = max(self.next_attempt, self._held_until)
        while (remaining := self.next_attempt - time.monotonic()) > 0 and not sooner():
            if woken.is_set() and not self.held:
                break
            woken.clear()
            await set_within(woken, min(remaining, LOOK))
        self.next_attempt = None


class StartLimiter:
    """Lets at most `STARTS_AT_ONCE` upstreams start at once; one that takes long gives up its slot and continues."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(STARTS_AT_ONCE)

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Waits for a slot and holds it for the block, at most `SLOT_HELD` seconds."""
        await self._slots.acquire()
        is_held = True

        def release() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._slots.release()

        timer = asyncio.get_running_loop().call_later(SLOT_HELD, release)
        try:
            yield
        finally:
            timer.cancel()
            release()


# --- visibility and use ----------------------------------------------------------------------------------------


class Visibility:
    """Whether an upstream's items are listed. `changed()` is called when they disappear and when they are back."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._timer: asyncio.TimerHandle | None = None
        self.listed = True

    def hide_after(self, seconds: float | None) -> None:
        """Stops listing the upstream after `seconds`, unless `show` is called before; None: keeps listing it."""
        if seconds is not None and self._timer is None and self.listed:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._hide)

    def _hide(self) -> None:
        self._timer = None
        self.listed = False
        self._changed()

    def show(self) -> None:
        """Lists the upstream again, and stops waiting to hide it."""
        self.close()
        if not self.listed:
            self.listed = True
            self._changed()

    def close(self) -> None:
        """Stops waiting to hide the upstream."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ReferenceCount:
    """Counts the running calls that use an object. A call adds 1 to `count`, and subtracts it when it ends.

    The caller that brings `count` to 0 must call `notify` if `waiters` is not 0. For speed, this is not a context
    manager: every call updates two of them.
    """

    def __init__(self) -> None:
        self.count = 0
        self.waiters = 0
        """Number of tasks that wait for the end of all calls."""
        self._idle = asyncio.Event()

    def notify(self) -> None:
        """Wakes the tasks in `wait_until_unused`."""
        self._idle.set()

    async def wait_until_unused(self, seconds: float) -> bool:
        """Waits at most `seconds` for all calls to end; returns whether they have."""
        self.waiters += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while self.count:
                        self._idle.clear()
                        await self._idle.wait()
        finally:
            self.waiters -= 1
        return not self.count


# --- health ----------------------------------------------------------------------------------------------------

PING_MISSED: Final = CodedText("it is connected, but did not answer the last ping", codes.PING_UNANSWERED)
MISSED_PINGS: Final = 2
"""Pings in a row without an answer after which a connection counts as dead."""
JITTER: Final = 0.1
"""Share by which intervals vary, so that many upstreams are not pinged at the same moment."""


class HealthMonitor:
    """Pings every session of one upstream from which nothing is heard, until it is lost.

    It also refreshes the shared lists if their changes may not be announced: `list_again()`. `well(session, False)` is
    called at the first missed ping of a session, `well(session, True)` when the server answers again.
    """

    def __init__(
        self,
        rules: HealthSettings,
        well: Callable[[UpstreamSession, bool], None],
        list_again: Callable[[], None],
    ) -> None:
        self._rules = rules
        self._well = well
        self._list_again = list_again
        self._shared: UpstreamSession | None = None
        """The session from which the shared lists come."""
        self._loops: WeakKeyDictionary[UpstreamSession, list[asyncio.Task[None]]] = WeakKeyDictionary()

    def follow(self, session: UpstreamSession) -> None:
        """Monitors a session until it is lost."""
        for loop in self._loops.get(session, ()):
            loop.cancel()
        self._loops[session] = loops = []
        ping, relist = self._rules.ping, self._rules.relist
        if ping is not None and (method := _ping_method(session)) is not None:
            loops.append(BACKGROUND.keep("pings of a server", self._ping, session, method, ping))
        if relist is not None and session is self._shared:
            loops.append(BACKGROUND.keep("lists of a server", self._relist, session, relist))

    def follow_lists(self, session: UpstreamSession) -> None:
        """Refreshes the shared lists from this session, too, until it is lost."""
        self._shared = session
        self.follow(session)

    def renew(self, rules: HealthSettings) -> None:
        """Monitors all sessions by these rules from now on."""
        self._rules = rules
        for session in list(self._loops):
            self.follow(session)

    async def _ping(self, session: UpstreamSession, method: str, interval: float) -> None:
        peer, missed = session.peer, 0
        while True:
            heard_before = peer.received_count
            if await set_within(session.lost, _spread(interval)):
                return
            is_quiet = peer.received_count == heard_before and (peer.owes or not session.busy)
            if not is_quiet or await _answers(session, method, interval):
                if missed:
                    self._well(session, True)
                missed = 0
                continue
            missed += 1
            self._well(session, False)
            if missed >= MISSED_PINGS:
                text = f"it did not answer {MISSED_PINGS} pings in a row, {interval:g} s each"
                session.end(LinkLost(text, code=codes.PING_UNANSWERED))

    async def _relist(self, session: UpstreamSession, interval: float) -> None:
        while not await set_within(session.lost, _spread(interval)):
            if not session.announces_changes:
                self._list_again()


def _ping_method(session: UpstreamSession) -> str | None:
    """Returns the method that shows whether a server is alive; None for a modern server over a network.

    Such a server has no connection that could be lost.
    """
    if session.era == "handshake":
        return "ping"
    return eras.DISCOVER if session.is_local else None


async def _answers(session: UpstreamSession, method: str, deadline: float) -> bool:
    """Returns whether the server responds, be it with an error. A failed link counts, too: it reports its own loss."""
    try:
        async with asyncio.timeout(deadline):
            await session.request(method, {})
    except TimeoutError:
        return False
    except (ProtocolError, LinkError):
        pass
    return True


def _spread(seconds: float) -> float:
    return seconds * _RANDOM.uniform(1 - JITTER, 1 + JITTER)
