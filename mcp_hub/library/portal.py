"""The portal: an event loop in a thread of its own, to which code with or without a loop hands work."""

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
from typing import Any, Final, TypeVar

T = TypeVar("T")

log = logging.getLogger("mcp_hub.library")

CLOSE_WITHIN: Final = 10.0
"""Seconds the end may take; stopping servers takes at most 3."""

Work = Callable[[], Coroutine[Any, Any, T]]


class Portal:
    """`run` blocks until the work is done, `wait` awaits it in any loop; the work itself runs in the portal's loop.

    The thread begins with the first work. `ending` is what to do in the loop before it ends; it runs when `close` or
    `aclose` is called, or the program ends without. In a process made by `fork` there is no thread: it begins anew
    with the first work, after `forked()`.
    """

    def __init__(self, ending: Work[None], forked: Callable[[], None] = lambda: None) -> None:
        self._ending = ending
        self._forked = forked
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._closed = False
        _open.add(self)

    @property
    def closed(self) -> bool:
        """Whether it takes no more work."""
        return self._closed

    def run(self, work: Work[T]) -> T:
        """What the work returns or raises. RuntimeError in the portal's own thread, which would wait for itself."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("the hub cannot wait for itself in its own thread")
        future = self.begin(work)
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError(_CLOSED) from None
        except BaseException:
            future.cancel()  # an interrupt from the keyboard, say
            raise

    async def wait(self, work: Work[T]) -> T:
        """What the work returns or raises; being cancelled cancels it."""
        future = self.begin(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if me is None or me.cancelling() or not self._closed:
                raise
            raise RuntimeError(_CLOSED) from None

    def begin(self, work: Work[T]) -> Future[T]:
        """Have the work done. RuntimeError once the portal is closed."""
        loop = self._running()
        running = _begun(work)
        try:
            return asyncio.run_coroutine_threadsafe(running, loop)
        except RuntimeError:
            running.close()
            raise RuntimeError(_CLOSED) from None

    def close(self) -> None:
        """End what runs, then the thread, within `CLOSE_WITHIN` seconds. Idempotent; never raises."""
        ending = self.end()
        if ending is not None and ending is not threading.current_thread():
            ending.join(CLOSE_WITHIN)

    async def aclose(self) -> None:
        """`close` for a coroutine."""
        ending = self.end()
        if ending is not None and ending is not threading.current_thread():
            await asyncio.get_running_loop().run_in_executor(None, ending.join, CLOSE_WITHIN)

    # --- the thread --------------------------------------------------------------------------------------------

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._closed:
                raise RuntimeError(_CLOSED)
            if self._process != os.getpid():
                self._begin_anew()
            if self._loop is None:
                self._loop = _new_loop()
                self._thread = threading.Thread(target=self._live, args=(self._loop,), name="mcp-hub", daemon=True)
                self._thread.start()
            return self._loop

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def end(self) -> threading.Thread | None:
        """Begin the end; the thread to wait for, None if there is none in this process."""
        with self._starting:
            first, self._closed = not self._closed, True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None or self._process != os.getpid():
            return None
        if first:
            loop.call_soon_threadsafe(lambda: loop.create_task(self._stop(loop), name="end of the portal"))
        return thread

    async def _stop(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            async with asyncio.timeout(CLOSE_WITHIN - 1):
                await self._ending()
        except Exception:
            log.exception("ending the hub failed")
        finally:
            loop.stop()

    def _begin_anew(self) -> None:
        """After a fork, where the thread is gone, and what it had open is its parent's to use and to end."""
        _inherited.append(self._loop)
        self._process = os.getpid()
        self._loop = self._thread = None
        self._forked()


_CLOSED: Final = "this hub is closed; make another one"

_open: weakref.WeakSet[Portal] = weakref.WeakSet()
_inherited: list[Any] = []
"""What was open when the process was forked: kept for ever, as its end would end what the parent uses."""


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


async def _begun(work: Work[T]) -> T:
    return await work()


@atexit.register
def _close_all() -> None:
    """No server outlives the program, whoever has forgotten to close."""
    portals = list(_open)
    for portal in portals:
        portal.end()
    for portal in portals:
        portal.close()


def keep(inherited: object) -> None:
    """Keep something of the parent's process for as long as this one lives."""
    _inherited.append(inherited)


if hasattr(os, "register_at_fork"):

    def _after_fork() -> None:
        for portal in list(_open):
            portal._starting = threading.Lock()  # whoever held it is not here to give it back

    os.register_at_fork(after_in_child=_after_fork)
