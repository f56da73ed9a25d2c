"""Groups on a network: each caller switches its own, and hears of what changes for it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.downstream.network.visitor import ERAS, TOKENS, Visitor, network_hub, spelled, visiting
from tests.fakes.client import fake
from tests.hub.groups.hearing import CHANGED, GROUPS, RESET, code, hearing

pytestmark = pytest.mark.anyio

SERVERS = {"a": fake("--name", "a"), "b": fake("--name", "b")}
PROFILES = {"adding": {"tools": ["a/add", "a/pid"]}, "texting": {"tools": ["a/echo"]}}
LISTEN: dict[str, Any] = {"principals": {name: TOKENS[name] for name in ("alice", "bob")}}
PRINCIPALS = {
    **LISTEN["principals"],
    "carol": {"token": TOKENS["carol"], "profile": "adding"},
    "dora": {"token": TOKENS["dora"], "profile": "texting"},
}
ALL = {"principals": PRINCIPALS}


@pytest.fixture(scope="module")
async def base(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with network_hub(tmp_path_factory.mktemp("hub"), SERVERS, LISTEN, groups=GROUPS) as (_, base):
        yield base


@contextlib.asynccontextmanager
async def two(base: str, era: str) -> AsyncIterator[tuple[Visitor, Visitor]]:
    """Both as the configuration has it: a principal of the modern era may have been here before."""
    async with visiting(base, era, TOKENS["alice"]) as alice, visiting(base, era, TOKENS["bob"]) as bob:
        for visitor in (alice, bob):
            await visitor.text(RESET, {"texts": True})
        yield alice, bob


@pytest.mark.parametrize("era", ERAS)
async def test_a_switch_by_one_client_affects_and_notifies_only_that_client(base: str, era: str) -> None:
    async with (
        two(base, era) as (alice, bob),
        hearing(alice) as alice_ear,
        hearing(bob) as bob_ear,
    ):
        before = await bob.names("tools/list")
        assert await alice.names("tools/list") == before
        await alice.text(RESET, {"sums": True, "texts": True})
        await alice_ear.until(1)
        assert set(await alice.names("tools/list")) == {*before, "a__add", "b__add"}
        assert await bob.names("tools/list") == before
        assert await alice.text("a__add", {"a": 1, "b": 1}) == "2"
        assert code((await bob.call("a__add", {"a": 1, "b": 1}))["result"]) == "group_inactive"
        await bob.text(RESET, {"all_of_b": True})
        await bob_ear.until(1)
        await alice.text(RESET, {"texts": True})
        await alice_ear.until(2)
        assert (alice_ear.methods.count(CHANGED), bob_ear.methods.count(CHANGED)) == (2, 1)
        assert await alice.names("tools/list") == before
        assert "b__pid" in await bob.names("tools/list")


async def test_a_modern_principal_is_one_caller_and_each_handshake_session_is_its_own(base: str) -> None:
    for era, shared in (("modern", True), ("handshake", False)):
        async with two(base, era) as (first, _), visiting(base, era, TOKENS["alice"]) as second:
            await first.text(RESET, {"sums": True})
            assert ("a__add" in await second.names("tools/list")) == shared
            assert "a__add" in await first.names("tools/list")


async def test_with_hub_scope_a_switch_affects_and_notifies_every_client(tmp_path: Path) -> None:
    async with (
        network_hub(tmp_path, SERVERS, LISTEN, groups=GROUPS, group_scope="hub") as (_, base),
        two(base, "handshake") as (alice, bob),
        hearing(bob) as bob_ear,
    ):
        await bob.names("tools/list")
        await alice.text(RESET, {"sums": True})
        await bob_ear.until(1)
        assert "a__add" in await bob.names("tools/list")
        assert "a__echo" not in await bob.names("tools/list")


async def test_a_profile_has_the_groups_of_a_hub_that_serves_only_it(tmp_path: Path) -> None:
    root: dict[str, Any] = {"groups": GROUPS, "profiles": PROFILES, "meta_tools": True}
    async with (
        network_hub(tmp_path / "all", SERVERS, ALL, **root) as (_, base),
        network_hub(tmp_path / "one", SERVERS, {}, "--profile", "adding", **root) as (_, profile_base),
    ):
        for era in ERAS:
            async with (
                visiting(base, era, TOKENS["alice"]) as alice,
                visiting(base, era, TOKENS["carol"]) as carol,
                visiting(profile_base, era) as expected,
            ):
                await alice.text(RESET, {"all_of_b": True})
                await same_answers(carol, expected)
                assert await carol.text("a__add", {"a": 1, "b": 1}) == "2"


async def same_answers(carol: Visitor, expected: Visitor) -> None:
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
        assert not any(GROUPS["all_of_b"][field] in spelled(answer) for field in ("description", "notes"))
    (switch,) = [tool for tool in (await carol.ask("tools/list"))["result"]["tools"] if tool["name"] == RESET]
    assert set(switch["inputSchema"]["properties"]) == {"sums"}


async def test_a_profile_without_tools_of_a_group_does_not_see_the_group(tmp_path: Path) -> None:
    root: dict[str, Any] = {"groups": {"sums": GROUPS["sums"]}, "profiles": PROFILES, "group_scope": "hub"}
    async with (
        network_hub(tmp_path, SERVERS, ALL, **root) as (_, base),
        visiting(base, "handshake", TOKENS["dora"]) as dora,
        visiting(base, "handshake", TOKENS["carol"]) as carol,
    ):
        assert await dora.names("tools/list") == ["a__echo"]
        for name in (RESET, "a__add"):
            answer = await dora.call(name, {"sums": True})
            assert answer["error"] == {"code": -32602, "message": f"Unknown tool: {name}"}
        assert "a__add" not in await carol.names("tools/list")


async def test_tools_listed_only_in_a_clients_own_session_are_grouped_too(tmp_path: Path) -> None:
    servers = {"own": fake(session="client"), "other": fake()}
    groups = {"late": ["own/grown"]}
    async with (
        network_hub(tmp_path, servers, LISTEN, groups=groups) as (_, base),
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
            assert ear.methods.count(CHANGED) == 2
            assert "own__grown" in await alice.names("tools/list")
            assert await alice.text("own__grown") == "called grown"
            assert (await bob.call("own__grown"))["error"]["message"] == "Unknown tool: own__grown"
