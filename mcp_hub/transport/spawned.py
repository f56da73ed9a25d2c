"""A child process with its three pipes on the loop.

The loops' own `subprocess_exec` copies the page tables of the hub for every child, and nothing else runs meanwhile
(uvloop: 2.2 ms of processor time for each); `subprocess.Popen` borrows them until the child is there (0.2 ms).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, Final, TypeVar

Talk = TypeVar("Talk", bound=asyncio.SubprocessProtocol)

_PIPE = subprocess.PIPE

ROOM: Final = 256 * 1024
"""Bytes a child can write ahead, where a pipe can be told (Linux, whose default is a quarter of it): while it waits for
room, two processes take turns for every piece of a long answer."""


async def spawn(
    protocol: Callable[[], Talk], argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | None
) -> tuple[asyncio.SubprocessTransport, Talk]:
    """Start a process, on POSIX in a session of its own. Raises OSError when it cannot be started."""
    if os.name != "posix":  # the pipes of Popen cannot be waited for there
        loop = asyncio.get_running_loop()
        transport, made = await loop.subprocess_exec(
            protocol, *argv, stdin=_PIPE, stdout=_PIPE, stderr=_PIPE, env=env, cwd=cwd
        )
        return transport, made
    talk = protocol()
    process, ends = _started(argv, env, cwd)
    spawned = Spawned(process, ends, talk)
    # Never cancelled halfway: uvloop would close descriptors that are not its own any more.
    connecting = asyncio.ensure_future(spawned.connect())
    try:
        await asyncio.shield(connecting)
    except BaseException:
        connecting.add_done_callback(spawned.give_up)
        raise
    return spawned, talk


def _started(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path | None
) -> tuple[subprocess.Popen[bytes], list[_End]]:
    """The process, and the hub's ends of its stdin, stdout and stderr."""
    theirs: list[int] = []
    ends: list[_End] = []
    try:
        for writes in (True, False, False):
            read, write = os.pipe()
            theirs.append(read if writes else write)
            ends.append(_End(write if writes else read, writes=writes))
        stdin, stdout, stderr = theirs
        _widen(stdout)
        process = subprocess.Popen(
            argv, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd, start_new_session=True
        )
    except BaseException:
        for end in ends:
            end.close()
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    return process, ends


def _widen(pipe: int) -> None:
    with contextlib.suppress(ImportError, AttributeError, OSError):  # another system, or its user's pipes are too many
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, ROOM)


class _End:
    """The hub's end of a pipe: its own until a loop has it, then the loop's."""

    def __init__(self, fd: int, *, writes: bool) -> None:
        self._fd = fd
        self._mode = "wb" if writes else "rb"
        self._file: FileIO | None = None
        self._closed = False

    def handed_over(self) -> FileIO:
        """For the running loop.

        Most close the file. uvloop closes the descriptor and then the file, whose number may be another's by then.
        """
        uvloop = type(asyncio.get_running_loop()).__module__.startswith("uvloop")
        self._file = FileIO(self._fd, self._mode, closefd=not uvloop)
        return self._file

    def close(self) -> None:
        """For those that no transport has. Idempotent."""
        if self._file is not None:
            self._file.close()
        elif not self._closed:
            os.close(self._fd)
        self._closed = True


class Spawned(asyncio.SubprocessTransport):
    """A process and its pipes, as asyncio's own transports of this kind."""

    def __init__(
        self, process: subprocess.Popen[bytes], ends: Sequence[_End], protocol: asyncio.SubprocessProtocol
    ) -> None:
        super().__init__()
        self._process = process
        self._ends = ends
        self._protocol = protocol
        self._pipes: dict[int, asyncio.BaseTransport] = {}
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._watched: int | None = None
        """A descriptor that can be read once the process has exited."""
        self._watch()

    async def connect(self) -> None:
        """Put the pipes on the loop, then say so."""
        self._protocol.connection_made(self)
        for fd, end in enumerate(self._ends):
            connect = self._loop.connect_read_pipe if fd else self._loop.connect_write_pipe
            made: Any
            made, _ = await connect(partial(_Pipe, self._protocol, fd), end.handed_over())
            self._pipes[fd] = made

    def give_up(self, connecting: asyncio.Future[None]) -> None:
        """Nobody wants it any more, however far it has come."""
        if not connecting.cancelled():
            connecting.exception()  # seen
        self.close()

    def _watch(self) -> None:
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # a kernel without it, or no descriptors left
                self._watched = os.pidfd_open(self._process.pid)
                self._loop.add_reader(self._watched, self._exited)
                return
        threading.Thread(target=self._wait, name=f"child-{self._process.pid}", daemon=True).start()

    def _wait(self) -> None:
        self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._exited)

    def _exited(self) -> None:
        if self._process.poll() is None:
            return
        self._forget()
        self._protocol.process_exited()

    def _forget(self) -> None:
        if self._watched is not None:
            watched, self._watched = self._watched, None
            self._loop.remove_reader(watched)
            os.close(watched)

    def get_pid(self) -> int:
        """Process id."""
        return self._process.pid

    def get_returncode(self) -> int | None:
        """As `Popen.returncode`; None until the loop has been told of the exit."""
        return self._process.returncode

    def get_pipe_transport(self, fd: int) -> asyncio.BaseTransport | None:
        """Of stdin (0), stdout (1) or stderr (2)."""
        return self._pipes.get(fd)

    def kill(self) -> None:
        """Send SIGKILL to the process."""
        self._process.kill()

    def is_closing(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Close the pipes; a process that is still there is killed."""
        if self._closed:
            return
        self._closed = True
        for fd, end in enumerate(self._ends):
            if fd in self._pipes:
                self._pipes[fd].close()
            else:
                end.close()
        if self._process.poll() is None:
            self._process.kill()


class _Pipe(asyncio.Protocol):
    """What happens on one pipe, told to the protocol of its process."""

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
