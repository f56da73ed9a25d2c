"""The clients that servers may ask something: who is meant, and what servers are told of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Hashable
from typing import Final

from mcp_hub.asking import Asker, Json, askable
from mcp_hub.config.models import Server

CLIENT_WAIT: Final = 1.0
"""Seconds a handshake with a server waits for the one client to say what it can be asked."""


class Clients:
    """Known by the key their calls carry; `None` is the only one there is, over stdio.

    `expected`: whether there will be such an only one, so that it is worth waiting for.
    """

    def __init__(self, *, expected: bool) -> None:
        self.expected = expected
        self._known: dict[Hashable | None, Asker] = {}
        self._introduced = asyncio.Event()

    def introduce(self, key: Hashable | None, asker: Asker | None) -> None:
        """This client is there and has said what it can; None: it has come, and cannot be asked outside of a call."""
        if asker is not None:
            self._known[key] = asker
        if key is None:
            self._introduced.set()

    def forget(self, key: Hashable | None) -> None:
        """The client is gone."""
        self._known.pop(key, None)

    def hear(self, message: Json, key: Hashable | None, *, own: bool) -> None:
        """A server said something outside of any call: its only client hears it, or all that can."""
        asker = self._known.get(key) if own else None
        for each in [asker] if asker is not None else [] if own else list(self._known.values()):
            each.hear(message)

    def of(self, key: Hashable | None) -> Asker | None:
        """The client of this key, if it can be asked."""
        return self._known.get(key)

    async def capabilities(self, server: Server, key: Hashable | None, *, own: bool) -> Json:
        """What a server is told in a handshake: of its own session's client, of the only one, else what it may ask.

        `own`: whether the session is the client's alone.
        """
        if own and key is not None:
            asker = self._known.get(key)
            return askable(asker.capabilities) if asker is not None else {}
        if not self.expected:
            return {} if server.session == "client" else {name: {} for name in server.allow}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLIENT_WAIT):
                await self._introduced.wait()
        sole = self._known.get(None)
        return askable(sole.capabilities) if sole is not None else {}
