"""A directory of files that are this user's alone: 0700 and 0600, written beside and renamed, checked when read."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import Any, Final

_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""What file systems without hard links answer."""


class PrivateFiles:
    """Files by their names. Every method raises OSError, and ValueError where something is open to others or odd."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def make(self) -> None:
        """See to it that the directory is there and this user's."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _must_be_ours(self.directory.lstat(), self.directory, stat.S_ISDIR)

    def read(self, name: str, limit: int) -> bytes:
        """The whole file; ValueError if it is larger than `limit`."""
        path = self.directory / name
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        try:
            # Before a file is made of it: for a directory that fails, and the descriptor stays open.
            _must_be_ours(os.fstat(descriptor), path, stat.S_ISREG)
        except ValueError:
            os.close(descriptor)
            raise
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise ValueError(f"{path} is larger than {limit:,} bytes")
        return data

    def write(self, name: str, data: bytes) -> None:
        """The file with this in it; what was there before stays until all of it is written."""
        fresh = self._fresh(data)
        try:
            fresh.replace(self.directory / name)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise

    def write_first(self, name: str, data: bytes) -> None:
        """The file with this in it unless there is one, complete or not at all: whoever comes first decides."""
        fresh, path = self._fresh(data), self.directory / name
        try:
            os.link(fresh, path)
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with contextlib.suppress(FileExistsError):
                _create(path, data)
        finally:
            fresh.unlink(missing_ok=True)

    def delete(self, name: str) -> None:
        """No file of this name."""
        (self.directory / name).unlink(missing_ok=True)

    def _fresh(self, data: bytes) -> Path:
        """A new file beside the others, to be put into its place by the caller."""
        path = self.directory / f".{secrets.token_hex(8)}"
        _create(path, data)
        return path


def _create(path: Path, data: bytes) -> None:
    """A new file with all of the data, or none."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _must_be_ours(status: os.stat_result, path: Path, is_type: Any) -> None:
    if not is_type(status.st_mode):
        raise ValueError(f"{path} is not what it should be")
    if os.name == "posix" and (status.st_uid != os.getuid() or status.st_mode & 0o077):
        raise ValueError(f"{path} is open to others or belongs to someone else")
