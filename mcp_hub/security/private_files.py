"""Reading people's files without waiting, and files that other users must not change.

The latter are private files (0700, 0600), and files that decide what is executed.

On Windows, where files have no mode, their access control lists are checked (`access_lists`), but not their owners.
`PendingWrites` retries writes that fail for a while, such as on a full disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.errors import ConfigError
from mcp_hub.security.access_lists import READ, REPLACE, WRITE, access_list, others_with
from mcp_hub.version import VERSION

log = logging.getLogger("mcp_hub")

FIRST_PAUSE: Final = 1.0
"""Seconds before a failed write is retried; doubled each time, up to `LONGEST_PAUSE`."""
LONGEST_PAUSE: Final = 60.0
CLOSE_WAIT: Final = 5.0
"""Seconds that the shutdown of the hub waits for pending writes."""
_NO_LINKS: Final = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""Errors of file systems without hard links."""


def newer_format(value: Any, known: int) -> str | None:
    """Returns why the content of a state file is not read if a newer version of the hub has written it; else None.

    Such a file is neither used nor replaced, as the user may return to the newer version.
    """
    version = value.get("format") if isinstance(value, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version <= known:
        return None
    return (
        f"a newer mcp-hub has written it (format {version}; mcp-hub {VERSION} reads up to {known}): "
        "install that version again, or move the file away"
    )


MAX_PEM: Final = 16 * 1024 * 1024
"""The largest file of certificates and keys that is read, in bytes. Those of a system have some 250 KB."""


class NotAFile(OSError):
    """The path is a directory, a pipe, a device or something else that is not a regular file."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(errno.EINVAL, "it is not a file", str(path))


class FileTooLarge(OSError):
    """The file is larger than what is read."""

    def __init__(self, path: Path | str, limit: int) -> None:
        super().__init__(errno.EFBIG, f"it is larger than {limit:,} bytes", str(path))


def is_file(path: Path | str) -> bool:
    """Returns whether a path is a file. `Path.is_file` raises where this user may not look, or the name is too long."""
    return os.path.isfile(path)  # noqa: PTH113


def expand_home(path: Path | str) -> Path:
    """Returns a path with the home directory in place of `~`; that of a user who does not exist stays as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - `Path.expanduser` raises then


def is_directory(path: Path | str) -> bool:
    """Returns whether a path is a directory, as `is_file` does."""
    return os.path.isdir(path)  # noqa: PTH112


def open_regular(
    path: Path | str, limit: int | None = None, *, flags: int = 0, directory: int | None = None
) -> BinaryIO:
    """Opens a regular file to read it. It never waits, as opening a pipe without a writer would.

    Args:
        path: the file.
        limit: the largest size in bytes; None: any.
        flags: further flags of `os.open`.
        directory: the descriptor of the directory in which the path begins.

    Raises:
        NotAFile, FileTooLarge, OSError: the file cannot be read.
    """
    # Checked before it is opened too, as opening a device can have effects. A link is followed only by `os.stat`.
    if not _is_regular(os.stat(path, dir_fd=directory)):
        raise NotAFile(path)
    for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    descriptor = os.open(path, os.O_RDONLY | flags, dir_fd=directory)
    try:
        status = os.fstat(descriptor)
        if not _is_regular(status):
            raise NotAFile(path)
        if limit is not None and status.st_size > limit:
            raise FileTooLarge(path, limit)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def _is_regular(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode)


def read_regular(path: Path, limit: int, decides: str | None = None) -> tuple[bytes, tuple[CodedText, ...]]:
    """Returns the content of a regular file, and warnings about who can change it.

    `decides` is the end of the sentence `the file decides ...`; None: whose file it is does not matter.

    Raises:
        NotAFile, FileTooLarge, OSError: the file cannot be read.
        ConfigError: other users can change the file, and it decides something.
    """
    with open_regular(path, limit) as file:
        warnings = () if decides is None else refuse_foreign(path, file.fileno(), decides)
        content = file.read(limit + 1)  # it may grow
    if len(content) > limit:
        raise FileTooLarge(path, limit)
    return content, warnings


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the directory for the hub's persistent state of this user."""
    if base := environ.get("XDG_STATE_HOME"):
        return Path(base) / "mcp-hub"
    import platformdirs

    return Path(platformdirs.user_state_dir("mcp-hub", appauthor=False))


class PrivateDirectory:
    """The files of one directory, which only this user can read and write.

    Every method raises OSError, and ValueError if the directory or a file is open to others or of another type.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def make(self) -> None:
        """Makes the directory if it does not exist, and checks that it is private."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(self.directory.lstat(), self.directory, stat.S_ISDIR)

    def read(self, name: str, limit: int) -> bytes:
        """Returns the whole file. Raises ValueError if it is larger than `limit` bytes."""
        path = self.directory / name
        with open_regular(path, flags=getattr(os, "O_NOFOLLOW", 0)) as file:
            _check_private(os.fstat(file.fileno()), path, stat.S_ISREG)
            data = file.read(limit + 1)
        if len(data) > limit:
            raise ValueError(f"{path} is larger than {limit:,} bytes")
        return data

    def size(self, name: str) -> int:
        """Returns the size of the file in bytes."""
        return (self.directory / name).lstat().st_size

    def write(self, name: str, data: bytes) -> None:
        """Replaces the file by one with this content, atomically."""
        temporary = self._write_temporary(data)
        try:
            temporary.replace(self.directory / name)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def write_first(self, name: str, data: bytes) -> None:
        """Writes the file with this content unless it exists already. It is written completely or not at all."""
        temporary, path = self._write_temporary(data), self.directory / name
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            with contextlib.suppress(FileExistsError):
                _create(path, data)
        finally:
            temporary.unlink(missing_ok=True)

    def delete(self, name: str) -> None:
        """Deletes the file if it exists."""
        (self.directory / name).unlink(missing_ok=True)

    def _write_temporary(self, data: bytes) -> Path:
        """Writes a new file beside the others; the caller moves it into its place."""
        path = self.directory / f".{secrets.token_hex(8)}"
        _create(path, data)
        return path


def remove_tree(path: Path) -> None:
    """Removes a directory tree as far as possible, however deep it is."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
        return
    # Each directory moves up beside the members of `path`, so that nothing recurses and no path becomes too long.
    pending, emptied = [path], []
    while pending:
        directory = pending.pop()
        emptied.append(directory)
        try:
            entries = list(os.scandir(directory))
        except OSError:
            continue
        for entry in entries:
            inner = path / f".{secrets.token_hex(8)}"
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    Path(entry.path).rename(inner)
                    pending.append(inner)
                else:
                    Path(entry.path).unlink()
    for directory in reversed(emptied):
        with contextlib.suppress(OSError):
            directory.rmdir()


def _create(path: Path, data: bytes) -> None:
    """Writes a new file; removes it again if that fails."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _check_private(status: os.stat_result, path: Path, is_expected_type: Any) -> None:
    if not is_expected_type(status.st_mode):
        raise ValueError(f"{path} is not of the expected type")
    if sys.platform == "win32":
        if groups := others_with(access_list(str(path)) or "", READ | WRITE):
            raise ValueError(f"{path} is open to {' and '.join(groups)}")
    elif status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ValueError(f"{path} is open to others or belongs to someone else")


class PendingWrites:
    """Runs writes and retries those that fail until they succeed or the hub ends. A newer write replaces an older one.

    The first failure is logged as a warning, and so is the first success after it. No method raises.
    """

    def __init__(self, *failures: type[Exception]) -> None:
        self._failures = failures or (OSError, ValueError)
        self._pending: dict[str, Callable[[], Awaitable[None]]] = {}
        self._failing: set[str] = set()
        self._changed = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def __contains__(self, label: str) -> bool:
        return label in self._pending

    def put(self, label: str, write: Callable[[], Awaitable[None]]) -> None:
        """Runs `write` soon, in place of an earlier one with the same `label`; without a running loop, at `close`.

        `label` names the write in the log, such as "writing the file x".
        """
        self._pending[label] = write
        self._changed.set()
        if self._task is None or self._task.done():
            with contextlib.suppress(RuntimeError):
                loop = asyncio.get_running_loop()
                self._task = loop.create_task(self._run(), name="pending writes")

    async def close(self) -> None:
        """Tries pending writes once more, for at most `CLOSE_WAIT` seconds."""
        self._closing = True
        self._changed.set()
        if self._pending and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run(), name="pending writes")
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_WAIT):
                    await self._task
        for label in self._pending:
            log.warning(
                "%s failed until the hub ended, so the newest state is lost; see its first failure above", label
            )

    def cancel(self) -> None:
        """Drops all pending writes."""
        self._pending.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while self._pending:
            self._changed.clear()
            last = self._closing
            results = [await self._try(label, write) for label, write in list(self._pending.items())]
            if last:
                return
            if all(results):
                pause = FIRST_PAUSE
                continue
            if not self._closing:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _try(self, label: str, write: Callable[[], Awaitable[None]]) -> bool:
        try:
            await write()
        except self._failures as error:
            if label not in self._failing:
                self._failing.add(label)
                log.warning("%s failed: %s; it is tried again", label, _on_one_line(error))
            return False
        except Exception:  # a bug in the write, which would fail again at every retry
            log.exception("%s failed", label)
        if self._pending.get(label) is write:
            del self._pending[label]
        if label in self._failing:
            self._failing.discard(label)
            log.warning("%s works again", label)
        return True


def _on_one_line(error: Exception) -> str:
    text = (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
    return " ".join(text.split())[:500]


EXECUTED: Final = "what is executed as you"
"""The end of the sentence `the file decides ...` for a file of tools."""


class WritableByOthers(ValueError):
    """A user other than this one and root can change a file. `str()` says how, and what to do about it."""

    def __init__(self, text: str, code: str = codes.OPEN_TO_OTHERS) -> None:
        super().__init__(text)
        self.code = code


def refuse_open_to_others(path: Path, status: os.stat_result, decides: str = EXECUTED) -> CodedText | None:
    """Returns a warning if the group of the file can change it, None if only its owner can.

    `decides` is the end of the sentence `the file decides ...`.

    Raises:
        WritableByOthers: other users can write to the file, or put another one in its place.
    """
    if sys.platform == "win32":
        refuse_granted(path, access_list, decides)
        return None
    if status.st_uid not in (os.geteuid(), 0):
        raise WritableByOthers(
            f"{path}: the file belongs to another user (uid {status.st_uid}) and decides {decides}; "
            "copy it, or run the hub as its owner",
            codes.WRONG_OWNER,
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & stat.S_IWOTH:
        raise WritableByOthers(
            f"{path}: every user of this machine can write to the file (mode {mode:04o}), and it decides "
            f"{decides}; run: chmod 600 {shlex.quote(str(path))}"
        )
    warning = refuse_open_directory(path.parent, decides)
    if path.is_symlink():
        warning = refuse_open_directory(path.resolve().parent, decides) or warning
    if mode & stat.S_IWGRP:
        text = f"{path.name}: the file can be written by its group (mode {mode:04o}); chmod 600 keeps it yours"
        return CodedText(text, codes.OPEN_TO_OTHERS)
    return warning


def refuse_open_directory(directory: Path, decides: str = EXECUTED) -> CodedText | None:
    """Refuses a directory that other users can write to, and checks those above it. Returns a warning or None.

    A user who can write to a directory can replace the files in it. With the sticky bit, as on /tmp, only the owner of
    a file can replace it.

    Raises:
        WritableByOthers: other users can write to one of the directories.
    """
    directory = Path(os.path.abspath(directory))  # noqa: PTH100  # the target of a link is checked below
    if sys.platform == "win32":
        refuse_granted(directory, access_list, decides)
        return None
    warning = _check_one_directory(directory, decides, own=True)
    for above in directory.parents:
        _check_one_directory(above, decides, own=False)
    real = directory.resolve()
    if real != directory:
        warning = refuse_open_directory(real, decides) or warning
    return warning


def refuse_granted(path: Path, list_of: Callable[[str], str | None], decides: str = EXECUTED) -> None:
    """Refuses a file or directory that other users of Windows can write to or replace.

    `list_of` returns the access control list of a path. Raises WritableByOthers.
    """
    for checked, rights in [(path, WRITE), *((above, REPLACE) for above in path.parents)]:
        if groups := others_with(list_of(str(checked)) or "", rights):
            group_names = " and ".join(groups)
            raise WritableByOthers(
                f"{checked}: {group_names} can write to it or replace what is in it, and it decides {decides}; run: "
                f'icacls "{checked}" /inheritance:d /remove:g *S-1-1-0 *S-1-5-11 *S-1-5-32-545'
            )


def _check_one_directory(directory: Path, decides: str, *, own: bool) -> CodedText | None:
    """Checks one directory. `own`: checks its owner too, which may be any user for the directories above."""
    if sys.platform == "win32":
        return None
    try:
        status = directory.stat()
    except OSError:
        return None  # reading the file fails with the reason
    if own and status.st_uid not in (os.geteuid(), 0):
        raise WritableByOthers(
            f"{directory}: the directory belongs to another user (uid {status.st_uid}), who can put files there that "
            f"decide {decides}; copy it, or run the hub as its owner",
            codes.WRONG_OWNER,
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
        text = f"{directory}: the directory can be written by its group (mode {mode:04o}); chmod g-w keeps it yours"
        return CodedText(text, codes.OPEN_TO_OTHERS)
    return None


def refuse_foreign(path: Path, fd: int, decides: str = EXECUTED) -> tuple[CodedText, ...]:
    """Returns warnings about the open file `fd` of the configuration.

    Raises:
        ConfigError: a user other than this one and root may change the file or replace it.
    """
    try:
        warning = refuse_open_to_others(path, os.fstat(fd), decides)
    except WritableByOthers as error:
        raise ConfigError(str(error), error.code) from None
    return () if warning is None else (warning,)


def refuse_foreign_directory(directory: Path) -> tuple[CodedText, ...]:
    """Returns warnings about a directory whose files are executed. Raises ConfigError as `refuse_foreign` does."""
    try:
        warning = refuse_open_directory(directory)
    except WritableByOthers as error:
        raise ConfigError(str(error), error.code) from None
    return () if warning is None else (warning,)


LOCK_WAIT: Final = 10.0
"""Seconds to wait for another process that replaces a file of the directory, which takes milliseconds."""
_POLL: Final = 0.01


def lock(fd: int) -> None:
    """Locks an open file until it is closed.

    Raises BlockingIOError if another process holds the lock, and OSError if nothing can be locked.
    """
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            raise BlockingIOError from None
    else:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def locked_directory(directory: Path, wait: float = LOCK_WAIT) -> Iterator[None]:
    """Keeps other processes of the hub out of the block, so that none overwrites what another one has just written.

    Windows, file systems without locks and directories that may not be read have no such protection. Raises OSError,
    TimeoutError after `wait` seconds.
    """
    descriptor = None
    with contextlib.suppress(PermissionError):  # always raised on Windows
        descriptor = os.open(directory, os.O_RDONLY)
    try:
        end = time.monotonic() + wait
        while descriptor is not None:
            try:
                lock(descriptor)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise TimeoutError(errno.ETIMEDOUT, f"another command is writing in {directory}") from None
                time.sleep(_POLL)
            except OSError:
                break
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)
