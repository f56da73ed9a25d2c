"""The live page and the commands count the same tools and calls: those of servers, as everybody is listed them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.downstream.page.endpoints import MAX_WINDOW
from tests.cli.test_open_and_logs import opened, run, run_dir
from tests.downstream.network.visitor import network_hub, visiting
from tests.fakes.client import fake

pytestmark = pytest.mark.anyio

__all__ = ["run_dir"]

OWN = {"reset_equipped_tools", "hub_search", "hub_read", "hub_call"}
HIDDEN = fake(disable_tools=["add"])
TWO = fake(enable_tools=["echo", "add"])
MATHS = {"maths": {"tools": ["up/count", "up/pid"], "description": "Numbers."}}


async def printed(*arguments: str) -> Any:
    return json.loads((await run(*arguments, "--json")).stdout)


@pytest.mark.parametrize(
    ("server", "root"),
    [
        (HIDDEN, {}),
        (HIDDEN, {"groups": MATHS, "meta_tools": True}),
        (TWO, {"expose": "search"}),
        (TWO, {"expose": "search", "expose_always": ["up/echo"]}),
    ],
)
async def test_the_page_and_all_commands_count_the_same_tools(
    tmp_path: Path, server: dict[str, Any], root: dict[str, Any]
) -> None:
    servers = {"up": server, "dead": {"command": "no-such-command"}}
    async with network_hub(tmp_path / "hub", servers, {}, **root) as (_, base), visiting(base, "modern") as client:
        await client.names("tools/list")
        (config,) = (tmp_path / "hub").glob("servers.*")
        lines = (await run("tools", "--config", str(config))).stdout.splitlines()
        names = {line.split()[0] for line in lines if not line.startswith("group ")}
        count = len(names - OWN)
        (status,) = await printed("status")
        assert status["exposed"]["tools"] == count
        assert sum(row["exposed_tools"] for row in status["servers"]) == count
        assert {row["of"] for row in status["listed_to"]} == {count}
        assert all(row["listed"] <= row["of"] for row in status["listed_to"])
        check = await printed("check", "--config", str(config))
        assert sum(row["exposed_tools"] for row in check["servers"]) == count
        assert {row["of"] for row in check["listed_to"]} == {count}
        costs = await printed("tokens", "--config", str(config))
        assert costs["client"]["of"] == count
        assert costs["client"]["tools"] == check["listed_to"][-1]["listed"] <= count
        async with opened((await run("open")).stdout) as page:
            state = await page.found("state")
            assert state["totals"]["tools"] == sum(row["tools"] for row in state["servers"]) == count
            view = await page.found(f"tools?listed=1&count={MAX_WINDOW}")
            assert {row["name"] for row in view["rows"]} == names
            assert view["matching"] - view["own"] == count
            assert view["total"] - view["own"] == check["servers"][0]["tools"]


async def test_the_page_and_status_count_the_same_calls(tmp_path: Path) -> None:
    async with (
        network_hub(tmp_path / "hub", {"up": fake()}, {}, expose="search") as (_, base),
        visiting(base, "modern") as client,
        opened((await run("open")).stdout) as page,
    ):
        await client.text("up__echo", {"text": "x"})
        await client.call("up__fail")
        await client.call("up__no_such_tool")
        await client.call("hub_search", {"query": "echo"})
        state, (status,) = await page.found("state"), await printed("status")
        counts, failures = status["metrics"]["calls"], status["metrics"]["failures"]
        assert state["totals"]["calls"] == sum(row["count"] for row in counts) == 4
        assert state["totals"]["errors"] == sum(failures.values()) == 1
        assert re.search(r"^  4 calls ended, 1 of them failed$", (await run("status")).stdout, re.MULTILINE)
