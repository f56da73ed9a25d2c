"""Parked calls whose client comes back too late, or with a state that it was never given."""

from __future__ import annotations

import asyncio

import pytest

from mcp_hub.catalog import Route
from mcp_hub.downstream import parked_calls
from mcp_hub.downstream.parked_calls import MAX_PARKED, ParkedCalls
from mcp_hub.errors import CallCancelled, DeadlineExceeded
from mcp_hub.policy import Call, Json
from mcp_hub.policy.quotas import Backlog, UnreadLimits
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security import Principal, callers
from mcp_hub.security.callers import SOLE, Caller, Callers
from tests.fakes.callers import a_principal
from tests.fakes.client import PATIENCE

pytestmark = pytest.mark.anyio


async def test_no_client_makes_the_hub_forget_that_a_call_of_another_has_expired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parked_calls, "PARKED_SECONDS", 0.01)
    parked = ParkedCalls(asks, lambda _: False, Backlog(UnreadLimits))
    ann, others = a_principal("ann"), [a_principal(str(number)) for number in range(12)]
    state = (await parked.begin(call_of(ann), None))["requestState"]
    for other in others:
        for _ in range(MAX_PARKED):
            await parked.begin(call_of(other), None)
    async with asyncio.timeout(PATIENCE):
        while len(parked):
            await asyncio.sleep(0.01)
    with pytest.raises(DeadlineExceeded):
        await parked.resume(state, call_of(ann), {})
    parked.close()


async def test_a_parked_call_of_another_caller_is_unknown_even_by_its_state() -> None:
    parked, ann = ParkedCalls(asks, lambda _: False, Backlog(UnreadLimits)), a_principal("ann")
    state = (await parked.begin(call_of(ann), None))["requestState"]
    for other in (a_principal("bob"), a_principal("ann", "readers"), Caller(), SOLE):
        with pytest.raises(CallCancelled):
            await parked.resume(state, call_of(other), {})
    assert len(parked) == 1
    parked.close()


async def test_a_principal_whose_call_is_parked_does_not_end_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "MAX_PRINCIPALS", 1)
    parked, known = ParkedCalls(asks, lambda _: False, Backlog(UnreadLimits)), Callers()
    state = await parked.begin(call_of(known.of(Principal("ann"))), None)
    known.of(Principal("bob"))
    answers = {key: {"action": "decline"} for key in state["inputRequests"]}
    retry = call_of(known.of(Principal("ann")))
    assert await parked.resume(state["requestState"], retry, answers) == {"action": "decline"}
    known.of(Principal("carol"))
    assert known.of(Principal("ann")) is not retry.caller
    await parked.begin(call_of(known.of(Principal("ann"))), None)
    parked.close()
    assert not known.of(Principal("ann")).active


@pytest.mark.parametrize("token", ["", ".", "x", "x.y", "x.-1", "x.99999999999999999999", "x.\u0661"])
async def test_a_state_that_the_hub_has_not_made_is_unknown(token: str) -> None:
    parked = ParkedCalls(asks, lambda _: False, Backlog(UnreadLimits))
    with pytest.raises(CallCancelled):
        await parked.resume(f"{parked_calls.PREFIX}{parked.run}:{token}", call_of(a_principal("ann")), {})


def call_of(caller: Caller) -> Call:
    call = Call("tools/call", "a__t", Route("a", TOOLS, "t"), {"name": "t"}, "modern", Envelope())
    call.caller = caller
    return call


async def asks(call: Call) -> Json:
    assert call.asker is not None
    return await call.asker.ask("elicitation/create", {"message": "who?"})
