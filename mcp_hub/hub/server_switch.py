"""Restarts single servers of a running hub, and switches them off and on until the configuration is read again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from mcp_hub import codes
from mcp_hub.config.models import Server
from mcp_hub.errors import HubError
from mcp_hub.hub.generations import Generation, Generations
from mcp_hub.text import printable
from mcp_hub.upstream import Upstream

SWITCHED_OFF: Final = "it was switched off while the hub runs, until the configuration is read again"


class CannotSwitch(HubError):
    """A server cannot be restarted or switched as it was asked. `str()` is for the user."""


class ServerSwitch:
    """Restarts servers, and switches them off and on. No file changes, so that a reload undoes a switch.

    `anew(generation, server)` makes an upstream without starting it; `changed()` is called when lists have changed.
    Each method ends when the former process has ended and the new one is being started; it goes on if its caller is
    cancelled. Calls that run on the server fail, and are tried again where that is harmless.
    """

    def __init__(
        self,
        generations: Generations,
        anew: Callable[[Generation, Server], Upstream],
        changed: Callable[[], None],
    ) -> None:
        self._generations = generations
        self._anew = anew
        self._changed = changed
        self._running: set[asyncio.Task[None]] = set()

    async def restart(self, id: str) -> None:
        """Ends a server's process and sessions, and connects again at once.

        What it lists stays as it was until it is connected. Raises CannotSwitch if it is switched off, or unknown.
        """

        def made(generation: Generation) -> Upstream:
            former = _known(generation, id)
            if not former.server.enabled:
                raise CannotSwitch(f"{id} is switched off; switch it on instead", codes.NAME_UNKNOWN)
            coming = self._anew(generation, former.server)
            coming.lists.adopt(dict(former.lists.items))
            coming.agreement = former.agreement
            return coming

        await self._exchange(made)

    async def disable(self, id: str, reason: str = SWITCHED_OFF) -> None:
        """Ends a server and serves nothing of it. Does nothing if it is off. Raises CannotSwitch if it is unknown."""

        def made(generation: Generation) -> Upstream:
            server = _known(generation, id).server
            return self._anew(generation, server.model_copy(update={"enabled": False, "disabled_reason": reason}))

        if _known(self._generations.now, id).server.enabled:
            await self._exchange(made)

    async def enable(self, id: str) -> None:
        """Serves a server that is switched off, here or by its entry. Does nothing if it is on.

        Raises CannotSwitch if it is unknown, or if the hub itself had to switch the entry off.
        """

        def made(generation: Generation) -> Upstream:
            server = _known(generation, id).server
            entry = next(one for one in generation.config.servers if one.id == id)
            if not entry.enabled and entry.disabled_reason is not None:
                text = f"{id} cannot be switched on: {printable(entry.disabled_reason, 1000)}"
                raise CannotSwitch(text)
            return self._anew(generation, server.model_copy(update={"enabled": True, "disabled_reason": None}))

        former = _known(self._generations.now, id)
        if not former.server.enabled or former.left_out:
            await self._exchange(made)

    async def _exchange(self, made: Callable[[Generation], Upstream]) -> None:
        task = asyncio.get_running_loop().create_task(self._exchanged(made))
        self._running.add(task)
        task.add_done_callback(self._done)
        await asyncio.shield(task)

    async def _exchanged(self, made: Callable[[Generation], Upstream]) -> None:
        coming = await self._generations.exchange(made)
        rules = self._generations.now.rules
        rules.breaker.reset(coming.server.id)
        self._changed()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved, as its caller may have gone


def _known(generation: Generation, id: str) -> Upstream:
    found = generation.upstreams.get(id)
    if found is None:
        known = ", ".join(generation.upstreams) or "none"
        raise CannotSwitch(f"there is no server {printable(id, 100)!r}; there are: {known}", codes.NAME_UNKNOWN)
    return found
