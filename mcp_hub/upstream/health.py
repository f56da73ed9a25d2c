"""Whether a connection on which nothing is heard still lives, and whether its lists still are what they were."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from mcp_hub.config.rules import Health as Rules
from mcp_hub.errors import ProtocolError
from mcp_hub.protocol import era as eras
from mcp_hub.transport.link import LinkError, LinkLost
from mcp_hub.upstream.session import Session

MISSED: Final = 2
"""Pings in a row without an answer after which a connection counts as dead."""
JITTER: Final = 0.1
"""Share by which the times of many upstreams are spread."""


class Health:
    """Watches one session at a time. `well(False)` is told of the first sign of trouble, `well(True)` when it is over.

    `list_again()` asks for the lists once more where announcements of changes cannot be relied on.
    """

    def __init__(self, well: Callable[[bool], None], list_again: Callable[[], None]) -> None:
        self._well = well
        self._list_again = list_again
        self._tasks: list[asyncio.Task[None]] = []

    def follow(self, session: Session, rules: Rules) -> None:
        """Watch this session from now on, by these rules."""
        self.stop()
        loop = asyncio.get_running_loop()
        if rules.ping is not None and (question := _question(session)) is not None:
            self._tasks.append(loop.create_task(self._ping(session, question, rules.ping)))
        if rules.relist is not None:
            self._tasks.append(loop.create_task(self._relist(session, rules.relist)))

    def stop(self) -> None:
        """Watch nothing any more."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    async def _ping(self, session: Session, question: str, every: float) -> None:
        peer, missed = session.peer, 0
        while not session.lost.is_set():
            heard = peer.heard
            await asyncio.sleep(_spread(every))
            quiet = peer.heard == heard and (peer.owes or not session.busy)
            if not quiet or await _answers(session, question, every):
                if missed:
                    self._well(True)
                missed = 0
                continue
            missed += 1
            self._well(False)
            if missed >= MISSED:
                session.end(LinkLost(f"it did not answer {MISSED} pings in a row, {every:g} s each"))

    async def _relist(self, session: Session, every: float) -> None:
        while not session.lost.is_set():
            await asyncio.sleep(_spread(every))
            if not session.announces_changes:
                self._list_again()


def _question(session: Session) -> str | None:
    """What a server is asked only to hear something. Modern servers over HTTP have no connection that may die."""
    if session.era == "handshake":
        return "ping"
    return eras.DISCOVER if session.transport == "stdio" else None


async def _answers(session: Session, question: str, within: float) -> bool:
    """Whether anything comes back: an error is an answer, and a failed transport tells of itself."""
    try:
        async with asyncio.timeout(within):
            await session.request(question, {})
    except TimeoutError:
        return False
    except (ProtocolError, LinkError):
        pass
    return True


def _spread(seconds: float) -> float:
    return seconds * random.uniform(1 - JITTER, 1 + JITTER)
