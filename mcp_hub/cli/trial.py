"""Starts servers once, without serving them, and reports what they list and what the screening finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from mcp_hub.cli.report import connect_all
from mcp_hub.config.models import Config, Server
from mcp_hub.diagnosis.servers import FindingRow, screen_findings
from mcp_hub.errors import ConfigError
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import config_of
from mcp_hub.protocol.kinds import KINDS, TOOLS
from mcp_hub.security.pinning import PARTS, PinRecord, fingerprint, record_of
from mcp_hub.text import printable
from mcp_hub.upstream import Upstream
from mcp_hub.upstream.catalog_cache import CatalogCache
from mcp_hub.upstream.lifecycle import CONNECTED_STATES

SHOWN_TOOLS: Final = 50


class Trial(msgspec.Struct, frozen=True):
    """What one server listed, or why it failed."""

    id: str
    problem: str | None
    """Why the server failed; None if it works."""
    wants_sign_in: bool = False
    """Whether the problem is that the user has to sign in."""
    record: PinRecord = PinRecord()
    tools: tuple[tuple[str, str], ...] = ()
    """(name, first line of the description) of each tool."""
    others: int = 0
    """The number of resources, templates and prompts."""
    findings: tuple[FindingRow, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yields lines for the user: the tools and the findings, or the problem."""
        if self.problem is not None:
            yield f"{printable(self.id, 100)}: {printable(self.problem, 2000)}"
            return
        suffix = f" and {self.others} other{'s' * (self.others != 1)}" if self.others else ""
        yield f"{printable(self.id, 100)} works: {len(self.tools)} tool{'s' * (len(self.tools) != 1)}{suffix}"
        for name, description in self.tools[:SHOWN_TOOLS]:
            yield f"  {name}  {description}".rstrip()
        if len(self.tools) > SHOWN_TOOLS:
            yield f"  … {len(self.tools) - SHOWN_TOOLS} more"
        for row in self.findings:
            yield f"warning: {row['kind']} {row['name']}: {row['problem']}"

    def as_json(self) -> dict[str, Any]:
        """Returns the same facts for `--json`."""
        return {
            "server": self.id,
            "problem": None if self.problem is None else printable(self.problem, 2000),
            "tools": [name for name, _ in self.tools],
            "others": self.others,
            "findings": list(self.findings),
        }


def server_of(id: str, entry: Mapping[str, Any]) -> Server:
    """Returns the Server of a configuration entry. Raises ConfigError if the hub would refuse it or switch it off."""
    config = config_of({"servers": {id: {**entry, "enabled": True}}})
    server = config.servers[0]
    if not server.enabled:
        raise ConfigError(f"{printable(id, 100)}: {server.disabled_reason or 'the entry is switched off'}")
    return server


async def try_servers(servers: Iterable[Server], config: Config | None = None) -> list[Trial]:
    """Starts each server, reads its lists, and stops it. Keeps the lists for the next start of a hub with `config`.

    `config` also has the settings of the screening; None: those by default, and nothing is kept.
    """
    trial_servers = tuple(server.model_copy(update={"enabled": True, "lazy": False}) for server in servers)
    rules, cache = (config.settings, CatalogCache.of(config)) if config is not None else ({}, None)
    async with Engine(Config(servers=trial_servers, settings=rules), kept=cache) as hub:
        await connect_all(hub)
        rows = screen_findings(hub)
        return [_trial(hub.upstreams[server.id], rows) for server in trial_servers]


def _trial(upstream: Upstream, rows: list[FindingRow]) -> Trial:
    id = upstream.server.id
    if upstream.state not in CONNECTED_STATES:
        return Trial(id, upstream.error or "it did not answer", upstream.wants_sign_in)
    items = [(kind, wire) for kind in PARTS for wire in upstream.lists.items.get(kind, ())]
    tools = [wire for kind, wire in items if kind is TOOLS]
    text = upstream.agreement.instructions if upstream.agreement is not None else None
    return Trial(
        id,
        None,
        record=record_of(items, text),
        tools=tuple((printable(str(tool.get("name")), 100), _first_line(tool)) for tool in tools),
        others=sum(len(upstream.lists.items.get(kind, ())) for kind in KINDS if kind is not TOOLS),
        findings=tuple(row for row in rows if row["server"] == id),
    )


def _first_line(tool: Mapping[str, Any]) -> str:
    text = str(tool.get("description") or tool.get("title") or "").strip()
    return printable(text.splitlines()[0], 80) if text else ""


def changes_between(before: PinRecord, after: PinRecord) -> Iterator[str]:
    """Yields a line for every item that is new, gone or changed, and for changed instructions."""
    for kind in PARTS:
        old, new = before.items.get(kind, {}), after.items.get(kind, {})
        for name in sorted(old.keys() | new.keys()):
            item_text = f"{kind.unknown} {printable(name, 200)}"
            if name not in old:
                yield f"+ {item_text}"
            elif name not in new:
                yield f"- {item_text}"
            elif fingerprint(old[name]) != fingerprint(new[name]):
                parts = [part for part in {**old[name], **new[name]} if _differs(old[name], new[name], part)]
                yield f"~ {item_text} ({', '.join(parts)})"
    if before.instructions != after.instructions:
        yield "~ its instructions"


def _differs(before: Mapping[str, Any], after: Mapping[str, Any], part: str) -> bool:
    return fingerprint({part: before.get(part)}) != fingerprint({part: after.get(part)})
