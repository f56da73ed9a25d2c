"""What callers see of a catalog by their groups is made in steps, before anybody asks for it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import pytest

from mcp_hub.catalog import Catalog, CatalogSource, Item, Route
from mcp_hub.config.models import Server
from mcp_hub.config.root_rules import ToolGroupSettings
from mcp_hub.hub.composition import config_of
from mcp_hub.hub.exposure import Exposure
from mcp_hub.hub.groups.active_groups import ActiveGroups, GroupMembers
from mcp_hub.policy.selection import EVERYTHING
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS, Kind
from mcp_hub.security import Principal
from mcp_hub.security.callers import SOLE

NUMBER = 1_000
GROUP = ToolGroupSettings(name="g", description="x", tools=("a/*",))


class CountedMembers(GroupMembers):
    """Counts the lookups of the groups of a tool."""

    lookups = 0

    def groups(self, route: Route) -> tuple[str, ...]:
        self.lookups += 1
        return super().groups(route)


def catalog() -> Catalog:
    schema: dict[str, Any] = {"type": "object"}
    names = [f"tool_{number}" for number in range(NUMBER)]
    items = [Item(Route("a", TOOLS, name), name, {"name": name, "inputSchema": schema}) for name in names]
    return Catalog.build([CatalogSource("a", "a", tuple(items))])


def active_groups(*, on: bool, meta_tools: bool = False) -> tuple[ActiveGroups, CountedMembers]:
    members = CountedMembers([GROUP], [], {"a": Server(id="a", transport="stdio", command="x", namespace="a")})
    groups = {"g": GROUP}
    return ActiveGroups(
        groups, {"g": on}, {}, members, everything=True, own_tools=("hub_search", "hub_call") if meta_tools else ()
    ), members


def test_a_callers_view_is_built_in_steps_and_then_cached() -> None:
    groups, members = active_groups(on=True)
    merged = catalog()
    assert sum(1 for _ in groups.preparing(merged, None, None)) > NUMBER
    lookups = members.lookups
    assert len(groups.view(merged, SOLE).names(TOOLS)) > NUMBER
    assert members.lookups == lookups


def test_views_in_use_are_prebuilt_for_the_next_catalog() -> None:
    groups, members = active_groups(on=True)
    former, current = catalog(), catalog()
    groups.view(former, Principal("somebody"))
    assert sum(1 for _ in groups.preparing(current, former, None)) > NUMBER
    lookups = members.lookups
    groups.view(current, Principal("somebody"))
    assert members.lookups == lookups


def test_a_view_lists_no_tools_of_inactive_groups() -> None:
    groups, _ = active_groups(on=False)
    view = groups.view(catalog(), SOLE)
    assert not [name for name in view.names(TOOLS) if name.startswith("a__")]


@pytest.mark.anyio
async def test_a_short_list_that_names_many_tools_is_made_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, threads = catalog(), set()
    survey = Catalog._survey

    def noted(self: Catalog, kind: Kind) -> Generator[None]:
        threads.add(threading.get_ident())
        return survey(self, kind)

    monkeypatch.setattr(Catalog, "_survey", noted)
    config = config_of({"servers": {"a": {"command": "x"}}, "expose": "search", "expose_always": ["a/*"]})
    exposure = Exposure(config, EVERYTHING, None, lambda _: whole)
    listing = await exposure.listed(whole, SOLE, Envelope())
    assert listing.server_tools == NUMBER
    assert len(threads) == 1
    assert threading.get_ident() not in threads
