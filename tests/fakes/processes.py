"""Processes that others have started, each of which may end while it is looked at."""

from __future__ import annotations

import contextlib

import psutil


def below(pid: int, *arguments: str, without: str | None = None) -> list[psutil.Process]:
    """Every process that `pid` has started, directly or not, that runs and has these arguments in its command line.

    No argument of it begins with `without`.
    """
    processes = []
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # just gone
            command_line = process.cmdline()  # asked once: it may be gone the next time
            unwanted = without is not None and any(argument.startswith(without) for argument in command_line)
            if set(arguments) <= set(command_line) and not unwanted and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes
