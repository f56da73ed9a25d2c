"""The lists of one upstream kept up to date: asked for on a new connection, when changes are told of, and kept."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

from mcp_hub.config.models import Server
from mcp_hub.errors import HubError
from mcp_hub.kept import Kept, KeptCatalogs
from mcp_hub.kinds import KINDS, Kind
from mcp_hub.upstream.lists import Lists
from mcp_hub.upstream.session import Session
from mcp_hub.wire.link import LinkError

log = logging.getLogger("mcp_hub.upstream")

SETTLE: Final = 0.1
"""Seconds changes are collected before the lists are asked for again."""


class Listing:
    """`session()` is the shared one, None while it is not there; `changed()` is called when the lists differ."""

    def __init__(
        self,
        server: Server,
        store: KeptCatalogs | None,
        session: Callable[[], Session | None],
        changed: Callable[[], None],
    ) -> None:
        self.server = server
        self.lists = Lists(server)
        self._store = store
        self._session = session
        self._changed = changed
        self._dirty: set[Kind] = set()
        self._refreshing: asyncio.Task[None] | None = None

    def kept(self) -> Kept | None:
        """What an earlier run of the hub has kept; its lists are served from now on."""
        kept = self._store.load(self.server) if self._store is not None else None
        if kept is not None:
            self.lists.adopt({kind: kept.lists.get(kind.name, []) for kind in KINDS})
        return kept

    async def begin(self, session: Session) -> None:
        """List everything on a new connection. Raises what a request raises, after ending the session."""
        try:
            await self._list(session, set(KINDS))
        except BaseException:
            await asyncio.shield(session.close())
            raise

    async def _list(self, session: Session, kinds: set[Kind]) -> None:
        agreed = session.agreement
        ordered = [kind for kind in KINDS if kind in kinds]
        if await self.lists.fetch(session.request, agreed.capabilities, ordered, session.unusable):
            self._changed()
        if self._store is not None and not self.lists.shortfalls:
            lists = {kind.name: self.lists.items.get(kind, []) for kind in KINDS}
            kept = Kept(
                agreed.era,
                agreed.version,
                agreed.capabilities,
                agreed.instructions,
                agreed.server_info,
                lists,
                agreed.only,
            )
            self._store.save(self.server, kept)

    async def now(self, kinds: set[Kind]) -> None:
        """Ask for these lists again at once; nothing where there is no session. Raises what a request raises."""
        session = self._session()
        if session is not None:
            await self._list(session, kinds)

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Take a notification of the shared session."""
        self.refresh({kind for kind in KINDS if kind.changed == method})

    def refresh_all(self) -> None:
        """Anything may have changed."""
        self.refresh(set(KINDS))

    def refresh(self, kinds: set[Kind]) -> None:
        """Ask for these lists again, soon, and once however often this is called until then."""
        self._dirty |= kinds
        if self._dirty and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh_dirty())

    async def _refresh_dirty(self) -> None:
        while self._dirty:
            await asyncio.sleep(SETTLE)
            session, kinds = self._session(), self._dirty
            self._dirty = set()
            if session is None:
                return  # the next connection lists everything
            try:
                await self._list(session, kinds)
            except (HubError, LinkError, TimeoutError) as error:
                log.warning("%s: its lists could not be refreshed: %s", self.server.id, error)
            except Exception:
                log.exception("refreshing the lists of %s failed inside the hub", self.server.id)

    async def close(self) -> None:
        """Nothing is asked for any more."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._refreshing
