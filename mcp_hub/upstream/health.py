"""Whether a connection on which nothing is heard still lives, and whether its lists still are what they were."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from mcp_hub import era as eras
from mcp_hub.config.rules import Health as Rules
from mcp_hub.errors import ProtocolError
from mcp_hub.upstream.session import Session
from mcp_hub.wire.link import LinkError, LinkLost

MISSED: Final = 2
"""Pings in a row without an answer after which a connection counts as dead."""
JITTER: Final = 0.1
"""Share by which the times of many upstreams are spread."""


class Health:
    """Watches one session. `well(False)` is told of the first sign of trouble, `well(True)` when it has passed.

    `list_again()` asks for the lists once more where announcements of changes cannot be relied on.
    """

    def __init__(
        self, rules: Rules, session: Session, well: Callable[[bool], None], list_again: Callable[[], None]
    ) -> None:
        self._rules = rules
        self._session = session
        self._well = well
        self._list_again = list_again

    async def watch(self) -> None:
        """Run until cancelled, or until the session is found dead."""
        async with asyncio.TaskGroup() as group:
            if self._rules.ping is not None and self._question is not None:
                group.create_task(self._ping(self._rules.ping))
            if self._rules.relist is not None:
                group.create_task(self._relist(self._rules.relist))

    @property
    def _question(self) -> str | None:
        """What a server is asked only to hear something. Modern servers over HTTP have no connection that may die."""
        if self._session.era == "handshake":
            return "ping"
        return eras.DISCOVER if self._session.transport == "stdio" else None

    async def _ping(self, every: float) -> None:
        peer, missed = self._session.peer, 0
        while not self._session.lost.is_set():
            heard = peer.heard
            await asyncio.sleep(_spread(every))
            if (self._session.busy and not peer.owes) or peer.heard != heard or await self._answers(every):
                if missed:
                    self._well(True)
                missed = 0
                continue
            missed += 1
            self._well(False)
            if missed >= MISSED:
                self._session.end(LinkLost(f"it did not answer {MISSED} pings in a row, {every:g} s each"))

    async def _answers(self, within: float) -> bool:
        """Whether anything comes back: an error is an answer, and a failed transport tells of itself."""
        try:
            async with asyncio.timeout(within):
                await self._session.request(self._question or "ping", {})
        except TimeoutError:
            return False
        except (ProtocolError, LinkError):
            pass
        return True

    async def _relist(self, every: float) -> None:
        while not self._session.lost.is_set():
            await asyncio.sleep(_spread(every))
            if not self._session.announces_changes:
                self._list_again()


def _spread(seconds: float) -> float:
    return seconds * random.uniform(1 - JITTER, 1 + JITTER)
