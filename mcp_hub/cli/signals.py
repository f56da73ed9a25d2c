"""Handles the signals of a running hub."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable


class Signals:
    """Handles the signals of a running hub.

    The first SIGTERM or SIGINT sets `stop`. The second ends the process at once, and the reaper ends its children.
    SIGHUP sets `again`, so that the configuration is reloaded. If the hub's terminal was closed, SIGHUP sets `stop`.
    """

    def __init__(self, say: Callable[[str], None] = lambda text: None) -> None:
        """Installs the handlers. `say` prints a line for the person who interrupts the hub at a terminal."""
        self._say = say
        self.calls: Callable[[], int] = lambda: 0
        """Returns the number of running calls."""
        self.stop = asyncio.Event()
        self.again = asyncio.Event()
        self._in_terminal = _has_terminal()
        self._catch("SIGTERM", self._end)
        self._catch("SIGINT", self._interrupt)
        self._catch("SIGHUP", self._hang_up)
        self._catch("SIGBREAK", self._end)  # Windows: Ctrl-Break, and the end of the console

    def _catch(self, name: str, handler: Callable[[], None]) -> None:
        signum = getattr(signal, name, None)
        if signum is None:
            return
        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(signum, handler)
        except NotImplementedError:  # Windows
            signal.signal(signum, lambda *_: loop.call_soon_threadsafe(handler))

    def _end(self) -> None:
        if self.stop.is_set():
            os._exit(130)
        self.stop.set()

    def _interrupt(self) -> None:
        if not self.stop.is_set() and self._in_terminal:
            count = self.calls()
            calls = f"{count} call{'s' * (count != 1)}, then for the servers" if count else "the servers"
            self._say(f"stopping: waits some seconds for {calls} to end; Ctrl-C again ends all at once")
        self._end()

    def _hang_up(self) -> None:
        if self._in_terminal and not _has_terminal():
            self._end()
        else:
            self.again.set()


def _has_terminal() -> bool:
    """Returns whether the process has a controlling terminal. Under a service manager or an editor it has none."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | getattr(os, "O_NOCTTY", 0)))
    except OSError:
        return False
    return True
