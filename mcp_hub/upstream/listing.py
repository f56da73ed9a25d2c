"""The lists of one upstream kept up to date: asked for on a new connection, when changes are told of, and kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from mcp_hub.config.models import Server
from mcp_hub.observability.stalls import in_thread
from mcp_hub.protocol.frames import weighs_more
from mcp_hub.protocol.kinds import KINDS, Kind
from mcp_hub.upstream.kept import Kept, KeptCatalogs
from mcp_hub.upstream.lists import Lists
from mcp_hub.upstream.refreshing import Refreshing
from mcp_hub.upstream.session import Session

log = logging.getLogger("mcp_hub.upstream")

SMALL: Final = 128 * 1024
"""Weight of the lists that are written, and bytes that are read, while the loop waits: about a millisecond."""


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
        self._refreshing = Refreshing(server.id, session, self._list)
        self._noted: tuple[str, ...] = ()
        """What was said last of what hubs behind the server have left out."""

    @property
    def keeps_much(self) -> bool:
        """Whether what an earlier run of the hub has kept takes long to be read."""
        return self._store is not None and self._store.size(self.server) > SMALL

    def kept(self) -> Kept | None:
        """What an earlier run of the hub has kept; its lists are served from now on."""
        return self._adopted(self._store.load(self.server) if self._store is not None else None)

    async def kept_much(self) -> Kept | None:
        """The same, read in a thread."""
        return self._adopted(await in_thread(self._store.load, self.server) if self._store is not None else None)

    def _adopted(self, kept: Kept | None) -> Kept | None:
        if kept is not None:
            self.lists.adopt({kind: kept.lists.get(kind.name, []) for kind in KINDS})
        return kept

    async def begin(self, session: Session) -> None:
        """List everything on a new connection. Raises what a request raises, after ending the session.

        What changes meanwhile is asked for again with `resume`, once the session is there for everybody.
        """
        self._refreshing.forget()
        try:
            await self._list(session, set(KINDS))
        except BaseException:
            await asyncio.shield(session.close())
            raise

    async def _list(self, session: Session, kinds: set[Kind]) -> None:
        agreed = session.agreement
        ordered = [kind for kind in KINDS if kind in kinds]
        behind = session.behind
        if await self.lists.fetch(session.list_page, agreed.capabilities, ordered, session.unusable) or (
            behind != session.behind
        ):
            self._changed()
        before, self._noted = self._noted, session.behind.notes
        for note in self._noted:
            if note not in before:
                log.warning("%s: %s", self.server.id, note)
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
            if weighs_more(lists, SMALL):
                await in_thread(self._store.save, self.server, kept)
            else:
                self._store.save(self.server, kept)

    def drop(self) -> None:
        """List nothing, now and at the next start."""
        self.lists.adopt({kind: [] for kind in KINDS})
        if self._store is not None:
            self._store.forget(self.server)

    async def now(self, kinds: set[Kind]) -> None:
        """Ask for these lists again at once; nothing where there is no session. Raises what a request raises."""
        session = self._session()
        if session is not None:
            await self._list(session, kinds)

    def resume(self) -> None:
        """`session()` is there now."""
        self._refreshing.resume()

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Take a notification of the shared session."""
        self._refreshing.notified(method)

    def refresh_all(self) -> None:
        """Anything may have changed."""
        self._refreshing.soon(set(KINDS))

    async def close(self) -> None:
        """Nothing is asked for any more."""
        await self._refreshing.close()
