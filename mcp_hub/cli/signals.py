"""The signals of a running hub: SIGTERM and SIGINT end it, SIGHUP has it load its configuration again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable


class Signals:
    """`stop` is set by the first SIGTERM or SIGINT; the second ends the process at once, the reaper its children.

    `again` is set by SIGHUP, unless it means that the terminal the hub was started in is gone: that ends it, too.
    """

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.again = asyncio.Event()
        self._in_terminal = _has_terminal()
        self._catch("SIGTERM", self._end)
        self._catch("SIGINT", self._end)
        self._catch("SIGHUP", self._hang_up)

    def _catch(self, name: str, caught: Callable[[], None]) -> None:
        number = getattr(signal, name, None)
        if number is None:
            return
        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(number, caught)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(caught))

    def _end(self) -> None:
        if self.stop.is_set():
            os._exit(130)
        self.stop.set()

    def _hang_up(self) -> None:
        if self._in_terminal and not _has_terminal():
            self._end()
        else:
            self.again.set()


def _has_terminal() -> bool:
    """Whether the process has a terminal that controls it; a process of a service manager or an editor has none."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | getattr(os, "O_NOCTTY", 0)))
    except OSError:
        return False
    return True
