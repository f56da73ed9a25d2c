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
from mcp_hub.config.models import Config
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
    named_client(options.client)  # refuses a wrong name before any server is started
    config = load(options, quiet=True)
    return run_loop(_costs(config, read_selection(options, config), options.client, as_json=options.json))


async def _costs(config: Config, selection: Selection, client: str | None, *, as_json: bool) -> int:
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
        [(way["way"], way["tools"], way["tokens"], _break_even(way)) for way in costs["ways"]],
    )
    if costs["groups"]:
        rows = [(one["group"], one["tools"], one["tokens"], "active" * one["active"]) for one in costs["groups"]]
        _print_rows(("group", "tools", "tokens"), rows)
    known = calls.sources != []
    servers = costs["servers"]
    unused = [f"{one['never_called']} never called" if one["never_called"] else "" for one in servers]
    rows = [(one["server"], one["tools"], one["tokens"], text) for one, text in zip(servers, unused, strict=True)]
    _print_rows(("server", "tools", "tokens"), rows)
    tools = costs["tools"]
    called = (lambda one: one["calls"]) if known else (lambda one: "")
    shown = [(one["tool"], called(one), one["tokens"], "") for one in tools[:SHOWN_TOOLS]]
    _print_rows(("tool", "calls" if known else "", "tokens"), shown)
    if len(tools) > SHOWN_TOOLS:
        print(f"{len(tools) - SHOWN_TOOLS:,} more tools; --json has them all")
    _print_unused([one for one in tools if one["calls"] == 0], calls)


def _break_even(way: Json) -> str:
    if "searches" not in way:
        return ""
    each = f"plus at most {way['each_search']:,} a search"
    if not way["searches"]:
        return f"{each}: the first search may already make it more than all"
    searches = "one search" if way["searches"] == 1 else f"{way['searches']:,} searches"
    return f"{each}: less than all up to {searches} in a conversation"


def _print_rows(head: tuple[str, str, str], rows: list[tuple[Any, ...]]) -> None:
    """Prints a table of names, two numbers, and a remark."""
    if not rows:
        return
    numbers = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row[1:3]] for row in rows]
    width = max(len(head[0]), *(len(printable(row[0])) for row in rows))
    widths = [max(len(head[at + 1]), *(len(row[at]) for row in numbers)) for at in (0, 1)]
    for first, (one, two), more in [
        (head[0], head[1:], ""),
        *((printable(row[0]), cells, row[3]) for row, cells in zip(rows, numbers, strict=True)),
    ]:
        print(f"{first:<{width}}  {one:>{widths[0]}}  {two:>{widths[1]}}  {more}".rstrip())
    print()


def _print_unused(unused: list[Json], calls: CallCounts) -> None:
    if not calls.sources:
        text = "No calls are recorded. With 'call_log: {file: calls.jsonl}', or while a hub runs,"
        print(f"{text} this says which tools nobody calls.")
    elif unused:
        tokens = sum(one["tokens"] for one in unused)
        names = ", ".join(printable(one["tool"]) for one in unused[:SHOWN_UNUSED])
        more = f", and {len(unused) - SHOWN_UNUSED:,} more" if len(unused) > SHOWN_UNUSED else ""
        where = ", ".join(map(printable, calls.sources))
        since = f" since {calls.since}" if calls.since else ""
        print(f"{len(unused):,} tools, {tokens:,} tokens, were never called{since} ({where}): {names}{more}")
