"""A child process and its pipes on the event loop, started by vfork instead of fork where possible."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ntpath
import os
import string
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from mcp_hub.transport.background import set_within

if TYPE_CHECKING:
    from mcp_hub.transport.job_object import JobObject

BATCH: Final = (".bat", ".cmd")
"""Suffixes of files that Windows gives to cmd.exe, such as `npx.cmd`."""
_PLAIN: Final = frozenset(string.ascii_letters + string.digits + r"#$*+-./:?@\_")
"""ASCII characters that neither cmd.exe nor a program reads in another way outside of quotes."""
_CUT: Final = "%%cd:~,%"
"""A percent sign, then a variable that expands to nothing, so that no text between two percent signs is a variable."""
_IMPOSSIBLE: Final = frozenset("\0\r\n")
"""Characters that end a command of cmd.exe and cannot be quoted."""


def command_line(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[str, str]:
    """Returns the program that Windows starts for `argv`, and its command line. `argv[0]` is an absolute path.

    Windows runs a batch file by cmd.exe, which reads `&`, `|`, `%` and quotes in its own way: with the usual quoting
    an argument could run another command. So cmd.exe is started explicitly, and the arguments are quoted for it: with
    extensions (`/e:ON`, which the treatment of `%` needs), without delayed expansion of `!` (`/v:OFF`) and without
    AutoRun (`/d`).

    Raises:
        OSError: an argument of a batch file cannot be passed on.
    """
    if not is_batch_file(argv[0]):
        return argv[0], subprocess.list2cmdline(argv)
    if '"' in argv[0] or any(_IMPOSSIBLE & set(argument) for argument in argv):
        raise OSError(errno.EINVAL, "an argument of a .cmd or .bat file cannot hold a line break or a NUL")
    folder = next((value for name, value in environ.items() if name.upper() == "SYSTEMROOT"), r"C:\Windows")
    arguments = [f'"{argv[0].replace("%", _CUT)}"', *map(_quote, argv[1:])]
    return ntpath.join(folder, "System32", "cmd.exe"), f'cmd.exe /e:ON /v:OFF /d /c "{" ".join(arguments)}"'


def is_batch_file(program: str) -> bool:
    """Returns whether Windows gives a file to cmd.exe. It ignores dots and spaces at the end of a name."""
    return program.rstrip(". ").lower().endswith(BATCH)


def _quote(argument: str) -> str:
    """Quotes an argument so that cmd.exe, and then the program it runs, read exactly this text."""
    text, backslashes = "", 0
    for character in argument:
        if character == '"':
            text += "\\" * backslashes + '""'  # backslashes before a quote must be doubled
        else:
            text += _CUT if character == "%" else character
        backslashes = backslashes + 1 if character == "\\" else 0
    if argument and backslashes == 0 and all(char in _PLAIN or ord(char) > 0x9F for char in argument):
        return text
    return f'"{text}{chr(92) * backslashes}"'


ProtocolT = TypeVar("ProtocolT", bound=asyncio.SubprocessProtocol)

_PIPE = subprocess.PIPE

ROOM: Final = 256 * 1024
"""Bytes of a child's stdout pipe, on Linux (default: 64 KiB). With a small pipe, hub and child switch for each piece of
a long answer."""
KILLED: Final = 5.0
"""Seconds within which the system ends a process that was killed."""


async def spawn(
    protocol: Callable[[], ProtocolT],
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    outputs: bool = True,
) -> tuple[asyncio.SubprocessTransport, ProtocolT]:
    """Starts a process with pipes, in its own session or, on Windows, Job Object. Raises OSError if that fails.

    It has pipes for stdin, stdout and stderr; without `outputs` only for stdin, and what it prints is discarded.

    The event loops' own `subprocess_exec` forks: it copies the page tables of the hub for every child, and nothing else
    runs meanwhile (uvloop: 2.2 ms of processor time). `subprocess.Popen` uses vfork (0.2 ms).
    """
    instance = protocol()
    transport = ChildTransport(*_start(argv, env, cwd, outputs=outputs), instance)
    # Not cancelled halfway: uvloop would close descriptors that it does not own any more.
    connecting = asyncio.ensure_future(transport.connect())
    try:
        await asyncio.shield(connecting)
    except BaseException:
        await transport.give_up(connecting)
        raise
    return transport, instance


class _PipeEnd(Protocol):
    """The hub's end of a pipe. The event loop owns it after `handed_over`."""

    def handed_over(self) -> Any:
        """Returns the file or handle that the running event loop reads from or writes to."""

    def close(self) -> None:
        """Closes an end that the event loop does not own. Idempotent."""


Started = tuple["subprocess.Popen[bytes]", Sequence[_PipeEnd], "JobObject | None"]
"""A process, the hub's ends of its pipes in the order of their descriptors, and its job on Windows."""


def _start(argv: Sequence[str], env: Mapping[str, str], cwd: Path | None, *, outputs: bool) -> Started:
    if sys.platform == "win32":
        return _start_on_windows(argv, env, cwd, outputs=outputs)
    child_fds: list[int] = []
    ends: list[_End] = []
    try:
        for writes in (True, False, False) if outputs else (True,):
            read, write = os.pipe()
            child_fds.append(read if writes else write)
            ends.append(_End(write if writes else read, writes=writes))
        stdin, stdout, stderr = child_fds if outputs else (*child_fds, subprocess.DEVNULL, subprocess.DEVNULL)
        if outputs:
            _widen(stdout)
        process = subprocess.Popen(
            argv, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd, start_new_session=True
        )
    except BaseException:
        for end in ends:
            end.close()
        raise
    finally:
        for fd in child_fds:
            os.close(fd)
    return process, ends, None


def _widen(pipe: int) -> None:
    if sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError):  # the user's limit of memory for pipes is reached
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, ROOM)


def _start_on_windows(argv: Sequence[str], env: Mapping[str, str], cwd: Path | None, *, outputs: bool) -> Started:
    if sys.platform != "win32":
        raise OSError("this is not Windows")
    from asyncio import windows_utils

    from mcp_hub.transport.job_object import CREATE_SUSPENDED, JobObject

    program, line = command_line(argv, os.environ)
    flags = CREATE_SUSPENDED | subprocess.CREATE_NO_WINDOW
    output = _PIPE if outputs else subprocess.DEVNULL
    # Its pipes are overlapped: the event loop of Windows can wait for no others.
    process: Any = windows_utils.Popen(
        line, executable=program, stdin=_PIPE, stdout=output, stderr=output, env=env, cwd=cwd, creationflags=flags
    )
    pipes = (process.stdin, process.stdout, process.stderr) if outputs else (process.stdin,)
    ends = [_HandleEnd(pipe) for pipe in pipes]
    try:
        job = JobObject(process.pid)
    except BaseException:
        process.kill()
        for end in ends:
            end.close()
        raise
    return process, ends, job


class _HandleEnd:
    """An end of a pipe on Windows, where the event loop takes a handle and closes it."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def handed_over(self) -> Any:
        return self._handle

    def close(self) -> None:
        self._handle.close()


class _End:
    """An end of a pipe on POSIX."""

    def __init__(self, fd: int, *, writes: bool) -> None:
        self._fd = fd
        self._mode = "wb" if writes else "rb"
        self._file: FileIO | None = None
        self._closed = False

    def handed_over(self) -> FileIO:
        """Returns a file for the running event loop.

        Most event loops close the file. uvloop closes the descriptor and later the file, when the number of the
        descriptor may be in use again; so with uvloop the file must not close the descriptor.
        """
        uvloop = type(asyncio.get_running_loop()).__module__.startswith("uvloop")
        self._file = FileIO(self._fd, self._mode, closefd=not uvloop)
        return self._file

    def close(self) -> None:
        """Closes an end that was not handed over. Idempotent."""
        if self._file is not None:
            self._file.close()
        elif not self._closed:
            os.close(self._fd)
        self._closed = True


class ChildTransport(asyncio.SubprocessTransport):
    """A process and its pipes, with the interface of asyncio's own subprocess transports."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        ends: Sequence[_PipeEnd],
        job: JobObject | None,
        protocol: asyncio.SubprocessProtocol,
    ) -> None:
        super().__init__()
        self._process = process
        self._ends = ends
        self._job = job
        self._protocol = protocol
        self._pipes: dict[int, asyncio.BaseTransport] = {}
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._pidfd: int | None = None
        """A descriptor that becomes readable when the process exits."""
        self._exit_event = asyncio.Event()
        self._watch()

    async def connect(self) -> None:
        """Connects the pipes to the event loop."""
        self._protocol.connection_made(self)
        for fd, end in enumerate(self._ends):
            connect = self._loop.connect_read_pipe if fd else self._loop.connect_write_pipe
            pipe: Any
            pipe, _ = await connect(partial(_Pipe, self._protocol, fd), end.handed_over())
            self._pipes[fd] = pipe

    async def give_up(self, connecting: asyncio.Future[None]) -> None:
        """Kills the process and closes everything after `connect` was abandoned, however far it has come."""
        self.kill()
        connecting.add_done_callback(self._on_abandoned)
        await asyncio.wait({connecting})
        await set_within(self._exit_event, KILLED)

    def _on_abandoned(self, connecting: asyncio.Future[None]) -> None:
        if not connecting.cancelled():
            connecting.exception()  # marks it as retrieved
        self.close()

    def _watch(self) -> None:
        if sys.platform == "linux" and hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # an old kernel, or no descriptors left
                self._pidfd = os.pidfd_open(self._process.pid)
                self._loop.add_reader(self._pidfd, self._on_exit)
                return
        threading.Thread(target=self._wait, name=f"child-{self._process.pid}", daemon=True).start()

    def _wait(self) -> None:
        self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._on_exit)

    def _on_exit(self) -> None:
        if self._process.poll() is None:
            return
        self._unwatch()
        self._exit_event.set()
        self._protocol.process_exited()

    def _unwatch(self) -> None:
        if self._pidfd is not None:
            pidfd, self._pidfd = self._pidfd, None
            self._loop.remove_reader(pidfd)
            os.close(pidfd)

    def get_pid(self) -> int:
        """Returns the process id."""
        return self._process.pid

    def get_returncode(self) -> int | None:
        """Returns the same as `Popen.returncode`; None until the event loop has noticed the exit."""
        return self._process.returncode

    def get_pipe_transport(self, fd: int) -> asyncio.BaseTransport | None:
        """Returns the hub's end of the child's file descriptor `fd` (0, 1 or 2)."""
        return self._pipes.get(fd)

    def kill(self) -> None:
        """Kills the process; on Windows also every process that it has started."""
        if self._job is None or not self._job.terminate():
            self._process.kill()

    def is_closing(self) -> bool:
        """Returns whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Closes the pipes, and kills the process if it still runs; on Windows also the processes it has started."""
        if self._closed:
            return
        self._closed = True
        for fd, end in enumerate(self._ends):
            if fd in self._pipes:
                self._pipes[fd].close()
            else:
                end.close()
        if self._process.poll() is None:
            self.kill()
        if self._job is not None:
            self._job.close()


class _Pipe(asyncio.Protocol):
    """Passes the events of one pipe on to the protocol of its process."""

    def __init__(self, process: asyncio.SubprocessProtocol, fd: int) -> None:
        self._process = process
        self._fd = fd

    def data_received(self, data: bytes) -> None:
        self._process.pipe_data_received(self._fd, data)

    def pause_writing(self) -> None:
        self._process.pause_writing()

    def resume_writing(self) -> None:
        self._process.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._process.pipe_connection_lost(self._fd, exc)


def has_exited(pid: int) -> bool:
    """Returns whether a child has exited, even if the event loop has not noticed: it would never execute a request."""
    if sys.platform != "linux":
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True
