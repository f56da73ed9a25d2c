"""Names that meet after their namespace is put in front, or only look alike; tools that appear behind an allow-list."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.catalog import Catalog, CatalogSource, Item, Route
from mcp_hub.protocol.kinds import TOOLS
from tests.cli.test_commands import run
from tests.fakes.client import HUB, PATIENCE, RpcError, fake, hub, spawned, write_config
from tests.policy.screen.corpus import tool

pytestmark = pytest.mark.anyio


def source(upstream: str, *names: str, namespace: str | None = None) -> CatalogSource:
    items = (Item(Route(upstream, TOOLS, name), name, tool(name=name)) for name in names)
    return CatalogSource(upstream, upstream if namespace is None else namespace, tuple(items))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a", "b_c"), ("a_b", "c")),
        (("a", "echo"), ("A", "Echo")),
        (("a", "echo"), ("a", "ＥＣＨＯ")),
        (("", "a__echo"), ("a_", "echo")),
        (("a", "ﬁle"), ("A", "file")),
        (("", "d\u0435l\u0435te"), ("", "delete")),
        (("", "send_mail"), ("", "send-mai1")),
        (("g1t", "t0uch"), ("glt", "touch")),
    ],
)
def test_lookalike_names_of_two_servers_are_reported_and_resolve_correctly(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    sources = [
        source("one", first[1], namespace=first[0]),
        source("two", second[1], namespace=second[0]),
    ]
    catalog = Catalog.build(sources)
    assert any("looks like" in finding.problem for finding in catalog.findings)
    routes = {catalog.resolve(TOOLS, name) for name in catalog.names(TOOLS)}
    assert routes == {Route("one", TOOLS, first[1]), Route("two", TOOLS, second[1])}


@pytest.mark.parametrize("mode", ["keep_first", "raise", "override", "rename", "prefix"])
def test_equal_names_of_two_servers_are_reported_and_resolved_by_on_conflict(mode: Any) -> None:
    """`a_` with `b` and `a` with `_b` are both `a___b`; who comes first to answer decides nothing."""
    sources = [source("one", "b", namespace="a_"), source("two", "_b", namespace="a")]
    catalog = Catalog.build(sources, mode)
    assert [finding.kind for finding in catalog.findings] == ["tool"]
    winner = "two" if mode == "override" else "one"
    resolved = catalog.resolve(TOOLS, "a___b")
    assert resolved is not None
    assert resolved.upstream == winner


def test_any_order_of_arrival_gives_the_same_catalog() -> None:
    sources = [source("a", "b_c", "x"), source("a_b", "c", "y"), source("A", "b_c", "x")]
    fingerprints = set()
    for order in itertools.permutations(range(3)):
        previous = None
        for count in range(1, 4):
            # They answer one after the other; the build always has them in the order of the file.
            present = [item for index, item in enumerate(sources) if index in order[:count]]
            previous = Catalog.build(present)
        assert previous is not None
        fingerprints.add(previous.fingerprint)
    assert len(fingerprints) == 1


def test_check_reports_names_that_look_alike(tmp_path: Path) -> None:
    (tmp_path / "1").write_text(json.dumps({"tools": [tool(name="b_c")]}))
    (tmp_path / "2").write_text(json.dumps({"tools": [tool(name="c")]}))
    servers = {"a": fake("--lists", str(tmp_path / "1")), "a_b": fake("--lists", str(tmp_path / "2"))}
    done = run("check", "--config", str(write_config(tmp_path, servers)))
    assert done.returncode == 0
    assert "warning: a_b: tool c: its name looks like 'a__b_c' of 'a'" in done.stdout


@pytest.mark.parametrize("modern", [False, True])
async def test_a_tool_added_later_stays_hidden_under_an_allow_list(tmp_path: Path, modern: bool) -> None:
    """T17: a list that brings an allowed tool and another brings only the allowed one."""
    servers = {"a": fake(enable_tools=["grow", "seen"])}
    async with hub(tmp_path, servers, modern=modern, list_wait=20) as client:
        assert await client.tool_names() == ["a__grow"]
        assert await client.text("a__grow", {"name": "add_user"}) == "grown"
        assert await client.text("a__grow", {"name": "seen"}) == "grown"
        async with asyncio.timeout(PATIENCE):
            while "a__seen" not in (names := await client.tool_names()):
                await client.request("ping" if not modern else "server/discover")
        assert names == ["a__grow", "a__seen"]
        with pytest.raises(RpcError) as refused:
            await client.call("a__add_user")
        assert refused.value.error == {"code": -32602, "message": "Unknown tool: a__add_user"}


@pytest.mark.parametrize("member", ["git/*", "git__*", "git/wipe", "git__wipe"])
async def test_no_server_takes_the_place_of_another_in_an_allow_list(tmp_path: Path, member: str) -> None:
    """T17: the member means the tools of `git`, whatever names another server gives to its own."""
    for name, tools in (("git", ["wipe", "git__own"]), ("evil", ["git/wipe", "git__wipe", "git/more", "git__more"])):
        (tmp_path / name).write_text(json.dumps({"tools": [tool(name=tool_name) for tool_name in tools]}))
    servers = {
        "git": fake("--lists", str(tmp_path / "git")),
        "evil": fake("--lists", str(tmp_path / "evil")),
        "bare": fake("--lists", str(tmp_path / "evil"), namespace=""),
    }
    profiles = {"reader": {"tools": [member]}}
    config = str(write_config(tmp_path, servers, profiles=profiles, tool_sets={"reading": {"tools": [member]}}))
    for option, value in (("--profile", "reader"), ("--tool-set", "reading")):
        async with spawned([*HUB, "serve", "--config", config, option, value]) as client:
            await client.initialize()
            names = {"git__wipe", "git__git__own"} if member.endswith("*") else {"git__wipe"}
            assert set(await client.tool_names()) == names
            with pytest.raises(RpcError) as refused:
                await client.call("evil__git_wipe")
            assert refused.value.error == {"code": -32602, "message": "Unknown tool: evil__git_wipe"}
