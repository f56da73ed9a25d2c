"""Processes that others have started, each of which may end while it is looked at."""

from __future__ import annotations

import contextlib

import psutil


def below(pid: int, *words: str, without: str | None = None) -> list[psutil.Process]:
    """Every process that `pid` has started, directly or not, that runs and has these words in its command line.

    `without` is what no word of it may begin with.
    """
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # just gone
            said = process.cmdline()  # asked once: it may be gone the next time
            unwanted = without is not None and any(word.startswith(without) for word in said)
            if set(words) <= set(said) and not unwanted and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
