"""Servers come, go and change their lists for as long as a hub runs: what a name led to it leads to, or to nothing."""

import random
import re
from typing import Any

import pytest

from mcp_hub.catalog import PAGE_SIZE, Catalog, CatalogSource, OnConflict
from mcp_hub.protocol.frames import decode
from mcp_hub.protocol.kinds import KINDS, PROMPTS, SKILLS, TOOLS, Kind
from tests.catalog.test_hostile_lists import STRATEGIES, listed, page_items, routes, uri_of

SERVERS = "abcd"
NAMES = ("x", "y", "x.y", "x_y", "x/y", "X", "b__x", "a__x", "_x", "é")
LEGAL = re.compile(r"[A-Za-z0-9_-]{1,60}")


class History:
    """One hub's life: after every step, some servers have come, gone or changed what they list."""

    def __init__(self, seed: int, kind: Kind, strategy: OnConflict) -> None:
        self.rng, self.kind, self.strategy = random.Random(seed), kind, strategy
        self.namespaces = {server: self.rng.choice(["", "", server, "a", "a_"]) for server in SERVERS}
        self.present: dict[str, CatalogSource] = {}
        self.catalog = Catalog.build([], strategy)

    def list_of(self, server: str) -> CatalogSource:
        named = self.rng.sample(NAMES, self.rng.randint(0, 5))
        if self.kind.by_uri:
            impostor = "mcp-hub://b/" + uri_of(self.kind, "x")
            named = [uri_of(self.kind, name) for name in named] + [impostor] * self.rng.choice([0, 0, 1])
        return listed(server, *named, kind=self.kind, namespace=self.namespaces[server])

    def step(self) -> list[CatalogSource]:
        for server in SERVERS:
            if self.rng.random() < 0.4:
                self.present.pop(server, None)
                if self.rng.random() < 0.7:
                    self.present[server] = self.list_of(server)
        sources = [self.present[server] for server in SERVERS if server in self.present]
        self.catalog = Catalog.build(sources, self.strategy, previous=self.catalog)
        return sources


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_in_any_history_names_never_move_and_every_omission_is_reported(kind: Kind, strategy: OnConflict) -> None:
    for seed in range(15):
        history, served = History(seed, kind, strategy), dict[str, tuple[str, str]]()
        for _ in range(12):
            sources = history.step()
            exposed = routes(history.catalog, kind)
            if kind in (TOOLS, PROMPTS):
                assert all(LEGAL.fullmatch(name) for name in exposed)
            if strategy != "override":
                assert {n: served[n][0] for n in exposed if n in served} == {
                    n: exposed[n][0] for n in exposed if n in served
                }
            served.update(exposed)
            all_items = {(item.route.upstream, item.route.name) for source in sources for item in source.items}
            assert len(set(exposed.values())) == len(exposed)
            left_out = all_items - set(exposed.values())
            assert left_out <= {(finding.upstream, finding.name) for finding in history.catalog.findings}
            assert not left_out or (strategy not in ("rename", "prefix") and kind in (TOOLS, PROMPTS, SKILLS))
            rebuilt = Catalog.build(sources, strategy, previous=history.catalog)
            assert rebuilt.changed(history.catalog) == frozenset()


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_long_lists_of_every_kind_come_in_pages(kind: Kind, modern: bool) -> None:
    named = [uri_of(kind, str(n)) for n in range(PAGE_SIZE + 1)]
    catalog = Catalog.build([listed("s", *named, kind=kind, namespace="s")])
    first: dict[str, Any] = decode(catalog.page(kind, modern=modern))
    last: dict[str, Any] = decode(catalog.page(kind, modern=modern, cursor=first["nextCursor"]))
    assert (len(first[kind.result_key]), len(last[kind.result_key])) == (PAGE_SIZE, 1)
    assert "nextCursor" not in last
    listed_names = [item[kind.name_key] for item in first[kind.result_key] + last[kind.result_key]]
    assert listed_names == list(catalog.names(kind))
    assert [catalog.resolve(kind, name).name for name in listed_names] == named  # type: ignore[union-attr]


def test_a_reconnected_server_keeps_its_exposed_names() -> None:
    history = [listed("a", "x", "y"), listed("b", "x", "y")]
    merged = Catalog.build(history)
    without_a = Catalog.build(history[1:], previous=merged)
    assert set(shown_names(without_a)).isdisjoint(("x", "y"))
    assert routes(Catalog.build(history, previous=without_a)) == routes(merged)


def shown_names(catalog: Catalog) -> list[str]:
    return [item["name"] for item in page_items(catalog)]
