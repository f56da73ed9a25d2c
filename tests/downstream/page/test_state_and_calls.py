"""What the live page is told of a hub: servers, clients, calls and rules, each viewer what it may see."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.downstream.page import server_rows
from tests.downstream.network.visitor import ERAS, TOKENS
from tests.downstream.page.opened import OpenPage, served_hub
from tests.fakes.client import PATIENCE, fake, write_config

pytestmark = pytest.mark.anyio

SECRET = "sk-ant-REDACTED"
EVIL = "<img src=x onerror=alert(1)>\x1b[31m\u202e\u200b\x07"
PRINCIPALS = {
    "alice": {"token": TOKENS["alice"], "profile": "adding"},
    "bob": {"token": TOKENS["bob"], "profile": "echoing"},
    "carol": {"token": TOKENS["carol"], "admin": True},
}
PROFILES = {"adding": {"tools": ["a/add"]}, "echoing": {"tools": ["b/echo"]}}


async def settled(page: OpenPage, number: int) -> list[dict[str, Any]]:
    """The calls, as soon as there are so many; a record is made right after the answer."""
    async with asyncio.timeout(PATIENCE):
        while len(calls := (await page.found("calls"))["calls"]) < number:
            await asyncio.sleep(0)
    return list(calls)


async def test_the_state_has_every_server_with_its_cost_and_its_problem(tmp_path: Path) -> None:
    servers = {"up": fake(), "dead": {"command": "no-such-command"}, "off": fake(enabled=False)}
    async with served_hub(tmp_path, servers) as served, served.looking() as page, served.calling() as client:
        await client.text("up__echo", {"text": "x"})
        await client.call("up__fail")
        await settled(page, 2)
        state = await page.found("state")
        up, dead, off = state["servers"]
        assert (up["server"], up["state"], up["transport"]) == ("up", "ready", "stdio")
        assert up["tools"] > 5
        assert up["tokens"] > up["tools"]
        assert (up["calls"], up["errors"]) == (2, 1)
        assert 0 <= up["p50_ms"] <= up["p95_ms"]
        assert isinstance((await page.found("servers/up"))["pid"], int)
        assert dead["code"] == "HUB-201"
        assert "no-such-command" in dead["problem"]
        assert (await page.found("servers/dead"))["cure"]
        assert off["disabled"] is True
        assert state["totals"] == {name: up[name] for name in ("calls", "errors", "tools", "tokens")}
        assert state["who"]["admin"] is True
        assert state["config"] == str(served.config)


async def test_a_call_refused_by_a_rule_does_not_count_as_a_server_error(tmp_path: Path) -> None:
    listen = {"ui": True, "principals": {"ann": {"token": "a" * 40}, "boss": {"token": "b" * 40, "admin": True}}}
    servers = {"up": fake(disable_tools=["crash"], confirm="pid")}
    async with (
        served_hub(tmp_path, servers, listen) as served,
        served.looking(token="b" * 40) as boss,
        served.looking(token="a" * 40) as ann,
        served.calling("a" * 40) as client,
    ):
        await client.text("up__echo", {"text": "x"})
        for name, arguments in (("crash", {}), ("pid", {}), ("add", {"a": "no number"}), ("fail", {})):
            await client.call(f"up__{name}", arguments)
        await settled(ann, 5)
        for page in (boss, ann):
            (up,) = (await page.found("state"))["servers"]
            assert up["errors"] == 1, "the call that the server failed"
            verdicts = {entry["name"]: entry["verdict"] for entry in await settled(page, 5)}
            assert verdicts == {
                "up__echo": "ok",
                "up__crash": "refused",
                "up__pid": "refused",
                "up__add": "refused",
                "up__fail": "error",
            }


async def test_clients_are_listed_with_their_declared_capabilities(tmp_path: Path) -> None:
    async with (
        served_hub(tmp_path, {"up": fake()}) as served,
        served.looking() as page,
        served.calling() as session,
        served.calling(era="modern") as modern,
    ):
        await session.begin({"roots": {"listChanged": True}})
        await session.text("up__echo", {"text": "x"})
        await modern.text("up__echo", {"text": "x"})
        await settled(page, 2)
        clients = (await page.found("clients"))["rows"]
        assert (await page.found("state"))["clients"] == len(clients) == 3
        details = [await page.found(f"clients/{entry['id']}") for entry in clients]
        declared = [entry for entry in details if entry["declared"]]
        assert [entry["declared"] for entry in declared] == [{"roots": {"listChanged": True}}]
        assert (declared[0]["name"], declared[0]["version"], declared[0]["calls"]) == ("v", "1", 1)
        assert declared[0]["era"] == "handshake"
        assert [(entry["name"], entry["calls"]) for entry in clients if entry["era"] == "modern"] == [("raw", 1)]


async def test_an_open_client_says_how_many_tools_it_was_listed_and_why(tmp_path: Path) -> None:
    async with (
        served_hub(tmp_path, {"up": fake()}, expose="search") as served,
        served.looking() as page,
        served.calling() as client,
    ):
        await client.begin({})
        assert len(await client.names("tools/list")) == 3
        found: list[str] = []
        for row in (await page.found("clients"))["rows"]:
            details = await page.found(f"clients/{row['id']}")
            found += [details["listed"]] if "listed" in details else []
        assert {text.partition(" of ")[0] for text in found} == {"0"}
        assert found[0].endswith("tools: 'expose' is 'search'; hub_search finds the rest")


async def test_clients_are_listed_in_order_of_connection(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {}) as served, served.looking() as page, served.calling() as client:
        names = [f"client {number}" for number in range(20)]
        for name in names:
            client.session = {}
            info = {"name": name, "version": "1"}
            await client.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
        assert [entry["name"] for entry in (await page.found("clients"))["rows"]] == ["v", *names]


async def test_calls_are_listed_newest_first_and_page_by_page(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"up": fake()}) as served, served.looking() as page, served.calling() as client:
        for number in range(5):
            await client.text("up__echo", {"text": str(number)})
        await client.call("up__nothing")
        calls = await settled(page, 6)
        assert [entry["name"] for entry in calls] == ["up__nothing"] + ["up__echo"] * 5
        assert (calls[0]["verdict"], calls[0]["server"], calls[1]["tool"]) == ("refused", None, "echo")
        first = await page.found("calls?limit=4")
        second = await page.found(f"calls?limit=4&before={first['calls'][-1]['id']}")
        assert (first["more"], second["more"]) == (True, False)
        assert [entry["id"] for entry in first["calls"] + second["calls"]] == [entry["id"] for entry in calls]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("verdict=refused", ["up__nothing"]),
        ("verdict=ok&server=up", ["up__echo"]),
        ("server=none", []),
        ("text=NOTHING", ["up__nothing"]),
        ("text=echo&verdict=refused", []),
        ("principal=bob", []),
        ("limit=x&before=unknown", []),
        (f"verdict=refused&limit={'9' * 5000}", ["up__nothing"]),
    ],
)
async def test_calls_can_be_filtered_by_query_parameters(tmp_path: Path, query: str, names: list[str]) -> None:
    async with served_hub(tmp_path, {"up": fake()}) as served, served.looking() as page, served.calling() as client:
        await client.text("up__echo", {"text": "x"})
        await client.call("up__nothing")
        await settled(page, 2)
        assert [entry["name"] for entry in (await page.found(f"calls?{query}"))["calls"]] == names


async def test_one_call_shows_its_route_and_the_effect_of_every_rule_without_secrets(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"up": fake()}) as served, served.looking() as page, served.calling() as client:
        await client.text("up__echo", {"text": "x", "api_key": SECRET})
        (call,) = await settled(page, 1)
        details = await page.found(f"calls/{call['id']}")
        assert details["route"] == {"server": "up", "tool": "echo", "name": "up__echo", "run": None}
        assert {"access", "validate", "upstream"} <= {step["policy"] for step in details["steps"]}
        assert details["call"]["arguments"]["text"] == "x"
        assert SECRET not in json.dumps(details)
        assert (await page.get("calls/unknown")).status_code == 404


async def test_calls_before_the_first_viewer_are_not_kept_and_the_page_says_so(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"up": fake()}) as served, served.calling() as client:
        tap = served.hub.tap
        assert tap.sink is None
        await client.text("up__echo", {"text": "x"})
        async with served.looking() as page:
            assert tap.sink is not None
            assert (await page.found("calls"))["calls"] == []
            state = await page.found("state")
            assert state["watched_since"]
            assert state["servers"][0]["calls"] == 1


@pytest.mark.parametrize("era", ERAS)
async def test_a_caller_sees_only_its_profile_and_its_own_calls(tmp_path: Path, era: str) -> None:
    servers = {"a": fake(), "b": fake(), "c": fake()}
    root: dict[str, Any] = {"profiles": PROFILES, "groups": {"g": {"tools": ["c/*"], "active": True}}}
    async with (
        served_hub(tmp_path, servers, {"principals": PRINCIPALS}, **root) as served,
        served.looking(token=TOKENS["alice"]) as alice,
        served.looking(token=TOKENS["bob"]) as bob,
        served.looking(token=TOKENS["carol"]) as carol,
        served.calling(TOKENS["alice"], era) as of_alice,
        served.calling(TOKENS["bob"], era) as of_bob,
    ):
        await of_alice.text("a__add", {"a": 1, "b": 2})
        await of_bob.text("b__echo", {"text": "private"})
        all_calls = await settled(carol, 2)
        assert {entry["principal"] for entry in all_calls} == {"alice", "bob"}
        for page, server, principal in ((alice, "a", "alice"), (bob, "b", "bob")):
            state = await page.found("state")
            (row,) = state["servers"]
            assert (row["server"], row["tools"], row["calls"]) == (server, 1, 1)
            details = await page.found(f"servers/{server}")
            assert not {"pid", "restarts", "running", "stderr"} & details.keys()
            assert (row["p50_ms"], details["p95_ms"], details["pins"]) == (None, None, 0)
            assert (await page.get("servers/c")).status_code == 404
            clients = (await page.found("clients"))["rows"]
            assert {entry["principal"] for entry in clients} == {principal}
            everybody = (await carol.found("clients"))["rows"]
            for entry in everybody:
                answer = await page.get(f"clients/{entry['id']}")
                assert answer.status_code == (200 if entry["principal"] == principal else 404)
            assert state["clients"] == len(clients)
            assert (state["rules"], state["config"], state["serving"]) == ([], None, [])
            assert state["configuration"]["files"] == []
            assert state["groups"] == []
            (call,) = (await page.found("calls"))["calls"]
            assert call["principal"] == principal
            foreign_id = next(entry["id"] for entry in all_calls if entry["principal"] != principal)
            for path in (f"calls/{foreign_id}", "calls/none"):
                answer = await page.get(path)
                assert answer.status_code == 404
            assert (await page.found(f"calls?before={foreign_id}"))["calls"] in ([], [call])
        assert {entry["server"] for entry in (await carol.found("state"))["servers"]} == {"a", "b", "c"}


async def test_a_caller_cannot_see_that_a_rule_hides_a_name_it_called(tmp_path: Path) -> None:
    async with (
        served_hub(
            tmp_path, {"a": fake(), "b": fake()}, {"principals": PRINCIPALS}, profiles=PROFILES, blacklist=["a/echo"]
        ) as served,
        served.looking(token=TOKENS["alice"]) as alice,
        served.looking(token=TOKENS["carol"]) as carol,
        served.calling(TOKENS["alice"]) as client,
    ):
        for name in ("a__echo", "b__echo", "a__nothing"):
            await client.call(name)
        await settled(carol, 3)
        rows = (await alice.found("calls"))["calls"]
        differ = {"id", "time", "name"}
        unknown, *hidden_rows = [{key: value for key, value in row.items() if key not in differ} for row in rows]
        assert hidden_rows == [unknown] * 2
        assert (unknown["reason"], unknown["policy"], unknown["server"]) == ("unknown", None, None)
        for row in rows:
            details = await alice.found(f"calls/{row['id']}")
            assert details["steps"] == []
            assert not {"policy", "notes", "upstream", "peer"} & {
                key for key, value in details["call"].items() if value
            }
        assert (await alice.found("calls?server=b"))["calls"] == []
        assert {row["reason"] for row in (await carol.found("calls"))["calls"]} > {"unknown"}


async def test_rules_groups_and_profiles_have_their_configuration_line(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"up": fake()}) as served:
        lines = [
            '{"groups": {',
            '  "daily": {"description": "every day", "active": true, "tools": ["up/echo"]}},',
            '"profiles": {',
            '  "adding": {"tools": ["up/add"]}},',
            '"blacklist": ["up/sleep"],',
            f'"cache_dir": {json.dumps(str(tmp_path / "cache"))},',
            '"servers": {',
            '  "up": {',
            f'    "command": {json.dumps(fake()["command"])}, "args": {json.dumps(fake()["args"])},',
            '    "disable_tools": ["fail"],',
            f'    "env": {{"API_TOKEN": "{SECRET}"}}}}}}}}',
        ]
        served.config.write_text("\n".join(lines))
        assert await served.reloader.reload(), served.reloader.refusal
        async with served.looking() as page:
            state = await page.found("state")
            name = served.config.name
            locations = {(entry["policy"], entry["key"], entry["server"]): entry["where"] for entry in state["rules"]}
            assert locations["access", "blacklist", None] == f"{name}:5"
            assert locations["access", "disable_tools", "up"] == f"{name}:10"
            (group,) = state["groups"]
            assert (group["name"], group["active"], group["tools"], group["where"]) == ("daily", True, 1, f"{name}:2")
            assert [(entry["name"], entry["where"]) for entry in state["profiles"]] == [("adding", f"{name}:4")]
            assert SECRET not in json.dumps(state)
            assert not any(entry["key"] in ("command", "args", "env", "cache_dir") for entry in state["rules"])


async def test_reloads_and_findings_are_reported(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"up": fake()}, colour="red") as served, served.looking() as page:
        (finding,) = (await page.found("state"))["configuration"]["findings"]
        assert (finding["level"], finding["code"], finding["where"]) == ("warning", "HUB-111", "servers.json:1")
        assert finding["cure"]
        write_config(tmp_path, {"up": fake(), "second": fake()})
        assert await served.reloader.reload()
        served.config.write_text("{")
        assert not await served.reloader.reload()
        configuration = (await page.found("state"))["configuration"]
        failed, applied = configuration["reloads"]
        assert "started second" in applied["changed"]
        assert applied["problem"] is None
        assert "servers.json:1" in failed["problem"]
        assert configuration["problem"] == failed["problem"]


async def test_texts_of_servers_and_clients_are_escaped_and_cut(tmp_path: Path) -> None:
    tools = [{"name": name, "description": EVIL, "inputSchema": {"type": "object"}} for name in ("stderr", EVIL)]
    lists = tmp_path / "lists.json"
    lists.write_text(json.dumps({"tools": tools}))
    async with (
        served_hub(tmp_path, {"up": fake("--lists", str(lists))}) as served,
        served.looking() as page,
        served.calling() as client,
    ):
        await client.call(f"up__{EVIL}", {"text": EVIL})
        await client.call("up__stderr", {"text": EVIL})
        await settled(page, 2)
        async with asyncio.timeout(PATIENCE):
            while not ((row := await page.found("servers/up"))["stderr"] and row["flagged"]):
                await asyncio.sleep(0)
        assert row["stderr"][-1] == "<img src=x onerror=alert(1)>\\x1b[31m\\u202e\\u200b\\x07"
        for path in ("state", "calls", "servers/up", "clients", "tools"):
            text = (await page.get(path)).text
            assert not [char for char in "\x1b\u202e\u200b\x07" if char in text]
            assert "\\u001b" not in text
            assert "\\u202e" not in text.replace("\\\\u202e", "")


async def test_a_finding_that_the_screen_makes_after_a_look_is_shown_at_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_rows, "FINDINGS_EVERY", 0.0)
    lists = tmp_path / "lists.json"
    lists.write_text(json.dumps({"tools": [{"name": "a", "description": EVIL, "inputSchema": {"type": "object"}}]}))
    async with served_hub(tmp_path, {"up": fake("--lists", str(lists))}) as served, served.looking() as page:
        await served.hub.settled_catalog()
        await page.found("state")
        async with asyncio.timeout(PATIENCE):
            while not any(flag.where == "description" for _, _, flag in served.hub.rules.screen.flags()):
                await asyncio.sleep(0.01)
        assert (await page.found("state"))["servers"][0]["flagged"]


async def test_an_argument_of_ten_megabytes_is_cut_in_the_record_of_its_call(tmp_path: Path) -> None:
    async with (
        served_hub(tmp_path, {"up": fake()}, {"max_body": "32MB"}) as served,
        served.looking() as page,
        served.calling() as client,
    ):
        await client.call("up__echo", {"text": "x" * 10_000_000})
        (call,) = await settled(page, 1)
        answer = await page.get(f"calls/{call['id']}")
        assert answer.status_code == 200
        assert len(answer.content) < 100_000


# --- the feed ----------------------------------------------------------------------------------------------------
