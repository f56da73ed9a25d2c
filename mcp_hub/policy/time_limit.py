"""The time a block may take, as `asyncio.timeout` has it, for a quarter of the cost where it is long."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final
from weakref import WeakKeyDictionary

LONG: Final = 10.0
"""Seconds from which on a limit shares a timer with others."""
STEP: Final = 0.5
"""Seconds by which a long limit may be late: those that end within one step end together."""


class _Shared:
    """The long limits of one loop. A timer is set for a step, not for a limit; nothing runs while there are none."""

    def __init__(self) -> None:
        self._steps: dict[int, set[TimeLimit]] = {}

    def step(self, loop: asyncio.AbstractEventLoop, when: float) -> set[TimeLimit]:
        """The limits that end with this one; they are taken out as they are left."""
        number = int(when / STEP) + 1
        found = self._steps.get(number)
        if found is None:
            found = self._steps[number] = set()
            loop.call_at(number * STEP, self._end, number)
        return found

    def _end(self, number: int) -> None:
        for limit in tuple(self._steps.pop(number)):
            limit._expire()


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()
"""They do not know their loop, which would be kept for ever by it."""


class TimeLimit:
    """`with TimeLimit(seconds):` cancels its task at the end of them, and raises TimeoutError when the block is left.

    To be made and left in the same task. `when` is in the loop's time; None: it stands still.
    """

    __slots__ = ("_cancelling", "_expired", "_handle", "_loop", "_step", "_task", "when")

    def __init__(self, seconds: float) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit is for a task")
        self._loop = loop = task.get_loop()
        self._task = task
        self._cancelling = task.cancelling()
        self._handle: asyncio.TimerHandle | None = None
        self._step: set[TimeLimit] | None = None
        self._expired = False
        self.when: float | None = None
        self.reschedule(loop.time() + seconds)

    def __enter__(self) -> TimeLimit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disarm()
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    @property
    def expired(self) -> bool:
        """Whether it has cancelled its task."""
        return self._expired

    def reschedule(self, when: float | None) -> None:
        """Let it end at another time of the loop; None: not at all."""
        self._disarm()
        self.when = when
        if when is None:
            return
        if when - self._loop.time() < LONG:
            self._handle = self._loop.call_at(when, self._expire)
            return
        shared = _of_loops.get(self._loop)
        if shared is None:
            shared = _of_loops[self._loop] = _Shared()
        self._step = shared.step(self._loop, when)
        self._step.add(self)

    def _disarm(self) -> None:
        if self._step is not None:
            self._step.discard(self)
            self._step = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _expire(self) -> None:
        self._disarm()
        self._expired = True
        self._task.cancel()
