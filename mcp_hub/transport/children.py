"""The child processes of one hub: how they are started, marked, and ended by a reaper that outlives the hub."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, Final, TypeVar

from mcp_hub.transport import reaper

log = logging.getLogger("mcp_hub.transport")

STEADY: Final = 10.0
"""Seconds; a reaper that lived shorter than this, or could not be started, is replaced only after a delay."""
AGAIN: Final = 0.5
"""Seconds of that delay, doubled with each failure."""
AGAIN_AT_MOST: Final = 60.0


class Children:
    """Marks and registers the children of one running hub.

    A reaper process is started with the first child, watched, and replaced when it ends; it kills what is left when
    the hub is gone. On Windows there is neither process group nor mark; children end when their stdin closes.
    """

    def __init__(self) -> None:
        self.run = secrets.token_hex(8)
        self._reaper: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        """Set while no reaper is being started."""
        self.problem: str | None = None
        """Why there is no reaper; None while there is one, or before the first child."""
        self._groups: set[int] = set()
        """Process groups that are alive; each reaper is told of all of them."""
        self._started = 0
        self._outputs: dict[int, asyncio.ReadTransport] = {}

    def new_mark(self, upstream: str) -> str:
        """Returns the mark of a new child of `upstream`. Its descendants inherit it in their environment."""
        self._started += 1
        return f"{self.run}:{self._started}:{upstream}:"

    def added(self, pgid: int, output: asyncio.ReadTransport | None = None) -> None:
        """Registers a child that leads the process group `pgid`; `output` reads its stdout."""
        self._groups.add(pgid)
        self._say(f"+{pgid}\n")
        if output is not None:
            self._outputs[pgid] = output

    def ended(self, pgid: int) -> None:
        """Removes a process group that has ended."""
        self._groups.discard(pgid)
        self._say(f"-{pgid}\n")
        self._outputs.pop(pgid, None)

    def pause_reading(self) -> None:
        """Pauses reading from all children, until `resume_reading`."""
        for output in self._outputs.values():
            if output.is_reading():
                output.pause_reading()

    def resume_reading(self) -> None:
        """Resumes reading from all children."""
        for output in self._outputs.values():
            if not output.is_reading() and not output.is_closing():
                output.resume_reading()

    @property
    def reaper(self) -> int | None:
        """Process id of the reaper; None while there is none."""
        return self._reaper.pid if self._reaper is not None else None

    def _say(self, line: str) -> None:
        if os.name != "posix":
            return
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        elif self._reaper is not None and self._reaper.stdin is not None:
            with contextlib.suppress(OSError, RuntimeError):  # the reaper is gone; the next one is told of all groups
                self._reaper.stdin.write(line.encode())

    async def _watch(self) -> None:
        """Keeps a reaper running: replaces one that ends, at once if it has lived for STEADY seconds."""
        failures = 0
        while True:
            began = time.monotonic()
            lost = await self._start()
            if self.problem is None or failures == 0:
                log.warning("%s; children may outlive a hub that is killed until there is another one", lost)
            self.problem = lost
            failures = 0 if time.monotonic() - began > STEADY else failures + 1
            if failures:
                await asyncio.sleep(min(AGAIN_AT_MOST, AGAIN * 2 ** (failures - 1)))

    async def _start(self) -> str:
        """Starts a reaper and waits for its end; returns the reason why there is none now."""
        program = str(Path(reaper.__file__))
        self._tried.clear()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", program, f"{self.run}:",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True, env={},
            )  # fmt: skip
        except OSError as error:
            return f"the reaper cannot be started ({error})"
        finally:
            self._tried.set()
        stdin = process.stdin
        assert stdin is not None  # a pipe
        for pgid in self._groups:
            with contextlib.suppress(OSError, RuntimeError):
                stdin.write(f"+{pgid}\n".encode())
        self._reaper, self.problem = process, None
        status = await process.wait()
        self._reaper = None
        stdin.close()
        return f"the reaper has ended (status {status})"

    async def close(self) -> None:
        """Closes the reaper's stdin, so that it kills what is left and ends. Bounded in time; never raises."""
        if self._watching is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(reaper.GRACE):
                await self._tried.wait()
        process, self._reaper = self._reaper, None
        self._watching.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self._watching
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(reaper.GRACE + 1):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


Talk = TypeVar("Talk", bound=asyncio.SubprocessProtocol)

_PIPE = subprocess.PIPE

ROOM: Final = 256 * 1024
"""Bytes of a child's stdout pipe, on Linux (default: 64 KiB). With a small pipe, hub and child switch for each piece of
a long answer."""


async def spawn(
    protocol: Callable[[], Talk], argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | None
) -> tuple[asyncio.SubprocessTransport, Talk]:
    """Starts a process with three pipes, on POSIX in a session of its own. Raises OSError if it cannot be started.

    The event loops' own `subprocess_exec` forks: it copies the page tables of the hub for every child, and nothing else
    runs meanwhile (uvloop: 2.2 ms of processor time). `subprocess.Popen` uses vfork (0.2 ms).
    """
    if os.name != "posix":  # event loops cannot wait for the pipes of Popen there
        loop = asyncio.get_running_loop()
        transport, made = await loop.subprocess_exec(
            protocol, *argv, stdin=_PIPE, stdout=_PIPE, stderr=_PIPE, env=env, cwd=cwd
        )
        return transport, made
    talk = protocol()
    process, ends = _started(argv, env, cwd)
    spawned = ChildTransport(process, ends, talk)
    # Not cancelled halfway: uvloop would close descriptors that it does not own any more.
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
    """Returns the process, and the hub's ends of its stdin, stdout and stderr."""
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
    with contextlib.suppress(ImportError, AttributeError, OSError):  # not Linux, or the user has too many pipes
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, ROOM)


class _End:
    """The hub's end of a pipe, which an event loop owns once it was handed over."""

    def __init__(self, fd: int, *, writes: bool) -> None:
        self._fd = fd
        self._mode = "wb" if writes else "rb"
        self._file: FileIO | None = None
        self._closed = False

    def handed_over(self) -> FileIO:
        """Returns a file for the running event loop.

        Most event loops close the file. uvloop closes the descriptor first and then the file, when the number of the
        descriptor may be in use again; so the file must not close it there.
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
        """A descriptor that becomes readable when the process exits."""
        self._watch()

    async def connect(self) -> None:
        """Connects the pipes to the event loop."""
        self._protocol.connection_made(self)
        for fd, end in enumerate(self._ends):
            connect = self._loop.connect_read_pipe if fd else self._loop.connect_write_pipe
            made: Any
            made, _ = await connect(partial(_Pipe, self._protocol, fd), end.handed_over())
            self._pipes[fd] = made

    def give_up(self, connecting: asyncio.Future[None]) -> None:
        """Closes everything after `connect` was abandoned, however far it has come."""
        if not connecting.cancelled():
            connecting.exception()  # seen
        self.close()

    def _watch(self) -> None:
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # an old kernel, or no descriptors left
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
        """Returns the process id."""
        return self._process.pid

    def get_returncode(self) -> int | None:
        """Returns the exit status as `Popen.returncode` has it; None until the event loop has noticed the exit."""
        return self._process.returncode

    def get_pipe_transport(self, fd: int) -> asyncio.BaseTransport | None:
        """Returns the hub's end of the child's file descriptor `fd` (0, 1 or 2)."""
        return self._pipes.get(fd)

    def kill(self) -> None:
        """Sends SIGKILL to the process."""
        self._process.kill()

    def is_closing(self) -> bool:
        """Returns whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Closes the pipes, and kills the process if it is still running."""
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
