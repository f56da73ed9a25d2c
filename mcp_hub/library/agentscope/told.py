"""What a hub is told of a toolkit: its groups, and which tools of its clients' servers may be used."""

from __future__ import annotations

import glob
from collections.abc import Collection, Sequence
from typing import Any, Final

from mcp_hub.config.models import Config, Server
from mcp_hub.config.rules import Filter, ToolRules
from mcp_hub.config.rules import ToolGroup as GroupSettings
from mcp_hub.library.agentscope.clients import MCPToolFunction
from mcp_hub.library.agentscope.registered import RegisteredToolFunction, Served
from mcp_hub.library.agentscope.tool_groups import ToolGroup
from mcp_hub.library.hub import Hub
from mcp_hub.schema.arguments import written
from mcp_hub.schema.titles import without_titles

_ADDED: Final = frozenset({"properties", "required", "$defs"})
"""What of a model's schema is added to a tool's."""

Tools = Sequence[RegisteredToolFunction]


def with_tools(
    config: Config,
    tools: Tools,
    groups: Sequence[ToolGroup],
    before: Collection[str],
    hub: Hub,
    clients: Collection[str],
) -> Config:
    """The configuration with the toolkit's groups in the place of those it had `before`.

    `hub` has its functions, `clients` are those of its MCP clients that are there too.
    """
    settings = tuple(_settings(group, tools, hub.functions) for group in groups)
    others = tuple(group for group in config.groups if group.name not in before)
    servers = tuple(_ruled(server, tools, hub) if server.id in clients else server for server in config.servers)
    return config.model_copy(update={"groups": (*others, *settings), "servers": servers})


def with_own_names(config: Config, clients: Collection[str]) -> Config:
    """The configuration with the tools of these servers under the names the toolkit has for them."""
    servers = [s.model_copy(update={"namespace": ""}) if s.id in clients else s for s in config.servers]
    return config.model_copy(update={"servers": tuple(servers)})


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


def _ruled(server: Server, tools: Tools, hub: Hub) -> Server:
    """What is not registered is not there; what is looks as it was registered, with its presets.

    A server has each tool once: of several registrations of one, clients are served the first.
    """
    rules, names = dict(server.tools), list[str]()
    for tool in tools:
        if tool.remote is None or tool.mcp_name != server.id or glob.escape(tool.remote.name) in names:
            continue
        name = glob.escape(tool.remote.name)
        names.append(name)
        rules[name] = _rules_of(tool, tool.remote, hub)
    filters = {**server.filters, "tools": Filter(allow=tuple(names))}
    return server.model_copy(update={"filters": filters, "tools": rules})


def _rules_of(tool: RegisteredToolFunction, remote: MCPToolFunction, hub: Hub) -> ToolRules:
    said: dict[str, Any] = {}
    if tool.name != remote.name:
        said["name"] = tool.name
    if tool.json_schema["function"].get("description", "") != (remote.description or ""):
        said["description"] = tool.json_schema["function"].get("description", "")
    if tool.preset_kwargs:
        said["preset"] = {written(name): value for name, value in tool.preset_kwargs.items()}
    if tool.extended_model is not None:
        schema = tool.extended_model.model_json_schema(by_alias=True)
        said["extend_schema"] = {key: one for key, one in without_titles(schema).items() if key in _ADDED}
    if tool.by_hand:
        said["input_schema"] = tool.extended_json_schema["function"]["parameters"]
    if tool.postprocess_func is not None or tool.extended_model is not None:
        said["in_program"] = Served(tool, hub.process)
    return ToolRules(**said)
