"""Runs long work in slices or threads, so that it does not block the event loop, and reports work that does.

A stall is processor time of the loop's thread in one callback, without that of decoding and encoding large frames.
Work that may take long is done in slices, between which other tasks run, or in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from mcp_hub.protocol.frames import Spent

T = TypeVar("T")

log = logging.getLogger("mcp_hub")

SLICE: Final = 0.005
"""Seconds of work in one callback before other tasks run."""
AT_ONCE: Final = 2
"""The most threads that work at the same time. Each takes the interpreter lock from the loop now and then."""
EVERY: Final = 0.5
"""Seconds between two measurements; a shorter stall may go unnoticed."""
STALL: Final = 0.1
"""Seconds of processor time from which a stall is reported."""


def run_for(steps: Generator[None, None, T], seconds: float = float("inf")) -> tuple[bool, T | None]:
    """Runs a generator for at most `seconds` of processor time; returns (whether it ended, its value or None)."""
    began, until = time.thread_time(), time.perf_counter() + seconds
    try:
        while True:
            next(steps)
            if time.perf_counter() > until:  # a tenth of the cost of reading the processor time
                left = began + seconds - time.thread_time()
                if left <= 0:
                    return False, None
                until = time.perf_counter() + left
    except StopIteration as end:
        return True, end.value


def finished(steps: Generator[None, None, T]) -> T:
    """Runs a generator to its end in one go and returns what it returns."""
    _, value = run_for(steps)
    return value  # type: ignore[return-value]


async def in_slices(steps: Generator[None, None, T]) -> T:
    """Runs a generator in slices and returns what it returns. Other tasks run between two slices."""
    while True:
        done, value = run_for(steps, SLICE)
        if done:
            return value  # type: ignore[return-value]
        await asyncio.sleep(0)


_dropping: set[asyncio.Task[None]] = set()


def drop(held: list[Any]) -> None:
    """Empties a list in slices, in the background, as freeing many objects at once would block the event loop.

    Only objects that nothing else refers to are freed.
    """
    task = asyncio.get_running_loop().create_task(in_slices(_emptying(held)))
    _dropping.add(task)
    task.add_done_callback(_dropping.discard)


def _emptying(held: list[Any]) -> Generator[None]:
    while held:
        del held[-1:]
        yield


_places: WeakKeyDictionary[Any, asyncio.Semaphore] = WeakKeyDictionary()


async def in_thread(work: Callable[..., T], *args: Any) -> T:
    """Runs `work(*args)` in a thread and returns its result. Once begun, it ends even if the caller is cancelled."""
    loop = asyncio.get_running_loop()
    place = _places.get(loop)
    if place is None:
        place = _places[loop] = asyncio.Semaphore(AT_ONCE)
    await place.acquire()
    try:
        working = loop.run_in_executor(None, work, *args)
    except BaseException:
        place.release()
        raise

    def ended(working: asyncio.Future[T]) -> None:
        place.release()
        if not working.cancelled():
            working.exception()  # seen, also if nobody waits any more

    working.add_done_callback(ended)
    return await asyncio.shield(working)  # the place is taken until the thread ends


class StallMonitor:
    """Measures stalls: `longest` in seconds of processor time, `count` of those that were reported.

    Each measurement sleeps for EVERY seconds. The stall is at most the time by which it wakes up late, and at most the
    processor time that the thread has used meanwhile. So a machine that is busy with other programs causes no stall.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self.count = 0

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Measures while the block runs."""
        watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, before, frames = loop.time() + EVERY, time.thread_time(), Spent.seconds
            await asyncio.sleep(EVERY)
            took = min(loop.time() - due, time.thread_time() - before) - (Spent.seconds - frames)
            self.longest = max(self.longest, took)
            if took > STALL:
                self.count += 1
                log.warning("one callback blocked the event loop for %.2f s; this is a fault of the hub", took)
