"""Opening sessions with one server: connected in time, in the era of whom it is for, told whom it may ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from mcp_hub.config.models import Server
from mcp_hub.protocol.asking import COMPLETED, Json
from mcp_hub.protocol.era import Era
from mcp_hub.protocol.kinds import PRESETS
from mcp_hub.protocol.log_levels import MESSAGE
from mcp_hub.security.redaction import LEARNED
from mcp_hub.transport.link import LinkError
from mcp_hub.upstream.agreement import Agreement
from mcp_hub.upstream.causes import Causes
from mcp_hub.upstream.client_sessions import entry_for
from mcp_hub.upstream.clients import Clients
from mcp_hub.upstream.dial import Dialer
from mcp_hub.upstream.session import Notified, Session, Side, open_session
from mcp_hub.upstream.starts import Starts
from mcp_hub.upstream.watches import UPDATED
from mcp_hub.upstream.words import Words

Updated = Callable[[Hashable | None, Json], None]
Changed = Callable[[str, Json], None]
"""Takes every other notification: its method and its params."""


class Opener:
    """`updated(key, params)` hears of changed resources; the key is a caller's where the session is its own.

    `words` takes secrets out of what the server says.
    """

    def __init__(
        self,
        server: Server,
        dialer: Dialer,
        info: dict[str, Any],
        clients: Clients,
        starts: Starts,
        updated: Updated,
        words: Words,
    ) -> None:
        self._server = server
        self._dialer = dialer
        self._info = info
        self._clients = clients
        self._starts = starts
        self._updated = updated
        self._words = words

    async def shared(self, known: Agreement | None, notified: Changed) -> Session:
        """The session of all callers. `known` is what an earlier one agreed on. Raises what `open_session` raises."""
        causes = Causes(self._server, None, self._clients, shared=not self._clients.expected)
        noticed = self._noticed(None, causes, notified)
        offered = partial(self._clients.offered, self._server)
        side = Side(self._info, noticed, causes, offered, self._clients.spoken, self._words.clean)
        return await self._open(self._server, side, known)

    async def own(
        self, known: Agreement | None, caller: Hashable | None, told: Json | None, notified: Changed
    ) -> Session:
        """A session of one caller alone. `told` is what it can be asked; None: what it said when it came."""

        async def offered() -> Json:
            return told if told is not None else await self._clients.declared(self._server, caller)

        async def spoken() -> Era | None:
            return await self._clients.spoken() if caller is None else era_of(caller)

        causes = Causes(self._server, caller, self._clients, shared=False)
        noticed = self._noticed(caller, causes, notified)
        side = Side(self._info, noticed, causes, offered, spoken, self._words.clean)
        return await self._open(entry_for(self._server, caller), side, known)

    def _noticed(self, caller: Hashable | None, causes: Causes, notified: Changed) -> Notified:
        """Takes the notifications of a session."""

        def noticed(method: str, params: Json, cause: object) -> None:
            if method == UPDATED:
                self._updated(caller, params)
            elif method == COMPLETED:
                causes.elicitations.completed(params)
            elif method == MESSAGE:
                causes.heard(self._words.told(params), cause)
            elif method == PRESETS and self._server.tools_dir is not None:
                self._hold(params.get("values"))
            else:
                notified(method, params)

        return noticed

    def _hold(self, values: Any) -> None:
        """The presets of functions in a process of the hub's own: nobody else knows what must not be shown of it."""
        if isinstance(values, list):
            LEARNED.hold(self, (value for value in values if isinstance(value, str)))

    async def _open(self, server: Server, side: Side, known: Agreement | None) -> Session:
        limit = self._server.deadlines.connect
        async with self._starts.place():
            try:
                async with asyncio.timeout(limit):
                    return await open_session(server, self._dialer, side, known)
            except TimeoutError:
                setting = f"servers.{self._server.id}.deadlines.connect"
                raise LinkError(f"it did not answer the handshake within {limit:g} s (setting: {setting})") from None


def era_of(caller: Hashable) -> Era:
    """The era in which a caller with a session of its own speaks: a principal is known in the modern one alone."""
    return "modern" if isinstance(caller, str) else "handshake"
