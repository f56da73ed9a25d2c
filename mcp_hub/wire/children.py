"""All child processes of one hub: their mark, and the reaper that outlives the hub by a moment."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import sys
from pathlib import Path

from mcp_hub.wire import reaper

log = logging.getLogger("mcp_hub.wire")


class Children:
    """Marks, registers and sweeps the children of one running hub.

    The reaper process is started with the first child. On Windows there is neither process group nor mark;
    children end with their stdin there.
    """

    def __init__(self) -> None:
        self.run = secrets.token_hex(8)
        self._reaper: asyncio.subprocess.Process | None = None
        self._starting: asyncio.Task[None] | None = None
        self._unsaid: list[str] = []
        self._started = 0
        self._outputs: dict[int, asyncio.ReadTransport] = {}

    def new_mark(self, upstream: str) -> str:
        """The mark of one more child of `upstream`, which its whole offspring inherits."""
        self._started += 1
        return f"{self.run}:{self._started}:{upstream}:"

    def added(self, pgid: int, output: asyncio.ReadTransport | None = None) -> None:
        """A child was started as leader of the group `pgid`; `output` is what it writes to the hub."""
        self._say(f"+{pgid}\n")
        if output is not None:
            self._outputs[pgid] = output

    def ended(self, pgid: int) -> None:
        """The whole group is gone."""
        self._say(f"-{pgid}\n")
        self._outputs.pop(pgid, None)

    def hold_back(self) -> None:
        """Read nothing of what the children write, until `go_on`."""
        for output in self._outputs.values():
            if output.is_reading():
                output.pause_reading()

    def go_on(self) -> None:
        """Read on."""
        for output in self._outputs.values():
            if not output.is_reading() and not output.is_closing():
                output.resume_reading()

    def _say(self, line: str) -> None:
        if os.name != "posix":
            return
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self._start())
        if self._reaper is None or self._reaper.stdin is None:
            self._unsaid.append(line)
            return
        with contextlib.suppress(OSError, RuntimeError):
            self._reaper.stdin.write(line.encode())

    async def _start(self) -> None:
        program = str(Path(reaper.__file__))
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", program, f"{self.run}:",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True, env={},
            )  # fmt: skip
        except OSError as error:
            log.warning("no reaper: children may outlive a killed hub (%s)", error)
            return
        self._reaper = process
        unsaid, self._unsaid = self._unsaid, []
        for line in unsaid:
            self._say(line)

    async def close(self) -> None:
        """Let the reaper go; it sweeps once more. Bounded, never raises."""
        if self._starting is not None:
            with contextlib.suppress(Exception):
                await self._starting
        if self._reaper is None:
            return
        if self._reaper.stdin is not None:
            self._reaper.stdin.close()
        try:
            async with asyncio.timeout(reaper.GRACE + 1):
                await self._reaper.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._reaper.kill()
