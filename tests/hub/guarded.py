"""A hub under a guard that ends it and all hubs below it once there are more than a loop could be stopped with."""

import asyncio
import contextlib
import json
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil

from tests.fakes.client import HUB, PATIENCE, StdioClient, spawned

COMMAND = str(Path(sys.executable).with_name("mcp-hub"))
BOUND = 8
"""Hubs at the same time: twice the limit of a row. A loop that is not stopped passes it within seconds."""
LOOK_AGAIN = 0.1
"""Seconds between two looks at the processes, of which no event tells."""


def hubs_below(pid: int) -> list[psutil.Process]:
    """The processes below `pid` that serve as hubs."""
    hubs = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                # A child that does not run its program yet looks like its parent. The environment is read first: if the
                # child starts its program meanwhile, its arguments are those of the program.
                environ, argv, parent = process.environ(), process.cmdline(), process.parent()
                serves = "serve" in argv and any(argument in ("mcp_hub", COMMAND) for argument in argv)
                if serves and (parent is None or (argv, environ) != (parent.cmdline(), parent.environ())):
                    hubs.append(process)
    return hubs


class Guard:
    """Counts the hubs below one process; ends all of them if they become too many."""

    def __init__(self, pid: int) -> None:
        self.peak = 0
        self._pid = pid

    async def watch(self) -> None:
        while True:
            hubs = hubs_below(self._pid)
            self.peak = max(self.peak, len(hubs))
            if len(hubs) > BOUND:
                for process in [psutil.Process(self._pid), *hubs]:
                    with contextlib.suppress(psutil.Error):
                        process.kill()
                return
            await asyncio.sleep(LOOK_AGAIN)


@contextlib.asynccontextmanager
async def guarded(pid: int) -> AsyncIterator[Guard]:
    guard = Guard(pid)
    watching = asyncio.create_task(guard.watch())
    try:
        yield guard
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert guard.peak <= BOUND, f"{guard.peak} hubs"


@contextlib.asynccontextmanager
async def outermost(*configs: Path) -> AsyncIterator[tuple[StdioClient, Guard]]:
    """A hub over stdio with its client, under guard."""
    files = [argument for config in configs for argument in ("--config", str(config))]
    async with (
        spawned([*HUB, "serve", *files]) as client,
        guarded(client.process.pid) as guard,
    ):
        await client.initialize()
        yield client, guard


async def check(config: Path) -> dict[str, dict[str, Any]]:
    """What `mcp-hub check` says of each server, under guard."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*HUB, "check", "--json", "--config", str(config), stdout=pipe)
    async with guarded(process.pid), asyncio.timeout(PATIENCE):
        stdout, _ = await process.communicate()
    return {fact["server"]: fact for fact in json.loads(stdout)["servers"]}


def script(path: Path, argv: list[str], starts: Path) -> str:
    """A program that notes that it was started and then becomes another."""
    path.write_text(f"#!/bin/sh\necho started >> {shlex.quote(str(starts))}\nexec {shlex.join(argv)}\n")
    path.chmod(0o700)
    return str(path)


def link(path: Path, target: str | Path) -> str:
    path.symlink_to(target)
    return str(path)
