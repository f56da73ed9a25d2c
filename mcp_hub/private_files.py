"""A directory of files that are this user's alone: 0700 and 0600, written beside and renamed, checked when read.

What cannot be written because the disk is full or read-only for a while is tried again by `PendingWrites`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

log = logging.getLogger("mcp_hub")

FIRST_PAUSE: Final = 1.0
"""Seconds before what could not be written is tried again; each time twice as long, up to `LONGEST_PAUSE`."""
LONGEST_PAUSE: Final = 60.0
CLOSE_WAIT: Final = 5.0
"""Seconds the end of the hub waits for a disk."""
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


class PendingWrites:
    """Runs writes, and tries again what failed until it succeeds or the hub ends: of each thing the newest state.

    The first failure is one warning in the log, and so is the first success after it. No method raises.
    """

    def __init__(self, *failures: type[Exception]) -> None:
        self._failures = failures or (OSError, ValueError)
        self._pending: dict[str, Callable[[], Awaitable[None]]] = {}
        self._failing: set[str] = set()
        self._changed = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def __contains__(self, what: str) -> bool:
        return what in self._pending

    def put(self, what: str, write: Callable[[], Awaitable[None]]) -> None:
        """Run this soon, in place of an earlier write of the same thing; without a running loop, at `close`.

        `what` is said in the log before `failed`, such as "writing the file x".
        """
        self._pending[what] = write
        self._changed.set()
        if self._task is None or self._task.done():
            with contextlib.suppress(RuntimeError):
                loop = asyncio.get_running_loop()
                self._task = loop.create_task(self._run(), name="pending writes")

    async def close(self) -> None:
        """Try what is pending once more, for a bounded time."""
        self._closing = True
        self._changed.set()
        if self._pending and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run(), name="pending writes")
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_WAIT):
                    await self._task
        for what in self._pending:
            log.warning("%s failed up to the end of the hub; the newest state is lost", what)

    def cancel(self) -> None:
        """Give up what is pending."""
        self._pending.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while self._pending:
            self._changed.clear()
            last = self._closing
            done = [await self._try(what, write) for what, write in list(self._pending.items())]
            if last:
                return
            if all(done):
                pause = FIRST_PAUSE
                continue
            if not self._closing:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _try(self, what: str, write: Callable[[], Awaitable[None]]) -> bool:
        try:
            await write()
        except self._failures as error:
            if what not in self._failing:
                self._failing.add(what)
                log.warning("%s failed: %s; it is tried again", what, _on_one_line(error))
            return False
        if self._pending.get(what) is write:
            del self._pending[what]
        if what in self._failing:
            self._failing.discard(what)
            log.warning("%s works again", what)
        return True


def _on_one_line(error: Exception) -> str:
    text = (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
    return " ".join(text.split())[:500]
