"""`mcp-hub check`: connect to every server and print what works, what does not, and what to do."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from typing import Any

from mcp_hub.cli import FAILED, OK, json_text
from mcp_hub.cli.report import connect_all
from mcp_hub.cli.startup import add_config_arguments, load_with_files, run_loop
from mcp_hub.codes import LISTS_INCOMPLETE, LOCAL_TOOLS_BROKEN, REQUIRED_FAILED, with_code
from mcp_hub.config import LoadedConfig
from mcp_hub.config.builtin_servers import refuse_over_network
from mcp_hub.diagnosis.servers import MAX_PROBLEM, FindingRow, ServerReport, examine
from mcp_hub.hub.hub_status import tools_text
from mcp_hub.protocol.kinds import KINDS, TOOLS
from mcp_hub.text import printable
from mcp_hub.upstream.lifecycle import CONNECTED_STATES, UpstreamState

SHOWN_WARNINGS = 10


EXAMPLES = """examples:
  mcp-hub check                            every server of ./servers.yaml
  mcp-hub check --strict --json            for a script: exit 1 on any warning
  mcp-hub check --config ~/.cursor/mcp.json    the file of another client"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub check [--config F] [--strict] [--json]`."""
    add_config_arguments(parser)
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with 1 on any warning, and if any server fails, not only if all fail",
    )
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def run(options: argparse.Namespace) -> int:
    """Returns 1 if no server works, a required one fails, a file of tools is left out, or names conflict and must not.

    With `--strict` one warning, or one server that fails, is enough.

    Raises:
        ConfigError: the file is not valid, or has a `listen` but could not be served over a network.
    """
    loaded = load_with_files(options, quiet=True, advice=True)
    if loaded.config.listen.model_fields_set:
        refuse_over_network(loaded.config)
    return run_loop(_check(loaded, as_json=options.json, strict=options.strict))


async def _check(loaded: LoadedConfig, *, as_json: bool, strict: bool) -> int:
    report = await examine(loaded, connect_all)
    if as_json:
        print(json_text(_as_json(report)))
    else:
        _print_table(report.servers)
        _print_findings(report.items)
        for name in report.unmatched:
            print(f"error: {printable(name.key, 300)}: {with_code(name.text)}")
        if report.failed:
            print(with_code(f"failed: required and not available: {', '.join(report.failed)}", REQUIRED_FAILED))
        if report.working:
            print(_listed_text(report.listed_to))
            print(_rewritten_text(report.rewritten), end="")
        if report.enabled_count:
            plural = "s" if report.enabled_count != 1 else ""
            print(f"{report.working} of {report.enabled_count} server{plural} work{'' if plural else 's'}")
    warned = strict and (loaded.messages or loaded.advice)
    return FAILED if warned or report.is_bad(strict=strict) else OK


def _as_json(report: ServerReport) -> dict[str, Any]:
    return {
        "servers": report.servers,
        "findings": report.items,
        "failed": report.failed,
        "unmatched": [{"key": name.key, "name": name.name, "hint": name.hint} for name in report.unmatched],
        "working": report.working,
        "of": report.enabled_count,
        "left_out": report.left_out,
        "listed_to": report.listed_to,
        "rewritten": report.rewritten,
        "tokens": report.tokens,
    }


def _listed_text(rows: list[dict[str, Any]]) -> str:
    """Returns in one line how many tools clients would be listed, and why."""
    parts = (f"{', '.join(row['clients'])} {row['listed']} of {row['of']} tools ({row['why']})" for row in rows)
    return f"listed to clients: {'; '.join(parts)}"


def _rewritten_text(rows: list[dict[str, Any]]) -> str:
    """Returns in one line for how many tools clients are listed another schema; "" if for none."""
    parts = [f"{' and '.join(row['clients'])} {row['rewritten']} of {row['of']}" for row in rows if row["rewritten"]]
    return f"schemas rewritten for the provider: {'; '.join(parts)}\n" if parts else ""


def _print_findings(findings: list[FindingRow]) -> None:
    """Prints all errors, and the first few warnings of each server."""
    warning_counts: Counter[str] = Counter()
    for finding in findings:
        server, severity = finding["server"], finding["severity"]
        warning_counts[server] += severity == "warning"
        if severity != "warning" or warning_counts[server] <= SHOWN_WARNINGS:
            text = f"{finding['kind']} {finding['name']}: {finding['problem']}"
            print(f"{severity}: {server}: {with_code(text, finding['code'])}")
    for server, count in warning_counts.items():
        if count > SHOWN_WARNINGS:
            print(f"warning: {server}: {count - SHOWN_WARNINGS:,} more; --json has them all")


def _print_table(facts: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    if not facts:
        print("no servers are configured")
        return
    columns = ("state", "protocol", "transport", "tools", "other", "seconds")
    table = Table(Column("server", overflow="fold"), *columns, box=None, pad_edge=False)
    for fact in facts:
        ready = fact["state"] in CONNECTED_STATES
        state_text = "ok" if ready else "disabled" if fact["state"] == UpstreamState.DISABLED else "FAILED"
        style = "green" if ready else "yellow" if state_text == "disabled" else "red"
        other_count = sum(fact[kind.name] for kind in KINDS if kind is not TOOLS)
        table.add_row(
            Text(fact["server"] + (" (required)" if fact["required"] else "")),
            Text(state_text, style=style),
            Text(fact["revision"] or "-"),
            Text(fact["transport"] + ("" if fact["session"] == "shared" else f", session {fact['session']}")),
            Text(tools_text(fact) if ready else "-"),
            Text(str(other_count) if ready else "-"),
            Text(f"{fact['seconds']:.2f}" if ready else "-"),
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    for fact in facts:
        if fact["problem"]:
            print(f"{fact['server']}: {with_code(printable(fact['problem'], MAX_PROBLEM), fact['code'])}")
        for text in fact["incomplete"]:
            code = LOCAL_TOOLS_BROKEN if fact["local"] else LISTS_INCOMPLETE
            print(f"{fact['server']}: {with_code(printable(text, MAX_PROBLEM), code)}")
    for fact in facts:
        if fact["mended"]:
            print(f"{fact['server']}: {fact['mended']:,} items do not fit the specification and were mended")
        if fact["way"] not in (None, "direct"):
            print(f"{fact['server']}: reached {fact['way']}")
        if fact["argv"] is not None:
            print(f"{fact['server']}: runs {shlex.join(fact['argv'])}")
