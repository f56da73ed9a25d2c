"""`mcp-hub tools`: what the hub exposes."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from mcp_hub.cli import OK
from mcp_hub.cli.duplicates import duplicates, lines
from mcp_hub.cli.output import json_text
from mcp_hub.cli.progress import outcomes
from mcp_hub.cli.selecting import add_selection_arguments, chosen
from mcp_hub.cli.startup import add_config_arguments, load_with_files, make_hub, run_loop
from mcp_hub.config import Loaded
from mcp_hub.config.models import Config
from mcp_hub.hub import Hub
from mcp_hub.kinds import TOOLS
from mcp_hub.policy.selection import Selection
from mcp_hub.text import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`mcp-hub tools [--config F] [--json] [--duplicates] [--profile P] [--tool-set S] [--tag T]`."""
    add_config_arguments(parser)
    add_selection_arguments(parser)
    parser.add_argument("--json", action="store_true", help="the whole definitions as JSON")
    parser.add_argument(
        "--duplicates", action="store_true", help="names that were found twice: what is kept, what is not"
    )


def run(options: argparse.Namespace) -> int:
    """List the tools as they are now, of a server that is not there those that were kept; stderr says which."""
    loaded = load_with_files(options, quiet=True)
    selection = chosen(options, loaded.config)
    if options.duplicates:
        return run_loop(_duplicates(loaded, selection, as_json=options.json))
    return run_loop(_tools(loaded.config, selection, as_json=options.json))


async def _duplicates(loaded: Loaded, selection: Selection, *, as_json: bool) -> int:
    async with make_hub(loaded.config, selection) as hub:
        await outcomes(hub)
        rows = duplicates(loaded, hub)
    if as_json:
        print(json_text(rows))
    else:
        for line in lines(rows) or ["no name was found twice"]:
            print(printable(line, 2000))
    return OK


async def _tools(config: Config, selection: Selection, *, as_json: bool) -> int:
    async with make_hub(config, selection) as hub:
        await outcomes(hub)
        entries = [_card(hub, name) for name in hub.catalog.names(TOOLS)]
        problems = {u.server.id: u.error for u in hub.upstreams.values() if u.error is not None}
    tools = [entry for entry in entries if entry is not None]
    if as_json:
        print(json_text(tools))
    else:
        width = max((len(tool["name"]) for tool in tools), default=0)
        for tool in tools:
            print(f"{tool['name']:<{width}}  {_first_line(tool)}".rstrip())
        if not tools:
            print("no tools; `mcp-hub check` says what each server has", file=sys.stderr)
    for server, problem in problems.items():
        print(f"{server}: not there: {printable(problem, 2000)}", file=sys.stderr)
    return OK


def _card(hub: Hub, name: str) -> dict[str, Any] | None:
    """A tool as it is listed, and what it is: `native`, `mcp` or `builtin`."""
    entry, route = hub.catalog.entry(TOOLS, name), hub.catalog.resolve(TOOLS, name)
    if entry is None or route is None:
        return None
    return {**entry, "source": hub.upstreams[route.upstream].server.origin}


def _first_line(tool: dict[str, Any]) -> str:
    text = str(tool.get("description") or tool.get("title") or "").strip()
    return printable(text.splitlines()[0], 100) if text else ""
