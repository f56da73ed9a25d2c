"""What the hub keeps for principals, who never leave, is bounded: the oldest are forgotten."""

from __future__ import annotations

import gc
import weakref

import pytest

from mcp_hub.downstream.parked_calls import UnreachableRespondent
from mcp_hub.security import Principal, callers
from mcp_hub.security.callers import Caller, Callers
from mcp_hub.upstream import client_sessions
from mcp_hub.upstream.attribution import ClientRegistry
from mcp_hub.upstream.client_sessions import CallerLists
from tests.fakes.callers import a_principal
from tests.upstream.test_subscription_registry import SERVER, ScriptedLink, session_on

pytestmark = pytest.mark.anyio


async def test_the_lists_of_principals_whose_sessions_have_ended_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_sessions, "MAX_CALLERS", 2)
    lists, ended = CallerLists(SERVER, lambda: None), []
    open_session = await session_on(ScriptedLink())
    lists.follow(a_principal("open"), open_session)
    for number in range(5):
        session = await session_on(ScriptedLink())
        session.lost.set()
        ended.append(weakref.ref(session))
        lists.follow(a_principal(str(number)), session)
    del session
    gc.collect()
    assert [reference() is None for reference in ended] == [True, True, True, True, False]
    await lists.close()


async def test_principals_that_could_be_asked_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "MAX_PRINCIPALS", 2)
    registry, known = ClientRegistry(expected=False), Callers()
    session, asker = Caller(), UnreachableRespondent({})
    registry.introduce(session, asker, "handshake")
    names = ("first", "second", "first", "third", "first")  # "third" comes in place of "second"
    seen = [known.of(Principal(name)) for name in names]
    for caller in seen:
        registry.introduce(caller, asker, "modern")
    assert [registry.of(caller) is asker for caller in (session, *seen)] == [True, True, False, True, True, True]


async def test_a_session_of_a_caller_declares_what_this_caller_can_be_asked() -> None:
    registry, first, second = ClientRegistry(expected=False), Caller(), Caller()
    registry.introduce(first, UnreachableRespondent({"roots": {}}), "handshake")
    registry.introduce(second, UnreachableRespondent({"sampling": {}}), "handshake")
    assert [set(await registry.own_capabilities(SERVER, caller)) for caller in (first, second)] == [
        {"roots"}, {"sampling"}
    ]  # fmt: skip
