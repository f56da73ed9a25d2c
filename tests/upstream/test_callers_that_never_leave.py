"""What the hub keeps for principals, who never leave, is bounded: the oldest are forgotten."""

from __future__ import annotations

import gc
import weakref

import pytest

from mcp_hub.downstream.parked_calls import UnreachableRespondent
from mcp_hub.security import Principal
from mcp_hub.upstream import attribution, client_sessions
from mcp_hub.upstream.attribution import ClientRegistry
from mcp_hub.upstream.client_sessions import CallerLists
from tests.upstream.test_subscription_registry import SERVER, ScriptedLink, session_on

pytestmark = pytest.mark.anyio


async def test_the_lists_of_principals_whose_sessions_have_ended_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_sessions, "MAX_CALLERS", 2)
    lists, ended = CallerLists(SERVER, lambda: None), []
    open_session = await session_on(ScriptedLink())
    lists.follow(Principal("open"), open_session)
    for number in range(5):
        session = await session_on(ScriptedLink())
        session.lost.set()
        ended.append(weakref.ref(session))
        lists.follow(Principal(str(number)), session)
    del session
    gc.collect()
    assert [reference() is None for reference in ended] == [True, True, True, True, False]
    await lists.close()


async def test_principals_that_could_be_asked_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attribution, "MAX_CLIENTS", 2)
    registry = ClientRegistry(expected=False)
    session, asker = object(), UnreachableRespondent({})
    registry.introduce(session, asker, "handshake")
    for name in ("first", "second", "first", "third"):
        registry.introduce(Principal(name), asker, "modern")
    assert [registry.of(key) is asker for key in (session, "first", "second", "third")] == [True, False, False, True]
