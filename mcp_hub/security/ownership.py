"""Refuses files and directories that other users of the machine can change, where their content decides what runs.

POSIX only: on Windows there is neither a mode nor an owner to compare.
"""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path
from typing import Final

from mcp_hub.errors import ConfigError

EXECUTED: Final = "what is executed as you"
"""What a file of tools decides; the end of a sentence such as `the file decides ...`."""


class WritableByOthers(ValueError):
    """A user other than this one and root can change a file. `str()` says how, and what to do about it."""


def refuse_open_to_others(path: Path, status: os.stat_result, decides: str = EXECUTED) -> str | None:
    """Returns a warning if the group of the file can change it, None if only its owner can.

    `decides` ends the sentence that says what the file is trusted with.

    Raises:
        WritableByOthers: other users can write to the file, or put another one in its place.
    """
    if os.name != "posix":
        return None
    if status.st_uid not in (os.geteuid(), 0):
        raise WritableByOthers(
            f"{path}: the file belongs to another user (uid {status.st_uid}) and decides {decides}; "
            "copy it, or run the hub as its owner"
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & stat.S_IWOTH:
        raise WritableByOthers(
            f"{path}: every user of this machine can write to the file (mode {mode:04o}), and it decides "
            f"{decides}; run: chmod 600 {shlex.quote(str(path))}"
        )
    by_group = refuse_open_directory(path.parent, decides)
    if path.is_symlink():
        by_group = refuse_open_directory(path.resolve().parent, decides) or by_group
    if mode & stat.S_IWGRP:
        return f"{path.name}: the file can be written by its group (mode {mode:04o}); chmod 600 keeps it yours"
    return by_group


def refuse_open_directory(directory: Path, decides: str = EXECUTED) -> str | None:
    """Refuses a directory that other users can write to, and checks those above it. Returns a warning or None.

    Whoever can write to a directory can replace the files in it.

    In a directory with the sticky bit, such as /tmp, only the owner of a file can replace it.

    Raises:
        WritableByOthers: other users can write to one of the directories.
    """
    if os.name != "posix":
        return None
    directory = Path(os.path.abspath(directory))  # noqa: PTH100  # the target of a link is checked below
    warning = _check_one_directory(directory, decides, own=True)
    for above in directory.parents:
        _check_one_directory(above, decides, own=False)
    real = directory.resolve()
    if real != directory:
        warning = refuse_open_directory(real, decides) or warning
    return warning


def _check_one_directory(directory: Path, decides: str, *, own: bool) -> str | None:
    """Checks one directory. `own`: also its owner; directories above may belong to whoever set the machine up."""
    try:
        status = directory.stat()
    except OSError:
        return None  # reading the file fails with the reason
    if own and status.st_uid not in (os.geteuid(), 0):
        raise WritableByOthers(
            f"{directory}: the directory belongs to another user (uid {status.st_uid}), who can put files there that "
            f"decide {decides}; copy it, or run the hub as its owner"
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & stat.S_ISVTX or not mode & (stat.S_IWOTH | stat.S_IWGRP):
        return None
    if os.statvfs(directory).f_flag & os.ST_RDONLY:
        return None  # read-only, as in a container: nobody can write there, whatever the mode says
    if mode & stat.S_IWOTH:
        raise WritableByOthers(
            f"{directory}: every user of this machine can write to the directory (mode {mode:04o}), and files in it "
            f"decide {decides}; run: chmod o-w {shlex.quote(str(directory))}"
        )
    if own:
        return f"{directory}: the directory can be written by its group (mode {mode:04o}); chmod g-w keeps it yours"
    return None


def refuse_foreign(path: Path, fd: int, decides: str = EXECUTED) -> tuple[str, ...]:
    """Returns warnings about the open file `fd` of the configuration.

    Raises:
        ConfigError: a user other than this one and root may change the file or replace it.
    """
    try:
        warning = refuse_open_to_others(path, os.fstat(fd), decides)
    except WritableByOthers as error:
        raise ConfigError(str(error)) from None
    return () if warning is None else (warning,)


def refuse_foreign_directory(directory: Path) -> tuple[str, ...]:
    """Returns warnings about a directory whose files are executed. Raises ConfigError as `refuse_foreign` does."""
    try:
        warning = refuse_open_directory(directory)
    except WritableByOthers as error:
        raise ConfigError(str(error)) from None
    return () if warning is None else (warning,)
