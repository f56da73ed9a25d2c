"""`mcp-hub check`: connect to every server and print what works, what does not, and what to do."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from typing import Any

from mcp_hub.cli import FAILED, OK, json_text
from mcp_hub.cli.report import connect_all, trust_findings
from mcp_hub.cli.startup import add_config_arguments, load_with_files, run_loop
from mcp_hub.config import LoadedConfig
from mcp_hub.config.builtin_servers import refuse_over_network
from mcp_hub.config.commands import CommandNotFound
from mcp_hub.config.models import Config
from mcp_hub.config.secret_values import secrets_of
from mcp_hub.hub import Engine
from mcp_hub.protocol.kinds import KINDS, TOOLS
from mcp_hub.security.redaction import MASK, Redactor, is_secret_key
from mcp_hub.text import printable
from mcp_hub.upstream import Upstream
from mcp_hub.upstream.lifecycle import CONNECTED_STATES, UpstreamState

SHOWN_WARNINGS = 10
MAX_WORD = 4000
"""Characters of one word of a command line."""


EXAMPLES = """examples:
  mcp-hub check                            every server of ./servers.yaml
  mcp-hub check --strict --json            for a script: exit 1 if any server fails
  mcp-hub check --config ~/.cursor/mcp.json    the file of another client"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `mcp-hub check [--config F] [--strict] [--json]`."""
    parser.epilog = f"{EXAMPLES}\n\n{parser.epilog}"
    add_config_arguments(parser)
    parser.add_argument("--strict", action="store_true", help="exit with 1 if any server fails, not only if all do")
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")


def run(options: argparse.Namespace) -> int:
    """Returns 1 if no server works, a required one fails, a file of tools is left out, or names must not conflict.

    With `--strict` one server that fails is enough.

    Raises:
        ConfigError: the file is not valid, or has a `listen` but could not be served over a network.
    """
    loaded = load_with_files(options, quiet=True, advice=True)
    if loaded.config.listen.model_fields_set:
        refuse_over_network(loaded.config)
    return run_loop(_check(loaded, as_json=options.json, strict=options.strict))


async def _check(loaded: LoadedConfig, *, as_json: bool, strict: bool) -> int:
    config = loaded.config
    async with Engine(config) as hub:
        await connect_all(hub)
        redaction = Redactor(secrets_of(config))
        facts = [_facts(hub, upstream, redaction) for upstream in hub.upstreams.values()]
        findings = trust_findings(hub) + [
            {
                "server": f.upstream,
                "kind": f.kind,
                "name": printable(f.name),
                "problem": printable(f.problem),
                "severity": f.severity,
            }
            for f in hub.catalog.findings
        ]
        strangers = _strangers(config, hub)
        forbidden = any(finding.severity == "error" for finding in hub.catalog.findings)
        broken = bool(loaded.left_out) or any(
            fact["incomplete"] for fact in facts if hub.upstreams[fact["server"]].server.tools_dir is not None
        )
    failed = [fact["server"] for fact in facts if fact["required"] and fact["problem"] is not None]
    meant = [fact for fact in facts if fact["state"] != UpstreamState.DISABLED or fact["problem"] is not None]
    working = sum(fact["state"] in CONNECTED_STATES for fact in meant)
    none = bool(meant) and not working
    if as_json:
        said = {"servers": facts, "findings": findings, "failed": failed, "strangers": strangers}
        print(
            json_text(
                {
                    **said,
                    "working": working,
                    "of": len(meant),
                    "left_out": [printable(line, 2000) for line in loaded.left_out],
                }
            )
        )
    else:
        _print_table(facts)
        _print_findings(findings)
        for where, members in strangers.items():
            print(f"error: {where}: no server has {', '.join(printable(member) for member in members)}")
        if failed:
            print(f"failed: required and not available: {', '.join(failed)}")
        if meant:
            print(f"{working} of {len(meant)} server{'s' if len(meant) != 1 else ''} work{'s' * (len(meant) == 1)}")
    incomplete = none or (strict and working < len(meant))
    return FAILED if failed or forbidden or strangers or broken or incomplete else OK


def _strangers(config: Config, hub: Engine) -> dict[str, tuple[str, ...]]:
    """Returns place in the file -> members of a set, profile or group that no server lists."""
    named = {f"tool_sets.{one.name}": one.tools for one in config.tool_sets}
    named |= {f"profiles.{one.name}": one.tools for one in config.profiles}
    named |= {f"groups.{one.name}": one.tools for one in config.groups}
    return {where: found for where, members in named.items() if (found := hub.generation.unmatched_members(members))}


def _print_findings(findings: list[dict[str, str]]) -> None:
    """Prints all errors, and the first few warnings of each server."""
    told: Counter[str] = Counter()
    for finding in findings:
        server, severity = finding["server"], finding["severity"]
        told[server] += severity == "warning"
        if severity != "warning" or told[server] <= SHOWN_WARNINGS:
            print(f"{severity}: {server}: {finding['kind']} {finding['name']}: {finding['problem']}")
    for server, number in told.items():
        if number > SHOWN_WARNINGS:
            print(f"warning: {server}: {number - SHOWN_WARNINGS:,} more; --json has them all")


def _facts(hub: Engine, upstream: Upstream, redaction: Redactor) -> dict[str, Any]:
    agreement, ready = upstream.agreement, upstream.state in CONNECTED_STATES
    server = upstream.server
    counts = {kind.name: len(upstream.lists.items.get(kind, ())) for kind in KINDS}
    return {
        "server": server.id,
        "state": str(upstream.state),
        "required": server.required,
        "era": agreement.era if agreement is not None and ready else None,
        "revision": agreement.version if agreement is not None and ready else None,
        "transport": upstream.transport,
        "session": server.session,
        **counts,
        "exposed_tools": sum(1 for name in hub.catalog.names(TOOLS) if _belongs(hub, name, server.id)),
        "seconds": round(upstream.connect_seconds, 2) if upstream.connect_seconds is not None and ready else None,
        "problem": upstream.error,
        "argv": _argv(hub, upstream, redaction),
        "incomplete": [printable(text) for text in upstream.incomplete],
    }


def _argv(hub: Engine, upstream: Upstream, redaction: Redactor) -> list[str] | None:
    """Returns the command that is executed, without secrets; None without a process, or if it is off or not found."""
    if upstream.server.transport != "stdio" or upstream.server.builtin == "skills" or not upstream.server.enabled:
        return None
    try:
        words = hub.dialer.argv(upstream.server)
    except CommandNotFound:
        return None
    # Checked on the whole command: in `--token VALUE` the word before the value makes it secret.
    secret = [before.startswith("-") and is_secret_key(before) for before in ["", *words]]
    return [
        MASK if after_key and not word.startswith("-") else printable(redaction.text(word), MAX_WORD)
        for after_key, word in zip(secret, words, strict=False)
    ]


def _belongs(hub: Engine, exposed: str, upstream: str) -> bool:
    route = hub.catalog.resolve(TOOLS, exposed)
    return route is not None and route.upstream == upstream


def _tools_text(fact: dict[str, Any]) -> str:
    """Returns how many tools callers get, and of how many if rules hide some."""
    shown, listed = fact["exposed_tools"], fact["tools"]
    return str(shown) if shown == listed else f"{shown} of {listed}"


def _print_table(facts: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not facts:
        print("no servers are configured")
        return
    table = Table("server", "state", "protocol", "transport", "tools", "other", "seconds", box=None, pad_edge=False)
    for fact in facts:
        ready = fact["state"] in CONNECTED_STATES
        word = "ok" if ready else "disabled" if fact["state"] == UpstreamState.DISABLED else "FAILED"
        style = "green" if ready else "yellow" if word == "disabled" else "red"
        others = sum(fact[kind.name] for kind in KINDS if kind is not TOOLS)
        table.add_row(
            Text(fact["server"] + (" (required)" if fact["required"] else "")),
            Text(word, style=style),
            Text(fact["revision"] or "-"),
            Text(fact["transport"] + ("" if fact["session"] == "shared" else f", session {fact['session']}")),
            Text(_tools_text(fact) if ready else "-"),
            Text(str(others) if ready else "-"),
            Text(f"{fact['seconds']:.2f}" if ready else "-"),
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    for fact in facts:
        for problem in [*([fact["problem"]] if fact["problem"] else []), *fact["incomplete"]]:
            print(f"{fact['server']}: {printable(problem, 2000)}")
    for fact in facts:
        if fact["argv"] is not None:
            print(f"{fact['server']}: runs {shlex.join(fact['argv'])}")
