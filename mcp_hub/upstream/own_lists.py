"""What callers with sessions of their own are offered there, and nobody else: servers list by what a client can do."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

from mcp_hub.config.models import Server
from mcp_hub.protocol.kinds import KINDS, Kind
from mcp_hub.upstream.lists import Lists
from mcp_hub.upstream.refreshing import Refreshing
from mcp_hub.upstream.session import Session


class OwnLists:
    """The lists of callers' own sessions with one server. `changed()` is called when one of them has changed."""

    def __init__(self, server: Server, changed: Callable[[], None]) -> None:
        self._server = server
        self._changed = changed
        self._lists: dict[Hashable, Lists] = {}
        self._sessions: dict[Hashable, Session] = {}
        self._refreshing: dict[Hashable, Refreshing] = {}

    def follow(self, caller: Hashable, session: Session) -> None:
        """A session of `caller` is open.

        One that was told of nothing to be asked lists what everybody sees, until it says that something has changed.
        """
        self._sessions[caller] = session
        refreshing = self._refreshing.get(caller)
        if refreshing is None:
            fetch = partial(self._fetch, caller)
            refreshing = Refreshing(self._server.id, partial(self._sessions.get, caller), fetch)
            self._refreshing[caller] = refreshing
        if session.agreement.told or caller in self._lists:
            refreshing.soon(set(KINDS), 0.0)
        session.watch_for_changes(partial(refreshing.soon, set(KINDS)))

    def noticed(self, caller: Hashable, method: str, params: dict[str, Any]) -> None:
        """Take a notification of a caller's session."""
        refreshing = self._refreshing.get(caller)
        if refreshing is not None:
            refreshing.notified(method)

    def forget(self, caller: Hashable) -> None:
        """The caller is gone."""
        self._sessions.pop(caller, None)
        refreshing = self._refreshing.pop(caller, None)
        if refreshing is not None:
            refreshing.cancel()
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

    async def _fetch(self, caller: Hashable, session: Session, kinds: set[Kind]) -> None:
        lists = self._lists.get(caller) or Lists(self._server)
        ordered = [kind for kind in KINDS if kind in kinds]
        if await lists.fetch(session.list_page, session.agreement.capabilities, ordered, session.unusable):
            self._lists[caller] = lists
            self._changed()

    async def close(self) -> None:
        """Nothing is asked for any more."""
        for refreshing in self._refreshing.values():
            await refreshing.close()
