"""What the hub remembers of those who watch resources."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import AsyncIterator, Hashable

import pytest

from mcp_hub.errors import CallError
from mcp_hub.hub.composition import config_of
from mcp_hub.transport import LinkError
from mcp_hub.upstream.error_messages import ErrorMessages
from mcp_hub.upstream.session import UpstreamSession
from mcp_hub.upstream.subscription_registry import SubscriptionRegistry

pytestmark = pytest.mark.anyio


class Caller:
    """A client with a session of its own."""


@contextlib.asynccontextmanager
async def unreachable(caller: Hashable | None) -> AsyncIterator[UpstreamSession]:
    raise LinkError("the server cannot be reached")
    yield


async def test_a_failed_subscription_and_a_stray_unsubscription_keep_nothing_of_their_caller() -> None:
    (server,) = config_of({"servers": {"up": {"command": "up", "session": "client"}}}).servers
    registry = SubscriptionRegistry(server, ErrorMessages(server), unreachable, lambda: None)
    caller = Caller()
    gone = weakref.ref(caller)
    with pytest.raises(CallError):
        await registry.watch("x:one", caller, caller, print)
    await registry.unwatch("x:two", caller, caller)
    del caller
    gc.collect()
    assert gone() is None
