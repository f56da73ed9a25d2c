"""One loaded configuration at work: its upstreams, its rules, and the calls that run by them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.catalog import names
from mcp_hub.catalog.catalog import Route
from mcp_hub.config.models import Config
from mcp_hub.hub.own_servers import OwnServers
from mcp_hub.hub.pin_file import PinWatch
from mcp_hub.policy import Call, Json
from mcp_hub.policy.chain import Rules
from mcp_hub.policy.selection import Selection, strangers
from mcp_hub.protocol.kinds import MAX_NAME, TOOLS, Kind
from mcp_hub.upstream.connection import Upstream
from mcp_hub.upstream.dial import Dialer
from mcp_hub.upstream.in_use import InUse
from mcp_hub.upstream.states import THERE

if TYPE_CHECKING:
    from mcp_hub.observability.tracing import Tracing

log = logging.getLogger("mcp_hub")

MAX_RETIRING: Final = 32
"""Upstreams of former generations that are kept for the calls they still have; of more, the oldest end at once."""
PARKED: Final = 300.0
"""Seconds by which a call may outlive its deadline, which stands still while its caller is asked."""


MAX_LOOKED_AT: Final = 5_000
"""Listed names that a name nobody has is compared with, some ms: why it is hidden is only for the log."""


class Generation:
    """Never changes once it is in use. `number` counts from 1."""

    def __init__(
        self,
        number: int,
        config: Config,
        selection: Selection,
        upstreams: Mapping[str, Upstream],
        own: OwnServers,
        dialer: Dialer,
    ) -> None:
        self.number = number
        self.config = config
        self.selection = selection
        self.upstreams = upstreams
        self.own = own
        self.dialer = dialer
        self.pin_watch: PinWatch | None = None
        """Where anything is pinned."""
        self.rules: Rules
        """Set by whoever makes the generation: the rules ask it what it lists."""
        self.tracing: Tracing | None = None
        """Where calls are traced; generations with the same settings share it."""
        self.calls = InUse()
        self._told_of_strangers = False

    async def run(self, call: Call) -> Json:
        """One call through the rules. What it needs of this generation stays until it has ended."""
        with self.calls, self.upstreams[call.route.upstream].calls:
            return await self.rules.chain.run(call)

    def listed_tool(self, route: Route) -> Json | None:
        """A tool as its server lists it; the hub's own have no server."""
        upstream = self.upstreams.get(route.upstream)
        if route.kind is not TOOLS or upstream is None:
            return None
        return upstream.lists.tool(route.name) or upstream.own_lists.tool(route.name)

    def why(self, kind: Kind, exposed: str, profile: str | None = None) -> str | None:
        """The rule that hides a name, for the user of the hub and the log; None if nothing here has it."""
        access, looked_at = self.rules.access, 0
        if len(exposed) > 2 * MAX_NAME:
            return None
        for upstream in self.upstreams.values():
            server = upstream.server
            prefix = names.expose(server.namespace, "")
            for wire in (*upstream.lists.items.get(kind, ()), *upstream.own_lists.items(kind)):
                name = wire.get(kind.name_key) if isinstance(wire, dict) else None
                looked_at += 1
                if looked_at > MAX_LOOKED_AT:
                    return None
                if not isinstance(name, str):
                    continue
                alike = len(exposed) == names.MAX_LENGTH or exposed.startswith(prefix)
                shown = (name, f"{server.id}/{name}", names.expose(server.namespace, name) if alike else name)
                if exposed in shown and (reason := access.why(Route(server.id, kind, name), profile)) is not None:
                    return reason
        return None

    def strangers(self, members: Iterable[str]) -> tuple[str, ...]:
        """Members of tool sets that no server lists; () while a server that may list them is missing."""
        if any(u.error is not None or u.state not in THERE for u in self.upstreams.values() if u.server.enabled):
            return ()
        listed = [
            (upstream.server, tool["name"])
            for upstream in self.upstreams.values()
            for tool in upstream.lists.items.get(TOOLS, ())
            if isinstance(tool, dict) and isinstance(tool.get("name"), str)
        ]
        return strangers(members, listed)

    def tell_of_strangers(self) -> None:
        """Once, when all servers are there: what was chosen and is nowhere."""
        members = self.selection.members or ()
        if members and all(u.tried.is_set() for u in self.upstreams.values()) and not self._told_of_strangers:
            self._told_of_strangers = True
            for member in self.strangers(members):
                log.warning("%s: no server has a tool %r", self.selection.name, member)


class Retiring:
    """What former generations leave behind: ended once the calls that need it have, and all at the same time."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], Callable[[], Any]] = {}

    def upstream(self, upstream: Upstream) -> None:
        """Stop an upstream when its calls have ended; they do by their own deadlines."""
        self._retire(upstream.calls, upstream.server.deadlines.call + PARKED, upstream.stop)

    def generation(self, generation: Generation, successor: Generation) -> None:
        """End what only this generation has, not its successor, when its calls have ended."""

        async def stop() -> None:
            await generation.own.close()
            if generation.tracing is not None and generation.tracing is not successor.tracing:
                await generation.tracing.close()

        longest = max((u.server.deadlines.call for u in generation.upstreams.values()), default=0.0)
        self._retire(generation.calls, longest + PARKED, stop)

    def _retire(self, calls: InUse, seconds: float, stop: Callable[[], Any]) -> None:
        while len(self._tasks) >= MAX_RETIRING:
            oldest = next(iter(self._tasks))
            self._stop(self._tasks.pop(oldest))
            oldest.cancel()
        waiting = asyncio.get_running_loop().create_task(_stopped(calls, seconds, stop))
        self._tasks[waiting] = stop
        waiting.add_done_callback(lambda task: self._tasks.pop(task, None))

    def _stop(self, stop: Callable[[], Any]) -> None:
        ending = asyncio.get_running_loop().create_task(stop())
        self._tasks[ending] = stop
        ending.add_done_callback(lambda task: self._tasks.pop(task, None))

    async def close(self) -> None:
        """End everything now. Never raises."""
        stops = list(self._tasks.values())
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*(stop() for stop in stops), return_exceptions=True)


async def _stopped(calls: InUse, seconds: float, stop: Callable[[], Any]) -> None:
    if not await calls.ended(seconds):
        log.warning("calls of a former configuration did not end in %g s; what they use is ended", seconds)
    await stop()
