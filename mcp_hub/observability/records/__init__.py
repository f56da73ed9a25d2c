"""Where the hub writes what happened: records of calls and lines of its log, by one thread, from bounded queues.

Nobody who calls it ever waits, neither for a disk nor for a client that does not read its child's stderr. What does
not fit is dropped and counted, and the count is written as soon as there is room. A record is one line of JSON in
which every character that could steer a terminal or split a line is an escape; where stderr is a terminal it is one
readable line there instead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from mcp_hub.observability.records.file import KEPT, MAX_SIZE, RecordFile
from mcp_hub.observability.records.queue import Queue
from mcp_hub.observability.records.readable import readable
from mcp_hub.observability.records.terminal import Stderr
from mcp_hub.protocol.frames import FrameError, encode
from mcp_hub.text import json_escaped, printable

__all__ = ["KEPT", "MAX_SIZE", "MAX_WAITING", "RecordFile", "Records", "readable"]

MAX_WAITING: Final = 2 * 1024 * 1024
"""Bytes that may wait for each destination."""
CLOSE_WITHIN: Final = 1.0
"""Seconds the end may wait for what is not written yet."""
COLLECT: Final = 0.1
"""Seconds the thread lets lines gather, so that busy times do not wake it for every one."""
STUCK: Final = 0.25
"""Seconds between two looks at a stderr that nobody reads; the file is served in between."""
_BATCH: Final = 65536


class Records:
    """`write` and `line` may be called from any thread; `close` writes what is left, for a bounded time.

    Records go to `file` (see RecordFile) and, with `stderr`, to stderr; lines of the log always to stderr. A file
    that cannot be written is one warning there, no error.
    """

    def __init__(
        self,
        file: Path | None,
        stderr: bool,
        *,
        max_waiting: int = MAX_WAITING,
        max_file: int = MAX_SIZE,
        kept: int = KEPT,
    ) -> None:
        self._stderr = Stderr()
        self._records_to_stderr = stderr
        self._file = RecordFile(file, max_size=max_file, kept=kept) if file is not None else None
        self._changed = threading.Condition()
        self._to_file = Queue(max_waiting)
        self._to_stderr = Queue(max_waiting)
        self._piece = b""
        """What was taken for stderr and is not written yet."""
        self._missing = 0
        """Records the file could not take."""
        self._warned = False
        self._busy = False
        self._ends: float | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mcp-hub-records", daemon=True)
        self._thread.start()

    def __enter__(self) -> Records:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def write(self, record: Mapping[str, Any]) -> None:
        """Record something that happened. Never blocks, never raises."""
        if self._file is None and not self._records_to_stderr:
            return
        line = _as_line(record)
        shown = readable(record).encode() + b"\n" if self._stderr.is_terminal else line
        with self._changed:
            if self._file is not None:
                self._to_file.put(line)
            if self._records_to_stderr:
                self._to_stderr.put(shown)
            self._wake()

    def line(self, text: str) -> None:
        """Say something on stderr, as it is. Never blocks, never raises."""
        with self._changed:
            self._to_stderr.put(text.encode("utf-8", "backslashreplace") + b"\n")
            self._wake()

    def flush(self, seconds: float = CLOSE_WITHIN) -> bool:
        """Whether all there is to write was written within so many seconds."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, seconds)

    def close(self, seconds: float = CLOSE_WITHIN) -> None:
        """Write what is left, as far as so many seconds allow. Idempotent; what comes later is not written."""
        with self._changed:
            if self._ends is None:
                self._ends = time.monotonic() + seconds
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
                if self._ends is not None and time.monotonic() > self._ends:
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
                self._works_again(self._file.path)
            except OSError as error:
                self._missing += count
                self._warn(self._file.path, error)
                return

    def _warn(self, path: Path, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            reason = error.strerror or str(error)
            self.line(f"mcp-hub: warning: the call log {printable(str(path))} cannot be written: {printable(reason)}")

    def _works_again(self, path: Path) -> None:
        if self._warned:
            self._warned = False
            self.line(f"mcp-hub: warning: the call log {printable(str(path))} is written again")

    def _serve_stderr(self) -> bool:
        """Whether all that waited is written, or nobody will ever read it."""
        while True:
            if not self._piece:
                with self._changed:
                    lines, _, dropped = self._to_stderr.take(_BATCH)
                self._piece = (self._left_out(dropped) if dropped else b"") + lines
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

    def _left_out(self, count: int) -> bytes:
        if self._records_to_stderr and not self._stderr.is_terminal:
            return _gap(count)
        return f"mcp-hub: warning: {count:,} lines were left out here, nobody read them in time\n".encode()


def _as_line(record: Mapping[str, Any]) -> bytes:
    try:
        line = encode(record)
        if line.isascii() and b"\x7f" not in line:
            return line + b"\n"  # the encoder has escaped what else steers a terminal
        return json_escaped(line.decode()).encode() + b"\n"
    except (FrameError, RecursionError):
        problem = {"event": str(record.get("event")), "problem": "this record cannot be written as JSON"}
        return encode(problem) + b"\n"


def _gap(count: int) -> bytes:
    """A record of how many were dropped before it."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return encode({"event": "dropped", "time": now, "count": count}) + b"\n"
