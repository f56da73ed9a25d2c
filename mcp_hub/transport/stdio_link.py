"""The link to an upstream that is a child process: one JSON message a line over its stdin and stdout."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.models import Server
from mcp_hub.protocol.era import STDERR_WARNING
from mcp_hub.protocol.frames import FrameError, Message, decode, encode, has_method, is_noise, salvage_id
from mcp_hub.text import printable
from mcp_hub.transport import (
    FrameTooLarge,
    Link,
    LinkError,
    LinkLost,
    LinkParts,
    Receiver,
    Unwritable,
    messages_of_batch,
    reaper,
)
from mcp_hub.transport.background import set_within
from mcp_hub.transport.child_process import has_exited, spawn
from mcp_hub.transport.children import Children
from mcp_hub.transport.lines import FairLineReader, Line, OversizedLine, WriteBatcher, is_blank

log = logging.getLogger("mcp_hub.upstream")

STDIN_GRACE: Final = 1.5
"""Seconds a server has to exit after its stdin was closed; real ones need 0.02 to 0.5."""
TERM_GRACE: Final = 1.0
"""Seconds between SIGTERM and SIGKILL."""
LAST_WORDS_GRACE: Final = 0.1
"""Seconds without output after an exit until the link is lost; grandchildren may keep the pipes open for ever."""
LAST_LOOKS: Final = 20
"""Looks for further output after an exit, each after half of LAST_WORDS_GRACE: a grandchild may write for ever."""
STDERR_LINES: Final = 40
STDERR_LINE: Final = 8192
NOISE_LOGGED: Final = 10
"""Lines on stdout that are no messages and are logged, for each process; more are ignored."""
INVALID_MESSAGES: Final = 20
INVALID_WITHIN: Final = 60.0
"""After INVALID_MESSAGES invalid messages within INVALID_WITHIN seconds the link is lost."""
_POLL: Final = 0.02


_ECHO: Final = re.compile(
    r"server/discover|Processing request of type|validation errors? for ClientRequest|before initialization"
)
"""Matches what servers log about the hub's own requests, above all about the probe of the modern era."""
_ECHO_GOES_ON: Final = re.compile(
    r"\s*(?:\w+Request(?:\.\w+)*$|For further information visit|.*\[type=\w+, input_value=)|\s{16,}"
)
"""Matches further lines of such a message; rich indents those that it wraps."""


class StdioLink(Link):
    """A Link to a child process: `argv` without a shell, its own process group, `env` as its whole environment.

    `own`: the child is one of the hub's own servers; its stderr is logged as information, lines that begin with
    STDERR_WARNING as warnings. `clean` removes secrets from its output before that is logged.
    """

    is_local = True

    def __init__(
        self,
        upstream: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None,
        children: Children,
        max_frame: int,
        write_deadline: float,
        own: bool = False,
        clean: Callable[[str], str] = str,
    ) -> None:
        self._upstream = upstream
        self._argv = list(argv)
        self._mark = children.new_mark(upstream)
        self._env = {**env, reaper.MARK: self._mark}
        self._cwd = cwd
        self._children = children
        self._max_frame = max_frame
        self._write_deadline = write_deadline
        self._is_own = own
        self._clean = clean
        self._process: _Process | None = None
        self._transport: asyncio.SubprocessTransport | None = None

    @classmethod
    def of(cls, server: Server, parts: LinkParts, clean: Callable[[str], str]) -> StdioLink:
        """Makes the link to a server. Raises CommandNotFound."""
        argv, env = parts.process(server)
        return cls(
            server.id,
            argv,
            env=env,
            cwd=server.cwd,
            children=parts.children,
            max_frame=server.max_frame,
            write_deadline=server.deadlines.write,
            own=server.builtin is not None or server.tools_dir is not None,
            clean=clean,
        )

    @property
    def last_words(self) -> tuple[str, ...]:
        """The last stderr lines, escaped for display."""
        return tuple(self._process.stderr) if self._process is not None else ()

    @property
    def noise(self) -> str:
        """What the process wrote to its stdout first that is no message."""
        return self._process.noise if self._process is not None else ""

    @property
    def pid(self) -> int | None:
        """Process id of the child, None before `open`."""
        return self._transport.get_pid() if self._transport is not None else None

    async def open(self, receiver: Receiver) -> None:
        """Starts the process. Raises LinkError if it cannot be started."""
        # It is stored before its pipes are connected, so that a request that the server sends at once is answered.
        self._process = process = _Process(
            self._upstream, receiver, self._max_frame, self._clean, self._children, own=self._is_own
        )
        try:
            self._transport, _ = await spawn(lambda: process, self._argv, env=self._env, cwd=self._cwd)
        except OSError as error:
            where = f" in {self._cwd}" if self._cwd is not None else ""
            text = f"cannot start {self._argv[0]!r}{where}: {error.strerror}"
            raise LinkError(text, executed=False, code=codes.PROGRAM_NOT_STARTED) from None
        stdout = cast("asyncio.ReadTransport | None", self._transport.get_pipe_transport(1))
        self._children.add(self._transport.get_pid(), stdout)

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Writes one line; waits while the pipe is full, at most for the write deadline. Raises LinkError."""
        process = self._process
        if process is None or (stdin := process.stdin_pipe or process.connect_stdin()) is None:
            raise LinkLost("the process is not running", executed=False)
        is_closed = stdin.is_closing() or process.is_lost
        # Checked once in a round of the event loop: the writes of one round are batched.
        if is_closed or (not process.stdin.gathers and has_exited(process.pid)):
            await process.wait_for_last_words()
            raise LinkLost(process.reason(), executed=False)
        try:
            line = encode(message)
        except FrameError as error:
            raise Unwritable(error) from None
        if not process.writable.is_set():
            await self._wait_until_writable(process)
        process.stdin.put(line + b"\n")

    async def _wait_until_writable(self, process: _Process) -> None:
        if not await set_within(process.writable, self._write_deadline):
            text = f"it stopped reading its stdin for {self._write_deadline:g} s"
            process.lose(LinkLost(text, code=codes.PING_UNANSWERED))
        if process.is_lost:
            raise LinkLost(process.reason(), executed=False)

    async def end(self) -> None:
        """Closes stdin, waits, then ends the process, its group and marked descendants by SIGTERM and SIGKILL."""
        if self._transport is None or self._process is None:
            return
        pgid = self._transport.get_pid()
        self._process.muted = True
        with contextlib.suppress(Exception):
            self._process.stdin.flush()
            stdin = cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))
            if stdin is not None:
                stdin.abort() if not self._process.writable.is_set() else stdin.close()
        try:
            await set_within(self._process.exited, STDIN_GRACE)
            await self._end_group(pgid, signal.SIGTERM, reaper.SIGKILL)
        except asyncio.CancelledError:  # the event loop is shutting down
            await self._end_group(pgid, reaper.SIGKILL)
            raise
        finally:
            self._transport.close()
            self._children.remove(pgid)

    async def _end_group(self, pgid: int, *numbers: int) -> None:
        if sys.platform == "win32":
            with contextlib.suppress(OSError):
                cast("asyncio.SubprocessTransport", self._transport).kill()
            return
        for number in numbers:
            if not await _in_thread(reaper.signal_all, {pgid}, self._mark, number):
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TERM_GRACE):
                    while await _in_thread(reaper.any_left, pgid, self._mark):  # noqa: ASYNC110 - no event tells
                        await asyncio.sleep(_POLL)


async def _in_thread(look: Callable[..., bool], *args: Any) -> bool:
    """Runs a function that reads the environment of every process of the machine."""
    try:
        return await asyncio.to_thread(look, *args)
    except RuntimeError:  # the program exits, when no thread can start any more
        return look(*args)


class _Process(asyncio.SubprocessProtocol):
    """The asyncio protocol of the child process: splits its output into messages and log lines."""

    def __init__(
        self,
        upstream: str,
        receiver: Receiver,
        max_frame: int,
        clean: Callable[[str], str],
        children: Children,
        *,
        own: bool,
    ) -> None:
        self.stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self.writable = asyncio.Event()
        self.writable.set()
        self.exited = asyncio.Event()
        self.is_lost = False
        self.stdin = WriteBatcher(self._write)
        self.pid = 0
        self.stdin_pipe: asyncio.WriteTransport | None = None
        """The hub's end of the child's stdin; None before it is connected."""
        self._lost_event = asyncio.Event()
        self._closed_pipes: set[int] = set()
        """Descriptors of pipes that are closed."""
        self.muted = False
        self._upstream = upstream
        self._is_own = own
        self._clean = clean
        self._children = children
        self._receiver = receiver
        self._lines = {
            1: FairLineReader(max_frame, self._handle_line, partial(self._set_paused, 1)),
            2: FairLineReader(STDERR_LINE, self._handle_stderr_line, partial(self._set_paused, 2)),
        }
        self._max_frame = max_frame
        self._noise = 0
        self.noise = ""
        self._is_echo = False
        """Whether the last line of stderr was about a request of the hub."""
        self._invalid: deque[float] = deque(maxlen=INVALID_MESSAGES)
        self._transport: asyncio.SubprocessTransport | None = None
        self._error: LinkLost | None = None
        self._chunks = 0
        """Chunks of output that were read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.pid = self._transport.get_pid() or 0

    def connect_stdin(self) -> asyncio.WriteTransport | None:
        """Returns the hub's end of stdin, which is connected before stdout; None before that."""
        pipe = self._transport.get_pipe_transport(0) if self._transport is not None else None
        self.stdin_pipe = cast("asyncio.WriteTransport | None", pipe)
        return self.stdin_pipe

    def _write(self, data: bytes) -> None:
        if self.stdin_pipe is not None and not self.stdin_pipe.is_closing():
            self.stdin_pipe.write(data)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._chunks += 1
        self._lines[fd].feed(data)

    def _set_paused(self, fd: int, paused: bool) -> None:
        pipe = self._transport.get_pipe_transport(fd) if self._transport is not None else None
        pipe = cast("asyncio.ReadTransport | None", pipe)
        if pipe is None or pipe.is_closing():
            return
        if paused and pipe.is_reading():
            pipe.pause_reading()
        elif not paused and not pipe.is_reading() and not (fd == 1 and self._children.paused):
            pipe.resume_reading()

    def _handle_line(self, line: Line | OversizedLine) -> None:
        if self.muted:
            return
        if isinstance(line, OversizedLine):
            if has_method(line.head, line.tail):
                self._log_noise(line.head)
                return
            text = f"the answer is {line.size:,} bytes, more than the limit of {self._max_frame:,} (max_frame)"
            self._receiver.failed(salvage_id(line.head, line.tail), FrameTooLarge(text))
            return
        if line[:1] != b"{" and is_blank(line):
            return
        try:
            value = decode(line)
        except FrameError as error:
            self._handle_invalid(line, error)
            return
        for message in (value,) if isinstance(value, dict) else messages_of_batch(value):
            if isinstance(message, dict):
                self._receiver.received(message)
            else:
                self._log_noise(line)

    def _handle_invalid(self, line: Line, error: FrameError) -> None:
        head, tail = bytes(line[:4096]), bytes(line[-4096:])
        if is_noise(head, tail):
            self._log_noise(line)
            return
        request_id = salvage_id(head, tail)
        if not has_method(head, tail):
            failure = LinkError(f"the answer is not valid JSON: {error}", code=codes.STDOUT_NOISY)
            failure.answered = True
            self._receiver.failed(request_id, failure)
        if request_id is None:
            now = asyncio.get_running_loop().time()
            self._invalid.append(now)
            if len(self._invalid) == INVALID_MESSAGES and now - self._invalid[0] < INVALID_WITHIN:
                text = f"it wrote {INVALID_MESSAGES} invalid messages in less than {INVALID_WITHIN:g} s"
                self.lose(LinkLost(text, code=codes.STDOUT_NOISY))

    def _log_noise(self, line: Line) -> None:
        self._noise += 1
        if self._noise <= NOISE_LOGGED:
            text = printable(bytes(line[:1024]).decode("utf-8", "replace"), 200)
            text = f"it wrote a line to its stdout that is not a message: {text}"
            self.noise = self.noise or text
            log.warning("%s: %s", self._upstream, self._clean(text))

    def _handle_stderr_line(self, line: Line | OversizedLine) -> None:
        raw = line.head if isinstance(line, OversizedLine) else line
        text = printable(bytes(raw[:2048]).decode("utf-8", "replace").rstrip(), 500)
        level = logging.INFO if self._is_own else logging.DEBUG
        if self._is_own and text.startswith(STDERR_WARNING):
            level, text = logging.WARNING, text.removeprefix(STDERR_WARNING)
        self._is_echo = bool(_ECHO.search(text) or (self._is_echo and _ECHO_GOES_ON.match(text)))
        if text:
            if not self._is_echo:  # else it would replace the server's own last words
                self.stderr.append(text)
            if log.isEnabledFor(level):
                log.log(level, "%s: %s", self._upstream, self._clean(text))

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._lines[1].end()
            # The exit status usually follows at once, and is a better reason than "closed its stdout".
            asyncio.get_running_loop().call_later(LAST_WORDS_GRACE / 2, self._lose_when_quiet)
        elif fd == 0:
            self.writable.set()
        elif fd == 2:
            self._lines[2].end()
        self._closed_pipes.add(fd)
        self._lose_at_end_of_output()

    def process_exited(self) -> None:
        self.exited.set()
        self._lose_at_end_of_output()
        asyncio.get_running_loop().call_later(LAST_WORDS_GRACE / 2, self._lose_when_quiet)

    def _lose_at_end_of_output(self) -> None:
        """Reports the loss without a delay if the process has exited and all its output was read."""
        if self.exited.is_set() and {1, 2} <= self._closed_pipes:
            self.lose(None)

    def _lose_when_quiet(self, looks: int = 0, chunks_before: int = -1) -> None:
        """Reports the loss once nothing more is read. Output that waits because reading is paused is read first.

        Args:
            looks: the looks so far; those while reading was paused do not count.
            chunks_before: the chunks that had been read at the last look.
        """
        if self.is_lost:
            return
        pipe = self._transport.get_pipe_transport(1) if self._transport is not None else None
        pipe = cast("asyncio.ReadTransport | None", pipe)
        is_paused = pipe is not None and not pipe.is_closing() and not pipe.is_reading()
        waits = is_paused or any(reader.waits for reader in self._lines.values())
        if not waits and (self._chunks == chunks_before or looks > LAST_LOOKS):
            self.lose(None)
            return
        chunks = -1 if waits else self._chunks
        asyncio.get_running_loop().call_later(LAST_WORDS_GRACE / 2, self._lose_when_quiet, looks + (not waits), chunks)

    async def wait_for_last_words(self) -> None:
        """Waits for the last output of a process that has exited before the event loop noticed it."""
        if not self.is_lost:
            await set_within(self._lost_event, 2 * LAST_WORDS_GRACE)
            self._lose_when_quiet()
            await self._lost_event.wait()

    def lose(self, error: LinkLost | None) -> None:
        """Ends the conversation and tells the receiver, once. `error`: None if the process exited or closed stdout."""
        if self.is_lost:
            return
        self.is_lost = True
        self._lost_event.set()
        self._error = error
        self.writable.set()
        if not self.muted:
            self._receiver.lost(LinkLost(self.reason()))

    def reason(self) -> CodedText:
        """Returns the reason why the link was lost, for the user."""
        if self._error is not None:
            return CodedText(str(self._error), self._error.hub_code or codes.PROCESS_EXITED)
        code: Any = self._transport.get_returncode() if self._transport is not None else None
        if code is None:
            return CodedText("it closed its stdout", codes.PROCESS_EXITED)
        if code < 0:
            with contextlib.suppress(ValueError):
                return CodedText(f"the process was killed by {signal.Signals(-code).name}", codes.PROCESS_KILLED)
        return CodedText(f"the process exited with status {code}", codes.PROCESS_EXITED)
