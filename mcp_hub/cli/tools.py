"""`mcp-hub tools`: list the tools that the hub exposes, or duplicate names."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from mcp_hub import codes
from mcp_hub.catalog import CatalogEntry, Route
from mcp_hub.cli import OK, json_text
from mcp_hub.cli.report import SHOWN_NAMES, connect_all
from mcp_hub.cli.startup import (
    add_config_arguments,
    add_group_argument,
    add_selection_arguments,
    load_with_files,
    make_hub,
    read_selection,
    run_loop,
)
from mcp_hub.clients import Client
from mcp_hub.config import LoadedConfig
from mcp_hub.config.models import Config
from mcp_hub.config.root_rules import BASIC
from mcp_hub.diagnosis.client_lists import clients_with_hub
from mcp_hub.diagnosis.token_costs import named_client
from mcp_hub.errors import ConfigError
from mcp_hub.hub import Engine
from mcp_hub.hub.exposure import listing_of, rows_of
from mcp_hub.library import formats
from mcp_hub.library.formats import FORMATS, Format
from mcp_hub.policy.access import located
from mcp_hub.policy.selection import Selection
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.callers import SOLE
from mcp_hub.text import json_escaped, printable

EXAMPLES = """examples:
  mcp-hub tools                  a line for each tool
  mcp-hub tools --json           whole definitions
  mcp-hub tools --profile guest  what the profile `guest` sees
  mcp-hub tools --client cursor  what Cursor is listed"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub tools`.

    `mcp-hub tools [--config F] [--json | --by-server | --format FORMAT] [--profile P] [--tool-set S] [--tag T]
    [--group G] [--client C]`, or `mcp-hub tools --duplicates [--json]`.
    """
    add_config_arguments(parser)
    add_selection_arguments(parser)
    add_group_argument(
        parser, f"only the tools of this group, on or off; `{BASIC}` for those of none (may be repeated)"
    )
    parser.add_argument("--client", metavar="NAME", help="only what this client is listed, such as cursor")
    parser.add_argument(
        "--duplicates", action="store_true", help="list names that were found twice, and which of the two a name means"
    )
    parser.add_argument(
        "--by-server",
        action="store_true",
        help="servers as JSON, each with the name, description and schema of its tools, or the error of one that fails",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="the whole definitions as JSON, like --format json")
    text = "definitions for OpenAI's or Anthropic's interface, a prompt for a model without either, or all as JSON"
    output.add_argument("--format", choices=FORMATS, help=text)


def run(options: argparse.Namespace) -> int:
    """Lists the current tools. Unavailable servers are named on stderr; their cached tools are listed.

    Raises ConfigError for an unknown group, EditRefused for an unknown client.
    """
    client = named_client(options.client)
    loaded = load_with_files(options, quiet=True)
    config = loaded.config
    if client is not None:
        served = clients_with_hub(config)
        options.profile = options.profile or served.get(client)
        if client not in served:
            text = "does not start the hub with this configuration; this is what it would be listed"
            print(f"note: {client.name} {text}", file=sys.stderr)
    if options.duplicates:
        return run_loop(
            _list_duplicates(loaded, read_selection(options, config), as_json=options.json or options.format == "json")
        )
    group_names = [group.name for group in config.groups]
    for name in options.group:
        if name not in (BASIC, *group_names):
            text = f"there is no group {name!r}; there are: {', '.join((BASIC, *group_names))} (setting: groups)"
            raise ConfigError(text, codes.NAME_UNKNOWN)
    if options.by_server:
        return run_loop(_list_by_server(config, read_selection(options, config), options.group))
    format: Format | None = "json" if options.json else options.format
    return run_loop(_tools(config, read_selection(options, config), options.group, format, client))


async def _list_duplicates(loaded: LoadedConfig, selection: Selection, *, as_json: bool) -> int:
    async with make_hub(loaded.config, selection) as hub:
        await connect_all(hub)
        rows = list(_find_duplicates(loaded, hub))
    if as_json:
        print(json_text(rows))
    else:
        for line in _lines_of(rows) or ["no name was found twice"]:
            print(printable(line, 2000))
    return OK


async def _tools(
    config: Config, selection: Selection, groups: list[str], format: Format | None, client: Client | None
) -> int:
    async with make_hub(config, selection) as hub:
        await connect_all(hub)
        catalogs = hub.catalogs
        catalog = hub.catalog if groups else catalogs.of(SOLE)
        whole_count = catalogs.of(SOLE).server_tools
        rows = await rows_of(catalogs, clients_with_hub(config) if client is None else {client: None})
        if client is not None:
            catalog, _ = listing_of(catalogs, client)
        catalog = await catalogs.client_schemas.listed(catalog, client)
        tools = [
            _card(hub, entry) for entry in catalog.entries(TOOLS) if not groups or _is_in(hub, entry.route, groups)
        ]
        listed_groups = list(hub.groups) if config.groups else []
        hidden = _hidden(hub)
        problems = {u.server.id: u.error for u in hub.upstreams.values() if u.error is not None}
    if format is not None:
        print(_format_tools(tools, format))
    else:
        width = max((len(tool["name"]) for tool in tools), default=0)
        line_width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPED_WIDTH
        room = max(line_width - width - 2, LEAST_DESCRIPTION)
        for tool in tools:
            print(f"{tool['name']:<{width}}  {_first_line(tool, room)}".rstrip())
        if not tools:
            print("no tools; `mcp-hub check` says what each server has", file=sys.stderr)
    for group in listed_groups if not groups and format is None else ():
        state = "active" if group.active else "inactive"
        text = f"group {group.name} ({state}; `--group {group.name}` lists it)"
        print(printable(f"{text}  {group.description}".rstrip(), 200))
    for row in rows:
        if row["short"] or row["of"] != whole_count:  # what is printed is not what these clients see, or is not all
            names = ", ".join(row["clients"])
            print(f"{names}: listed {row['listed']} of {row['of']} tools: {row['why']}", file=sys.stderr)
    for rule, hidden_names in hidden.items():
        more = f" and {len(hidden_names) - SHOWN_NAMES} more" if len(hidden_names) > SHOWN_NAMES else ""
        text = f"hidden: {located(rule, config)}: {', '.join(hidden_names[:SHOWN_NAMES])}{more}"
        print(printable(text, 2000), file=sys.stderr)
    for server, problem in problems.items():
        print(f"{server}: unavailable: {printable(problem, 2000)}", file=sys.stderr)
    return OK


def _hidden(hub: Engine) -> dict[str, list[str]]:
    """Returns the tools that no client is listed because of a rule, as `server/tool`, by the rule."""
    hidden: dict[str, list[str]] = {}
    for id, upstream in hub.upstreams.items():
        for name in upstream.lists.tools:
            if (rule := hub.rules.why(Route(id, TOOLS, name))) is not None:
                hidden.setdefault(rule, []).append(f"{id}/{name}")
    return hidden


async def _list_by_server(config: Config, selection: Selection, groups: list[str]) -> int:
    async with make_hub(config, selection) as hub:
        await connect_all(hub)
        catalog = hub.catalog if groups else hub.catalogs.of(SOLE)
        tools: dict[str, list[dict[str, Any]]] = {u.server.id: [] for u in hub.upstreams.values() if u.server.enabled}
        for entry in catalog.entries(TOOLS):
            if entry.route.upstream in tools and (not groups or _is_in(hub, entry.route, groups)):
                card = {"name": entry.route.name, "description": entry.wire.get("description") or ""}
                tools[entry.route.upstream].append({**card, "schema": entry.wire.get("inputSchema")})
        for upstream in hub.upstreams.values():
            if upstream.error is not None and upstream.server.enabled:
                tools[upstream.server.id] = [{"error": f"Unable to fetch tools: {printable(upstream.error, 2000)}"}]
    print(json_text([{"name": name, "tools": entries} for name, entries in tools.items()]))
    return OK


def _card(hub: Engine, entry: CatalogEntry) -> dict[str, Any]:
    """Returns the definition of a tool with its `source`: `native`, `mcp` or `builtin`."""
    upstream = hub.upstreams.get(entry.route.upstream)
    return {**entry.wire, "source": upstream.server.origin if upstream is not None else "builtin"}


def _is_in(hub: Engine, route: Route, groups: list[str]) -> bool:
    return not set(groups).isdisjoint(hub.groups.of(route) or (BASIC,))


def _format_tools(tools: list[dict[str, Any]], format: Format) -> str:
    if format == "prompt":
        return json_escaped(formats.prompt(tools), keep="\n")
    converters = {"openai": formats.openai_tools, "anthropic": formats.anthropic_tools}
    return json_text(converters[format](tools) if format in converters else tools)


LEAST_DESCRIPTION: Final = 20
PIPED_WIDTH: Final = 160
"""The width of a line, in characters, if stdout is not a terminal."""


def _first_line(tool: dict[str, Any], room: int) -> str:
    text = str(tool.get("description") or tool.get("title") or "").strip()
    return printable(text.splitlines()[0], room) if text else ""


_Row = dict[str, str]
"""`{"what", "name", "kept", "dropped"}`: a kind such as `tool` or `server`, its name, and where the two are defined.

A tool that has the name at its server, but another exposed name, is not dropped: `reference` is the exposed name.
"""


def _find_duplicates(loaded: LoadedConfig, hub: Engine) -> Iterator[_Row]:
    """Yields the duplicate names in folders, in files of local tools, and in the merged lists."""
    for found in loaded.duplicates:
        yield {"what": found.what, "name": found.name, "kept": found.kept, "dropped": found.dropped}
    for upstream in hub.upstreams.values():
        for duplicate in upstream.lists.duplicates:
            yield {"what": "tool", **duplicate}
    for finding in hub.catalog.findings:
        if finding.kept is not None:
            kept = f"server {finding.kept.upstream}"
            yield {"what": finding.kind, "name": finding.name, "kept": kept, "dropped": f"server {finding.upstream}"}
    first: dict[str, str] = {}
    for entry in hub.catalog.entries(TOOLS):
        name, server = entry.route.name, entry.route.upstream
        if first.setdefault(name, server) != server:
            yield {"what": "tool", "name": name, "kept": f"server {first[name]}", "reference": entry.exposed}


def _lines_of(rows: Sequence[_Row]) -> list[str]:
    """Returns a line for each duplicate."""
    return [
        f"{row['what']} {row['name']}: kept {row['kept']}; "
        + (f"dropped {row['dropped']}" if "dropped" in row else f"the other one is {row['reference']}")
        for row in rows
    ]
