"""No process outlives the hub: what is found by process group and by a mark in the environment is ended.

Also a program: `python -I -S reaper.py MARK` reads `+PGID` and `-PGID` lines on stdin until the end of file, which
comes when the hub is gone, however it went. Then it ends the groups it knows and every process that carries MARK
(on Linux: grandchildren that left their group included). So it imports nothing but the standard library, and of
that only what takes no memory: `signal` and `contextlib` are a megabyte more than all the rest.
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
"""Name of the environment variable every child of a hub carries; its value is `RUN:NUMBER:UPSTREAM:`."""

GRACE = 1.5
"""Seconds between SIGTERM and SIGKILL; with the time to notice, nothing is left 5 s after the hub."""


def marked(prefix: str) -> list[int]:
    """Ids of the processes whose mark begins with `prefix`; empty where there is no /proc."""
    needle = f"{MARK}={prefix}".encode()
    found = []
    try:
        candidates = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - no pathlib in here
    except OSError:
        return []
    for name in candidates:
        try:
            with open(f"/proc/{name}/environ", "rb") as file:  # noqa: PTH123
                environ = file.read()
        except OSError:
            continue  # gone, or not ours
        if environ.startswith(needle) or b"\0" + needle in environ:
            found.append(int(name))
    return [pid for pid in found if pid != os.getpid()]


def group_alive(pgid: int) -> bool:
    """Whether any process of the group is left."""
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def any_left(pgid: int, prefix: str) -> bool:
    """Whether any process of the group, or with a mark that begins like this, is left."""
    return group_alive(pgid) or bool(marked(prefix))


def signal_all(groups: set[int], prefix: str, number: int) -> bool:
    """Signal the groups and every marked process; True if anything was there."""
    hit = False
    for pgid in groups:
        hit = _signalled(os.killpg, pgid, number) or hit
    for pid in marked(prefix):
        hit = _signalled(os.kill, pid, number) or hit
    return hit


def _signalled(kill: Callable[[int, int], None], id: int, number: int) -> bool:
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
    signal_all(groups, prefix, signal.SIGKILL)


if __name__ == "__main__":
    for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(_number, signal.SIG_IGN)  # a signal to everything of the hub's must not spare its children
    _watch(sys.argv[1])
