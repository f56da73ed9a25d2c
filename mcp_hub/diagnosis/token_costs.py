"""Computes what the tools of a hub cost in a model's context, by way of exposing them, and which are never called."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.catalog import OWN, Catalog
from mcp_hub.clients import Client
from mcp_hub.config.models import Config
from mcp_hub.config.settings import Exposed
from mcp_hub.hub import Engine
from mcp_hub.hub.exposure import Exposure, listing_of
from mcp_hub.hub.groups.meta_tools import MAX_TOKENS
from mcp_hub.hub.hub_status import running_hubs
from mcp_hub.observability.records import KEPT_FILES
from mcp_hub.policy.trace import CALL_LOG
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.callers import SOLE
from mcp_hub.security.private_files import open_regular
from mcp_hub.text import printable

Json = dict[str, Any]
ToolName = tuple[str, str]
"""The server and the tool's own name."""

FEW: Final[tuple[Exposed, ...]] = ("search", "code")
"""The ways in which only a few tools are listed, and the others are searched."""
MAX_LINE: Final = 1024 * 1024
"""The maximum length of a line of a call log, in bytes; a longer one is not counted."""


class _Line(msgspec.Struct):
    """The fields that are read from a line of a call log."""

    event: str
    time: str
    method: str = ""
    upstream: str | None = None
    tool: str | None = None
    verdict: str = ""


class CallCounts(msgspec.Struct):
    """The recorded calls of tools."""

    counts: Counter[ToolName] = msgspec.field(default_factory=Counter)
    sources: list[str] = msgspec.field(default_factory=list)
    """The files and hubs that the counts come from; empty if there are none."""
    since: str | None = None
    """The time of the first record, in ISO 8601."""

    def _include_time(self, timestamp: str) -> None:
        self.since = min(self.since or timestamp, timestamp)


def count_calls(config: Config) -> CallCounts:
    """Counts the calls in the call log of a configuration; without a file, those of the hubs that run with it."""
    calls = CallCounts()
    file = CALL_LOG.of(config).file
    if file is not None and file.exists():
        for path in _files(file):
            _read(path, calls)
        calls.sources.append(str(file))
        return calls
    for facts in running_hubs(left_over=lambda _: None):
        if config.path is not None and facts.get("config") == str(config.path) and "metrics" in facts:
            _add_hub(facts, calls)
    return calls


def calls_of(hub: Engine) -> CallCounts:
    """Returns the calls that a hub of this process has counted since it began."""
    metrics = hub.metrics
    calls = CallCounts(sources=["this hub"])
    for series, count in list(metrics.calls.items()):
        if series.method == TOOLS.act_method and series.tool:
            calls.counts[series.server, series.tool] += count
    return calls


MAX_READ: Final = 64 * 1024 * 1024
"""Bytes at the end of each file that are read. The hub's own files have 10 MiB."""


def _files(newest: Path) -> Iterator[Path]:
    yield newest
    yield from (newest.with_name(f"{newest.name}.{number}") for number in range(1, KEPT_FILES + 1))


def _read(path: Path, calls: CallCounts) -> None:
    decoder = msgspec.json.Decoder(_Line)
    with contextlib.suppress(OSError), open_regular(path) as lines:
        lines.seek(max(0, lines.seek(0, os.SEEK_END) - MAX_READ))
        while data := lines.readline(MAX_LINE):
            try:
                line = decoder.decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # written by another program, or cut off
            if line.event == "call":
                calls._include_time(line.time)
                if line.method == TOOLS.act_method and line.upstream and line.tool and line.verdict != "refused":
                    calls.counts[line.upstream, line.tool] += 1


def _add_hub(facts: Json, calls: CallCounts) -> None:
    for series in facts["metrics"].get("calls", ()):
        if series["method"] == TOOLS.act_method and series["tool"]:
            calls.counts[series["server"], series["tool"]] += series["count"]
    start_time = datetime.fromtimestamp(time.time() - facts["seconds"], UTC)
    calls._include_time(start_time.strftime("%Y-%m-%dT%H:%M:%SZ"))
    calls.sources.append(f"the hub {facts['pid']}")


def token_costs(hub: Engine, calls: CallCounts, client: Client | None = None) -> Json:
    """Returns the estimated costs, in tokens, of the tools of a hub whose servers are connected.

    The keys are `client` (what is listed to this client; None: to an unknown one), `ways`, `groups`,
    `servers`, `tools` and `records`.
    """
    catalog, exposure = hub.catalog, Exposure(hub.config, hub.generation.selection, None, hub.catalogs.full_catalog)
    return {
        "client": _of_client(hub, client),
        "ways": list(_exposure_modes(hub, catalog, exposure)),
        "groups": _groups(hub, catalog),
        **_by_server(catalog, calls),
        "records": {"since": calls.since, "from": [printable(source) for source in calls.sources]}
        if calls.sources
        else None,
    }


def _sum(catalog: Catalog) -> Json:
    return {"tools": catalog.server_tools, "tokens": sum(entry.tokens for entry in catalog.entries(TOOLS))}


def _of_client(hub: Engine, client: Client | None) -> Json:
    listing, why = listing_of(hub.catalogs, client)
    return {"name": client and client.name, **_sum(listing), "of": hub.catalogs.of(SOLE).server_tools, "why": why}


def named_client(name: str | None) -> Client | None:
    """Returns the client of that name, or that gives itself that name. Raises EditRefused for an unknown one."""
    if name is None:
        return None
    from mcp_hub.clients.table import client_calling_itself, client_named

    return client_calling_itself(name) or client_named(name)


def _exposure_modes(hub: Engine, catalog: Catalog, exposure: Exposure) -> Iterator[Json]:
    all_tools = {"way": "all", **_sum(catalog)}
    yield all_tools
    if hub.config.groups:
        yield {"way": "groups", **_sum(hub.catalogs.of(SOLE))}
    for mode in FEW:
        few = _sum(exposure.few(catalog, mode))
        saved_tokens = all_tools["tokens"] - few["tokens"]
        yield {"way": mode, **few, "each_search": MAX_TOKENS, "searches": max(0, saved_tokens // MAX_TOKENS)}


def _groups(hub: Engine, catalog: Catalog) -> list[Json]:
    if not hub.config.groups:
        return []
    groups: dict[str, Json] = {}
    for group in hub.groups:
        groups[group.name] = {"group": group.name, "active": group.active, "tools": 0, "tokens": 0}
    for entry in catalog.entries(TOOLS):
        for name in hub.groups.of(entry.route) if entry.route.upstream != OWN else ():
            if name in groups:
                groups[name]["tools"] += 1
                groups[name]["tokens"] += entry.tokens
    return list(groups.values())


def _by_server(catalog: Catalog, calls: CallCounts) -> Json:
    servers: dict[str, Json] = {}
    tools: list[Json] = []
    is_recorded = bool(calls.sources)
    for entry in catalog.entries(TOOLS):
        id, name = entry.route.upstream, entry.route.name
        count = calls.counts[id, name] if is_recorded else None
        tools.append({"tool": entry.exposed, "server": "" if id == OWN else id, "tokens": entry.tokens, "calls": count})
        if id != OWN:
            row = {"server": id, "tools": 0, "tokens": 0, "never_called": 0 if is_recorded else None}
            server = servers.setdefault(id, row)
            server["tools"] += 1
            server["tokens"] += entry.tokens
            server["never_called"] = server["never_called"] + (count == 0) if is_recorded else None
    return {"servers": _by_cost(servers.values()), "tools": _by_cost(tools)}


def _by_cost(rows: Iterable[Json]) -> list[Json]:
    return sorted(rows, key=lambda row: -int(row["tokens"]))
