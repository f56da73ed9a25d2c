"""Works with systemd or another service manager: socket activation, readiness, the watchdog.

The protocols are those of `sd_listen_fds` and `sd_notify`, and need their environment variables.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Final

from mcp_hub import codes
from mcp_hub.errors import ConfigError
from mcp_hub.text import printable
from mcp_hub.transport.background import BACKGROUND

log = logging.getLogger("mcp_hub")

FIRST_DESCRIPTOR: Final = 3
MAX_SOCKETS: Final = 64
SHORTEST_WATCH: Final = 0.05
"""The minimum time between two watchdog messages, in seconds, even if the manager's timeout is shorter."""
NOTIFY, WATCHDOG = "NOTIFY_SOCKET", "WATCHDOG_USEC"


def handed_sockets(environ: MutableMapping[str, str]) -> list[tuple[str, socket.socket]]:
    """Returns (name, socket) for each socket that was passed to this process, and removes the variables about them.

    Raises ConfigError if the variables are not what a service manager sets.
    """
    count, pid = environ.pop("LISTEN_FDS", None), environ.pop("LISTEN_PID", None)
    names = environ.pop("LISTEN_FDNAMES", "").split(":")
    if count is None or pid is None or sys.platform == "win32":
        return []
    if pid != str(os.getpid()):
        text = "sockets were handed to process %s, which is not the hub (LISTEN_PID); let the unit start it by no shell"
        log.warning(text, printable(pid, 20))
        return []
    if not count.isascii() or not count.isdigit() or int(count) > MAX_SOCKETS:
        text = f"LISTEN_FDS is {printable(count, 40)!r}; it must be a number of sockets, at most {MAX_SOCKETS}"
        raise ConfigError(text, codes.SOCKET_HANDED)
    sockets = []
    for index in range(int(count)):
        descriptor = FIRST_DESCRIPTOR + index
        try:
            os.set_inheritable(descriptor, False)
            sock = socket.socket(fileno=descriptor)
        except OSError as error:
            text = f"descriptor {descriptor}, which was handed over (LISTEN_FDS), is no socket: {error.strerror}"
            raise ConfigError(text, codes.SOCKET_HANDED) from None
        sockets.append((printable(names[index], 100) if index < len(names) else "unknown", sock))
    return sockets


class ServiceNotifier:
    """Sends the state of the hub to the service manager, as datagrams on its socket."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        """Removes the variables from `environ`, so that no child process sends messages in the hub's name."""
        self._address = environ.pop(NOTIFY, "")
        pid, timeout_text = environ.pop("WATCHDOG_PID", None), environ.pop(WATCHDOG, "")
        has_watchdog = timeout_text.isascii() and timeout_text.isdigit() and pid in (None, str(os.getpid()))
        self._watchdog_timeout = int(timeout_text) / 1_000_000 if has_watchdog else 0.0
        """The watchdog timeout, in seconds; 0 without a watchdog."""
        self._has_failed = False
        self._is_stopping = False
        """Whether the manager was told that the hub stops."""

    def say(self, *lines: str) -> None:
        """Sends lines such as `READY=1`. Never blocks, never raises: the manager may be gone."""
        if not self._address or sys.platform == "win32":
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), address)
        except (OSError, ValueError) as error:
            if not self._has_failed:
                self._has_failed = True
                log.warning("the service manager cannot be told that %s: %s", lines[0], error)

    @contextlib.contextmanager
    def reloading(self) -> Iterator[None]:
        """Reports that the hub reloads while the block runs, and afterwards that it is ready."""
        self.say("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            self.say("READY=1")

    @contextlib.asynccontextmanager
    async def watching(self, stop: asyncio.Event) -> AsyncIterator[None]:
        """Sends watchdog messages while the block runs, and reports when `stop` is set."""
        tasks = []
        if self._address:
            tasks = [BACKGROUND.keep("watchdog", self._send_watchdog), BACKGROUND.keep("stop", self._report_stop, stop)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._end()

    async def _send_watchdog(self) -> None:
        while self._watchdog_timeout:
            self.say("WATCHDOG=1")
            await asyncio.sleep(max(SHORTEST_WATCH, self._watchdog_timeout / 2))

    async def _report_stop(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._end()

    def _end(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            self.say("STOPPING=1")
