"""A file of a skill, opened so that no link leads out of its directory, whoever turns one meanwhile."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from mcp_hub.config.ownership import refuse_foreign
from mcp_hub.errors import ConfigError

MAX_FILE: Final = 8 * 1024 * 1024
"""Bytes of a file that is passed on."""
_STEP: Final = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_LAST: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def read_file(directory: Path, file: str) -> bytes:
    """The contents. Raises OSError for what is not there or no regular file, ValueError for what is too large."""
    descriptor = _opened(directory, file.split("/"))
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError(f"{file} is not a file")
        try:
            refuse_foreign(directory.joinpath(*file.split("/")), opened.fileno(), "what models are told")
        except ConfigError as error:
            raise OSError(str(error)) from None
        content = opened.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise ValueError(f"{file} is larger than {MAX_FILE:,} bytes")
    return content


def _opened(directory: Path, parts: list[str]) -> int:
    if os.open not in os.supports_dir_fd:
        path = directory.joinpath(*parts)
        if path.resolve() != directory.resolve().joinpath(*parts):
            raise OSError("a link leads elsewhere")
        return os.open(path, os.O_RDONLY | _LAST)
    folder = os.open(directory, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | _STEP, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(parts[-1], os.O_RDONLY | _LAST, dir_fd=folder)
    finally:
        os.close(folder)
