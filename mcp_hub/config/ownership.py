"""Whose a configuration file is: it decides what is executed, so nobody else may write it."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from mcp_hub.errors import ConfigError


def refuse_foreign(path: Path, fd: int, decides: str = "what is executed as you") -> tuple[str, ...]:
    """Warnings about the open file `fd`; ConfigError if somebody else than this user or root may change it.

    `decides` is what the file is trusted with. POSIX only: on Windows there is neither a mode nor an owner to compare.
    """
    if os.name != "posix":
        return ()
    status = os.fstat(fd)
    if status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(
            f"{path}: the file belongs to another user (uid {status.st_uid}) and decides {decides}; "
            "copy it, or run the hub as its owner"
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & stat.S_IWOTH:
        raise ConfigError(
            f"{path}: every user of this machine can write to the file (mode {mode:04o}), and it decides "
            f"{decides}; run: chmod 600 {shlex.quote(str(path))}"
        )
    if mode & stat.S_IWGRP:
        return (f"{path.name}: the file can be written by its group (mode {mode:04o}); chmod 600 keeps it yours",)
    return ()
