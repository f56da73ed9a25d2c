"""The monkey that disturbs the servers: it draws one disturbance after the other at random from a seed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter

from tests.chaos.world import Target, World

PAUSE = (0.05, 0.4)
"""Seconds between two disturbances."""
LASTS = (0.1, 3.0)
"""Seconds that one disturbance lasts."""
AT_ONCE = 4
"""Servers that are disturbed at the same time; the others must answer."""


class Monkey:
    """Disturbs the servers of a world. `done` counts the disturbances by kind."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._draw = random.Random(seed)
        self._troubled: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.done: Counter[str] = Counter()

    async def rage(self, seconds: float) -> None:
        """Disturbs for `seconds`, then waits until every disturbance is over."""
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            await asyncio.sleep(self._draw.uniform(*PAUSE))
            calm = [target for target in self._world.targets if target.id not in self._troubled]
            if len(self._troubled) < AT_ONCE and calm:
                task = asyncio.create_task(self._disturb(self._draw.choice(calm), self._draw.uniform(*LASTS)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._world.calm()

    async def _disturb(self, target: Target, seconds: float) -> None:
        self._troubled.add(target.id)
        kind = self._draw.choices(("garble", "stop", "kill", "reload"), (5, 2, 2, 1))[0]
        self.done[kind] += 1
        try:
            if kind == "garble":
                target.switch.write_text(self._draw.choice(target.faults))
                await asyncio.sleep(seconds)
                target.switch.write_text("")
            elif kind == "stop":
                await self._stop(target, seconds)
            elif kind == "kill" and target.process is None:
                await self._kill(target)
            else:
                target.reloads += 1
                self._world.reload()
                await asyncio.sleep(seconds / 3)
        finally:
            self._troubled.discard(target.id)

    async def _stop(self, target: Target, seconds: float) -> None:
        pid = await self._world.pid_of(target)
        if pid is not None:
            self._world.hold(pid)
            await asyncio.sleep(seconds)
            self._world.let_go(pid)

    async def _kill(self, target: Target) -> None:
        pid = await self._world.pid_of(target)
        if pid is not None:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                self.done["kill"] -= 1
