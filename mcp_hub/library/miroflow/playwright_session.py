"""A browser that stays open between calls, as MiroFlow's ToolManager has it."""

from __future__ import annotations

import functools
from typing import Any

from mcp_hub.config.models import Config, Server
from mcp_hub.library import Hub, formats
from mcp_hub.library.server_entries import PLAYWRIGHT, entry_of

Json = dict[str, Any]


class PlaywrightSession:
    """A session with a browser server.

    It connects with the first call, lasts until `close`, and reconnects if it is lost. The first call after `close`
    begins a new one.

    `server_params` are those of a ToolManager's server. With `hub`, the session uses the server `playwright` of that
    hub.
    """

    def __init__(self, server_params: Any, *, hub: Hub | None = None) -> None:
        self.server_params = server_params
        self._owns_hub = hub is None
        self._hub = hub or self._new_hub()
        self._removed_entry: tuple[int, Server] | None = None
        """The index and the server of the hub's entry, while the session is closed."""

    def _new_hub(self) -> Hub:
        hub = Hub()
        entry, literal = entry_of(PLAYWRIGHT, self.server_params)
        hub.add_server_unstarted(PLAYWRIGHT, entry, literal=literal)
        return hub

    async def connect(self) -> None:
        """Connects unless connected. Raises CallError."""
        await self.open()
        (listed,) = await self._hub.listed(PLAYWRIGHT)
        if listed.error is not None:
            raise listed.error

    async def open(self) -> None:
        """Makes the session usable again after `close`, without waiting until it is connected."""
        removed = self._removed_entry
        if removed is not None:  # other calls may do the same meanwhile: none may go on before the server is back
            await self._hub.edit(functools.partial(_with_server_at, *removed))
            if self._removed_entry is removed:
                self._removed_entry = None

    async def call_tool(self, tool_name: str, arguments: Json | None = None) -> str:
        """Calls a tool and returns the texts of its result, also of an error result.

        Raises CallError, UnknownName and UpstreamAnswered.
        """
        await self.open()
        outcome = await self._hub.act(PLAYWRIGHT, tool_name, arguments or {})
        if outcome.error is not None:
            raise outcome.error
        return formats.result_text(outcome.result or {})

    async def close(self) -> None:
        """Ends the session and the server's process, once its running calls have ended. Idempotent."""
        if self._owns_hub:
            former_hub, self._hub = self._hub, self._new_hub()
            await former_hub.aclose()
        elif self._removed_entry is None and not self._hub.closed:
            servers = self._hub.config.servers
            self._removed_entry = next(
                ((index, server) for index, server in enumerate(servers) if server.id == PLAYWRIGHT), None
            )
            if self._removed_entry is not None:
                await self._hub.remove_server(PLAYWRIGHT)


def _with_server_at(index: int, server: Server, config: Config) -> Config:
    servers = [entry for entry in config.servers if entry.id != server.id]
    return config.model_copy(update={"servers": (*servers[:index], server, *servers[index:])})
