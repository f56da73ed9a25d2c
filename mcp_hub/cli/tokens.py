"""`mcp-hub tokens`: print what the tools cost in a model's context, and which of them nobody calls."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from mcp_hub.cli import OK, json_text
from mcp_hub.cli.report import connect_all
from mcp_hub.cli.startup import (
    add_config_arguments,
    add_selection_arguments,
    load,
    make_hub,
    read_selection,
    run_loop,
)
from mcp_hub.clients import Client
from mcp_hub.config.models import Config
from mcp_hub.diagnosis.client_lists import clients_with_hub
from mcp_hub.diagnosis.token_costs import CallCounts, count_calls, named_client, token_costs
from mcp_hub.policy.selection import Selection
from mcp_hub.text import printable

Json = dict[str, Any]

SHOWN_TOOLS = 10
SHOWN_UNUSED = 20

EXAMPLES = """examples:
  mcp-hub tokens                    per server and way of exposing, and the tools that cost most
  mcp-hub tokens --client cursor    what is listed to Cursor, and why
  mcp-hub tokens --json             every tool, with its calls"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub tokens [--config F] [--client NAME] [--profile P] [--json]`."""
    add_config_arguments(parser)
    add_selection_arguments(parser)
    parser.add_argument(
        "--client", metavar="NAME", help="the tools as listed to this client, such as cursor or claude-code"
    )
    parser.add_argument("--json", action="store_true", help="the same facts as JSON, with every tool")


def run(options: argparse.Namespace) -> int:
    """Prints the costs. Unavailable servers are named on stderr, and count with their cached tools.

    Raises EditRefused for a client that is not known.
    """
    client = named_client(options.client)  # refuses a wrong name before any server is started
    config = load(options, quiet=True)
    if client is not None:
        options.profile = options.profile or clients_with_hub(config).get(client)
    return run_loop(_costs(config, read_selection(options, config), client, as_json=options.json))


async def _costs(config: Config, selection: Selection, client: Client | None, *, as_json: bool) -> int:
    calls = count_calls(config)
    async with make_hub(config, selection) as hub:
        await connect_all(hub)
        costs = token_costs(hub, calls, client)
        problems = {u.server.id: u.error for u in hub.upstreams.values() if u.error is not None}
    if as_json:
        print(json_text(costs))
    else:
        _print_costs(costs, calls)
    for server, problem in problems.items():
        print(f"{server}: unavailable: {printable(problem, 2000)}", file=sys.stderr)
    return OK


def _print_costs(costs: Json, calls: CallCounts) -> None:
    of_client = costs["client"]
    listed = f"{of_client['tools']:,} of {of_client['of']:,} tools, {of_client['tokens']:,} tokens: {of_client['why']}"
    print(f"{of_client['name'] or 'A client'} is listed {listed}\n")
    _print_rows(
        ("way", "tools", "tokens"),
        [(row["way"], row["tools"], row["tokens"], _break_even(row)) for row in costs["ways"]],
    )
    if costs["groups"]:
        rows = [
            (group["group"], group["tools"], group["tokens"], "active" * group["active"]) for group in costs["groups"]
        ]
        _print_rows(("group", "tools", "tokens"), rows)
    has_calls = calls.sources != []
    servers = costs["servers"]
    unused = [f"{server['never_called']} never called" if server["never_called"] else "" for server in servers]
    rows = [
        (server["server"], server["tools"], server["tokens"], text)
        for server, text in zip(servers, unused, strict=True)
    ]
    _print_rows(("server", "tools", "tokens"), rows)
    tools = costs["tools"]
    calls_of = (lambda tool: tool["calls"]) if has_calls else (lambda tool: "")
    tool_rows = [(tool["tool"], calls_of(tool), tool["tokens"], "") for tool in tools[:SHOWN_TOOLS]]
    _print_rows(("tool", "calls" if has_calls else "", "tokens"), tool_rows)
    if len(tools) > SHOWN_TOOLS:
        print(f"{len(tools) - SHOWN_TOOLS:,} more tools; --json has them all")
    _print_unused([tool for tool in tools if tool["calls"] == 0], calls)


def _break_even(row: Json) -> str:
    if "searches" not in row:
        return ""
    search_cost = f"for the hub's own tools, plus at most {row['each_search']:,} a search"
    if not row["searches"]:
        return f"{search_cost}: the first search may already make it more than all"
    searches = "one search" if row["searches"] == 1 else f"{row['searches']:,} searches"
    return f"{search_cost}: less than all up to {searches} in a conversation"


def _print_rows(head: tuple[str, str, str], rows: list[tuple[Any, ...]]) -> None:
    """Prints a table of names, two numbers, and a remark."""
    if not rows:
        return
    numbers = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row[1:3]] for row in rows]
    width = max(len(head[0]), *(len(printable(row[0])) for row in rows))
    widths = [max(len(head[column + 1]), *(len(row[column]) for row in numbers)) for column in (0, 1)]
    for name, (left, right), remark in [
        (head[0], head[1:], ""),
        *((printable(row[0]), cells, row[3]) for row, cells in zip(rows, numbers, strict=True)),
    ]:
        print(f"{name:<{width}}  {left:>{widths[0]}}  {right:>{widths[1]}}  {remark}".rstrip())
    print()


def _print_unused(unused: list[Json], calls: CallCounts) -> None:
    if not calls.sources:
        text = "No calls are recorded. With 'call_log: {file: calls.jsonl}', or while a hub runs,"
        print(f"{text} this says which tools nobody calls.")
    elif unused:
        tokens = sum(tool["tokens"] for tool in unused)
        names = ", ".join(printable(tool["tool"]) for tool in unused[:SHOWN_UNUSED])
        suffix = f", and {len(unused) - SHOWN_UNUSED:,} more" if len(unused) > SHOWN_UNUSED else ""
        sources = ", ".join(map(printable, calls.sources))
        since = f" since {calls.since}" if calls.since else ""
        print(f"{len(unused):,} tools, {tokens:,} tokens, were never called{since} ({sources}): {names}{suffix}")
