"""The built-in upstreams `code` and `shell`: run programs for a caller with a time limit and bounded output.

This is not a sandbox: a program has the rights of the user who runs the hub. Processes that a program starts are found
by its process group and, on Linux, by a mark in their environment, and end with it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, cast

from pydantic import Field

from mcp_hub.security.private_files import remove_tree
from mcp_hub.servers.builtin import VARIABLE, Settings
from mcp_hub.servers.builtin.scratch import Scratch
from mcp_hub.servers.local import tool
from mcp_hub.servers.local.tool_results import ToolRefused, ToolResult
from mcp_hub.transport import reaper
from mcp_hub.transport.background import TaskSet, set_within

KEPT: Final = 512 * 1024
"""Bytes that are kept of the beginning and of the end of each output; what is between is only counted."""
LINGER: Final = 1.0
"""Seconds for which processes that a program leaves running may still write output."""
TERM_GRACE: Final = 0.5
"""Seconds between SIGTERM and SIGKILL."""
START_WAIT: Final = 10.0
"""Seconds to wait until a program of a cancelled call has started, so that it can be ended."""
KILL_WAIT: Final = 2.0
"""Seconds until a process is gone after SIGKILL; it takes longer only while the process is inside the kernel."""
MAX_SECONDS: Final = 86_400
_DRAIN: Final = 0.5
"""Seconds to read what is still in the pipes of ended programs."""
_POLL: Final = 0.02
_HAS_MARKS: Final = Path("/proc/self/environ").exists()


@dataclass(frozen=True)
class ProgramOutcome:
    """How a program ended. `returncode` is -1 if its time was up, and -N if signal N ended it."""

    returncode: int
    stdout: str
    stderr: str

    def result(self) -> ToolResult:
        """Returns the outcome in AgentScope's format: three elements in one text, with nothing in them escaped."""
        text = f"<returncode>{self.returncode}</returncode><stdout>{self.stdout}</stdout><stderr>{self.stderr}</stderr>"
        return ToolResult([{"type": "text", "text": text}])


class OutputCapture:
    """Keeps the beginning and the end of an output, and counts the bytes between."""

    def __init__(self, limit: int = KEPT) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def feed(self, data: bytes) -> None:
        """Adds the next bytes of the output."""
        self._size += len(data)
        room = self._limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._limit:
            del self._tail[: -self._limit]

    def text(self) -> str:
        """Returns the output as text, with a note in place of bytes that were left out."""
        tail = self._tail[-self._limit :]
        omitted = self._size - len(self._head) - len(tail)
        if not omitted:
            return (self._head + tail).decode("utf-8", "replace")
        note = f"\n[... {omitted:,} bytes are left out here: write long output to a file ...]\n"
        return self._head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace")


class _Program(asyncio.SubprocessProtocol):
    """Receives the output of one program, and its end."""

    def __init__(self) -> None:
        self.outputs = {1: OutputCapture(), 2: OutputCapture()}
        self.exited = asyncio.Event()
        self.outputs_closed = asyncio.Event()
        """Set once both outputs have ended."""
        self.transport: asyncio.SubprocessTransport | None = None
        self._open = {1, 2}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.outputs[fd].feed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open:
            self.outputs_closed.set()

    def process_exited(self) -> None:
        self.exited.set()


class ProgramRunner:
    """Runs any number of programs at a time on the event loop that calls it. Raises OSError on Windows."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        if os.name != "posix":
            raise OSError("it needs process groups to end what a program has started, which Windows does not have")
        self._mark = environ.get(reaper.MARK) or f"{secrets.token_hex(8)}:"
        self._environ = {name: value for name, value in environ.items() if name != VARIABLE}
        self._run_numbers = itertools.count(1)
        self._groups: set[int] = set()
        self._end_tasks = TaskSet()

    async def run(self, argv: Sequence[str], seconds: float, label: str) -> ProgramOutcome:
        """Runs a program, and ends everything it has started when it ends, after `seconds`, or when this is cancelled.

        `label`, such as "code", names the program in the message about the time limit. Raises ToolRefused if the
        program cannot be started.
        """
        mark = f"{self._mark}{next(self._run_numbers)}:"
        program = _Program()
        # Never cancelled halfway: asyncio would kill only the program itself, and its group would not be known.
        start_task = asyncio.ensure_future(self._start(argv, program, mark, label))
        try:
            transport = await asyncio.shield(start_task)
            timed_out = not await set_within(program.exited, seconds)
            if not timed_out:
                await set_within(program.outputs_closed, LINGER)
        finally:
            await asyncio.shield(self._end_tasks.start(self._end(start_task, program, mark)))
        stdout, stderr = (program.outputs[fd].text() for fd in (1, 2))
        code = transport.get_returncode()
        if not timed_out and code is not None:
            return ProgramOutcome(code, stdout, stderr)
        sentence = f"TimeoutError: The {label} execution exceeded the timeout of {_plain(seconds)} seconds."
        return ProgramOutcome(-1, stdout, f"{stderr}\n{sentence}" if stderr else sentence)

    async def _start(
        self, argv: Sequence[str], program: _Program, mark: str, label: str
    ) -> asyncio.SubprocessTransport:
        try:
            transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: program,
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**self._environ, reaper.MARK: mark},
                start_new_session=True,
            )
        except OSError as error:
            raise ToolRefused("tool_error", f"The {label} cannot be started: {error.strerror}.") from None
        self._groups.add(transport.get_pid())
        return transport

    async def _end(self, start_task: asyncio.Future[asyncio.SubprocessTransport], program: _Program, mark: str) -> None:
        """Ends all that is left of the program: SIGTERM, then SIGKILL.

        Then closes its pipes, whoever still holds them.
        """
        await asyncio.wait({start_task}, timeout=START_WAIT)
        if not start_task.cancelled() and start_task.done():
            start_task.exception()  # marks it as retrieved, so that asyncio does not log it
        transport = program.transport
        groups = {transport.get_pid()} if transport is not None else set()
        if reaper.signal_all(groups, mark, signal.SIGTERM):
            await _wait_until_ended(groups, mark, TERM_GRACE)
            await _kill(groups, mark)
        if transport is not None:
            self._groups -= groups
            await set_within(program.outputs_closed, _DRAIN)
            await set_within(program.exited, _DRAIN)  # so that nobody has to reap it later
            transport.close()

    async def close(self) -> None:
        """Ends all programs at once."""
        await _kill(set(self._groups), self._mark)
        await asyncio.gather(*self._end_tasks, return_exceptions=True)


async def _kill(groups: set[int], mark: str) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + KILL_WAIT
    while reaper.signal_all(groups, mark, reaper.SIGKILL) and loop.time() < deadline:
        if await _wait_until_ended(groups, mark, _POLL):  # otherwise a new process was started meanwhile
            return


async def _wait_until_ended(groups: set[int], mark: str, seconds: float) -> bool:
    """Waits up to `seconds` and returns whether none of the processes is left."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while _any_alive(groups, mark):
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(_POLL)
    return True


def _any_alive(groups: set[int], mark: str) -> bool:
    """Returns whether a process is left. A zombie still counts as a member of its group, but carries no mark."""
    if _HAS_MARKS:
        return bool(reaper.marked(mark))
    return any(map(reaper.group_alive, groups))


def _plain(seconds: float) -> float:
    return int(seconds) if seconds == int(seconds) else seconds


DEFAULT_SECONDS: Final = 300
_UTF8: Final = {"PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8"}

_open_code: list[tuple[ProgramRunner, Scratch]] = []


def code_tools(settings: Settings) -> list[Callable[..., Any]]:
    """Returns the functions of the upstream `code`. Raises OSError on Windows."""
    runner, scratch = ProgramRunner({**os.environ, **_UTF8}), Scratch("code")
    _open_code.append((runner, scratch))

    @tool(
        title="Run Python code",
        annotations={"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True},
    )
    async def execute_python_code(
        code: Annotated[str, "The Python code to be executed"],
        timeout: Annotated[
            float, Field(ge=0, le=MAX_SECONDS), "The maximum time (in seconds) allowed for the code to run"
        ] = DEFAULT_SECONDS,
    ) -> ToolResult:
        """Execute the given Python code in a temporary file and capture the return code, standard output and error.

        Note you must `print` the output to get the result. The file is removed right after the execution, and
        everything the code has started is ended.
        """
        directory = scratch.path / secrets.token_hex(8)
        try:
            file = await asyncio.to_thread(_write_code, directory, code)
            outcome = await runner.run([sys.executable, "-u", str(file)], timeout, "code")
        finally:
            await asyncio.shield(asyncio.to_thread(remove_tree, directory))
        return outcome.result()

    return [execute_python_code]


async def close_code() -> None:
    """Ends all running programs and deletes their files."""
    for runner, scratch in _open_code:
        await runner.close()
        await asyncio.to_thread(scratch.remove)


def _write_code(directory: Path, code: str) -> Path:
    file = directory / "code.py"
    try:
        source = code.encode()
    except UnicodeEncodeError:
        raise ToolRefused(
            "invalid_parameters", "'code' contains half of a surrogate pair, which is not valid text."
        ) from None
    try:
        directory.mkdir(mode=0o700)
        file.write_bytes(source)
    except OSError as error:
        text = f"The code cannot be written to {directory.parent}: {error.strerror}. Nothing was executed."
        raise ToolRefused("tool_error", text) from None
    return file


SHELL: Final = "/bin/sh"

_open_shells: list[ProgramRunner] = []


def shell_tools(settings: Settings) -> list[Callable[..., Any]]:
    """Returns the functions of the upstream `shell`. Raises OSError on Windows."""
    runner = ProgramRunner(os.environ)
    _open_shells.append(runner)

    @tool(
        title="Run a shell command",
        annotations={"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True},
    )
    async def execute_shell_command(
        command: Annotated[str, "The shell command to execute"],
        timeout: Annotated[
            float, Field(ge=0, le=MAX_SECONDS), "The maximum time (in seconds) allowed for the command to run"
        ] = DEFAULT_SECONDS,
    ) -> ToolResult:
        """Execute the given command and return its return code, standard output and standard error.

        They are within <returncode></returncode>, <stdout></stdout> and <stderr></stderr> tags. Everything the
        command has started is ended with it.
        """
        try:
            is_valid = b"\0" not in command.encode()
        except UnicodeEncodeError:
            is_valid = False
        if not is_valid:
            text = "'command' contains a NUL character or half of a surrogate pair, which no shell accepts."
            raise ToolRefused("invalid_parameters", text)
        return (await runner.run([SHELL, "-c", command], timeout, "command")).result()

    return [execute_shell_command]


async def close_shell() -> None:
    """Ends all running commands."""
    for runner in _open_shells:
        await runner.close()
