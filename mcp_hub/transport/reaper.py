"""Ends the processes of a hub: finds them by process group and by a mark in their environment.

It is also a program: `python -I -S reaper.py MARK` reads `+PGID` and `-PGID` lines on stdin until the end of file,
which comes when the hub is gone, for whatever reason. Then it ends those process groups and, on Linux, every process
whose mark begins with MARK, such as grandchildren that left their group. To save memory it imports only a few modules
of the standard library: `signal` and `contextlib` would take a megabyte more than all the rest.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MARK = "MCP_HUB_RUN"
"""Name of the environment variable that marks every child of a hub; its value is `RUN:NUMBER:UPSTREAM:`."""

SIGKILL = getattr(signal, "SIGKILL", signal.SIGTERM)
"""The signal that cannot be ignored. Windows has no SIGKILL; any signal ends a process there."""

GRACE = 1.5
"""Seconds between SIGTERM and SIGKILL: short enough that no process is left 5 s after the hub's end."""


def marked(prefix: str) -> list[int]:
    """Returns the ids of the other processes whose mark begins with `prefix`; none on systems without /proc."""
    needle = f"{MARK}={prefix}".encode()
    pids = []
    try:
        candidates = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - no pathlib in here
    except OSError:
        return []
    for name in candidates:
        try:
            with open(f"/proc/{name}/environ", "rb") as file:  # noqa: PTH123
                environ = file.read()
        except OSError:
            continue  # the process is gone, or another user's
        if environ.startswith(needle) or b"\0" + needle in environ:
            pids.append(int(name))
    return [pid for pid in pids if pid != os.getpid()]


def group_alive(pgid: int) -> bool:
    """Returns whether any process of the group is left."""
    if sys.platform == "win32":
        return False
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def any_left(pgid: int, prefix: str) -> bool:
    """Returns whether any process of the group, or with a mark that begins with `prefix`, is left."""
    return group_alive(pgid) or bool(marked(prefix))


def signal_all(groups: set[int], prefix: str, number: int) -> bool:
    """Sends signal `number` to the groups and every marked process; returns whether there was any."""
    any_sent = False
    if sys.platform == "win32":  # Job Objects end the processes there, and environments cannot be read
        return any_sent
    for pgid in groups:
        any_sent = _send_signal(os.killpg, pgid, number) or any_sent
    for pid in marked(prefix):
        any_sent = _send_signal(os.kill, pid, number) or any_sent
    return any_sent


def _send_signal(kill: Callable[[int, int], None], id: int, number: int) -> bool:
    try:
        kill(id, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _watch(prefix: str) -> None:
    groups: set[int] = set()
    for line in sys.stdin:
        try:
            number = int(line[1:])
        except ValueError:
            continue
        (groups.add if line[0] == "+" else groups.discard)(number)
    if not signal_all(groups, prefix, signal.SIGTERM):
        return
    end = time.monotonic() + GRACE
    while time.monotonic() < end and (any(map(group_alive, groups)) or marked(prefix)):
        time.sleep(0.05)
    signal_all(groups, prefix, SIGKILL)


if __name__ == "__main__":
    for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(_number, signal.SIG_IGN)  # a signal to all processes of the hub must not stop the reaper
    _watch(sys.argv[1])
