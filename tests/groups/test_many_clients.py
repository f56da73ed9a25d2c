"""Groups on a network: each caller switches its own, and hears of what changes for it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import fake
from tests.groups.hearing import CHANGED, GROUPS, RESET, code, hearing
from tests.network.visitor import ERAS, TOKENS, Visitor, network_hub, spelled, visiting

pytestmark = pytest.mark.anyio

SERVERS = {"a": fake("--name", "a"), "b": fake("--name", "b")}
PROFILES = {"adding": {"tools": ["a/add", "a/pid"]}, "piding": {"tools": ["*/pid"]}, "texting": {"tools": ["a/echo"]}}
PRINCIPALS = {
    "alice": TOKENS["alice"],
    "bob": TOKENS["bob"],
    "carol": {"token": TOKENS["carol"], "profile": "adding"},
    "dora": {"token": TOKENS["dora"], "profile": "texting"},
}


@contextlib.asynccontextmanager
async def two(directory: Path, era: str, **root: Any) -> AsyncIterator[tuple[Visitor, Visitor]]:
    async with (
        network_hub(directory, SERVERS, {"principals": PRINCIPALS}, **root) as (_, base),
        visiting(base, era, TOKENS["alice"]) as alice,
        visiting(base, era, TOKENS["bob"]) as bob,
    ):
        yield alice, bob


@pytest.mark.parametrize("era", ERAS)
async def test_what_one_client_switches_is_its_own_and_told_to_it_alone(tmp_path: Path, era: str) -> None:
    async with (
        two(tmp_path, era, groups=GROUPS) as (alice, bob),
        hearing(alice) as alices,
        hearing(bob) as bobs,
    ):
        before = await bob.names("tools/list")
        assert await alice.names("tools/list") == before
        await alice.text(RESET, {"sums": True, "texts": True})
        await alices.until(1)
        assert set(await alice.names("tools/list")) == {*before, "a__add", "b__add"}
        assert await bob.names("tools/list") == before
        assert await alice.text("a__add", {"a": 1, "b": 1}) == "2"
        assert code((await bob.call("a__add", {"a": 1, "b": 1}))["result"]) == "group_inactive"
        await bob.text(RESET, {"all_of_b": True})
        await bobs.until(1)
        await alice.text(RESET, {"texts": True})
        await alices.until(2)
        assert (alices.heard.count(CHANGED), bobs.heard.count(CHANGED)) == (2, 1)
        assert await alice.names("tools/list") == before
        assert "b__pid" in await bob.names("tools/list")


async def test_a_principal_of_the_modern_era_is_one_caller_and_sessions_are_each_their_own(tmp_path: Path) -> None:
    async with network_hub(tmp_path, SERVERS, {"principals": PRINCIPALS}, groups=GROUPS) as (_, base):
        for era, shared in (("modern", True), ("handshake", False)):
            async with visiting(base, era, TOKENS["alice"]) as one, visiting(base, era, TOKENS["alice"]) as other:
                await one.text(RESET, {"sums": True})
                assert ("a__add" in await other.names("tools/list")) == shared
                assert "a__add" in await one.names("tools/list")


async def test_with_hub_scope_everybody_is_switched_and_told(tmp_path: Path) -> None:
    async with two(tmp_path, "handshake", groups=GROUPS, group_scope="hub") as (alice, bob), hearing(bob) as bobs:
        await bob.names("tools/list")
        await alice.text(RESET, {"sums": True})
        await bobs.until(1)
        assert "a__add" in await bob.names("tools/list")
        assert "a__echo" not in await bob.names("tools/list")


@pytest.mark.parametrize("era", ERAS)
async def test_a_profile_has_the_groups_of_a_hub_that_serves_it_alone(tmp_path: Path, era: str) -> None:
    root: dict[str, Any] = {"groups": GROUPS, "profiles": PROFILES, "meta_tools": True}
    async with (
        network_hub(tmp_path / "all", SERVERS, {"principals": PRINCIPALS}, **root) as (_, base),
        network_hub(tmp_path / "one", SERVERS, {}, "--profile", "adding", **root) as (_, alone),
        visiting(base, era, TOKENS["carol"]) as carol,
        visiting(base, era, TOKENS["alice"]) as alice,
        visiting(alone, era) as expected,
    ):
        await alice.text(RESET, {"all_of_b": True})
        told = {"sums": GROUPS["sums"]["description"]}
        for ask in (
            ("tools/list", {}),
            ("tools/call", {"name": "a__add", "arguments": {}}),
            ("tools/call", {"name": "b__add", "arguments": {}}),
            ("tools/call", {"name": RESET, "arguments": {"all_of_b": True}}),
            ("tools/call", {"name": RESET, "arguments": {"sums": True}}),
            ("tools/list", {}),
            ("tools/call", {"name": "hub_search", "arguments": {"query": ""}}),
            ("tools/call", {"name": "hub_call", "arguments": {"tool": "b__pid"}}),
        ):
            answer = await carol.ask(*ask)
            assert spelled(answer) == spelled(await expected.ask(*ask))
            assert "Careful" not in spelled(answer) and "all_of_b'" not in spelled(answer)  # noqa: PT018
        (switch,) = [tool for tool in (await carol.ask("tools/list"))["result"]["tools"] if tool["name"] == RESET]
        switches = switch["inputSchema"]["properties"]
        assert {name: one["description"] for name, one in switches.items()} == told
        assert await carol.text("a__add", {"a": 1, "b": 1}) == "2"


async def test_a_profile_without_any_tool_of_a_group_knows_of_none(tmp_path: Path) -> None:
    root: dict[str, Any] = {"groups": {"sums": GROUPS["sums"]}, "profiles": PROFILES, "group_scope": "hub"}
    async with (
        network_hub(tmp_path, SERVERS, {"principals": PRINCIPALS}, **root) as (_, base),
        visiting(base, "handshake", TOKENS["dora"]) as dora,
        visiting(base, "handshake", TOKENS["carol"]) as carol,
    ):
        assert await dora.names("tools/list") == ["a__echo"]
        for name in (RESET, "a__add"):
            answer = await dora.call(name, {"sums": True})
            assert answer["error"] == {"code": -32602, "message": f"Unknown tool: {name}"}
        assert "a__add" not in await carol.names("tools/list")


async def test_what_a_server_offers_in_a_session_of_ones_own_is_grouped_too(tmp_path: Path) -> None:
    servers = {"own": fake(session="client"), "other": fake()}
    groups = {"late": ["own/grown"]}
    async with (
        network_hub(tmp_path, servers, {"principals": PRINCIPALS}, groups=groups) as (_, base),
        visiting(base, "handshake", TOKENS["alice"]) as alice,
        visiting(base, "handshake", TOKENS["bob"]) as bob,
    ):
        await alice.begin({"roots": {}})
        async with hearing(alice) as ear:
            before = await alice.names("tools/list")
            for name in ("grown", "seen"):
                await alice.text("own__grow", {"name": name})
            await ear.until(1)
            assert set(await alice.names("tools/list")) == {*before, "own__seen"}
            assert code((await alice.call("own__grown"))["result"]) == "group_inactive"
            await alice.text(RESET, {"late": True})
            await ear.until(2)
            assert ear.heard.count(CHANGED) == 2
            assert "own__grown" in await alice.names("tools/list")
            assert await alice.text("own__grown") == "called grown"
            assert (await bob.call("own__grown"))["error"]["message"] == "Unknown tool: own__grown"
