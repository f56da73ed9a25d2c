"""Writes records of calls and lines of the log: in one thread, from bounded queues.

Callers never wait, neither for a disk nor for a client that does not read its child's stderr. What does not fit is
dropped and counted, and the count is written as soon as there is room. A record is one line of JSON in which every
character that could control a terminal or split a line is escaped; on a stderr that is a terminal, it is one readable
line instead.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TextIO

from mcp_hub.protocol.frames import FrameError, encode
from mcp_hub.security.private_files import locked_directory
from mcp_hub.text import json_escaped, printable

MAX_FILE_SIZE: Final = 10 * 1024 * 1024
KEPT_FILES: Final = 3
"""Older files that are kept; `calls.jsonl.1` is the youngest."""

_FLAGS: Final = (
    os.O_WRONLY
    | os.O_APPEND
    | os.O_CREAT
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_NONBLOCK", 0)  # opening a pipe without a reader fails instead of waiting
    | getattr(os, "O_BINARY", 0)
)


class RecordFile:
    """A private file, rotated by size: made with mode 0600, in a directory that is made with 0700 if missing."""

    def __init__(self, path: Path, *, max_size: int = MAX_FILE_SIZE, kept: int = KEPT_FILES) -> None:
        self.path = path
        self._max_size = max_size
        self._max_older = kept
        self._fd: int | None = None
        self._torn = False
        """Whether the last write ended within a line, as on a full disk."""

    def write(self, lines: bytes) -> None:
        """Appends whole lines. Raises OSError; lines that were not written are lost then."""
        fd = self._open()
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode) and status.st_size and status.st_size + len(lines) > self._max_size:
            fd = self._rotate(fd)
        data = memoryview(b"\n" + lines if self._torn else lines)
        while data:
            written = os.write(fd, data)
            self._torn = data[written - 1] != 0x0A
            data = data[written:]
        if sys.platform == "win32":
            self.close()  # an open file cannot be renamed there, by this hub or another

    def close(self) -> None:
        """Closes the file. Idempotent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> int:
        if self._fd is not None and not self._is_current(self._fd):
            self.close()
        if self._fd is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self.path, _FLAGS, 0o600)
            try:
                _make_private(fd)
            except OSError:
                os.close(fd)
                raise
            self._fd = fd
        return self._fd

    def _is_current(self, fd: int) -> bool:
        """Returns whether the open file still has its path: another hub, or a person, may have moved it."""
        try:
            return os.path.samestat(os.fstat(fd), self.path.stat())
        except FileNotFoundError:
            return False

    def _rotate(self, fd: int) -> int:
        """Returns the descriptor to write to. It is the same one as long as a file cannot be renamed."""
        # A lock of the file would not do: another process may rotate the next one while the older ones are renamed.
        with contextlib.suppress(TimeoutError), locked_directory(self.path.parent, wait=0.0):
            if self._is_current(fd):
                if sys.platform == "win32":
                    self.close()
                with contextlib.suppress(OSError):  # somebody has the file open, on Windows: the next write tries again
                    self._move_older()
        return self._open()

    def _move_older(self) -> None:
        """Renames all files to the next number; the current one first, so that no older file is lost if that fails."""
        if not self._older_path(0).exists():  # left by a rotation that failed on the way
            self.path.rename(self._older_path(0))
        for number in range(self._max_older - 1, -1, -1):
            with contextlib.suppress(FileNotFoundError):
                self._older_path(number).replace(self._older_path(number + 1))

    def _older_path(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def _make_private(fd: int) -> None:
    status = os.fstat(fd)
    if sys.platform == "win32" or not stat.S_ISREG(status.st_mode):
        return
    if status.st_uid != os.geteuid():
        if os.geteuid() != 0:
            raise PermissionError("it belongs to another user")
    elif status.st_mode & 0o077:
        os.fchmod(fd, 0o600)


PIECE: Final = getattr(select, "PIPE_BUF", 4096)
"""Bytes that a writable pipe takes without blocking."""
LARGE_PIECE: Final = 65536
"""Bytes written at once to a descriptor that never blocks."""


class StderrSink:
    """stderr, which may be a pipe that nobody reads, a stopped terminal, or missing.

    It bypasses the stream's buffer: a thread that hangs in its lock would keep the interpreter from ending.
    """

    def __init__(self) -> None:
        self._stream: TextIO | None = sys.stderr
        self._fd: int | None = None
        # A closed stream, or one that the program around the hub has put there, has no descriptor.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            self._fd = sys.stderr.fileno()
        self.is_terminal = self._stream is not None and not self._stream.closed and self._stream.isatty()
        nonblocking_fd = _nonblocking_fd(self._fd) if self._fd is not None else None
        self._blocks = nonblocking_fd is None
        self._own_fd = nonblocking_fd if nonblocking_fd != self._fd else None
        self._fd = self._fd if nonblocking_fd is None else nonblocking_fd
        self._full = False
        """Whether the last write was cut short."""

    def writable(self, seconds: float) -> bool:
        """Waits at most so many seconds until a piece can be written without blocking; returns whether it can."""
        if self._fd is None or sys.platform == "win32" or not (self._blocks or self._full):
            return True
        try:
            return bool(select.select([], [self._fd], [], seconds)[1])
        except (OSError, ValueError):
            return True

    def write(self, data: bytes) -> int:
        """Writes a piece of the data; returns its size. Raises OSError when nobody will ever read it."""
        if self._fd is not None:
            piece = data[: PIECE if self._blocks else LARGE_PIECE]
            try:
                written = os.write(self._fd, piece)
            except BlockingIOError:
                written = 0
            self._full = written < len(piece)
            return written
        if self._stream is None or self._stream.closed:
            raise io.UnsupportedOperation("there is no stderr")
        self._stream.write(data.decode("utf-8", "backslashreplace"))
        self._stream.flush()
        return len(data)

    def close(self) -> None:
        """Closes what was opened here."""
        if self._own_fd is not None:
            os.close(self._own_fd)
            self._own_fd = self._fd = None


def _nonblocking_fd(fd: int) -> int | None:
    """Returns a descriptor of the same file whose writes never block; None if there is none.

    A pipe is opened anew, which only Linux can, as the mode of a descriptor is shared with other processes.
    """
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and os.path.samestat(os.fstat(fd), Path(os.devnull).stat())):
            return fd
        if sys.platform == "linux" and stat.S_ISFIFO(mode):
            return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (AttributeError, OSError, ValueError):
        return None
    return None


MAX_WAITING: Final = 2 * 1024 * 1024
"""Bytes that may wait for each destination."""
CLOSE_WITHIN: Final = 1.0
"""Seconds that `close` waits for what is not written yet."""
COLLECT: Final = 0.1
"""Seconds in which lines are collected, so that the thread does not wake for each one."""
STUCK: Final = 0.25
"""Seconds between two attempts at a stderr that nobody reads; the file is written in between."""
_BATCH: Final = 65536


class RecordWriter:
    """Writes records and log lines. All methods may be called from any thread.

    Records go to `file` (see RecordFile) and, with `stderr`, to stderr; lines of the log always to stderr. If the file
    cannot be written, one warning goes to stderr and nothing is raised.
    """

    def __init__(
        self,
        file: Path | None,
        stderr: bool,
        *,
        max_waiting: int = MAX_WAITING,
        max_file: int = MAX_FILE_SIZE,
        kept: int = KEPT_FILES,
    ) -> None:
        self._stderr = StderrSink()
        self._records_to_stderr = stderr
        self._file = RecordFile(file, max_size=max_file, kept=kept) if file is not None else None
        self._lock = threading.Lock()
        """That of `_changed`: to take it directly is several times as fast, and every call does."""
        self._changed = threading.Condition(self._lock)
        self._to_file = LineQueue(max_waiting)
        self._to_stderr = LineQueue(max_waiting)
        self._piece = b""
        """The bytes that were taken from the queue of stderr and not written yet."""
        self._missing = 0
        """Records that could not be written to the file."""
        self.problem: str | None = None
        """Why records do not reach the file now; None: they do, or none was written yet."""
        self._busy = False
        self._close_deadline: float | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mcp-hub-records", daemon=True)
        self._thread.start()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def write(self, record: Mapping[str, Any]) -> None:
        """Writes a record. Never blocks, never raises."""
        if self._file is None and not self._records_to_stderr:
            return
        line = _as_line(record)
        stderr_line = readable_record(record).encode() + b"\n" if self._stderr.is_terminal else line
        with self._lock:
            if self._file is not None:
                self._to_file.put(line)
            if self._records_to_stderr:
                self._to_stderr.put(stderr_line)
            self._wake()

    def line(self, text: str) -> None:
        """Writes a line to stderr, unchanged. Never blocks, never raises."""
        with self._changed:
            self._to_stderr.put(text.encode("utf-8", "backslashreplace") + b"\n", urgent=True)
            self._wake()

    def flush(self, seconds: float = CLOSE_WITHIN) -> bool:
        """Waits at most so many seconds until everything is written; returns whether it is."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, seconds)

    def close(self, seconds: float = CLOSE_WITHIN) -> None:
        """Writes what is left, in at most so many seconds. Idempotent; later records are not written."""
        with self._changed:
            if self._close_deadline is None:
                self._close_deadline = time.monotonic() + seconds
            self._closing.set()
            self._changed.notify_all()
        self._thread.join(seconds)

    def _wake(self) -> None:
        if not self._busy:
            self._busy = True
            self._changed.notify_all()

    def _is_idle(self) -> bool:
        return not self._busy

    # --- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._busy or self._closing.is_set())
            self._closing.wait(COLLECT)
            self._serve_file()
            stuck = not self._serve_stderr()
            with self._changed:
                if not self._to_file and not self._to_stderr and not stuck:
                    self._busy = False
                    self._changed.notify_all()
                    if self._closing.is_set():
                        break
                if self._close_deadline is not None and time.monotonic() > self._close_deadline:
                    break
            if stuck:
                self._stderr.writable(STUCK)
        if self._file is not None:
            self._file.close()
        self._stderr.close()

    def _serve_file(self) -> None:
        while self._file is not None:
            with self._changed:
                lines, count, dropped = self._to_file.take(_BATCH)
            self._missing += dropped
            if not lines and not dropped:
                return
            try:
                self._file.write((_gap(self._missing) if self._missing else b"") + lines)
                self._missing = 0
                self._report_recovery(self._file.path)
            except OSError as error:
                self._missing += count
                self._warn(self._file.path, error)
                return

    def _warn(self, path: Path, error: OSError) -> None:
        if self.problem is None:
            reason = error.strerror or str(error)
            self.problem = f"the call log {printable(str(path))} cannot be written: {printable(reason)}"
            self.line(log_line("warning", self.problem))

    def _report_recovery(self, path: Path) -> None:
        if self.problem is not None:
            self.problem = None
            self.line(log_line("warning", f"the call log {printable(str(path))} is written again"))

    def _serve_stderr(self) -> bool:
        """Writes to stderr; returns True if everything is written or stderr is closed, False if it is not read now."""
        while True:
            if not self._piece:
                with self._changed:
                    lines, _, dropped = self._to_stderr.take(_BATCH)
                self._piece = (self._gap_line(dropped) if dropped else b"") + lines
                if not self._piece:
                    return True
            if not self._stderr.writable(0):
                return False
            try:
                written = self._stderr.write(self._piece)
            except OSError:
                self._piece = b""
                with self._changed:
                    self._to_stderr.clear()
                return True
            self._piece = self._piece[written:]

    def _gap_line(self, count: int) -> bytes:
        if self._records_to_stderr and not self._stderr.is_terminal:
            return _gap(count)
        text = f"{count:,} lines were left out here because nobody read them in time"
        return f"{log_line('warning', text)}\n".encode()


def _as_line(record: Mapping[str, Any]) -> bytes:
    try:
        line = encode(record)
        if line.isascii() and b"\x7f" not in line:
            return line + b"\n"  # the encoder has escaped all other control characters
        return json_escaped(line.decode()).encode() + b"\n"
    except (FrameError, RecursionError):
        problem = {"event": str(record.get("event")), "problem": "this record cannot be written as JSON"}
        return encode(problem) + b"\n"


def _gap(count: int) -> bytes:
    """Returns a record that says how many records were dropped before it."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return encode({"event": "dropped", "time": now, "count": count}) + b"\n"


class LineQueue:
    """A bounded queue of lines that counts what does not fit. Not thread-safe: its user holds a lock."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0

    def __bool__(self) -> bool:
        return bool(self._lines) or self._dropped > 0

    def put(self, line: bytes, *, urgent: bool = False) -> None:
        """Appends a line. Once there was no room, lines are only counted until the queue is half empty.

        Urgent lines are still appended then: they may use an eighth of the size in addition.
        """
        room = self._max_size + self._max_size // 8 * urgent
        if self._size + len(line) > room or (self._dropped and not urgent):
            self._dropped += 1
        else:
            self._lines.append(line)
            self._size += len(line)

    def take(self, size: int) -> tuple[bytes, int, int]:
        """Takes about `size` bytes, at least one line; returns (lines, their number, lines dropped before)."""
        lines: list[bytes] = []
        length = 0
        while self._lines and (not lines or length + len(self._lines[0]) <= size):
            lines.append(self._lines.popleft())
            length += len(lines[-1])
        self._size -= length
        dropped = 0
        if self._size <= self._max_size // 2:
            dropped, self._dropped = self._dropped, 0
        return b"".join(lines), len(lines), dropped

    def clear(self) -> None:
        """Drops everything."""
        self._lines.clear()
        self._size = self._dropped = 0


def readable_record(record: Mapping[str, Any]) -> str:
    """Returns a record as one line for a terminal: time, what was called, where it went, outcome and duration."""
    time = _local_time(record.get("time"))
    if record.get("event") != "call":
        facts = {key: value for key, value in record.items() if key not in ("event", "time")}
        return f"{time} {printable(str(record.get('event')))} {json_escaped(encode(facts).decode())}"
    parts = [time, str(record.get("method")), str(record.get("name"))]
    upstream, tool = record.get("upstream"), record.get("tool")
    if upstream is not None:
        parts.append(f"-> {upstream}" if tool == record.get("name") else f"-> {upstream}/{tool}")
    verdict = str(record.get("verdict"))
    details = [str(record[key]) for key in ("code", "policy", "reason") if record.get(key) is not None]
    parts.append(f"{verdict} ({', '.join(details)})" if details else verdict)
    if record.get("duration_ms") is not None:
        parts.append(f"{record['duration_ms']} ms")
    return printable(" ".join(parts), 1000)


def log_line(level: str, text: str) -> str:
    """Returns a line of the log, with the local time and its zone."""
    return f"mcp-hub: {datetime.now().astimezone():%Y-%m-%d %H:%M:%S %z} {level}: {text}"


def _local_time(text: object) -> str:
    """Returns the time of a record as hours, minutes and seconds with the local zone."""
    try:
        return f"{datetime.fromisoformat(str(text)).astimezone():%H:%M:%S %z}"
    except (ValueError, OverflowError):
        return ""
