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
from mcp_hub.transport.background import BACKGROUND, TaskSet

T = TypeVar("T")

log = logging.getLogger("mcp_hub")

SLICE: Final = 0.005
"""Seconds of work in one callback before other tasks run."""
MAX_THREADS: Final = 2
"""The most threads that work at the same time. Each takes the interpreter lock from the loop now and then."""
EVERY: Final = 0.5
"""Seconds between two measurements; a shorter stall may go unnoticed."""
STALL: Final = 0.1
"""Seconds of processor time from which a stall is reported."""


def run_for(steps: Generator[None, None, T], seconds: float = float("inf")) -> tuple[bool, T | None]:
    """Runs a generator for at most `seconds` of processor time; returns (whether it ended, its value or None)."""
    start, until = time.thread_time(), time.perf_counter() + seconds
    try:
        while True:
            next(steps)
            if time.perf_counter() > until:  # a tenth of the cost of reading the processor time
                remaining = start + seconds - time.thread_time()
                if remaining <= 0:
                    return False, None
                until = time.perf_counter() + remaining
    except StopIteration as end:
        return True, end.value


async def in_slices(steps: Generator[None, None, T]) -> T:
    """Runs a generator in slices and returns what it returns. Other tasks run between two slices."""
    while True:
        done, value = run_for(steps, SLICE)
        if done:
            return value  # type: ignore[return-value]
        await asyncio.sleep(0)


_drop_tasks = TaskSet()


def drop(items: list[Any]) -> None:
    """Empties a list in slices, in the background, as freeing many objects at once would block the event loop.

    Only objects that nothing else refers to are freed.
    """
    _drop_tasks.start(in_slices(_clear_in_steps(items)))


def _clear_in_steps(items: list[Any]) -> Generator[None]:
    while items:
        del items[-1:]
        yield


_semaphores: WeakKeyDictionary[Any, asyncio.Semaphore] = WeakKeyDictionary()


async def in_thread(work: Callable[..., T], *args: Any) -> T:
    """Runs `work(*args)` in a thread and returns its result. Once begun, it ends even if the caller is cancelled."""
    loop = asyncio.get_running_loop()
    semaphore = _semaphores.get(loop)
    if semaphore is None:
        semaphore = _semaphores[loop] = asyncio.Semaphore(MAX_THREADS)
    await semaphore.acquire()
    try:
        future = loop.run_in_executor(None, work, *args)
    except BaseException:
        semaphore.release()
        raise

    def release_slot(future: asyncio.Future[T]) -> None:
        semaphore.release()
        if not future.cancelled():
            future.exception()  # marks it as retrieved, also if nobody waits any more

    future.add_done_callback(release_slot)
    return await asyncio.shield(future)  # the semaphore is held until the thread ends


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
        task = BACKGROUND.keep("stalls", self._watch)
        try:
            yield
        finally:
            task.cancel()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, start, frames = loop.time() + EVERY, time.thread_time(), Spent.seconds
            await asyncio.sleep(EVERY)
            duration = min(loop.time() - due, time.thread_time() - start) - (Spent.seconds - frames)
            self.longest = max(self.longest, duration)
            if duration > STALL:
                self.count += 1
                log.warning("one callback blocked the event loop for %.2f s; this is a fault of the hub", duration)
