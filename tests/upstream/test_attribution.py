"""Which of a caller's calls carries a question of which the server does not say what caused it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcp_hub.catalog import Route
from mcp_hub.downstream.parked_calls import ParkedCalls
from mcp_hub.policy import Call, Json
from mcp_hub.policy.quotas import Backlog, UnreadLimits
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.callers import Caller
from mcp_hub.upstream import attribution
from mcp_hub.upstream.attribution import CARRIER_WAIT, CallAttribution, ClientRegistry
from tests.fakes.callers import a_principal
from tests.fakes.client import PATIENCE
from tests.upstream.test_subscription_registry import SERVER

pytestmark = pytest.mark.anyio

ALICE = a_principal("alice")


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
    session = CallAttribution(SERVER, None, ClientRegistry(expected=False))
    abandoned, *running = (CallThatCanAsk(parked=parked) for parked in (True, False, False))
    alice = ALICE
    with session.call(alice, abandoned), session.call(alice, running[0]), session.call(alice, running[1]):
        await session.answer("roots/list", {})
    assert [call.asked for call in (abandoned, *running)] == [[], ["roots/list"], []]


async def test_each_of_several_calls_at_once_carries_a_question_and_none_waits_for_the_others_to_end() -> None:
    session = CallAttribution(SERVER, None, ClientRegistry(expected=False))

    async def asks(call: Call) -> Json:
        with session.call(call.caller, call.asker):
            return await session.answer("elicitation/create", question(call.params["name"]))

    parked = ParkedCalls(asks, lambda _: False, Backlog(UnreadLimits))
    async with asyncio.timeout(CARRIER_WAIT):
        results = await asyncio.gather(*(parked.begin(call_of(name), None) for name in "abc"))
    assert [carried(result) for result in results] == ["up asks: a", "up asks: b", "up asks: c"]
    parked.close()


async def test_a_question_goes_to_another_call_if_the_one_that_carries_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attribution, "CARRIER_WAIT", 0.01)
    session = CallAttribution(SERVER, None, ClientRegistry(expected=False))
    asked = asyncio.Event()

    async def act(call: Call) -> Json:
        with session.call(call.caller, call.asker):
            if call.params["name"] == "ends":
                await asked.wait()
                return {"content": []}
            return await session.answer("elicitation/create", question("late"))

    ending = call_of("ends")
    parked = ParkedCalls(act, lambda _: False, Backlog(UnreadLimits))
    async with asyncio.timeout(PATIENCE):
        first = asyncio.ensure_future(parked.begin(ending, None))
        second = asyncio.ensure_future(parked.begin(call_of("asks"), None))
        assert carried(state := await first) == "up asks: late"
        asked.set()
        while len(session.running) > 1:
            await asyncio.sleep(0)
        assert "content" in await parked.resume(state["requestState"], call_of("ends"), {})
        assert carried(await second) == "up asks: late"
    parked.close()


async def test_a_late_message_of_a_session_that_has_served_several_callers_reaches_none_of_them() -> None:
    heard: list[str] = []

    class Listener(CallThatCanAsk):
        def hear(self, message: dict[str, Any]) -> None:
            heard.append(str(message["data"]))

    clients = ClientRegistry(expected=False)
    session, callers = CallAttribution(SERVER, None, clients), [Caller(), Caller()]
    for number, caller in enumerate(callers):
        clients.introduce(caller, Listener(parked=None), "handshake")
        with session.call(caller, None):
            pass
        session.pass_log({"data": f"after {number + 1}"}, None)
    with session.call(callers[0], None):
        pass
    session.pass_log({"data": "after the first again"}, None)
    assert heard == ["after 1"]


def question(message: str) -> Json:
    return {"message": message, "requestedSchema": {"type": "object", "properties": {}}}


def carried(result: Json) -> str:
    (request,) = result["inputRequests"].values()
    return str(request["params"]["message"])


def call_of(name: str) -> Call:
    envelope = Envelope(capabilities={"elicitation": {"form": {}}})
    return Call("tools/call", name, Route("up", TOOLS, name), {"name": name}, "modern", envelope, ALICE)
