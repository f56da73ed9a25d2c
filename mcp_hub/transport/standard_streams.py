"""The hub's own stdin and stdout as byte streams on the event loop: pipe, socket, file or terminal.

Only protocol messages may go to stdout, so `claim` takes it before anything else can write to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import stat
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from mcp_hub.transport.lines import WriteBatcher

_CHUNK: Final = 256 * 1024
_READ_AHEAD: Final = 16
"""Chunks by which the reader thread may be ahead of the event loop."""


def claim() -> tuple[int, int]:
    """Returns private descriptors of stdin and stdout; fd 0 becomes the null device, fd 1 a copy of stderr."""
    stdin, stdout = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    if sys.platform == "win32":
        _rebind_handles()
    return stdin, stdout


def _rebind_handles() -> None:
    """Makes child processes inherit the new 0 and 1, too: Windows keeps its standard handles apart from descriptors."""
    if sys.platform == "win32":
        import ctypes
        import msvcrt

        kernel = ctypes.WinDLL("kernel32")
        kernel.SetStdHandle.argtypes = (ctypes.c_uint32, ctypes.c_void_p)
        for fd, slot in ((0, 0xFFFFFFF6), (1, 0xFFFFFFF5)):
            kernel.SetStdHandle(slot, msvcrt.get_osfhandle(fd))


class Output(Protocol):
    """The stream to the client."""

    def write(self, data: bytes) -> None:
        """Queues bytes; never blocks. Drops them if the client is gone."""

    @property
    def buffered(self) -> int:
        """Bytes that are queued and not written yet."""

    async def flush(self) -> None:
        """Waits until everything queued is written or the client is gone; not bounded in time."""


class Input(Protocol):
    """The stream from the client."""

    def pause(self) -> None:
        """Pauses reading."""

    def resume(self) -> None:
        """Resumes reading."""


async def open_input(fd: int, data: Callable[[bytes], None], end: Callable[[], None]) -> Input:
    """Calls `data` with the bytes of `fd` on this event loop, then `end` once."""
    if _is_pollable(fd):
        with contextlib.suppress(OSError, ValueError, NotImplementedError):
            return await _open_read_pipe(fd, data, end)
    return _ReaderThread(fd, data, end)


async def open_output(fd: int, stdin: int) -> Output:
    """Returns a stream that writes to `fd` from this event loop. `stdin` is the descriptor that is read from."""
    # A write pipe transport closes when its descriptor reports the end of input. On a socket shared with stdin that
    # means only that no more requests come. And non-blocking mode would affect a stderr on the same file.
    if _is_pollable(fd) and not _share_file(fd, 2) and not _share_file(fd, stdin):
        with contextlib.suppress(OSError, ValueError, NotImplementedError):
            return await _open_write_pipe(fd)
    return _WriterThread(fd)


def _is_pollable(fd: int) -> bool:
    if os.name != "posix":
        return False
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _share_file(fd: int, second: int) -> bool:
    """Returns whether two descriptors share one file, and so its blocking mode."""
    try:
        first_status, second_status = os.fstat(fd), os.fstat(second)
    except OSError:
        return False
    return (first_status.st_dev, first_status.st_ino) == (second_status.st_dev, second_status.st_ino)


class _PipeInput(asyncio.Protocol):
    def __init__(self, data: Callable[[bytes], None], end: Callable[[], None]) -> None:
        self._data = data
        self._end = end
        self._transport: asyncio.ReadTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        self._data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def pause(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_reading() and not self._transport.is_closing():
            self._transport.resume_reading()


async def _open_read_pipe(fd: int, data: Callable[[bytes], None], end: Callable[[], None]) -> Input:
    file = os.fdopen(fd, "rb", buffering=0, closefd=False)
    _, protocol = await asyncio.get_running_loop().connect_read_pipe(lambda: _PipeInput(data, end), file)
    return protocol


class _PipeOutput(asyncio.BaseProtocol):
    def __init__(self) -> None:
        self._transport: Any = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._batcher = WriteBatcher(self._put)
        self.write = self._batcher.put

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=0)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _put(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    @property
    def buffered(self) -> int:
        unwritten = int(self._transport.get_write_buffer_size()) if self._transport is not None else 0
        return unwritten + self._batcher.size

    async def flush(self) -> None:
        self._batcher.flush()
        await self._writable.wait()


async def _open_write_pipe(fd: int) -> Output:
    file = os.fdopen(fd, "wb", buffering=0, closefd=False)
    _, protocol = await asyncio.get_running_loop().connect_write_pipe(_PipeOutput, file)
    return protocol


class _ReaderThread:
    """Blocking reads on a daemon thread, at most `_READ_AHEAD` chunks ahead."""

    def __init__(self, fd: int, data: Callable[[bytes], None], end: Callable[[], None]) -> None:
        self._fd = fd
        self._data = data
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._free_slots = threading.Semaphore(_READ_AHEAD)
        self._reading_allowed = threading.Event()
        self._reading_allowed.set()
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    def pause(self) -> None:
        self._reading_allowed.clear()

    def resume(self) -> None:
        self._reading_allowed.set()

    def _read(self) -> None:
        chunk = b"-"
        while chunk:
            self._reading_allowed.wait()
            self._free_slots.acquire()
            try:
                chunk = os.read(self._fd, _CHUNK)
            except OSError:
                chunk = b""
            try:
                self._loop.call_soon_threadsafe(self._deliver, chunk)
            except RuntimeError:
                return  # the loop is closed

    def _deliver(self, chunk: bytes) -> None:
        self._free_slots.release()
        if chunk:
            self._data(chunk)
        else:
            self._end()


class _WriterThread:
    """Blocking writes on a daemon thread, in order."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._buffered = 0
        self._idle = asyncio.Event()
        self._idle.set()
        threading.Thread(target=self._write_all, name="stdout", daemon=True).start()

    @property
    def buffered(self) -> int:
        return self._buffered

    def write(self, data: bytes) -> None:
        self._buffered += len(data)
        self._idle.clear()
        self._queue.put(data)

    def _write_all(self) -> None:
        is_closed = False
        while True:
            data = self._queue.get()
            remainder = memoryview(data)
            while remainder and not is_closed:
                try:
                    remainder = remainder[os.write(self._fd, remainder) :]
                except OSError:
                    is_closed = True
            try:
                self._loop.call_soon_threadsafe(self._on_written, len(data))
            except RuntimeError:
                return

    def _on_written(self, size: int) -> None:
        self._buffered -= size
        if not self._buffered:
            self._idle.set()

    async def flush(self) -> None:
        await self._idle.wait()
