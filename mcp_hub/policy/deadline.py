"""The deadlines of one call, in total and without progress, and the time limit that enforces them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from math import inf
from types import TracebackType
from typing import Final
from weakref import WeakKeyDictionary, ref

from mcp_hub.catalog import Route
from mcp_hub.config.models import Server
from mcp_hub.errors import DeadlineExceeded
from mcp_hub.policy import Call, Json, Next, Policy, PolicyParts
from mcp_hub.policy.patterns import ToolRulesTable

LONG: Final = 10.0
"""Limits of at least so many seconds share timers."""
STEP: Final = 0.5
"""Seconds by which a long limit may be late: limits within one step end together."""


class _TimerWheel:
    """The timer wheel for the long limits of one loop: one timer for each step, none while there are no limits."""

    def __init__(self) -> None:
        self.steps: dict[int, set[TimeLimit]] = {}
        """The limits that end in each step; a limit is removed when its block is left."""

    def begin(self, loop: asyncio.AbstractEventLoop, number: int) -> set[TimeLimit]:
        """Adds a step, which ends at `number * STEP`."""
        limits = self.steps[number] = set()
        loop.call_at(number * STEP, self._end, number)
        return limits

    def _end(self, number: int) -> None:
        for limit in tuple(self.steps.pop(number)):
            limit.expire()


class _TimerWheels:
    """The timer wheel of each loop. No wheel refers to its loop, which would then never be freed."""

    def __init__(self) -> None:
        self._of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _TimerWheel] = WeakKeyDictionary()
        self._latest: tuple[Callable[[], asyncio.AbstractEventLoop | None], _TimerWheel] = (lambda: None, _TimerWheel())

    def of(self, loop: asyncio.AbstractEventLoop) -> _TimerWheel:
        latest_loop, wheel = self._latest  # read as one tuple, because other threads may have loops too
        if latest_loop() is not loop:
            wheel = self._of_loops.setdefault(loop, _TimerWheel())
            self._latest = ref(loop), wheel
        return wheel


_wheels: Final = _TimerWheels()


class TimeLimit:
    """`with TimeLimit(seconds):` cancels the task after that time and raises TimeoutError when the block is left.

    It does what `asyncio.timeout` does, at a quarter of the cost if it is long. It must be made and left in the same
    task. `when` is in the loop's time; None means that the limit is suspended. `loop`: the running loop, if the caller
    knows it; to find it costs a system call.
    """

    __slots__ = (
        "_cancelling",
        "_handle",
        "_is_closed",
        "_loop",
        "_remaining",
        "_step",
        "_suspended",
        "_task",
        "deadline",
        "ends_attempt",
        "expired",
    )

    def __init__(self, seconds: float, loop: asyncio.AbstractEventLoop | None = None) -> None:
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("make a TimeLimit in a task: it cancels the task when the time is over")
        self._loop = loop = task.get_loop()
        self._task = task
        self._cancelling = task.cancelling()
        self._handle: asyncio.TimerHandle | None = None
        self._step: set[TimeLimit] | None = None
        self._suspended = 0
        """How often the limit was suspended and not yet resumed."""
        self._remaining = 0.0
        """Seconds that were left when it was suspended."""
        self._is_closed = False
        self.expired = False
        """Whether it has cancelled its task."""
        self.ends_attempt = False
        """Whether it holds for the attempt of the server alone, if the hub can answer in its place."""
        self.deadline: float | None = (when := loop.time() + seconds)
        self._arm(seconds, when)

    def __enter__(self) -> TimeLimit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disarm()
        self._is_closed = True
        if self.expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def reschedule(self, when: float) -> None:
        """Moves the end to `when`, in the time of the loop."""
        self._disarm()
        self.deadline = when
        self._arm(when - self._loop.time(), when)

    def suspend(self) -> None:
        """Stops the clock of the limit until `resume` was called as often as `suspend`."""
        self._suspended += 1
        if self.deadline is not None and not self.expired and not self._is_closed:
            self._remaining, self.deadline = self.deadline - self._loop.time(), None
            self._disarm()

    def resume(self) -> None:
        """Ends one suspension. The last one continues with the time that was left."""
        self._suspended -= 1
        if not self._suspended and self.deadline is None and not self._is_closed:
            self.reschedule(self._loop.time() + max(self._remaining, 0.0))

    def _arm(self, seconds: float, when: float) -> None:
        if seconds < LONG:
            self._handle = self._loop.call_at(when, self.expire)
            return
        wheel = _wheels.of(self._loop)
        number = int(when / STEP) + 1
        self._step = wheel.steps[number] if number in wheel.steps else wheel.begin(self._loop, number)
        self._step.add(self)

    def _disarm(self) -> None:
        if self._step is not None:
            self._step.discard(self)
            self._step = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def expire(self) -> None:
        """Cancels the task."""
        self._disarm()
        self.expired = True
        self._task.cancel()


class DeadlinePolicy(Policy):
    """Ends a call at its deadline, retries and fallback included. The upstream is told to cancel; its session stays.

    Every progress notification extends the idle deadline, never beyond the total one.
    """

    name = "deadline"

    def __init__(self, servers: Mapping[str, Server], at_most: float = inf, setting: str = "") -> None:
        """Makes the policy. A call whose tool has no `timeout` takes `at_most` seconds, which `setting` sets."""
        self._servers = servers
        self._rules = ToolRulesTable(servers)
        self._at_most, self._setting = at_most, setting
        self._loop: asyncio.AbstractEventLoop | None = None
        """Cached: `current_task` without a loop costs a system call."""

    @classmethod
    def of(cls, parts: PolicyParts) -> DeadlinePolicy:
        """Makes the policy of a configuration."""
        return cls(parts.servers)

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Runs the call. Raises DeadlineExceeded, which names the limit and its setting."""
        server = call.route.upstream
        rules, deadlines = self._rules[call.route], self._servers[server].deadlines
        total = rules.timeout if rules.timeout is not None else min(deadlines.call, self._at_most)
        idle = rules.idle_timeout if rules.idle_timeout is not None else deadlines.idle
        self._loop = self._loop or asyncio.get_running_loop()
        scope = TimeLimit(total, self._loop)
        scope.ends_attempt = rules.timeout is not None
        try:
            with scope:
                call.deadlines.append(scope)
                return await (
                    call_next(call) if idle is None or idle >= total else self._run_idle(idle, call, call_next)
                )
        except TimeoutError:
            if scope.expired:
                is_own = rules.timeout is not None or total < self._at_most
                setting = self._key(call.route, "timeout", "call") if is_own else self._setting
                text = f"{call.exposed!r} did not answer within {total:g} s (setting: {setting})."
                raise DeadlineExceeded(text, server=server) from None
            raise

    def _key(self, route: Route, rule: str, deadline: str) -> str:
        """Returns the key that limits calls of a tool: its own `rule`, or the deadline of its server."""
        key = self._rules.key_of(route, rule)
        return f"servers.{route.upstream}.{key}" if key else self._servers[route.upstream].key_of_deadline(deadline)

    async def _run_idle(self, idle: float, call: Call, call_next: Next) -> Json:
        """Runs the call as long as it reports progress at least every `idle` seconds. Raises DeadlineExceeded."""
        scope = TimeLimit(idle)
        scope.ends_attempt = True
        relay = call.on_progress

        def on_progress(params: Json) -> None:
            if not scope.expired and scope.deadline is not None:
                scope.reschedule(asyncio.get_running_loop().time() + idle)
            if relay is not None:
                relay(params)

        call.on_progress = on_progress
        try:
            with scope:
                call.deadlines.append(scope)
                return await call_next(call)
        except TimeoutError:
            if not scope.expired:
                raise
            setting = self._key(call.route, "idle_timeout", "idle")
            text = f"{call.exposed!r} made no progress for {idle:g} s (setting: {setting})."
            raise DeadlineExceeded(text, server=call.route.upstream) from None
