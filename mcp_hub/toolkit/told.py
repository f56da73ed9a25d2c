"""What a hub is told of a toolkit: its groups, and which tools of its clients' servers may be used."""

from __future__ import annotations

import glob
from collections.abc import Collection, Sequence

from mcp_hub.config.models import Config, Server
from mcp_hub.config.rules import Filter, ToolRules
from mcp_hub.config.rules import ToolGroup as GroupSettings
from mcp_hub.toolkit.registered import RegisteredToolFunction
from mcp_hub.toolkit.tool_groups import ToolGroup

Tools = Sequence[RegisteredToolFunction]


def with_tools(
    config: Config,
    tools: Tools,
    groups: Sequence[ToolGroup],
    before: Collection[str],
    functions: str | None,
    clients: Collection[str],
) -> Config:
    """The configuration with the toolkit's groups in the place of those it had `before`.

    `functions` is the id of the server that has its functions, `clients` are those of its MCP clients.
    """
    settings = tuple(_settings(group, tools, functions) for group in groups)
    others = tuple(group for group in config.groups if group.name not in before)
    servers = tuple(_ruled(server, tools) if server.id in clients else server for server in config.servers)
    return config.model_copy(update={"groups": (*others, *settings), "servers": servers})


def _settings(group: ToolGroup, tools: Tools, functions: str | None) -> GroupSettings:
    members = [tool for tool in tools if tool.group == group.name]
    places = [(functions, tool.name) if tool.remote is None else (tool.mcp_name, tool.remote.name) for tool in members]
    return GroupSettings(
        name=group.name,
        description=group.description,
        notes=group.notes,
        active=group.active,
        tools=tuple(f"{server}/{glob.escape(name)}" for server, name in places if server is not None),
    )


def _ruled(server: Server, tools: Tools) -> Server:
    """What is not registered is not there, presets are preset."""
    rules, names = dict(server.tools), []
    for tool in tools:
        if tool.remote is None or tool.mcp_name != server.id:
            continue
        name = glob.escape(tool.remote.name)
        names.append(name)
        rules[name] = ToolRules(preset=tool.preset_kwargs) if tool.preset_kwargs else ToolRules()
    filters = {**server.filters, "tools": Filter(allow=tuple(names))}
    return server.model_copy(update={"filters": filters, "tools": rules})
