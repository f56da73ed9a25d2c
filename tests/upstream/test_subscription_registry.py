"""The registry of the clients that subscribe to resources of a server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager

import pytest

from mcp_hub.errors import CallError
from mcp_hub.hub.composition import config_of
from mcp_hub.protocol.frames import Message
from mcp_hub.security.callers import SOLE, Caller
from mcp_hub.transport import Link, LinkError, Receiver
from mcp_hub.transport.peer import Peer
from mcp_hub.upstream import session as sessions
from mcp_hub.upstream.attribution import CallAttribution, ClientRegistry
from mcp_hub.upstream.error_messages import ErrorMessages
from mcp_hub.upstream.session import Agreement, UpstreamSession
from mcp_hub.upstream.subscription_registry import SubscriptionRegistry
from tests.fakes.client import PATIENCE
from tests.fakes.offers import nothing_offered

pytestmark = pytest.mark.anyio

(SERVER,) = config_of({"servers": {"up": {"command": "up"}}}).servers


@contextlib.asynccontextmanager
async def unreachable(caller: Caller | None) -> AsyncIterator[UpstreamSession]:
    raise LinkError("the server cannot be reached")
    yield


async def test_a_failed_subscription_and_a_stray_unsubscription_keep_nothing_of_their_caller() -> None:
    (server,) = config_of({"servers": {"up": {"command": "up", "session": "client"}}}).servers
    registry = SubscriptionRegistry(server, ErrorMessages(server), unreachable, lambda key: None)
    caller = Caller()
    caller_ref = weakref.ref(caller)
    with pytest.raises(CallError):
        await registry.watch("x:one", caller, caller, print)
    await registry.unwatch("x:two", caller, caller)
    del caller
    gc.collect()
    assert caller_ref() is None


class ScriptedLink(Link):
    """A server that subscribes, refuses the URIs in `refused`, and never answers a request of the methods in `mute`."""

    is_local = True

    def __init__(self, refused: tuple[str, ...] = (), mute: tuple[str, ...] = ()) -> None:
        self.asked: list[str] = []
        self._refused, self._mute = refused, mute

    async def open(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        if "id" not in message or message["method"] in self._mute:
            return
        uri = message["params"].get("uri")
        self.asked.append(f"{message['method']} {uri}")
        refusal = {"error": {"code": -32002, "message": "Resource not found"}}
        self._receiver.received(
            {"jsonrpc": "2.0", "id": message["id"], **(refusal if uri in self._refused else {"result": {}})}
        )

    async def close(self) -> None:
        pass


async def session_on(link: ScriptedLink) -> UpstreamSession:
    attribution = CallAttribution(SERVER, None, ClientRegistry(expected=False))
    peer = Peer(link, notified=lambda *_: None, requested=nothing_offered, lost=lambda _: None)
    await link.open(peer)
    capabilities = {"resources": {"subscribe": True}, "logging": {}}
    return UpstreamSession(peer, Agreement("handshake", "2025-11-25", capabilities, None, {}), "stdio", {}, attribution)


def registry_on(session: UpstreamSession) -> SubscriptionRegistry:
    def session_for(caller: Caller | None) -> AbstractAsyncContextManager[UpstreamSession]:
        return contextlib.nullcontext(session)

    return SubscriptionRegistry(SERVER, ErrorMessages(SERVER), session_for, lambda key: session)


async def test_a_watcher_of_a_resource_and_of_its_part_is_told_once_of_a_change() -> None:
    registry, told = registry_on(await session_on(ScriptedLink())), []
    for uri in ("x://a/b", "x://a", "x://a/"):
        await registry.watch(uri, SOLE, "me", lambda params, uri=uri: told.append((uri, params["uri"])))
    await registry.watch("x://a", SOLE, "another", lambda params: told.append(("another", params["uri"])))
    registry.updated(None, {"uri": "x://a/b"})
    assert sorted(told) == [("another", "x://a/b"), ("x://a/b", "x://a/b")]
    told.clear()
    registry.updated(None, {"uri": "x://a"})
    assert sorted(told) == [("another", "x://a"), ("x://a", "x://a")]


async def test_a_change_on_the_session_of_one_caller_is_told_to_this_caller_alone() -> None:
    (server,) = config_of({"servers": {"up": {"command": "up", "session": "client"}}}).servers
    first, second = Caller(), Caller()
    own = {caller: await session_on(ScriptedLink()) for caller in (first, second)}

    def session_for(caller: Caller | None) -> AbstractAsyncContextManager[UpstreamSession]:
        assert caller is not None
        return contextlib.nullcontext(own[caller])

    registry = SubscriptionRegistry(server, ErrorMessages(server), session_for, lambda caller: None)
    told: list[Caller] = []
    for caller in (first, second):
        await registry.watch("x:one", caller, caller, lambda params, caller=caller: told.append(caller))
    registry.updated(second, {"uri": "x:one"})
    assert told == [second]


async def test_a_resource_that_is_refused_on_a_new_session_does_not_end_the_subscriptions_to_others() -> None:
    registry = registry_on(await session_on(ScriptedLink()))
    for uri in ("x:gone", "x:one", "x:two"):
        await registry.watch(uri, SOLE, "me", print)
    link = ScriptedLink(refused=("x:gone",))
    registry.restore(await session_on(link), None)
    async with asyncio.timeout(PATIENCE):
        while len(link.asked) < 3:
            await asyncio.sleep(0)
    assert link.asked == [f"resources/subscribe x:{name}" for name in ("gone", "one", "two")]


async def test_a_server_that_never_answers_an_unsubscription_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SIDE_WAIT", 0.01)
    registry = registry_on(await session_on(ScriptedLink(mute=("resources/unsubscribe",))))
    for uri in ("x:one", "x:two"):
        await registry.watch(uri, SOLE, "me", print)
    async with asyncio.timeout(PATIENCE / 10):
        await registry.forget("me")
        await registry.watch("x:one", SOLE, "another", print)


async def test_a_server_that_never_answers_a_log_level_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SIDE_WAIT", 0.01)
    session = await session_on(ScriptedLink(mute=("logging/setLevel",)))
    async with asyncio.timeout(PATIENCE / 10):
        await session.log_from("debug")


async def test_who_begins_to_watch_while_the_former_server_ends_is_notified_like_the_others() -> None:
    session = await session_on(ScriptedLink())
    former, coming = registry_on(session), registry_on(session)
    notified: list[str] = []
    await former.watch("x:one", SOLE, "early", lambda _: notified.append("early"))
    await coming.watch("x:one", SOLE, "late", lambda _: notified.append("late"))
    await coming.watch("x:two", SOLE, "late", lambda _: notified.append("two"))
    coming.inherit(former)
    for uri in ("x:one", "x:two"):
        coming.updated(None, {"uri": uri})
    assert sorted(notified) == ["early", "late", "two"]
