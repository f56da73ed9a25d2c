"""Files that nobody else may change: those of this user alone (0700, 0600), and those that decide what is executed.

POSIX only: on Windows there is neither a mode nor an owner to compare. What cannot be written because the disk is full
or read-only for a while is tried again by `PendingWrites`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import shlex
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


EXECUTED: Final = "what is executed as you"
"""What a file of tools decides."""


class OpenToOthers(ValueError):
    """Somebody else than this user or root can change a file; `str()` says how, and what to do about it."""


def refuse_open_to_others(path: Path, status: os.stat_result, decides: str = EXECUTED) -> str | None:
    """A warning about a file that its group can change, None if nobody but its owner can.

    Raises OpenToOthers where anybody else can: by writing to it, or by putting another one in its place.
    """
    if os.name != "posix":
        return None
    if status.st_uid not in (os.geteuid(), 0):
        raise OpenToOthers(
            f"{path}: the file belongs to another user (uid {status.st_uid}) and decides {decides}; "
            "copy it, or run the hub as its owner"
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & stat.S_IWOTH:
        raise OpenToOthers(
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
    """The same of a directory and those above it: whoever can write there can put another file in a file's place.

    In a directory with the sticky bit, such as /tmp, only the owner of a file can.
    """
    if os.name != "posix":
        return None
    directory = Path(os.path.abspath(directory))  # noqa: PTH100  # what a link leads to is looked at besides
    warning = _looked_at(directory, decides, own=True)
    for above in directory.parents:
        _looked_at(above, decides, own=False)
    real = directory.resolve()
    if real != directory:
        warning = refuse_open_directory(real, decides) or warning
    return warning


def _looked_at(directory: Path, decides: str, *, own: bool) -> str | None:
    """`own`: its owner counts too. Those above may belong to whoever set the machine up."""
    try:
        status = directory.stat()
    except OSError:
        return None  # who reads the file will say so
    if own and status.st_uid not in (os.geteuid(), 0):
        raise OpenToOthers(
            f"{directory}: the directory belongs to another user (uid {status.st_uid}), who can put files there that "
            f"decide {decides}; copy it, or run the hub as its owner"
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & stat.S_ISVTX or not mode & (stat.S_IWOTH | stat.S_IWGRP):
        return None
    if os.statvfs(directory).f_flag & os.ST_RDONLY:
        return None  # as a container gets its configuration: nobody can write there, whatever the mode says
    if mode & stat.S_IWOTH:
        raise OpenToOthers(
            f"{directory}: every user of this machine can write to the directory (mode {mode:04o}), and files in it "
            f"decide {decides}; run: chmod o-w {shlex.quote(str(directory))}"
        )
    if own:
        return f"{directory}: the directory can be written by its group (mode {mode:04o}); chmod g-w keeps it yours"
    return None


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

    def size(self, name: str) -> int:
        """Bytes of the file. Raises OSError."""
        return (self.directory / name).lstat().st_size

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
        except Exception:  # an error in the write itself comes again, however often it is tried
            log.exception("%s failed", what)
        if self._pending.get(what) is write:
            del self._pending[what]
        if what in self._failing:
            self._failing.discard(what)
            log.warning("%s works again", what)
        return True


def _on_one_line(error: Exception) -> str:
    text = (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
    return " ".join(text.split())[:500]
