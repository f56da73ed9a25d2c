"""Children whose start nobody waits for any more, on both kinds of loop."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from mcp_hub.wire.spawned import spawn
from tests.fakes.client import PATIENCE

STEPS = 10
"""Rounds of the loop; after so many a child has long been started."""


class Heard(asyncio.SubprocessProtocol):
    """Waits for the end of a process."""

    def __init__(self) -> None:
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        self.exited.set()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_start_that_is_cancelled_at_any_moment_stays_cancelled_and_leaves_no_process(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    made: list[Heard] = []

    def heard() -> Heard:
        made.append(Heard())
        return made[-1]

    async def start() -> None:
        child, _ = await spawn(heard, [sys.executable, "-c", "input()"], env={}, cwd=None)
        try:
            await asyncio.Event().wait()
        finally:
            child.close()

    async def cancelled_after(rounds: int) -> None:
        starting = asyncio.ensure_future(start())
        for _ in range(rounds):
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    async def all_of_them() -> None:
        async with asyncio.timeout(PATIENCE):
            for rounds in range(STEPS):
                await cancelled_after(rounds)
            for one in made:
                await one.exited.wait()

    run(all_of_them())
