"""The threads that run the sync functions of a server for local tools."""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable, Hashable
from typing import Final

THREADS: Final = 32
"""Most functions that run at once, apart from those whose calls were given up."""
MAX_GIVEN_UP: Final = 256
"""Most threads with functions of given-up calls; beyond that, such a function keeps its place among the 32."""

Work = Callable[[], object]


class CallThreads:
    """Runs functions in up to 32 threads; the rest wait. What a function raises is printed.

    A function cannot be stopped. So when its call is given up its thread no longer counts, or functions that never end
    would block the calls after them.
    """

    def __init__(self) -> None:
        self._queued: queue.SimpleQueue[tuple[Hashable, Work]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running: set[Hashable] = set()
        self._threads = 0
        self._idle = 0
        self._given_up = 0

    def run(self, call: Hashable, work: Work) -> None:
        """Runs `work` as soon as a thread is free. `call` identifies it for `give_up`."""
        with self._lock:
            self._queued.put((call, work))
            if self._idle:
                self._idle -= 1
            elif self._threads < THREADS:
                self._add_thread()

    def give_up(self, call: Hashable) -> None:
        """Gives the place of a running function to others. Does nothing if the function has ended or waits."""
        with self._lock:
            if call in self._running and self._given_up < MAX_GIVEN_UP:
                self._running.remove(call)
                self._given_up += 1
                self._threads -= 1
                if self._queued.qsize() > self._idle:
                    self._add_thread()

    def _add_thread(self) -> None:
        self._threads += 1
        threading.Thread(target=self._work_loop, name="tool", daemon=True).start()

    def _work_loop(self) -> None:
        while True:
            call, work = self._queued.get()
            with self._lock:
                self._running.add(call)
            try:
                work()
            except BaseException:  # also sys.exit, which would end the thread
                traceback.print_exc()
            with self._lock:
                if call not in self._running:
                    self._given_up -= 1
                    return
                self._running.remove(call)
                if self._queued.empty():
                    self._idle += 1
