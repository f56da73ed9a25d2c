"""The clients that servers may ask something: who is meant, and what servers are told of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Hashable
from typing import Final

from mcp_hub.catalog.known_uris import Unchanged, Uris
from mcp_hub.config.models import Server
from mcp_hub.protocol.asking import Asker, Json
from mcp_hub.protocol.era import Era
from mcp_hub.protocol.extensions import told

CLIENT_WAIT: Final = 1.0
"""Seconds a connection waits for the one client to come and say what it speaks and what it can be asked."""


class Clients:
    """Known by the key their calls carry; `None` is the only one there is, over stdio.

    `expected`: whether there will be such an only one, so that it is worth waiting for. `uris` are those they know,
    `sees(key, server)` is whether anything of a server is there for them.
    """

    def __init__(
        self,
        *,
        expected: bool,
        uris: Uris | None = None,
        sees: Callable[[Hashable | None, str], bool] = lambda key, server: True,
    ) -> None:
        self.expected = expected
        self.uris: Uris = uris or Unchanged()
        self._sees = sees
        self._known: dict[Hashable | None, Asker] = {}
        self._introduced = asyncio.Event()
        self._sole_era: Era | None = None

    def introduce(self, key: Hashable | None, asker: Asker | None, era: Era) -> None:
        """This client is there and has said what it can; None: it has come, and cannot be asked outside of a call."""
        if asker is not None:
            self._known[key] = asker
        if key is None:
            self._sole_era = era
            self._introduced.set()

    def forget(self, key: Hashable | None) -> None:
        """The client is gone."""
        self._known.pop(key, None)

    def hear(self, message: Json, server: str, key: Hashable | None) -> None:
        """Pass a log message of a server to this client outside of any call, if it sees the server."""
        asker = self._known.get(key)
        if asker is not None and self._sees(key, server):
            asker.hear(message)

    def of(self, key: Hashable | None) -> Asker | None:
        """The client of this key, if it can be asked."""
        return self._known.get(key)

    async def offered(self, server: Server) -> Json:
        """What a server is told in the handshake of a session for all: of the only client, else what it may ask."""
        if not self.expected:
            return {} if server.session == "client" else {name: {} for name in server.allow}
        await self._sole_introduced()
        return self._declared(None)

    async def declared(self, server: Server, key: Hashable | None) -> Json:
        """What a server is told in the handshake of a session of this client alone."""
        return await self.offered(server) if key is None else self._declared(key)

    def _declared(self, key: Hashable | None) -> Json:
        asker = self._known.get(key)
        return told(asker.capabilities, "handshake") if asker is not None else {}

    async def spoken(self) -> Era | None:
        """The era of the only client, once it has come; None: it has not, or there may be several."""
        if self.expected:
            await self._sole_introduced()
        return self._sole_era

    async def _sole_introduced(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLIENT_WAIT):
                await self._introduced.wait()
