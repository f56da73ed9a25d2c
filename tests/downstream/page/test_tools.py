"""The tools as everybody and as one principal sees them, and what each rule makes of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.downstream.page.endpoints import MAX_WINDOW
from mcp_hub.hub.composition import read_config
from tests.downstream.page.acting import ADMIN, GUEST, NETWORK, OTHER, PROFILES, act, text
from tests.downstream.page.opened import OpenPage, costs_of, served_hub
from tests.fakes.client import PATIENCE, fake, write_config

pytestmark = pytest.mark.anyio


async def rows(page: OpenPage, seen_as: str = "") -> dict[str, dict[str, Any]]:
    body = await page.found(f"tools?as={seen_as}")
    assert body["as"] == (seen_as or None) or not page.viewer["admin"]
    return {row["name"]: row for row in body["rows"]}


async def test_every_tool_is_listed_with_its_token_cost_and_its_description(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": fake()}) as served, served.looking() as page:
        tools = await rows(page)
        echo = tools["a__echo"]
        assert echo == {
            "name": "a__echo",
            "server": "a",
            "title": "Echo",
            "line": "echo of fake",
            "tokens": echo["tokens"],
            "read_only": True,
            "destructive": None,
            "hidden_by": None,
        }
        assert echo["tokens"] > 10
        state = await page.found("state")
        assert state["totals"]["tokens"] == sum(row["tokens"] for row in tools.values())


async def test_an_admin_sees_a_principals_tools_and_why_others_are_hidden(tmp_path: Path) -> None:
    groups = {"maths": {"tools": ["a/count"]}}
    servers = {"a": fake(disable_tools=["add"])}
    async with (
        served_hub(tmp_path, servers, NETWORK, profiles=PROFILES, groups=groups) as served,
        served.looking(token=ADMIN) as boss,
    ):
        assert (await boss.found("tools"))["principals"] == ["boss", "guest", "other"]
        all_tools, guest_tools = await rows(boss), await rows(boss, "guest")
        assert all_tools["a__add"]["hidden_by"] == "servers.a: filter of tools"
        assert all_tools["a__count"]["hidden_by"] == "groups.maths: inactive"
        assert all_tools["a__pid"]["hidden_by"] is None
        assert guest_tools["a__pid"]["hidden_by"] == "not in profile 'small'"
        assert guest_tools["a__echo"]["hidden_by"] is None
        await act(boss, "groups", states={"maths": True})
        assert (await rows(boss))["a__count"]["hidden_by"] is None
        assert (await boss.get("tools?as=nobody")).status_code == 404
        assert (await boss.get("tools/a__echo?as=nobody")).status_code == 404


async def test_a_caller_without_admin_rights_sees_only_the_tools_of_its_profile(
    tmp_path: Path,
) -> None:
    async with (
        served_hub(tmp_path, {"a": fake(disable_tools=["add"])}, NETWORK, profiles=PROFILES) as served,
        served.looking(token=GUEST) as guest,
        served.looking(token=OTHER) as other,
    ):
        answer = await guest.found("tools")
        assert sorted(row["name"] for row in answer["rows"]) == ["a__echo", "a__sleep"]
        assert answer["principals"] == []
        assert "a__add" not in await rows(other)
        for name in ("boss", "other", "nobody"):
            assert (await guest.get(f"tools?as={name}")).status_code == 404
            assert (await guest.get(f"tools/a__echo?as={name}")).status_code == 404
        echo = await guest.found("tools/a__echo?as=guest")
        assert echo["definition"]["name"] == "a__echo"
        assert (echo["original"], echo["rules"]) == (None, [])
        texts = set()
        for name in ("a__pid", "a__add", "nothing", "pid", "a/pid", "%2e%2e/state", "a__echo/"):
            hidden = await guest.get(f"tools/{name}")
            assert hidden.status_code == 404
            texts.add(hidden.json()["error"]["message"])
        assert len(texts) <= 2


async def test_a_tool_shows_its_listed_and_original_definition_and_the_effect_of_each_rule(
    tmp_path: Path,
) -> None:
    tools = {"echo": {"name": "say", "description": "Says it.", "preset": {"text": "hello"}}}
    servers = {"a": fake(tools=tools, disable_tools=["add"])}
    async with served_hub(tmp_path, servers) as served, served.looking() as page:
        details = await page.found("tools/a__say")
        assert details["definition"]["description"] == "Says it."
        assert "text" not in details["definition"]["inputSchema"]["properties"]
        assert details["original"]["name"] == "echo"
        assert "text" in details["original"]["inputSchema"]["properties"]
        rules = {rule["policy"]: rule["did"] for rule in details["rules"]}
        assert rules["presentation"] == "renames it to say; changes description"
        assert rules["preset"] == "changes inputSchema"
        assert rules["access"] == "passes it"
        hidden = await page.found("tools/a__add")
        assert hidden["definition"] is None
        assert hidden["original"]["name"] == "add"
        effects = {rule["policy"]: rule["did"] for rule in hidden["rules"]}
        assert effects["access"] == "hides it: servers.a: filter of tools"
        assert next(iter(effects)) == "access"


async def test_five_thousand_tools_are_one_response_below_1500_kilobytes(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": fake("--tools", "5000")}) as served, served.looking() as page:
        answer = await page.get("tools")
        assert answer.json()["total"] > 5000
        assert len(answer.json()["rows"]) == MAX_WINDOW
        assert len(answer.content) < 1_500_000


async def test_the_tools_are_listed_while_a_reload_removes_the_server_of_hidden_ones(tmp_path: Path) -> None:
    servers = {"a": fake(), "b": fake("--tools", "5000", disable_tools=["t*"])}
    async with served_hub(tmp_path, servers) as served, served.looking() as page:
        assert (await page.found("tools?text=b__t0"))["matching"] == 1
        fewer = read_config(write_config(tmp_path, {"a": fake()})).config
        removing = asyncio.create_task(served.hub.renew(fewer))
        async with asyncio.timeout(PATIENCE):
            while (await page.found("tools?text=b__t0"))["matching"]:
                pass
            await removing


async def test_a_definition_of_nearly_a_megabyte_is_cut_and_hostile_texts_are_escaped(tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    hostile = "<img src=x onerror=alert(1)>\u202e\x1b[31m"
    tools = [
        {"name": "long", "description": "x" * 900_000, "inputSchema": {"type": "object"}},
        {"name": "bad", "title": hostile, "description": hostile, "inputSchema": {"type": "object", "title": hostile}},
    ]
    lists.write_text(json.dumps({"tools": tools}))
    async with served_hub(tmp_path, {"a": fake("--lists", str(lists))}) as served, served.looking() as page:
        listed = await rows(page)
        assert "a__bad" in listed
        assert "\u202e" not in listed["a__bad"]["line"] + listed["a__bad"]["title"]
        detail = await page.found("tools/a__long")
        assert detail["definition"]["description"].endswith("… (900,000 characters)")
        assert len(listed["a__long"]["line"]) < 200
        answer = await page.get("tools/a__bad")
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_only_admins_get_the_token_costs_of_each_exposure_mode(tmp_path: Path) -> None:
    groups = {"numbers": {"tools": ["a__add"], "active": False}}
    async with (
        served_hub(tmp_path, {"a": fake()}, NETWORK, groups=groups, profiles=PROFILES) as served,
        served.looking(token=ADMIN) as page,
        served.looking(token=GUEST) as guest,
    ):
        await text(page, "a__echo", {"text": "x"})
        async with asyncio.timeout(PATIENCE):
            while (await page.found("calls"))["calls"] == []:
                await asyncio.sleep(0)
        costs = await page.found("costs")
        assert costs == without_tools(costs_of(served.hub))
        modes = {entry["way"]: entry["tokens"] for entry in costs["ways"]}
        assert list(modes) == ["all", "groups", "search", "code"]
        assert min(modes["all"], modes["code"]) > modes["search"]  # a program takes more to describe than calls
        assert [entry["tools"] for entry in costs["groups"]] == [1]
        (server,) = costs["servers"]
        assert costs["never_called"]["tools"] == server["never_called"] == server["tools"] - 1
        assert 0 < costs["never_called"]["tokens"] < server["tokens"]
        assert (await guest.get("costs")).status_code == 404


def without_tools(costs: dict[str, Any]) -> dict[str, Any]:
    """The costs as the page gets them: without the tools, but with a count of those that nobody has called."""
    unused = [tool["tokens"] for tool in costs["tools"] if tool["calls"] == 0 and tool["server"]]
    totals = {name: costs[name] for name in ("client", "ways", "groups", "servers")}
    return {**totals, "never_called": {"tools": len(unused), "tokens": sum(unused)}}
