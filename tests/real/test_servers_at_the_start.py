"""What a model is offered in the first request, whatever the neighbours of a good server do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.client_programs import Json
from tests.real.conftest import Report
from tests.real.scripted_provider import Call
from tests.real.turns import BEHIND, DIRECT, Turn, User, listing, scripted, tool

GOOD = ("alpha", "beta", "gamma")
NAMES = [f"{server}_tool_{number}" for server in GOOD for number in range(7)]
SLOW_NAMES = [f"late_tool_{number}" for number in range(3)]
SLOW = 7
NEIGHBOURS: dict[str, tuple[str, ...]] = {
    "slow": ("--start-delay", str(SLOW)),
    "dead": ("--die", "no such database"),
    "hanging": ("--silent",),
}


def good_servers(directory: Path) -> dict[str, Json]:
    return {
        server: listing(directory, server, tools=[tool(name) for name in NAMES if name.startswith(server)])
        for server in GOOD
    }


def both_ways(user: Callable[[str], User], servers: dict[str, Json], times: int, *steps: Call) -> dict[str, list[Turn]]:
    """Lets the same client do the same turns directly and behind the hub."""
    turns = {}
    for way in (DIRECT, BEHIND):
        one = user(way)
        one.has(servers, hub=None if way == DIRECT else {})
        turns[way] = [one.turn(*steps) for _ in range(times)]
    return turns


def test_every_tool_of_three_servers_is_offered_and_called(
    user: Callable[[str], User], report: Report, tmp_path: Path
) -> None:
    steps = [Call(f"{server}_tool_3", {"text": "x"}) for server in GOOD]
    turns = both_ways(user, good_servers(tmp_path), 1, *steps)
    counts = {way: len(turn.offered(NAMES)) for way, (turn,) in turns.items()}
    results = {way: turn.results for way, (turn,) in turns.items()}
    report("three servers: tools of 21", counts[DIRECT], counts[BEHIND])
    report("three servers: calls of 3", len(results[DIRECT]), len(results[BEHIND]))
    assert counts[BEHIND] == len(NAMES)
    assert len(results[BEHIND]) == len(GOOD)
    for server, result in zip(GOOD, results[BEHIND], strict=True):
        assert f"called {server}_tool_3" in result
    assert not turns[BEHIND][0].stragglers


@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_a_bad_neighbour_costs_no_tool_that_the_client_has_directly(
    user: Callable[[str], User], report: Report, tmp_path: Path, neighbour: str
) -> None:
    lists = listing(tmp_path, "late", tools=[tool(name) for name in SLOW_NAMES])["args"][1:]
    servers = {neighbour: scripted(*NEIGHBOURS[neighbour], *lists), **good_servers(tmp_path)}
    turns = both_ways(user, servers, 2, Call("alpha_tool_0", thinks=SLOW + 2.0 if neighbour == "slow" else 0.0))
    names = [*NAMES, *SLOW_NAMES]
    starts = ("empty cache", "later start")
    offered = {way: [turn.offered(names) for turn in pair] for way, pair in turns.items()}
    for start, direct, hub in zip(starts, offered[DIRECT], offered[BEHIND], strict=True):
        report(f"a {neighbour} neighbour, {start}: tools of {len(names)}", len(direct), len(hub))
    for direct, hub in zip(offered[DIRECT], offered[BEHIND], strict=True):
        assert direct <= hub
    assert set(names if neighbour == "slow" else NAMES) <= offered[BEHIND][1]
    assert not [turn.stragglers for turn in turns[BEHIND] if turn.stragglers]
