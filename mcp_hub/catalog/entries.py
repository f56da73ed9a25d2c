"""The data of a catalog: routes, the items that are merged into it, and the resulting entries and findings."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Generator
from functools import cached_property
from typing import Any, Final, Literal

import msgspec

from mcp_hub.codes import CodedText
from mcp_hub.protocol.frames import encode
from mcp_hub.protocol.kinds import TOOLS, Kind, to_handshake_tool

log = logging.getLogger("mcp_hub")

OWN: Final = "(mcp-hub)"
"""The upstream of routes that lead to the hub itself. It is not `mcp-hub`, as a server may be called that."""
SEARCH, READ, CALL, RUN = "hub_search", "hub_read", "hub_call", "hub_run"
"""The hub's own tools that find others, call those that only read, call any, and run programs that call others."""

OnConflict = Literal["keep_first", "raise", "override", "rename", "prefix"]
Json = dict[str, Any]


class Route(msgspec.Struct, frozen=True, cache_hash=True):
    """The target of an exposed name: an upstream, and the name (or URI) that the upstream itself uses."""

    upstream: str
    kind: Kind
    name: str


class Item(msgspec.Struct, frozen=True):
    """One listed item on its way into the catalog.

    `local` is its name without the namespace; a policy may change it. It is ignored for a template, whose URIs have to
    lead back to the upstream. `wire` is the item as the upstream listed it and is never mutated. `definition` counts
    the definitions of one route, as a server may describe an item differently to each caller.
    """

    route: Route
    local: str
    wire: Any
    definition: int = 0


class CatalogSource(msgspec.Struct, frozen=True):
    """The items of one upstream. `ttl_ms` and `cache_scope` are those that it sets on its lists in the modern era."""

    upstream: str
    namespace: str
    items: tuple[Item, ...]
    ttl_ms: int = 0
    cache_scope: str = "private"


class CatalogFinding(msgspec.Struct, frozen=True):
    """A problem of one item that a person should know: it is left out, renamed, or easily confused."""

    upstream: str
    kind: str
    name: str
    problem: CodedText
    severity: str = "warning"
    """`error` if the configuration forbids it (`on_conflict: raise`)."""
    kept: Route | None = None
    """The item that has the name, if this one is left out because of it."""


MAX_LOGGED: Final = 20
"""Findings of one upstream that are logged for one build of the catalog; the others are counted."""


def log_findings(findings: Collection[CatalogFinding], previous: Collection[CatalogFinding]) -> Generator[None]:
    """Logs the findings that were not known before, in steps: an upstream can have thousands at each change."""
    number: Counter[str] = Counter()
    for finding in findings:
        yield
        if finding in previous:
            continue
        number[finding.upstream] += 1
        if number[finding.upstream] <= MAX_LOGGED:
            log.warning("%s: %s %s: %s", finding.upstream, finding.kind, finding.name, finding.problem)
    for upstream, count in number.items():
        if count > MAX_LOGGED:
            log.warning("%s: %d more of its items have such problems", upstream, count - MAX_LOGGED)


class CatalogEntry(msgspec.Struct, frozen=True, dict=True):
    """One item under its exposed name. `wire` must not be mutated."""

    exposed: str
    route: Route
    wire: Json
    data: bytes
    """`wire`, serialised."""
    handshake: bytes | None = None
    """The item as handshake clients get it, serialised; None if that equals `data`."""
    item: Item | None = None
    """The item it was made from, if nothing but its name was changed; else None."""

    @property
    def for_handshake(self) -> bytes:
        """The item as handshake clients accept it, serialised."""
        return self.data if self.handshake is None else self.handshake

    @cached_property
    def tokens(self) -> int:
        """About how many tokens a listed tool costs in a model's context; 0 for other kinds. Computed once."""
        from mcp_hub.catalog.token_estimate import estimate_tool_tokens

        return estimate_tool_tokens(self.wire) if self.route.kind is TOOLS else 0

    @cached_property
    def variants(self) -> dict[Any, CatalogEntry | None]:
        """A cache for what is listed to certain clients in place of this entry, by client; None: the entry itself."""
        return {}


def made_entry(
    exposed: str, route: Route, wire: Json, data: bytes | None = None, item: Item | None = None
) -> CatalogEntry:
    """Makes the entry of a route under a name.

    Args:
        data: `wire`, serialised; None: it is serialised here.
        item: the item, if nothing but its name was changed.
    """
    handshake = to_handshake_tool(wire) if route.kind is TOOLS else wire
    handshake_data = encode(handshake) if handshake is not wire else None
    return CatalogEntry(exposed, route, wire, encode(wire) if data is None else data, handshake_data, item)
