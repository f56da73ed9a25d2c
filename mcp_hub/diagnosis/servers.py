"""Connects to the servers of a configuration, and collects the facts for `check` and `doctor`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from mcp_hub import codes
from mcp_hub.catalog import Route
from mcp_hub.codes import code_of
from mcp_hub.config import LoadedConfig
from mcp_hub.config.commands import CommandNotFound
from mcp_hub.config.secret_values import secrets_of
from mcp_hub.diagnosis import Finding, Section, fail, ok, warn
from mcp_hub.diagnosis.client_lists import clients_to_report
from mcp_hub.diagnosis.token_costs import count_calls, token_costs
from mcp_hub.hub import Engine
from mcp_hub.hub.exposure import rows_of
from mcp_hub.hub.hub_status import tools_text
from mcp_hub.policy.rule_names import UnmatchedName
from mcp_hub.policy.screen import what_is
from mcp_hub.protocol.kinds import KINDS, Kind, defect, name_of
from mcp_hub.security.callers import SOLE
from mcp_hub.security.redaction import MASK, Redactor, is_secret_key
from mcp_hub.text import printable
from mcp_hub.upstream import Upstream
from mcp_hub.upstream.catalog_cache import CatalogCache
from mcp_hub.upstream.lifecycle import CONNECTED_STATES, UpstreamState

MAX_WORD: Final = 4000
"""The maximum length of one word of a command line, in characters."""
MAX_PROBLEM: Final = 2000

Json = dict[str, Any]
FindingRow = dict[str, str]
"""What is wrong with one item that a server lists: the keys server, kind, name, problem, severity and code."""


class ServerReport(msgspec.Struct, frozen=True):
    """The results of connecting to every server."""

    servers: list[Json]
    """The facts about each server."""
    items: list[FindingRow]
    unmatched: tuple[UnmatchedName, ...]
    """The names in rules that match nothing."""
    left_out: list[str]
    """The errors of files that were left out."""
    listed_to: list[Json]
    """What clients would be listed, and why: the keys clients, listed, of and why."""
    rewritten: list[Json]
    """How many schemas are rewritten for clients: the keys clients, rewritten and of."""
    tokens: Json
    """What the tools cost: the value of `token_costs`."""
    broken: bool
    """Whether a file of tools was left out."""

    @property
    def failed(self) -> list[str]:
        """The required servers that are not available."""
        return [fact["server"] for fact in self.servers if fact["required"] and fact["problem"] is not None]

    @property
    def forbidden(self) -> bool:
        """Whether servers list what the configuration forbids, such as equal names."""
        return any(item["severity"] == "error" for item in self.items)

    @property
    def enabled_count(self) -> int:
        """The number of servers that the user has not switched off."""
        disabled = UpstreamState.DISABLED
        return sum(fact["state"] != disabled or fact["problem"] is not None for fact in self.servers)

    @property
    def working(self) -> int:
        """The number of servers that are connected."""
        return sum(fact["state"] in CONNECTED_STATES for fact in self.servers)

    def is_bad(self, *, strict: bool) -> bool:
        """Returns whether `check` fails. With `strict` one warning, or one server that does not work, is enough."""
        working_needed = self.enabled_count if strict else min(self.enabled_count, 1)
        warned = strict and (self.items or any(fact["incomplete"] for fact in self.servers))
        return bool(
            self.failed or self.forbidden or self.unmatched or self.broken or warned or self.working < working_needed
        )


async def examine(loaded: LoadedConfig, connect: Callable[[Engine], Awaitable[None]]) -> ServerReport:
    """Connects to every server and returns the results. `connect(hub)` waits until each has succeeded or failed."""
    config = loaded.config
    async with Engine(config, kept=CatalogCache.of(config)) as hub:
        await connect(hub)
        redaction = Redactor(secrets_of(config))
        facts = [_facts(hub, upstream, redaction) for upstream in hub.upstreams.values()]
        items = trust_findings(hub) + [
            {
                "server": finding.upstream,
                "kind": finding.kind,
                "name": printable(finding.name),
                "problem": printable(finding.problem),
                "severity": finding.severity,
                "code": finding.problem.code,
            }
            for finding in hub.catalog.findings
        ]
        local = {id for id, upstream in hub.upstreams.items() if upstream.server.tools_dir is not None}
        broken = any(fact["incomplete"] for fact in facts if fact["server"] in local)
        left_out = [printable(line, MAX_PROBLEM) for line in loaded.left_out]
        catalogs = hub.catalogs
        listed = await rows_of(catalogs, clients_to_report(config))
        rewritten = catalogs.client_schemas.facts(catalogs.everybodys)
        tokens = token_costs(hub, count_calls(config))
        unmatched = await hub.generation.unmatched_names()
        return ServerReport(facts, items, unmatched, left_out, listed, rewritten, tokens, broken or bool(left_out))


def _facts(hub: Engine, upstream: Upstream, redaction: Redactor) -> Json:
    agreement, ready = upstream.agreement, upstream.state in CONNECTED_STATES
    server = upstream.server
    listed = upstream.lists.items
    counts = {kind.name: len(listed.get(kind, ())) for kind in KINDS}
    return {
        "server": server.id,
        "state": str(upstream.state),
        "required": server.required,
        "era": agreement.era if agreement is not None and ready else None,
        "revision": agreement.version if agreement is not None and ready else None,
        "transport": upstream.transport,
        "way": None if server.url is None else printable(hub.dialer.egress(server).describe_route(server.url), 300),
        "session": server.session,
        **counts,
        "mended": sum(_is_mended(hub, server.id, kind, item) for kind in KINDS for item in listed.get(kind, ())),
        "exposed_tools": hub.catalogs.of(SOLE).tools_by_server[server.id],
        "seconds": round(upstream.connect_seconds, 2) if upstream.connect_seconds is not None and ready else None,
        "problem": upstream.error,
        "code": code_of(upstream.error),
        "argv": _argv(hub, upstream, redaction),
        "incomplete": [printable(text) for text in upstream.incomplete],
        "local": server.tools_dir is not None,
    }


def _is_mended(hub: Engine, server: str, kind: Kind, item: Any) -> bool:
    """Returns whether an item has a defect, and the hub serves it all the same."""
    return defect(kind, item) is not None and hub.catalog.exposed(Route(server, kind, name_of(kind, item))) is not None


def _argv(hub: Engine, upstream: Upstream, redaction: Redactor) -> list[str] | None:
    """Returns the command that is executed, without secrets; None without a process, or if it is off or not found."""
    if upstream.server.transport != "stdio" or upstream.server.builtin == "skills" or not upstream.server.enabled:
        return None
    try:
        arguments = hub.dialer.argv(upstream.server)
    except CommandNotFound:
        return None
    # Checked on the whole command: in `--token VALUE` the word before the value makes it secret.
    follows_secret_option = [previous.startswith("-") and is_secret_key(previous) for previous in ["", *arguments]]
    return [
        MASK if is_secret and not argument.startswith("-") else printable(redaction.text(argument), MAX_WORD)
        for is_secret, argument in zip(follows_secret_option, arguments, strict=False)
    ]


# --- what servers list -----------------------------------------------------------------------------------------


def trust_findings(hub: Engine) -> list[FindingRow]:
    """Returns all differences from the pins, and all findings of the screening."""
    rows, pins = [], hub.rules.pins
    for id, upstream in hub.upstreams.items():
        rows += [_row(id, *problem, codes.PIN_DIFFERS) for problem in pins.problems(id)]
        instructions = upstream.agreement.instructions if upstream.agreement is not None else None
        if instructions and (problem := pins.of_instructions(id, instructions)) is not None:
            rows.append(_row(id, "its", "instructions", problem, codes.PIN_DIFFERS))
    return rows + screen_findings(hub)


def screen_findings(hub: Engine) -> list[FindingRow]:
    """Returns the findings of the screening in all items that are listed now."""
    _, screen = hub.catalog, hub.rules.screen
    while screen.step():
        pass
    rows = []
    for id, upstream in hub.upstreams.items():
        instructions = upstream.agreement.instructions if upstream.agreement is not None else None
        for flag in screen.of_instructions(id, instructions) if instructions else ():
            text = f"screen: {what_is(flag)}"
            rows.append(_row(id, "its", "instructions", text, codes.SCREEN_FLAGGED))
    for id, route, flag in screen.flags():
        suffix = "; it is kept back" if screen.why(route) is not None else ""
        text = f"screen: {what_is(flag)}{suffix}"
        rows.append(_row(id, route.kind.unknown, route.name, text, codes.SCREEN_FLAGGED))
    return rows


def _row(server: str, kind: str, name: str, problem: str, code: str) -> FindingRow:
    item = {"kind": kind, "name": printable(name, 200), "problem": printable(problem, 600)}
    return {"server": server, **item, "severity": "warning", "code": code}


# --- for `doctor` ----------------------------------------------------------------------------------------------


def server_section(report: ServerReport) -> Section:
    """Returns `doctor`'s findings on the servers."""
    findings: list[Finding] = []
    for fact in report.servers:
        findings += _findings_of(fact)
    for item in report.items:
        level = fail if item["severity"] == "error" else warn
        findings.append(level(item["server"], f"{item['kind']} {item['name']}: {item['problem']}", item["code"]))
    findings += [fail(printable(name.key, 300), name.text) for name in report.unmatched]
    if not report.servers:
        findings.append(warn("servers", "none is configured", codes.FILE_EMPTY))
    return Section("Servers", tuple(findings))


def lists_section(report: ServerReport) -> Section:
    """Returns `doctor`'s findings on what clients are listed; none if no server works."""
    rows = report.listed_to if report.working else ()
    findings = [
        ok(f"{row['listed']} of {row['of']} tools", f"listed to {', '.join(row['clients'])}: {row['why']}")
        for row in rows
    ]
    return Section("Lists", tuple(findings))


def _findings_of(fact: Json) -> list[Finding]:
    server, code = fact["server"], fact["code"]
    problem = printable(fact["problem"], MAX_PROBLEM) if fact["problem"] else None
    findings = []
    if fact["state"] in CONNECTED_STATES:
        tools = f"{tools_text(fact)} tool{'s' * (fact['tools'] != 1)}"
        tools += f", {fact['mended']} items mended" if fact["mended"] else ""
        route = f" {fact['way']}" if fact["way"] not in (None, "direct") else ""
        findings.append(ok(server, f"{tools}, connected{route} in {fact['seconds']:.1f} s"))
        if problem is not None:
            findings.append(warn(server, problem, code))
    elif problem is None:
        findings.append(ok(server, "switched off"))
    elif fact["state"] == UpstreamState.DISABLED:
        findings.append(warn(server, f"switched off: {problem}", code))
    else:
        findings.append(fail(server, problem, code))
        if fact["required"]:
            findings.append(fail(server, "it is required: without it `serve` ends", codes.REQUIRED_FAILED))
    code = codes.LOCAL_TOOLS_BROKEN if fact["local"] else codes.LISTS_INCOMPLETE
    return findings + [warn(server, text, code) for text in fact["incomplete"]]
