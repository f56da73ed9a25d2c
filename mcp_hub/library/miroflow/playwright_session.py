"""`PlaywrightSession`: one lasting session with a browser server."""

from __future__ import annotations

from typing import Any

from mcp_hub.library.agentscope import texts
from mcp_hub.library.hub import Hub

Json = dict[str, Any]


class PlaywrightSession:
    """Connects with the first call and lasts until `close`; a session that is lost is begun anew.

    `server_params` are those of a ToolManager's server. With `hub` it is that hub's server `playwright`.
    """

    def __init__(self, server_params: Any, *, hub: Hub | None = None) -> None:
        from mcp_hub.library.miroflow.by_server import PLAYWRIGHT, entry_of

        self.server_params = server_params
        self._name = PLAYWRIGHT
        self._own = hub is None
        self._hub = hub or Hub()
        if hub is None:
            entry, literal = entry_of(PLAYWRIGHT, server_params)
            self._hub.add_server_unstarted(PLAYWRIGHT, entry, literal=literal)

    async def connect(self) -> None:
        """Connect if it is not connected. Raises CallError."""
        (listed,) = await self._hub.listed(self._name)
        if listed.error is not None:
            raise listed.error

    async def call_tool(self, tool_name: str, arguments: Json | None = None) -> str:
        """The texts of the result, an error's too. Raises CallError, UnknownName, UpstreamAnswered."""
        outcome = await self._hub.act(self._name, tool_name, arguments or {})
        if outcome.error is not None:
            raise outcome.error
        return texts.text(outcome.result or {})

    async def close(self) -> None:
        """End the session and the browser; of a manager's server the manager does. Idempotent."""
        if self._own:
            await self._hub.aclose()
