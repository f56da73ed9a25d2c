"""Whose the files and directories of a configuration are: they decide what is executed; nobody else may write them."""

from __future__ import annotations

import os
from pathlib import Path

from mcp_hub.errors import ConfigError
from mcp_hub.security.private_files import EXECUTED, OpenToOthers, refuse_open_directory, refuse_open_to_others


def refuse_foreign(path: Path, fd: int, decides: str = EXECUTED) -> tuple[str, ...]:
    """Warnings about the open file `fd`; ConfigError if somebody else than this user or root may change it.

    `decides` is what the file is trusted with. Its directory counts as well: who can write there can replace it.
    """
    try:
        warning = refuse_open_to_others(path, os.fstat(fd), decides)
    except OpenToOthers as error:
        raise ConfigError(str(error)) from None
    return () if warning is None else (warning,)


def refuse_foreign_directory(directory: Path) -> tuple[str, ...]:
    """The same of a directory whose files are executed."""
    try:
        warning = refuse_open_directory(directory)
    except OpenToOthers as error:
        raise ConfigError(str(error)) from None
    return () if warning is None else (warning,)
