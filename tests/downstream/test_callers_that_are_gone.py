"""What the hub keeps for a caller goes with it: after 2,000 callers there is no more than after a few."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.security import callers
from tests.downstream.network.visitor import TOKENS, Visitor, bearer, visiting
from tests.downstream.page.opened import served_hub
from tests.fakes.client import PATIENCE, fake
from tests.hub.groups.hearing import RESET

pytestmark = pytest.mark.anyio

CALLERS = 2000
WARM = 60
"""Callers that come first, so that caches and pools have their size."""
RULES: dict[str, Any] = {
    "groups": {"sums": {"description": "Adds.", "tools": ["a/add"]}},
    "flows": {"mode": "warn"},
    "expose": "search",
    "meta_tools": True,
}
CONTAINERS = (dict, list, tuple, OrderedDict)
SERVER = fake(labels=["reads_private"], limits={"rate_per_caller": 1000}, max_result_bytes=1024)


def counted() -> Counter[type]:
    """The objects of the hub and the containers that exist, by type."""
    gc.collect()
    kinds = [type(thing) for thing in gc.get_objects()]
    return Counter(kind for kind in kinds if kind in CONTAINERS or str(kind.__module__).startswith("mcp_hub"))


async def uses_the_hub(visitor: Visitor, number: int) -> None:
    """Leaves in one of the rooms what it keeps for a caller: a group, labels and a long result, or a list."""
    if number % 3 == 0:
        assert "result" in await visitor.call(RESET, {"sums": True})
    elif number % 3 == 1:
        assert "mcp-hub://result/" in str(await visitor.call("a__echo", {"text": "x" * 3000}))
    else:
        assert RESET in await visitor.names("tools/list")


async def grown(come: Callable[[int], Awaitable[None]]) -> Counter[type]:
    """The types of which there are more objects after CALLERS callers than after WARM ones, by more than a few."""
    for number in range(WARM):
        await come(number)
    before = counted()
    for number in range(WARM, WARM + CALLERS):
        await come(number)
    return Counter({kind: number for kind, number in (counted() - before).items() if number > WARM})


async def test_nothing_is_left_of_sessions_that_have_ended(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": SERVER}, **RULES) as served, served.calling() as visitor:

        async def come(number: int) -> None:
            await visitor.begin()
            await uses_the_hub(visitor, number)
            assert (await visitor.http.delete("/mcp", headers=visitor.session)).status_code == 204

        assert await grown(come) == Counter()


async def test_no_more_is_kept_of_principals_than_of_the_most_that_the_hub_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "MAX_PRINCIPALS", WARM // 2)
    tokens = {f"p{number}": f"{number:04}-" + "0123456789abcdef" * 2 for number in range(WARM + CALLERS)}
    listen = {"principals": {name: {"token": token} for name, token in tokens.items()}}
    async with (
        served_hub(tmp_path, {"a": SERVER}, listen, **RULES) as served,
        visiting(served.base, "modern", tokens["p0"]) as visitor,
    ):

        async def come(number: int) -> None:
            visitor.http.headers.update(bearer(tokens[f"p{number}"]))
            await uses_the_hub(visitor, number)

        assert await grown(come) == Counter()
        assert len(served.hub.callers) == WARM // 2


async def test_a_principal_whose_call_runs_keeps_its_choice_while_more_principals_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "MAX_PRINCIPALS", 2)
    record = tmp_path / "record"
    listen = {"principals": {name: TOKENS[name] for name in ("alice", "bob", "carol")}}
    servers = {"a": fake("--record", str(record))}
    async with (
        served_hub(tmp_path, servers, listen, groups=RULES["groups"]) as served,
        visiting(served.base, "modern", TOKENS["alice"]) as alice,
        asyncio.timeout(PATIENCE),
    ):
        assert "result" in await alice.call(RESET, {"sums": True})
        running = asyncio.ensure_future(alice.call("a__sleep", {"seconds": PATIENCE}))
        while "tools/call" not in record.read_text():
            await asyncio.sleep(0.01)
        for name in ("bob", "carol"):
            async with visiting(served.base, "modern", TOKENS[name]) as visitor:
                assert "a__add" not in await visitor.names("tools/list")
        assert "a__add" in await alice.names("tools/list")
        running.cancel()
        await asyncio.wait([running])
