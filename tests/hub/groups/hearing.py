"""What a visitor is told outside of its requests, in the way of its era; and the groups most tests are about."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from tests.downstream.network.visitor import Visitor
from tests.fakes.client import ENVELOPE, MODERN, PATIENCE

CHANGED = "notifications/tools/list_changed"
RESET = "reset_equipped_tools"
GROUPS: dict[str, Any] = {
    "sums": {"description": "Adding numbers.", "notes": "Add twice.", "tools": ["a/add", "b__add"]},
    "texts": {"description": "Texts.", "tools": ["a/echo"], "active": True},
    "all_of_b": {"description": "The other server.", "notes": "Be careful.", "servers": ["b"]},
}


def inactive(name: str, group: str) -> str:
    return (
        f"FunctionInactiveError: The function '{name}' is in the inactive group '{group}'. Activate the tool group by "
        "calling 'reset_equipped_tools' first to use this tool."
    )


def code(result: dict[str, Any]) -> str | None:
    error_code: str | None = result.get("_meta", {}).get("mcp-hub/error", {}).get("code")
    return error_code


class Ear:
    """Collects the methods of messages in the order in which they arrive."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self._changed = asyncio.Condition()

    async def take(self, lines: AsyncIterator[str]) -> None:
        async for line in lines:
            if line.startswith("data:") and line[5:].strip():
                async with self._changed:
                    self.methods.append(json.loads(line[5:]).get("method", "response"))
                    self._changed.notify_all()

    async def until(self, count: int, method: str = CHANGED) -> None:
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: self.methods.count(method) >= count)


@contextlib.asynccontextmanager
async def hearing(visitor: Visitor) -> AsyncIterator[Ear]:
    """Opens the stream of a visitor's session, or `subscriptions/listen`, and yields what collects its methods."""
    ear = Ear()
    headers = {"accept": "text/event-stream, application/json", **visitor.session}
    if visitor.era == "modern":
        headers |= {"mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}
        params = {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}
        message = {"jsonrpc": "2.0", "id": "ear", "method": "subscriptions/listen", "params": params}
        stream = visitor.http.stream("POST", "/mcp", json=message, headers=headers)
    else:
        stream = visitor.http.stream("GET", "/mcp", headers=headers)
    async with stream as response:
        assert response.status_code == 200
        take_task = asyncio.create_task(ear.take(response.aiter_lines()))
        try:
            if visitor.era == "modern":
                await ear.until(1, "notifications/subscriptions/acknowledged")
            yield ear
        finally:
            take_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await take_task
