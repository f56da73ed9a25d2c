"""What processes take, read from /proc: processor time and memory of a proxy without the servers behind it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

UPSTREAM = Path(__file__).with_name("upstream")
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
END_WITHIN = 8.0
"""Seconds a process has to end by itself."""


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat behind the name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()


def _is_upstream(pid: int) -> bool:
    return os.fsencode(UPSTREAM) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def tree(root: int) -> list[int]:
    """A process and its offspring, without upstreams."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                children.setdefault(int(_stat(int(entry.name))[1]), []).append(int(entry.name))
    pids, pending = [], [root]
    while pending:
        pid = pending.pop()
        with contextlib.suppress(OSError):
            if not _is_upstream(pid):
                pids.append(pid)
                pending += children.get(pid, [])
    return pids


def processor_seconds(pids: list[int]) -> float:
    """User and system time of processes so far."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = _stat(pid)
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICK


def resident(pids: list[int]) -> int:
    """Bytes of memory processes have, each counted by itself."""
    pages = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
    return pages * PAGE


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started in a session of its own, and what is left of its group."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    else:
        process.terminate()
    try:
        process.wait(END_WITHIN)
    except subprocess.TimeoutExpired:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_WITHIN)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdout, process.stdin):
        if stream is not None:
            stream.close()
