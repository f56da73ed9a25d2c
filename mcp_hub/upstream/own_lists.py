"""What callers with sessions of their own are offered there, and nobody else: servers list by what a client can do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from mcp_hub.config.models import Server
from mcp_hub.errors import HubError
from mcp_hub.kinds import KINDS, Kind
from mcp_hub.upstream.lists import Lists
from mcp_hub.upstream.session import Session
from mcp_hub.wire.link import LinkError

log = logging.getLogger("mcp_hub.upstream")

SETTLE = 0.1
"""Seconds changes are collected before a session is asked for its lists again."""


class OwnLists:
    """The lists of callers' own sessions with one server. `changed()` is called when one of them has changed."""

    def __init__(self, server: Server, changed: Callable[[], None]) -> None:
        self._server = server
        self._changed = changed
        self._lists: dict[Hashable, Lists] = {}
        self._sessions: dict[Hashable, Session] = {}
        self._asking: dict[Hashable, asyncio.Task[None]] = {}

    def follow(self, caller: Hashable, session: Session) -> None:
        """A session of `caller` is open. One that was told of nothing to be asked lists what everybody sees."""
        if session.agreement.told:
            self._sessions[caller] = session
            self._ask(caller, 0.0)

    def noticed(self, caller: Hashable, method: str, params: dict[str, Any]) -> None:
        """Take a notification of a caller's session."""
        if caller in self._sessions and any(kind.changed == method for kind in KINDS):
            self._ask(caller, SETTLE)

    def forget(self, caller: Hashable) -> None:
        """The caller is gone."""
        self._sessions.pop(caller, None)
        task = self._asking.pop(caller, None)
        if task is not None:
            task.cancel()
        if self._lists.pop(caller, None) is not None:
            self._changed()

    def of(self, caller: Hashable) -> Lists | None:
        """What a caller is offered on its own session, as far as it is known."""
        return self._lists.get(caller)

    @property
    def all(self) -> Mapping[Hashable, Lists]:
        """The lists by caller."""
        return self._lists

    def tool(self, name: str) -> dict[str, Any] | None:
        """A tool that one of the callers is offered."""
        return next((tool for lists in self._lists.values() if (tool := lists.tool(name)) is not None), None)

    def items(self, kind: Kind) -> list[Any]:
        """Everything any caller is offered."""
        return [item for lists in self._lists.values() for item in lists.items.get(kind, ())]

    def _ask(self, caller: Hashable, delay: float) -> None:
        before = self._asking.get(caller)
        if before is None or before.done():
            self._asking[caller] = asyncio.get_running_loop().create_task(self._fetch(caller, delay))

    async def _fetch(self, caller: Hashable, delay: float) -> None:
        await asyncio.sleep(delay)
        session = self._sessions.get(caller)
        if session is None:
            return
        lists = self._lists.get(caller) or Lists(self._server)
        with contextlib.suppress(LinkError, HubError):
            if await lists.fetch(session.request, session.agreement.capabilities, KINDS, session.unusable):
                self._lists[caller] = lists
                self._changed()

    async def close(self) -> None:
        """Nothing is asked for any more."""
        for task in self._asking.values():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
