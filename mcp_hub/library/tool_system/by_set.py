"""The third half of ToolManager: tools of every kind as one type, by name and by tool set."""

from __future__ import annotations

import difflib

from mcp_hub.catalog.catalog import Route
from mcp_hub.config.models import Config
from mcp_hub.errors import ConfigError
from mcp_hub.library.hub import Hub
from mcp_hub.library.running import ToolCard
from mcp_hub.library.tool_system.tool_types import BaseTool, Source, tool_of
from mcp_hub.policy.selection import select
from mcp_hub.protocol.kinds import TOOLS


class BySet:
    """The folders and tool sets are those of the configuration."""

    hub: Hub

    def load_tools(self) -> list[BaseTool]:
        """All tools there are, in the order of the configuration; of equal names the first."""
        return [self._tool(card) for card in self.hub.list_sync()]

    async def async_load_tools(self) -> list[BaseTool]:
        """`load_tools` for a coroutine."""
        return [self._tool(card) for card in await self.hub.list()]

    def get_tool(self, name: str) -> BaseTool:
        """By its exposed name, `server/tool`, or its server's name for it where only one has it. Raises ValueError."""
        return self._tool(card_named(name, self.hub.list_sync()))

    async def async_get_tool(self, name: str) -> BaseTool:
        """`get_tool` for a coroutine."""
        return self._tool(card_named(name, await self.hub.list()))

    def get_tool_set(self, name: str) -> list[BaseTool]:
        """The tools of a tool set of the configuration that are there. Raises ValueError for an unknown set."""
        return self._set(name, self.hub.list_sync())

    async def async_get_tool_set(self, name: str) -> list[BaseTool]:
        """`get_tool_set` for a coroutine."""
        return self._set(name, await self.hub.list())

    def _set(self, name: str, cards: list[ToolCard]) -> list[BaseTool]:
        config = self.hub.config
        try:
            selection = select(config, tool_sets=[name])
        except ConfigError as error:
            raise ValueError(str(error)) from None
        servers = {server.id: server for server in config.servers}
        routes = (Route(card.server, TOOLS, card.name) for card in cards)
        chosen = zip(cards, routes, strict=True)
        return [self._tool(card) for card, route in chosen if selection.has(servers[card.server], route, ())]

    def _tool(self, card: ToolCard) -> BaseTool:
        return tool_of(card, source_of(self.hub.config, card))


def card_named(name: str, cards: list[ToolCard]) -> ToolCard:
    """The tool of a name. Raises ValueError, which says what may be meant."""
    for card in cards:
        if name in (card.exposed, f"{card.server}/{card.name}"):
            return card
    same = [card for card in cards if card.name == name]
    if len(same) == 1:
        return same[0]
    if same:
        raise ValueError(f"several servers have a tool '{name}': {', '.join(card.exposed for card in same)}")
    known = [card.exposed for card in cards]
    near = [card.exposed for card in cards if card.name == name]
    near = near or difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ValueError(f"there is no tool '{name}'{hint}")


def source_of(config: Config, card: ToolCard) -> Source:
    """What a tool is made of: its server knows."""
    server = next((server for server in config.servers if server.id == card.server), None)
    if server is None or (server.builtin is None and server.tools_dir is None and server.functions is None):
        return "mcp"
    return "native" if str(server.builtin) == "native" else "builtin"
