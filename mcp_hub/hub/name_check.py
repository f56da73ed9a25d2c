"""Compares the names in rules with what the servers of the configuration in force list."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from mcp_hub.codes import with_code
from mcp_hub.hub.generations import Generations
from mcp_hub.policy.rule_names import UnmatchedName
from mcp_hub.text import printable
from mcp_hub.transport.background import BACKGROUND
from mcp_hub.upstream import Upstream

log = logging.getLogger("mcp_hub")

AFTER: Final = 1.0
"""Seconds after a change of the catalog, as several servers connect at the same time."""


class NameCheck:
    """Warns of names in rules that match nothing, as such a rule refuses nothing."""

    def __init__(self, generations: Generations) -> None:
        self._generations = generations
        self._task: asyncio.Task[None] | None = None
        self._judged: tuple[int, frozenset[str]] = 0, frozenset()
        """The generation and its servers that had been listed when its names were compared."""
        self._reported: set[UnmatchedName] = set()
        self.found = asyncio.Event()
        """Whether a name matched nothing."""

    async def settled(self) -> None:
        """Starts all servers, waits until each has connected or failed, and warns of names that match nothing."""
        await asyncio.gather(*(upstream.tried() for upstream in self._generations.current.upstreams.values()))
        self.report(await self._generations.current.unmatched_names())

    def soon(self) -> None:
        """Compares the names in a second if another server has been listed by then."""
        if self._task is None or self._task.done():
            self._task = BACKGROUND.keep("names in rules", self._run)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(AFTER)
            while asking := self._asking():
                await asking.list_store.asked()
            generation = self._generations.current
            judged = generation.number, frozenset(generation.listed)
            if judged == self._judged:
                return
            self._judged = judged
            self.report(await self._generations.current.unmatched_names())

    def _asking(self) -> Upstream | None:
        """Returns a server that is being asked for lists which it has not declared; None if there is none."""
        upstreams = self._generations.current.upstreams.values()
        return next((upstream for upstream in upstreams if upstream.list_store.is_asking), None)

    def report(self, names: Sequence[UnmatchedName]) -> None:
        """Warns of names, of each once."""
        for name in names:
            if name not in self._reported:
                log.warning("%s: %s", printable(name.key, 300), with_code(name.text))
                self.found.set()
        self._reported.update(names)

    def close(self) -> None:
        """Ends the comparison in the background."""
        if self._task is not None:
            self._task.cancel()
