"""`mcp-hub status`: show the state of all running hubs and of their servers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from mcp_hub.cli import FAILED, OK, json_text
from mcp_hub.cli.open import hubs_with_files
from mcp_hub.cli.startup import add_config_arguments
from mcp_hub.codes import with_code
from mcp_hub.text import printable

Json = dict[str, Any]

_STYLES = {"ready": "green", "idle": "green", "connecting": "yellow", "disabled": "yellow"}


EXAMPLES = """examples:
  mcp-hub status           all your running hubs
  mcp-hub status --json    the same facts for a program"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub status [--config F] [--json]`."""
    add_config_arguments(parser, "only hubs that serve this file (may be repeated: only hubs that serve all of them)")
    parser.add_argument("--json", action="store_true", help="the same facts as JSON, a list with one object per hub")


def run(options: argparse.Namespace) -> int:
    """Returns 1 if no hub is running."""
    config_paths, hubs = hubs_with_files(options)
    if options.json:
        print(json_text(hubs))
    elif not hubs:
        print("no hub is running" + (f" with {' and '.join(map(printable, config_paths))}" if config_paths else ""))
    else:
        for number, facts in enumerate(hubs):
            print(*[""] * (number > 0), sep="\n", end="\n" if number else "")
            _print_hub(facts)
    return OK if hubs else FAILED


def _print_hub(facts: Json) -> None:
    if "servers" not in facts:
        print(f"hub {facts.get('pid')}: {printable(str(facts.get('problem')))}")
        return
    tools = facts["exposed"]["tools"]
    exposed = f"{tools} tool{'s' * (tools != 1)} exposed"
    print(f"hub {facts['pid']}, version {facts['version']}, up {_span(facts['seconds'])}: {exposed}")
    reload_count = facts["generation"] - 1
    reloads = f", loaded again {reload_count} time{'s' * (reload_count != 1)}" if reload_count > 0 else ""
    files = [facts["config"], *facts.get("overlays", ())]
    print(f"  configuration {', '.join(printable(str(file)) for file in files)}{reloads}")
    print(f"  serving {', '.join(map(printable, facts['serving']))}; {facts['calls']} calls running")
    for row in facts.get("listed_to", ()):
        print(f"  {_listed_text(row)}")
    metrics = facts.get("metrics", {})
    if total := sum(row["count"] for row in metrics.get("calls", ())):
        failed = sum(metrics.get("failures", {}).values())
        print(f"  {total} call{'s' * (total != 1)} ended, {failed} of them failed")
    if refusals := facts.get("refusals"):
        causes = ", ".join(f"{printable(cause)} {count}" for cause, count in refusals.items())
        print(f"  {sum(refusals.values())} requests refused before authentication: {causes}")
    for problem in _problems(facts):
        print(f"  {problem}")
    if facts.get("refused"):
        print("  the file as it is now is NOT in force:")
        for line in str(facts["refused"]).splitlines():
            print(f"    {printable(line, 2000)}")
    _print_table(facts["servers"])
    for server in facts["servers"]:
        if problem := server["problem"]:
            text = printable(problem, 2000)
            print(f"{printable(server['server'])}: {with_code(text, server['code']) if server.get('code') else text}")
        for text in server["incomplete"]:
            print(f"{printable(server['server'])}: {printable(text, 2000)}")
        for line in server["stderr"]:
            print(f"{printable(server['server'])} stderr: {printable(line)}")


def _problems(facts: Json) -> Iterator[str]:
    """Yields what is wrong with the hub itself."""
    if problem := facts.get("reaper", {}).get("problem"):
        yield f"no reaper: {printable(problem)}; processes of servers may outlive a hub that is killed"
    background = facts.get("background", {})
    if restarts := background.get("restarts"):
        last = printable(str(background.get("last_error")))
        yield f"{restarts} background loops failed and were begun again, last {last}; the log has the traceback"
    for name in ("pins_problem", "call_log_problem", "waiting"):
        if problem := facts.get(name):
            yield printable(problem, 2000)
    if untrusted := facts.get("untrusted"):
        yield f"{printable(str(untrusted))} is not used: it is not trusted as it is now (mcp-hub trust)"


def _listed_text(row: Json) -> str:
    """Returns a sentence on how many tools a client was listed, and why."""
    client = "every client" if row["client"] is None else printable(str(row["client"])) or "a client without a name"
    principal = f" ({printable(str(row['principal']))})" if row["principal"] else ""
    return f"{client}{principal} is listed {row['listed']} of {row['of']} tools: {row['why']}"


def _print_table(servers: list[Json]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from mcp_hub.hub.hub_status import tools_text

    table = Table(
        "server", "state", "for", "protocol", "transport", "tools", "calls", "starts", box=None, pad_edge=False
    )
    for server in servers:
        state = server["state"]
        state_text = state if server["next_attempt"] is None else f"{state}, again in {_span(server['next_attempt'])}"
        state_text += "" if server["breaker"] == "closed" else f", breaker {server['breaker']}"
        state_text += "" if server["listed"] else ", not listed"
        table.add_row(
            Text(printable(server["server"])),
            Text(state_text, style=_STYLES.get(state, "red")),
            Text(_span(server["seconds"])),
            Text(server["revision"] or "-"),
            Text(server["transport"] + (f", {server['sessions']} sessions" if server["session"] != "shared" else "")),
            Text(tools_text(server)),
            Text(str(server["calls"])),
            Text(str(server["starts"])),
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"
