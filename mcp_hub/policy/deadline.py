"""The total time of one call: waiting for the connection, the call itself, everything."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from mcp_hub.catalog import Item
from mcp_hub.errors import DeadlineExceeded
from mcp_hub.policy import Call, Json, Next


class Deadline:
    """Ends a call after `seconds[upstream]`; the upstream is told to cancel and its session stays usable."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = seconds

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Nothing changes in a list."""
        return items

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Raises DeadlineExceeded, naming the limit and its setting."""
        server = call.route.upstream
        limit = self._seconds[server]
        scope = asyncio.timeout(limit)
        try:
            async with scope:
                return await call_next(call)
        except TimeoutError:
            if not scope.expired():
                raise
            text = f"{call.exposed!r} did not answer within {limit:g} s (setting: servers.{server}.deadlines.call)."
            raise DeadlineExceeded(text, server=server) from None
