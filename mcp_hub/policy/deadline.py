"""The time of one call: in total, and without a sign of progress."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from mcp_hub.catalog.catalog import Item
from mcp_hub.config.models import Server
from mcp_hub.errors import DeadlineExceeded
from mcp_hub.policy import Call, Json, Next
from mcp_hub.policy.patterns import RulesOfTools
from mcp_hub.policy.time_limit import TimeLimit


class Deadline:
    """Ends a call at its deadline, retries and fallback included; the upstream is told to cancel, its session stays.

    An idle deadline is put off by every progress notification, never beyond the total one.
    """

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self._servers = servers
        self._rules = RulesOfTools(servers)

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Nothing changes in a list."""
        return items

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Raises DeadlineExceeded, naming the limit and its setting."""
        server = call.route.upstream
        rules, deadlines = self._rules(call.route), self._servers[server].deadlines
        total = rules.timeout if rules.timeout is not None else deadlines.call
        idle = rules.idle_timeout if rules.idle_timeout is not None else deadlines.idle
        scope = TimeLimit(total)
        try:
            with scope:
                call.deadlines.append(scope)
                return await (call_next(call) if idle is None or idle >= total else _while_busy(idle, call, call_next))
        except TimeoutError:
            if scope.expired:
                own = rules.timeout is not None
                setting = f"servers.{server}." + (f"tools.{call.route.name}.timeout" if own else "deadlines.call")
                text = f"{call.exposed!r} did not answer within {total:g} s (setting: {setting})."
                raise DeadlineExceeded(text, server=server) from None
            raise


async def _while_busy(idle: float, call: Call, call_next: Next) -> Json:
    """The call, as long as something is heard of it every `idle` seconds."""
    scope = TimeLimit(idle)
    relay = call.on_progress

    def heard(params: Json) -> None:
        if not scope.expired and scope.when is not None:
            scope.reschedule(asyncio.get_running_loop().time() + idle)
        if relay is not None:
            relay(params)

    call.on_progress = heard
    try:
        with scope:
            call.deadlines.append(scope)
            return await call_next(call)
    except TimeoutError:
        if not scope.expired:
            raise
        server = call.route.upstream
        text = f"{call.exposed!r} made no progress for {idle:g} s (setting: servers.{server}.deadlines.idle)."
        raise DeadlineExceeded(text, server=server) from None
