"""Asking again for lists that changed: soon, once for many changes, and once more for those told of meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from mcp_hub.errors import HubError
from mcp_hub.protocol.kinds import KINDS, Kind
from mcp_hub.transport.link import LinkError
from mcp_hub.upstream.session import Session

log = logging.getLogger("mcp_hub.upstream")

SETTLE: Final = 0.1
"""Seconds changes are collected before the lists are asked for again."""


class Refreshing:
    """`fetch(session, kinds)` asks for lists; `session()` is whom to ask, None while nobody is there to be asked.

    What changes while lists are on their way may be missing from them, so they are asked for again.
    """

    def __init__(
        self,
        server: str,
        session: Callable[[], Session | None],
        fetch: Callable[[Session, set[Kind]], Awaitable[None]],
    ) -> None:
        self._server = server
        self._session = session
        self._fetch = fetch
        self._dirty: set[Kind] = set()
        self._task: asyncio.Task[None] | None = None

    def notified(self, method: str) -> None:
        """Take a notification; those of no list are nobody's here."""
        self.soon({kind for kind in KINDS if kind.changed == method})

    def soon(self, kinds: set[Kind], after: float = SETTLE) -> None:
        """Ask for these lists again, in so many seconds, and once however often this is called until then."""
        self._dirty |= kinds
        if self._dirty and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run(after))

    def resume(self) -> None:
        """There is somebody to be asked: go on with what was told of while there was not."""
        self.soon(set())

    def forget(self) -> None:
        """All lists are about to be asked for anyway."""
        self._dirty = set()

    async def _run(self, after: float) -> None:
        while self._dirty:
            await asyncio.sleep(after)
            session = self._session()
            if session is None or not self._dirty:
                return  # what is dirty stays so until `resume`
            kinds, self._dirty, after = self._dirty, set(), SETTLE
            try:
                await self._fetch(session, kinds)
            except (HubError, LinkError, TimeoutError) as error:
                level = logging.DEBUG if session.lost.is_set() else logging.WARNING
                log.log(level, "%s: its lists could not be refreshed: %s", self._server, error)
            except Exception:
                log.exception("refreshing the lists of %s failed inside the hub", self._server)

    def cancel(self) -> None:
        """Nothing is asked for any more."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """The same, and it has ended."""
        self.cancel()
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._task
