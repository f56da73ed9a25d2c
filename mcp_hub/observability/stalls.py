"""Keeps work that grows with its input from keeping the event loop, and tells of what does keep it.

A stall is processor time of the loop's thread in one callback, without that of decoding and encoding large frames.
Work that may take long is done in slices, between which everybody else has a turn, or in a thread.
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
"""Seconds of work in one callback before the others have their turn."""
AT_ONCE: Final = 2
"""Pieces of work in threads at the same time. Each takes the interpreter from the loop for a moment."""
EVERY: Final = 0.5
"""Seconds between two looks for stalls: one that is shorter may pass unseen."""
STALL: Final = 0.1
"""Seconds of processor time that are told of."""


def at_once(steps: Generator[None, None, T], seconds: float = float("inf")) -> tuple[bool, T | None]:
    """(whether `steps` came to their end within so many seconds of processor time, what they returned)."""
    began, until = time.thread_time(), time.perf_counter() + seconds
    try:
        while True:
            next(steps)
            if time.perf_counter() > until:  # which costs a tenth of asking for the processor time
                left = began + seconds - time.thread_time()
                if left <= 0:
                    return False, None
                until = time.perf_counter() + left
    except StopIteration as end:
        return True, end.value


async def in_slices(steps: Generator[None, None, T]) -> T:
    """What `steps` return. They yield where others may have a turn, and have one when a slice is over."""
    while True:
        done, value = at_once(steps, SLICE)
        if done:
            return value  # type: ignore[return-value]
        await asyncio.sleep(0)


_places: WeakKeyDictionary[Any, asyncio.Semaphore] = WeakKeyDictionary()


async def in_thread(work: Callable[..., T], *args: Any) -> T:
    """What `work(*args)` returns or raises, done in a thread. It goes on to its end if the caller is cancelled."""
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
    working.add_done_callback(lambda _: place.release())
    return await working


class Stalls:
    """`longest` is the longest stall seen, in seconds of processor time, `count` how many were told of.

    A look that comes late tells how long it was kept from running; a stall has taken no more than that, and no more
    than the processor time of the thread since the last look. So a machine that is busy elsewhere makes none.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self.count = 0

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look while the block runs."""
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
                log.warning("the event loop was kept for %.2f s by one piece of work: the hub has a fault", took)
