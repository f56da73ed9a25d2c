"""The child processes of one hub: marks them, and has a reaper that outlives the hub end them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import sys
import time
from pathlib import Path
from typing import Final

from mcp_hub.transport import reaper

log = logging.getLogger("mcp_hub.transport")

STEADY: Final = 10.0
"""Seconds; a reaper that lived shorter than this, or could not be started, is replaced only after a delay."""
AGAIN: Final = 0.5
"""The first such delay in seconds; it doubles with each failure."""
AGAIN_AT_MOST: Final = 60.0


class Children:
    """Marks and registers the children of one running hub.

    A reaper process is started with the first child and replaced when it ends. It kills the children that are left
    when the hub is gone. Windows needs no reaper: each child has a Job Object there, which ends with the hub.
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
        """Process groups that are alive; a new reaper gets all of them."""
        self._started = 0
        self._outputs: dict[int, asyncio.ReadTransport] = {}
        self.paused = False
        """Whether nothing is to be read from any child."""

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
        return self._reaper.pid if self._reaper is not None else None

    def _say(self, line: str) -> None:
        if sys.platform == "win32":
            return
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        elif self._reaper is not None and self._reaper.stdin is not None:
            with contextlib.suppress(OSError, RuntimeError):  # the reaper is gone; the next one gets all groups
                self._reaper.stdin.write(line.encode())

    async def _watch(self) -> None:
        """Keeps a reaper running: replaces one that ends, at once if it has lived for STEADY seconds."""
        failures = 0
        while True:
            began = time.monotonic()
            lost = await self._start()
            if self.problem is None or failures == 0:
                log.warning("%s; until another one runs, children may outlive a hub that is killed", lost)
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
        """Closes the reaper's stdin, so that it kills what is left and ends itself. Bounded in time; never raises."""
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
