"""What an admin does from the page: it happens, it is recorded, and nobody else can do it in any way."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security import ANONYMOUS
from mcp_hub.security.callers import SOLE
from tests.downstream.page.acting import ADMIN, GUEST, NETWORK, OTHER, PROFILES, act, post, refusal, text
from tests.downstream.page.opened import OpenPage, served_hub
from tests.fakes.client import PATIENCE, fake, write_config
from tests.oauth.authority import authority
from tests.oauth.signing import browse

pytestmark = pytest.mark.anyio

EVERY_ACTION: list[tuple[str, dict[str, Any]]] = [
    ("restart", {"server": "a"}),
    ("disable", {"server": "a"}),
    ("enable", {"server": "a"}),
    ("sign_in", {"server": "a"}),
    ("end_session", {"client": "session-1"}),
    ("groups", {"states": {"g": True}}),
    ("pin", {"server": "a"}),
    ("reload", {}),
]


async def row(page: OpenPage, server: str) -> dict[str, Any]:
    return next(entry for entry in (await page.found("state"))["servers"] if entry["server"] == server)


async def until(page: OpenPage, server: str, **expected: Any) -> dict[str, Any]:
    """The row of a server once it has these values."""
    async with asyncio.timeout(PATIENCE):
        while True:
            entry = await row(page, server)
            if all(entry[name] == value for name, value in expected.items()):
                return entry


async def data(lines: AsyncIterator[str]) -> str:
    """The data of the next event of a stream."""
    while not (line := await anext(lines)).startswith("data: "):
        pass
    return line.removeprefix("data: ")


async def recorded(page: OpenPage, name: str) -> dict[str, Any]:
    """The newest record of an action."""
    calls = (await page.found(f"calls?text={name}"))["calls"]
    return next(entry for entry in calls if entry["event"] == "action" and entry["name"] == name)


async def test_restarting_disabling_and_enabling_a_server_are_each_recorded(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": fake(), "b": fake()}) as served, served.looking() as page:
        pid, other_pid = await text(page, "a__pid"), await text(page, "b__pid")
        assert "a is being started again" in (await act(page, "restart", server="a"))["text"]
        assert await text(page, "a__pid") != pid
        await act(page, "disable", server="a")
        off = await until(page, "a", disabled=True, tools=0)
        assert "switched off on the live page" in off["problem"]
        assert await refusal(page, "restart", server="a") == (409, "HUB-112")
        await act(page, "enable", server="a")
        await until(page, "a", disabled=False, state="ready")
        assert await text(page, "a__echo", {"text": "x"}) == "x"
        assert await text(page, "b__pid") == other_pid
        for name, verdict in (("restart", "error"), ("disable", "ok"), ("enable", "ok")):
            action = await recorded(page, name)
            assert (action["server"], action["client"], action["verdict"]) == ("a", "mcp-hub page", verdict)


async def test_a_switched_server_stays_switched_until_the_configuration_is_reloaded(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": fake()}) as served, served.looking() as page:
        await act(page, "disable", server="a")
        before = (tmp_path / "servers.json").read_bytes()
        assert await served.reloader.reload()
        await until(page, "a", disabled=False, state="ready")
        assert (tmp_path / "servers.json").read_bytes() == before


async def test_only_an_admin_can_act_and_refused_attempts_are_recorded(tmp_path: Path) -> None:
    groups = [{"name": "g", "tools": ["a/echo"]}]
    root = {"profiles": PROFILES, "groups": {group["name"]: {"tools": group["tools"]} for group in groups}}
    async with (
        served_hub(tmp_path, {"a": fake()}, NETWORK, **root) as served,
        served.looking(token=GUEST) as guest,
        served.looking(token=OTHER) as other,
    ):
        pid = await text(other, "a__pid")
        state = served.hub.upstreams["a"]
        for page in (guest, other):
            for name, arguments in EVERY_ACTION:
                assert await refusal(page, name, **arguments) == (403, "not_admin")
            assert await refusal(page, "no_such_action") == (403, "not_admin")
        assert served.hub.upstreams["a"] is state
        assert await text(other, "a__pid") == pid
        assert not (tmp_path / "servers.pins.json").exists()
        async with served.looking(token=ADMIN) as boss:
            attempt = await recorded(boss, "pin")
            assert (attempt["verdict"], attempt["principal"]) == ("refused", "other")
            assert await refusal(boss, "no_such_action") == (404, "not_found")


async def test_no_get_and_no_post_of_another_origin_or_without_the_token_changes_anything(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": fake()}) as served, served.looking() as page:
        state = served.hub.upstreams["a"]
        for name, arguments in EVERY_ACTION:
            for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
                headers = {**page.headers, "origin": page.base}
                path = f"/ui/api/actions/{name}?server=a"
                answer = await page.http.request(method, path, headers=headers)
                assert answer.status_code == 405, (method, answer.text)
            for origin in ("http://evil.example", "null", f"http://127.0.0.1:{served.port + 1}", ""):
                answer = await post(page, f"actions/{name}", arguments, origin=origin)
                assert answer.status_code == 403
            for missing in ("cookie", "x-mcp-hub-page"):
                headers = {key: value for key, value in page.headers.items() if key != missing}
                headers["origin"] = page.base
                answer = await page.http.post(f"/ui/api/actions/{name}", json=arguments, headers=headers)
                assert answer.status_code == 401
            form = {**page.headers, "origin": page.base, "content-type": "application/x-www-form-urlencoded"}
            answer = await page.http.post(f"/ui/api/actions/{name}", content=b"server=a", headers=form)
            assert answer.status_code == 415
        assert served.hub.upstreams["a"] is state


async def test_an_action_with_an_unknown_target_is_refused_with_a_reason(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": fake()}) as served, served.looking() as page:
        for name in ("restart", "disable", "enable", "sign_in", "pin"):
            for server in ("z", "", None, 5, ["a"], {"a": 1}):
                assert await refusal(page, name, server=server) == (404, "not_found")
        assert await refusal(page, "end_session", client="session-99") == (404, "not_found")
        assert await refusal(page, "groups", states={"z": True}) == (404, "not_found")
        for states in ({}, None, {"z": 1}, ["z"]):
            assert await refusal(page, "groups", states=states) == (400, "invalid")
        assert await refusal(page, "sign_in", server="a") == (409, "no_sign_in")
        answer = await post(page, "actions/restart", {"server": "x" * 100_000})
        assert answer.status_code == 413


async def test_switching_a_group_changes_the_list_of_a_client_without_its_own_choice(tmp_path: Path) -> None:
    groups = {"maths": {"tools": ["a/add"]}, "words": {"tools": ["a/echo"], "active": True}}
    async with served_hub(tmp_path, {"a": fake()}, groups=groups) as served, served.looking() as page:
        async with served.calling() as client:
            assert "a__add" not in await client.names("tools/list")
            await act(page, "groups", states={"maths": True, "words": False})
            names = await client.names("tools/list")
            assert "a__add" in names
            assert "a__echo" not in names
        assert (await recorded(page, "groups"))["verdict"] == "ok"


async def test_an_ended_session_answers_404_to_its_client(tmp_path: Path) -> None:
    async with (
        served_hub(tmp_path, {"a": fake()}) as served,
        served.looking() as page,
        served.calling() as client,
        served.calling() as second_client,
    ):
        await client.names("tools/list")
        await second_client.names("tools/list")
        rows = (await page.found("clients"))["rows"]
        assert len(rows) == 2
        first = served.app.streamable.sessions.find(client.session["mcp-session-id"], ANONYMOUS)
        assert first is not None
        client_id = first.caller.label
        await act(page, "end_session", client=client_id)
        remaining = [row["id"] for row in rows if row["id"] != client_id]
        async with asyncio.timeout(PATIENCE):
            while [row["id"] for row in (await page.found("clients"))["rows"]] != remaining:
                await asyncio.sleep(0)
        answer = await client.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert answer.status_code == 404
        await second_client.names("tools/list")
        assert await refusal(page, "end_session", client=client_id) == (404, "not_found")


async def test_ending_an_sse_session_closes_its_stream(tmp_path: Path) -> None:
    async with (
        served_hub(tmp_path, {"a": fake()}, sse=True) as served,
        served.looking() as page,
        httpx2.AsyncClient(base_url=served.base, timeout=PATIENCE) as http,
        http.stream("GET", "/sse", headers={"accept": "text/event-stream"}) as stream,
        asyncio.timeout(PATIENCE),
    ):
        lines = stream.aiter_lines()
        endpoint = await data(lines)
        greeting = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}
        assert (await http.post(endpoint, json=hello)).status_code == 202
        assert json.loads(await data(lines))["id"] == 1
        (client,) = (await page.found("clients"))["rows"]
        assert (client["name"], client["transport"]) == ("old", "sse")
        await act(page, "end_session", client=client["id"])
        assert [line async for line in lines if line.startswith("event: ")] == []
        assert (await http.post(endpoint, json=hello)).status_code == 404
        while (await page.found("state"))["clients"]:
            await asyncio.sleep(0)
        assert await refusal(page, "end_session", client=client["id"]) == (404, "not_found")


async def test_pinning_a_server_records_its_definitions_and_serves_its_tools(tmp_path: Path) -> None:
    marker = tmp_path / "more"
    servers = {"a": fake("--more-if", str(marker)), "b": fake()}
    async with served_hub(tmp_path, servers, pins="enforce") as served, served.looking() as page:
        assert not served.hub.catalogs.of(SOLE).entries(TOOLS)
        outcome = await act(page, "pin", server="a")
        assert outcome["text"].startswith("pinned ")
        pins = json.loads((tmp_path / "servers.pins.json").read_text())["servers"]
        assert list(pins) == ["a"]
        async with asyncio.timeout(PATIENCE):
            while not served.hub.catalogs.of(SOLE).entries(TOOLS):
                await asyncio.sleep(0)
        assert await text(page, "a__echo", {"text": "x"}) == "x"
        await act(page, "restart", server="b")
        await act(page, "pin", server="b")  # which waits until it is there
        assert list(json.loads((tmp_path / "servers.pins.json").read_text())["servers"]) == ["a", "b"]


async def test_a_server_that_differs_from_its_pins_is_reported_until_it_is_pinned_again(tmp_path: Path) -> None:
    marker = tmp_path / "more"
    async with (
        served_hub(tmp_path, {"a": fake("--more-if", str(marker), pins="warn")}) as served,
        served.looking() as page,
        asyncio.timeout(PATIENCE),
    ):
        await act(page, "pin", server="a")
        marker.touch()
        await act(page, "restart", server="a")
        while not (await row(page, "a"))["pins"]:
            await asyncio.sleep(0)
        await act(page, "pin", server="a")
        while (await row(page, "a"))["pins"]:
            await asyncio.sleep(0)


async def test_an_unavailable_server_cannot_be_pinned(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": fake("--die", "no luck")}) as served, served.looking() as page:
        assert await refusal(page, "pin", server="a") == (409, "not_there")


async def test_a_sign_in_redirects_the_browser_back_to_the_hub_and_connects_the_server(tmp_path: Path) -> None:
    async with authority() as server:
        entry = {"url": server.url, "auth": "oauth"}
        root: dict[str, Any] = {"token_dir": str(tmp_path / "tokens")}
        async with served_hub(tmp_path, {"a": entry}, **root) as served, served.looking() as page:
            assert (await row(page, "a"))["sign_in"] is True
            url = (await act(page, "sign_in", server="a"))["url"]
            assert url.startswith("http://127.0.0.1")
            assert server.tokens == []
            for query in ("", "?code=x", "?code=x&state=guessed", "?" + "&".join(f"a{n}=1" for n in range(200))):
                answer = await page.http.get(f"/ui/return{query}")
                assert answer.status_code == 400
            assert (await page.http.post("/ui/return", headers={"origin": page.base})).status_code == 405
            assert await browse(url) == 200
            await until(page, "a", state="ready", sign_in=False)
            assert await text(page, "a__whoami") == "read"
            action = await recorded(page, "sign_in")
            assert (action["server"], action["verdict"]) == ("a", "ok")
            calls_text = json.dumps(await page.found("calls"))
            assert not [token for token in server.tokens if token in calls_text]
            assert "state=" not in calls_text


async def test_a_second_sign_in_to_a_server_replaces_the_first_one(tmp_path: Path) -> None:
    async with authority() as server:
        entry = {"url": server.url, "auth": "oauth"}
        root: dict[str, Any] = {"token_dir": str(tmp_path / "tokens")}
        async with served_hub(tmp_path, {"a": entry}, **root) as served, served.looking() as page:
            clicks = (post(page, "actions/sign_in", {"server": "a"}) for _ in range(2))
            first, replaced = sorted(await asyncio.gather(*clicks), key=lambda answer: answer.status_code)
            assert (first.status_code, replaced.status_code) == (200, 409)
            assert replaced.json()["error"]["code"] == "replaced"
            assert await browse(first.json()["url"]) == 200
            await until(page, "a", state="ready", sign_in=False)


async def test_a_sign_in_that_its_user_denies_is_recorded_and_leaves_no_unhandled_exception(tmp_path: Path) -> None:
    async with authority() as server:
        root: dict[str, Any] = {"token_dir": str(tmp_path / "tokens")}
        entry = {"url": server.url, "auth": "oauth"}
        async with served_hub(tmp_path, {"a": entry}, **root) as served, served.looking() as page:
            url = (await act(page, "sign_in", server="a"))["url"]
            (state,) = parse_qs(urlsplit(url).query)["state"]
            assert (await page.http.get(f"/ui/return?error=access_denied&state={state}")).status_code == 200
            async with asyncio.timeout(PATIENCE):
                while not (await page.found("calls?text=signed_in"))["calls"]:
                    pass
            assert (await recorded(page, "signed_in"))["verdict"] == "error"
            gc.collect()  # an exception that nobody retrieved is reported now, and fails the test


async def test_a_sign_in_that_cannot_finish_here_is_refused_with_advice(tmp_path: Path) -> None:
    entries = {
        "own": {"url": "https://mcp.example/mcp", "auth": {"type": "oauth", "client_id": "registered"}},
        "away": {"url": "http://127.0.0.1:9/mcp", "auth": "oauth"},
    }
    async with served_hub(tmp_path, entries, token_dir=str(tmp_path / "tokens")) as served, served.looking() as page:
        assert await refusal(page, "sign_in", server="own") == (409, "registered")
        assert await refusal(page, "sign_in", server="away") == (502, "sign_in")


async def test_concurrent_actions_of_two_pages_on_one_server_leave_one_process(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with (
        served_hub(tmp_path, {"a": fake("--journal", str(journal))}) as served,
        served.looking() as page,
        served.looking() as second_page,
    ):
        await asyncio.gather(*(act(tab, "restart", server="a") for tab in (page, second_page, page, second_page)))
        pid = await text(page, "a__pid")
        assert journal.read_text().splitlines()[-1] == f"ready {pid}"
        assert await text(second_page, "a__pid") == pid


async def test_an_action_completes_after_its_page_disconnects(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": fake("--stubborn")}) as served, served.looking() as page:
        before = served.hub.upstreams["a"]
        async with httpx2.AsyncClient(base_url=page.base, timeout=PATIENCE) as http:
            headers = {**page.headers, "origin": page.base}
            acting = asyncio.create_task(http.post("/ui/api/actions/restart", json={"server": "a"}, headers=headers))
            async with asyncio.timeout(PATIENCE):
                while served.hub.upstreams["a"] is before:
                    await asyncio.sleep(0)
            acting.cancel()
        await until(page, "a", state="ready")
        assert await text(page, "a__echo", {"text": "x"}) == "x"


async def test_an_action_of_a_former_admin_is_refused(tmp_path: Path) -> None:
    async with (
        served_hub(tmp_path, {"a": fake()}, NETWORK, profiles=PROFILES) as served,
        served.looking(token=ADMIN) as boss,
    ):
        await act(boss, "restart", server="a")
        principals = {**NETWORK["principals"], "boss": {"token": ADMIN}}
        listen = {"port": 0, "ui": True, "principals": principals}
        write_config(tmp_path, {"a": fake()}, listen=listen, profiles=PROFILES)
        assert await served.reloader.reload()
        assert await refusal(boss, "restart", server="a") == (403, "not_admin")


async def test_hostile_server_names_and_errors_are_escaped_in_the_response_of_an_action(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>\u202e"
    servers = {name: fake("--die", "<script>\x1b[31m\u202e")}
    async with served_hub(tmp_path, servers) as served, served.looking() as page:
        answer = await post(page, "actions/pin", {"server": name})
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "\u202e" not in answer.json()["error"]["message"]
        assert "\x1b" not in answer.text


async def test_an_admin_reads_changed_files_that_wait_for_a_person(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": fake()}) as served, served.looking() as page:
        served.reloader._hold(["files"])
        write_config(tmp_path, {"a": fake(), "b": fake()}, listen={"port": 0})
        assert "files can write" in (await page.found("state"))["configuration"]["waiting"]
        assert "started b" in (await act(page, "reload"))["text"]
        state = await page.found("state")
        assert state["configuration"]["waiting"] is None
        assert {server["server"] for server in state["servers"]} == {"a", "b"}
        write_config(tmp_path, {"a": fake(disable_tools=5)}, listen={"port": 0})
        assert await refusal(page, "reload") == (409, "refused")
