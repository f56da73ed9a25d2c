"""The child processes of one hub: marks them, and has a reaper that outlives the hub end them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import sys
import time
from pathlib import Path
from typing import Final, cast

from mcp_hub.transport import reaper
from mcp_hub.transport.background import BACKGROUND, set_within
from mcp_hub.transport.child_process import spawn

log = logging.getLogger("mcp_hub.transport")

STEADY: Final = 10.0
"""Seconds; a reaper that lived shorter than this, or could not be started, is replaced only after a delay."""
AGAIN: Final = 0.5
"""The first such delay in seconds; it doubles with each failure."""
AGAIN_AT_MOST: Final = 60.0


class _ReaperProcess(asyncio.SubprocessProtocol):
    """The asyncio protocol of a reaper, which is told the process groups on its stdin."""

    def __init__(self) -> None:
        self.exited = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.SubprocessTransport", transport)

    def process_exited(self) -> None:
        self.exited.set()

    def say(self, line: str) -> None:
        """Writes a line; does nothing if the reaper is gone."""
        if not self._stdin.is_closing():
            self._stdin.write(line.encode())

    async def end(self) -> None:
        """Closes its stdin, so that it kills what is left and ends itself. Bounded in time; never raises."""
        self._stdin.close()
        await set_within(self.exited, reaper.GRACE + 1)
        self.transport.close()

    @property
    def _stdin(self) -> asyncio.WriteTransport:
        return cast("asyncio.WriteTransport", self.transport.get_pipe_transport(0))


class Children:
    """Marks and registers the children of one running hub.

    A reaper process is started with the first child and replaced when it ends. It kills the children that are left
    when the hub is gone. Windows needs no reaper: each child has a Job Object there, which ends with the hub.
    """

    def __init__(self) -> None:
        self.run = secrets.token_hex(8)
        self._reaper: _ReaperProcess | None = None
        self._watch_task: asyncio.Task[None] | None = None
        self._start_done = asyncio.Event()
        """Set while no reaper is being started."""
        self.problem: str | None = None
        """Why there is no reaper; None while there is one, or before the first child."""
        self._groups: set[int] = set()
        """Process groups that are alive; a new reaper gets all of them."""
        self._started = 0
        self._outputs: dict[int, asyncio.ReadTransport] = {}
        self.paused = False
        """Whether nothing is to be read from any child."""

    def new_mark(self, upstream: str) -> str:
        """Returns the mark of a new child of `upstream`. Its descendants inherit it in their environment."""
        self._started += 1
        return f"{self.run}:{self._started}:{upstream}:"

    def add(self, pgid: int, output: asyncio.ReadTransport | None = None) -> None:
        """Registers a child that leads the process group `pgid`; `output` reads its stdout."""
        self._groups.add(pgid)
        self._tell_reaper(f"+{pgid}\n")
        if output is not None:
            self._outputs[pgid] = output

    def remove(self, pgid: int) -> None:
        """Removes a process group that has ended."""
        self._groups.discard(pgid)
        self._tell_reaper(f"-{pgid}\n")
        self._outputs.pop(pgid, None)

    def pause_reading(self) -> None:
        """Pauses reading from all children, until `resume_reading`."""
        self.paused = True
        for output in self._outputs.values():
            if output.is_reading():
                output.pause_reading()

    def resume_reading(self) -> None:
        """Resumes reading from all children."""
        self.paused = False
        for output in self._outputs.values():
            if not output.is_reading() and not output.is_closing():
                output.resume_reading()

    @property
    def reaper(self) -> int | None:
        """Process id of the reaper; None while there is none."""
        return self._reaper.transport.get_pid() if self._reaper is not None else None

    def _tell_reaper(self, line: str) -> None:
        if sys.platform == "win32":
            return
        if self._watch_task is None:
            self._watch_task = BACKGROUND.keep("reaper", self._watch)
        elif self._reaper is not None:
            self._reaper.say(line)

    async def _watch(self) -> None:
        """Keeps a reaper running: replaces one that ends, at once if it has lived for STEADY seconds."""
        failures = 0
        while True:
            started_at = time.monotonic()
            reason = await self._start()
            if self.problem is None or failures == 0:
                log.warning("%s; until another one runs, children may outlive a hub that is killed", reason)
            self.problem = reason
            failures = 0 if time.monotonic() - started_at > STEADY else failures + 1
            if failures:
                await asyncio.sleep(min(AGAIN_AT_MOST, AGAIN * 2 ** (failures - 1)))

    async def _start(self) -> str:
        """Starts a reaper and waits for its end; returns the reason why there is none now."""
        argv = [sys.executable, "-I", "-S", str(Path(reaper.__file__)), f"{self.run}:"]
        self._start_done.clear()
        try:
            transport, process = await spawn(_ReaperProcess, argv, env={}, outputs=False)
        except OSError as error:
            return f"the reaper cannot be started ({error})"
        finally:
            self._start_done.set()
        for pgid in self._groups:
            process.say(f"+{pgid}\n")
        self._reaper, self.problem = process, None
        try:
            await process.exited.wait()
        except asyncio.CancelledError:
            if self._reaper is process:  # the event loop is shutting down, and nobody has called `close`
                await process.end()
            raise
        self._reaper = None
        transport.close()
        return f"the reaper has ended (status {transport.get_returncode()})"

    async def close(self) -> None:
        """Closes the reaper's stdin, so that it kills what is left and ends itself. Bounded in time; never raises."""
        if self._watch_task is None:
            return
        await set_within(self._start_done, reaper.GRACE)
        process, self._reaper = self._reaper, None
        self._watch_task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self._watch_task
        if process is not None:
            await process.end()
