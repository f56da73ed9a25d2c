"""Tasks in the background: those of one owner, and loops that are begun again when they fail."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

log = logging.getLogger("mcp_hub")

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 30.0
STEADY: Final = 60.0
"""Seconds after which a loop that fails is begun again after FIRST_PAUSE; otherwise each pause is twice as long."""
MAX_LOGGED: Final = 1000
"""Kinds of failures that are remembered, so that each is logged once; beyond that, further kinds are only counted."""


class TaskSet(set[asyncio.Task[None]]):
    """Tasks that run beside their owner. Each is kept here until it ends, as the event loop itself keeps no task."""

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs a coroutine in a task, which is returned."""
        task = asyncio.get_running_loop().create_task(work)
        self.add(task)
        task.add_done_callback(self.discard)
        return task


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Waits at most so many seconds for an event; returns whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return event.is_set()


def run_in_thread(loop: asyncio.AbstractEventLoop) -> None:
    """Runs an event loop, whose thread this is, until it is stopped; then ends its tasks and closes it."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


class BackgroundLoops:
    """Keeps loops running, and counts how often one was begun again. There is one for the process, `BACKGROUND`."""

    def __init__(self) -> None:
        self.restarts = 0
        self.last_error: str | None = None
        """The loop that failed last, with the type of its exception; its text may hold secrets and is only logged."""
        self._logged: set[tuple[str, str]] = set()

    def keep(self, name: str, work: Callable[..., Awaitable[None]], *args: Any) -> asyncio.Task[None]:
        """Runs `work(*args)` in a task, and again whenever it raises an exception; the task ends when it returns.

        `name` says in the log and in the status which loop it is. Cancel the task to end the loop.
        """
        return asyncio.get_running_loop().create_task(self._run(name, work, args), name=name)

    async def _run(self, name: str, work: Callable[..., Awaitable[None]], args: tuple[Any, ...]) -> None:
        pause = FIRST_PAUSE
        while True:
            started_at = time.monotonic()
            try:
                return await work(*args)
            except Exception as error:
                self._note(name, error)
            pause = FIRST_PAUSE if time.monotonic() - started_at > STEADY else pause
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _note(self, name: str, error: Exception) -> None:
        """Counts a failure; logs it with its traceback if it is the first of its kind."""
        self.restarts += 1
        self.last_error = f"{name}: {type(error).__name__}"
        if (kind := (name, repr(error)[:200])) not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(kind)
            log.error("the background loop %r failed and is begun again", name, exc_info=error)

    def facts(self) -> dict[str, Any]:
        """Returns what the status shows of them."""
        return {"restarts": self.restarts, "last_error": self.last_error}


BACKGROUND: Final = BackgroundLoops()
