"""The portal: an event loop in a separate thread, which runs work for code with or without a loop."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Final, Self, TypeVar

from mcp_hub.transport.background import run_in_thread

T = TypeVar("T")

log = logging.getLogger("mcp_hub.library")

CLOSE_WITHIN: Final = 10.0
"""Seconds that `close` may take. Stopping servers takes at most 3."""

Work = Callable[[], Coroutine[Any, Any, T]]


class Closable:
    """Is closed at the end of a `with` or `async with` block."""

    def close(self) -> Any:
        """Closes this. Idempotent."""

    async def aclose(self) -> None:
        """Does what `close` does, for coroutines."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Portal:
    """Runs work in a separate event loop: `run` blocks until the work is done, `wait` awaits it in any loop.

    The thread starts with the first work. `on_end` runs in the loop before it ends, when `close` or `aclose` is called
    or the program exits. After a `fork` the child has no such thread: it starts again with the first work, after
    `on_fork()` is called.
    """

    def __init__(self, on_end: Work[None], on_fork: Callable[[], None] = lambda: None) -> None:
        self._on_end = on_end
        self._on_fork = on_fork
        self._start_lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._closed = False
        _open.add(self)

    @property
    def closed(self) -> bool:
        """Returns whether the portal is closed and accepts no more work."""
        return self._closed

    def run(self, work: Work[T]) -> T:
        """Returns or raises what the work does.

        Raises RuntimeError in the portal's own thread, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("the hub cannot wait for itself in its own thread")
        future = self.begin(work)
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError(_CLOSED) from None
        except BaseException:
            future.cancel()  # for example after KeyboardInterrupt
            raise

    async def wait(self, work: Work[T]) -> T:
        """Returns or raises what the work does. Cancelling this cancels the work."""
        future = self.begin(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling() or not self._closed:
                raise
            raise RuntimeError(_CLOSED) from None

    def begin(self, work: Work[T]) -> Future[T]:
        """Starts the work and returns its future. Raises RuntimeError if the portal is closed."""
        with self._start_lock:  # also around the last line: `close` would not see work that is scheduled after its end
            loop = self._running()
            return asyncio.run_coroutine_threadsafe(_await_work(work), loop)

    def close(self) -> None:
        """Runs `on_end`, then ends the thread, within `CLOSE_WITHIN` seconds. Idempotent; never raises."""
        thread = self.end()
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_WITHIN)

    async def aclose(self) -> None:
        """Does what `close` does, for coroutines."""
        thread = self.end()
        if thread is not None and thread is not threading.current_thread():
            await asyncio.get_running_loop().run_in_executor(None, thread.join, CLOSE_WITHIN)

    # --- the thread --------------------------------------------------------------------------------------------

    def _running(self) -> asyncio.AbstractEventLoop:
        """Returns the loop and starts it if needed. `_start_lock` must be held."""
        if self._closed:
            raise RuntimeError(_CLOSED)
        if self._pid != os.getpid():
            self._begin_anew()
        if self._loop is None:
            self._loop = _new_loop()
            self._thread = threading.Thread(target=run_in_thread, args=(self._loop,), name="mcp-hub", daemon=True)
            self._thread.start()
        return self._loop

    def end(self) -> threading.Thread | None:
        """Starts `close` and returns the thread to wait for, or None if there is none in this process."""
        with self._start_lock:
            first, self._closed = not self._closed, True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None or self._pid != os.getpid():
            return None
        if first:
            loop.call_soon_threadsafe(lambda: loop.create_task(self._stop(loop), name="end of the portal"))
        return thread

    async def _stop(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            async with asyncio.timeout(CLOSE_WITHIN - 1):
                await self._on_end()
        except Exception:
            log.exception("ending the hub failed")
        finally:
            loop.stop()

    def _begin_anew(self) -> None:
        """Resets the portal after a fork. The thread is gone, and what it had open belongs to the parent process."""
        _inherited.append(self._loop)
        self._pid = os.getpid()
        self._loop = self._thread = None
        self._on_fork()


_CLOSED: Final = "this hub is closed; make another one"

_open: weakref.WeakSet[Portal] = weakref.WeakSet()
_inherited: list[Any] = []
"""Objects of the parent process after a fork, kept for ever, as finalizing them would end what the parent uses."""


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


async def _await_work(work: Work[T]) -> T:
    return await work()


@atexit.register
def _close_all() -> None:
    """Closes all portals when the program exits, so that no server outlives it."""
    portals = list(_open)
    for portal in portals:
        portal.end()
    for portal in portals:
        portal.close()


def keep(inherited: object) -> None:
    """Keeps an object of the parent process alive for as long as this process lives."""
    _inherited.append(inherited)


if hasattr(os, "register_at_fork"):

    def _after_fork() -> None:
        for portal in list(_open):
            portal._start_lock = threading.Lock()  # the thread that held it does not exist in the child

    os.register_at_fork(after_in_child=_after_fork)
