"""What changes while a server's lists are on their way is not in them: they are asked for once more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.downstream.network.visitor import ERAS, TOKENS, network_hub, visiting
from tests.fakes.client import fake, hub
from tests.hub.groups.hearing import CHANGED, hearing

pytestmark = pytest.mark.anyio

SLOW_TO_LIST = ("--list-pause", "0.3")
LISTEN: dict[str, Any] = {"principals": {"alice": TOKENS["alice"]}}


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_tool_added_while_a_new_connection_is_listed_is_served(tmp_path: Path, era: str) -> None:
    async with hub(tmp_path, {"up": fake(*SLOW_TO_LIST, "--grow-once-listed", "--era", era)}) as client:
        if "up__meanwhile" not in await client.tool_names():
            await client.notified(CHANGED)
        assert "up__meanwhile" in await client.tool_names()
        assert await client.text("up__meanwhile") == "called meanwhile"


@pytest.mark.parametrize("told", [{}, {"roots": {}}])
async def test_tools_added_one_by_one_in_a_clients_own_session_are_all_served(
    tmp_path: Path, told: dict[str, Any]
) -> None:
    names = [f"grown{n}" for n in range(4)]
    servers = {"own": fake(*SLOW_TO_LIST, session="client")}
    async with (
        network_hub(tmp_path, servers, LISTEN) as (_, base),
        visiting(base, "handshake", TOKENS["alice"]) as alice,
    ):
        await alice.begin(told)
        async with hearing(alice) as ear:
            before = await alice.names("tools/list")
            for name in names:
                await alice.text("own__grow", {"name": name})
            changes = 0
            while set(await alice.names("tools/list")) != {*before, *(f"own__{name}" for name in names)}:
                changes += 1
                await ear.until(changes)
            assert await alice.text("own__grown3") == "called grown3"


async def test_tools_of_a_clients_own_session_disappear_when_it_ends(tmp_path: Path) -> None:
    async with (
        network_hub(tmp_path, {"own": fake(session="client")}, LISTEN) as (_, base),
        visiting(base, "handshake", TOKENS["alice"]) as alice,
        hearing(alice) as ear,
    ):
        before = await alice.names("tools/list")
        await alice.text("own__grow", {"name": "grown"})
        await ear.until(1)
        assert "own__grown" in await alice.names("tools/list")
        await alice.call("own__crash")
        await alice.text("own__pid")
        await ear.until(2)
        assert await alice.names("tools/list") == before


@pytest.mark.parametrize("of_server", ERAS)
async def test_new_tools_of_a_principals_own_session_are_announced_to_it(tmp_path: Path, of_server: str) -> None:
    servers = {"own": fake("--era", of_server, session="client")}
    async with (
        network_hub(tmp_path, servers, LISTEN) as (_, base),
        visiting(base, "modern", TOKENS["alice"]) as alice,
        hearing(alice) as ear,
    ):
        before = await alice.names("tools/list")
        await alice.text("own__pid")
        await alice.text("own__grow", {"name": "grown"})
        await ear.until(1)
        assert set(await alice.names("tools/list")) == {*before, "own__grown"}
