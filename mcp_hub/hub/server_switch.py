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

SWITCHED_OFF_ON_PAGE: Final = "it was switched off on the live page, until the configuration is read again"
SWITCHED_OFF: Final = "it was switched off while the hub runs, until the configuration is read again"


class CannotSwitch(HubError):
    """A server cannot be restarted or switched as it was asked. `str()` is for the user."""


class ServerSwitch:
    """Restarts servers, and switches them off and on. No file changes, so that a reload undoes a switch.

    `new_upstream(generation, server)` makes an upstream without starting it; `changed()` is called when lists have
    changed. Each method ends when the former process has ended and the new one is being started; it goes on if its
    caller is cancelled. Calls that run on the server fail, and are tried again where that is harmless.
    """

    def __init__(
        self,
        generations: Generations,
        new_upstream: Callable[[Generation, Server], Upstream],
        changed: Callable[[], None],
    ) -> None:
        self._generations = generations
        self._new_upstream = new_upstream
        self._changed = changed
        self._running: set[asyncio.Task[None]] = set()

    def switched(self) -> dict[str, bool]:
        """Returns the servers that are switched on (True) or off, unlike their entries in the configuration."""
        generation = self._generations.current
        states = {entry.id: generation.upstreams[entry.id].server.enabled for entry in generation.config.servers}
        return {entry.id: states[entry.id] for entry in generation.config.servers if states[entry.id] != entry.enabled}

    async def restart(self, id: str) -> None:
        """Ends a server's process and sessions, and connects again at once.

        What it lists stays as it was until it is connected. Raises CannotSwitch if it is switched off, or unknown.
        """

        def build(generation: Generation) -> Upstream:
            former_upstream = _upstream_of(generation, id)
            if not former_upstream.server.enabled:
                raise CannotSwitch(f"{id} is switched off; switch it on instead", codes.NAME_UNKNOWN)
            new_upstream = self._new_upstream(generation, former_upstream.server)
            new_upstream.list_as(former_upstream)
            return new_upstream

        await self._exchange(build)

    async def disable(self, id: str, reason: str = SWITCHED_OFF) -> None:
        """Ends a server and serves nothing of it. Does nothing if it is off. Raises CannotSwitch if it is unknown."""

        def build(generation: Generation) -> Upstream:
            server = _upstream_of(generation, id).server
            return self._new_upstream(
                generation, server.model_copy(update={"enabled": False, "disabled_reason": reason})
            )

        if _upstream_of(self._generations.current, id).server.enabled:
            await self._exchange(build)

    async def enable(self, id: str) -> None:
        """Serves a server that is switched off, here or by its entry. Does nothing if it is on.

        Raises CannotSwitch if it is unknown, or if the hub itself had to switch the entry off.
        """

        def build(generation: Generation) -> Upstream:
            server = _upstream_of(generation, id).server
            entry = next(candidate for candidate in generation.config.servers if candidate.id == id)
            if not entry.enabled and entry.disabled_reason is not None:
                text = f"{id} cannot be switched on: {printable(entry.disabled_reason, 1000)}"
                raise CannotSwitch(text)
            return self._new_upstream(generation, server.model_copy(update={"enabled": True, "disabled_reason": None}))

        upstream = _upstream_of(self._generations.current, id)
        if not upstream.server.enabled or upstream.left_out:
            await self._exchange(build)

    async def _exchange(self, build: Callable[[Generation], Upstream]) -> None:
        task = asyncio.get_running_loop().create_task(self._run_exchange(build))
        self._running.add(task)
        task.add_done_callback(self._on_done)
        await asyncio.shield(task)

    async def _run_exchange(self, build: Callable[[Generation], Upstream]) -> None:
        upstream = await self._generations.exchange(build)
        rules = self._generations.current.rules
        rules.breaker.reset(upstream.server.id)
        self._changed()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved, as its caller may have gone


def _upstream_of(generation: Generation, id: str) -> Upstream:
    upstream = generation.upstreams.get(id)
    if upstream is None:
        ids = ", ".join(generation.upstreams) or "none"
        raise CannotSwitch(f"there is no server {printable(id, 100)!r}; there are: {ids}", codes.NAME_UNKNOWN)
    return upstream
