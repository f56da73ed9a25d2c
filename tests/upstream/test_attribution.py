"""Which of a caller's calls carries a question of which the server does not say what caused it."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_hub.security import Principal
from mcp_hub.upstream import attribution
from mcp_hub.upstream.attribution import CallAttribution, ClientRegistry
from tests.upstream.test_subscription_registry import SERVER

pytestmark = pytest.mark.anyio


class CallThatCanAsk:
    """A call of a modern client that is open, or parked with a question."""

    def __init__(self, *, parked: bool) -> None:
        self.parked = parked
        self.capabilities: dict[str, Any] = {"roots": {}}
        self.asked: list[str] = []

    async def wait_for_turn(self) -> None:
        pass

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(method)
        return {"roots": []}

    def hear(self, message: dict[str, Any]) -> None:
        pass

    def notify(self, method: str, params: dict[str, Any]) -> None:
        pass


async def test_an_abandoned_call_does_not_get_the_question_of_an_open_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attribution, "CARRIER_WAIT", 0.01)
    session = CallAttribution(SERVER, None, ClientRegistry(expected=False), shared=True)
    abandoned, *running = (CallThatCanAsk(parked=parked) for parked in (True, False, False))
    alice = Principal("alice")
    with session.call(alice, abandoned), session.call(alice, running[0]), session.call(alice, running[1]):
        await session.answer("roots/list", {})
    assert [call.asked for call in (abandoned, *running)] == [[], ["roots/list"], []]
