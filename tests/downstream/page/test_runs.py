"""Tools that are run from the page are ordinary calls: the same rules, records and limits."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.config.models import Listen
from mcp_hub.downstream.page import runs
from mcp_hub.hub.composition import load_config
from tests.downstream.network.issuer import CLIENT, issuing
from tests.downstream.page.acting import (
    ADMIN,
    GUEST,
    NETWORK,
    OTHER,
    PROFILES,
    post,
    result,
    running,
    text,
)
from tests.downstream.page.opened import OpenPage, ServedHub, served_hub
from tests.fakes.client import PATIENCE, fake, write_config
from tests.upstream.asking.test_servers_ask_handshake_clients import asking

pytestmark = pytest.mark.anyio

ASKED = {
    "method": "elicitation/create",
    "params": {
        "message": "Which colour?",
        "requestedSchema": {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]},
    },
}


async def until_idle(served: ServedHub, server: str) -> None:
    """Wait until no call runs on a server."""
    async with asyncio.timeout(PATIENCE):
        while served.hub.upstreams[server].calls.count:
            await asyncio.sleep(0)


async def until_busy(served: ServedHub, server: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not served.hub.upstreams[server].calls.count:
            await asyncio.sleep(0)


async def until_recorded(record: Path, method: str) -> None:
    """Waits until a server has got a message."""
    async with asyncio.timeout(PATIENCE):
        while not record.exists() or method not in record.read_text():
            await asyncio.sleep(0)


async def newest(page: Any, **query: str) -> dict[str, Any]:
    """The newest record of a call."""
    parameters = "&".join(f"{name}={value}" for name, value in query.items())
    async with asyncio.timeout(PATIENCE):
        while not (calls := (await page.found(f"calls?{parameters}"))["calls"]):
            pass
    call: dict[str, Any] = calls[0]
    return call


async def test_a_run_streams_progress_and_its_result_and_is_recorded_with_each_rules_effect(
    tmp_path: Path,
) -> None:
    async with served_hub(tmp_path, {"a": fake()}) as served, served.looking() as page:
        async with running(page, "a__count", {"steps": 3, "pause": 0.2}) as run:
            progress = await run.until("progress")
            assert progress["total"] == 3
            name, data = await run.end()
        assert (name, data["content"][0]["text"]) == ("result", "counted")
        call = await newest(page, server="a")
        assert (call["tool"], call["client"], call["verdict"]) == ("count", "mcp-hub page", "ok")
        steps = {step["policy"]: step for step in (await page.found(f"calls/{call['id']}"))["steps"]}
        assert steps["access"]["did"] == "passed"
        assert steps["upstream"]["did"] == "was asked once"


async def test_a_server_error_and_a_failing_tool_are_reported_with_their_codes(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": fake(validate_arguments="off")}) as served, served.looking() as page:
        async with running(page, "a__fail") as run:
            name, data = await run.end()
        assert (name, data["code"], data["message"]) == ("error", "-32050", "no")
        assert data["cure"]
        crashed = await result(page, "a__crash")
        assert crashed["isError"] is True
        assert crashed["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"


async def test_an_invalid_run_request_is_refused_with_an_explanation(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": fake()}) as served, served.looking() as page:
        echo = {"tool": "a__echo"}
        bodies: list[Any] = [{}, {"tool": 5}, {**echo, "arguments": []}, {**echo, "as": 5}, []]
        for body in bodies:
            answer = await post(page, "run", body)
            assert answer.status_code == 400
            assert answer.json()["error"]["cure"]
        assert (await post(page, "run", {"tool": "a__echo", "as": "nobody"})).status_code == 404
        assert (await page.get("run")).status_code == 405


async def test_arguments_larger_than_a_client_may_send_are_refused_and_large_ones_pass(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": fake()}) as served, served.looking() as page:
        answer = await post(page, "run", {"tool": "a__echo", "arguments": {"text": "x" * 10 * 1024 * 1024}})
        assert answer.status_code == 413
        assert "4,194,304" in answer.json()["error"]["message"]
        outcome = await result(page, "a__echo", {"text": "x" * 3 * 1024 * 1024})
        echoed = outcome["content"][0]["text"]
        assert echoed.endswith("… (3,145,728 characters)")
        assert len(echoed) < 101_000


async def test_a_result_of_many_megabytes_is_cut_and_an_image_is_shown_whole_or_not_at_all(tmp_path: Path) -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "A" * 200_000}
    huge = {"type": "image", "mimeType": "image/png", "data": "A" * 9_000_000}
    answer = json.dumps({"content": [image, huge, {"type": "text", "text": "<script>alert(1)</script>\u202e"}]})
    lists = tmp_path / "lists"
    lists.write_text("{}")
    script = tmp_path / "server.py"
    script.write_text(_ANSWERS.replace("ANSWER", repr(answer)))
    entry = {"command": fake()["command"], "args": [str(script)]}
    async with served_hub(tmp_path, {"a": entry}) as served, served.looking() as page:
        blocks = (await result(page, "a__look"))["content"]
        assert blocks[0] == image
        assert blocks[1] == {"type": "image", "mimeType": "image/png", "data": "", "cut": 9_000_000}
        assert blocks[2]["text"] == "<script>alert(1)</script>\u202e"


_ANSWERS = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}
    if message["method"] == "initialize":
        info = {"name": "x", "version": "1"}
        answer = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/call":
        answer = json.loads(ANSWER)
    elif message["method"] != "tools/list":
        answer = None
    said = {"result": answer} if answer is not None else {"error": {"code": -32601, "message": "no"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
"""


async def test_a_run_is_cancelled_when_its_request_is_closed(tmp_path: Path) -> None:
    record = tmp_path / "record"
    async with served_hub(tmp_path, {"a": fake("--record", str(record))}) as served, served.looking() as page:
        async with running(page, "a__sleep", {"seconds": 600}):
            await until_recorded(record, "tools/call")
        await until_idle(served, "a")
        assert (await newest(page, server="a"))["verdict"] == "cancelled"
        assert await text(page, "a__echo", {"text": "x"}) == "x"
        await until_recorded(record, "notifications/cancelled")


async def test_a_run_whose_client_goes_while_its_token_is_verified_is_not_carried_out(tmp_path: Path) -> None:
    record = tmp_path / "record"
    async with issuing() as issuer:
        client_id, secret = CLIENT
        endpoint = {"issuer": issuer.url, "endpoint": f"{issuer.url}/introspect", "client_id": client_id}
        verify = {"introspection": {**endpoint, "client_secret": secret}, "cache": "1ms"}
        issuer.introspections["token"] = issuer.claims(active=True)
        async with (
            served_hub(tmp_path, {"a": fake("--record", str(record))}, {"ui": True, "verify": verify}) as served,
            served.looking(token="token") as page,
        ):
            issuer.hold, before = asyncio.Event(), len(issuer.requested_paths)
            body = json.dumps({"tool": "a__sleep", "arguments": {"seconds": 600}})
            headers = {**page.headers, "origin": page.base, "host": f"127.0.0.1:{served.port}"}
            headers |= {"content-type": "application/json", "content-length": str(len(body))}
            head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(f"POST /ui/api/run HTTP/1.1\r\n{head}\r\n{body}".encode())
            async with asyncio.timeout(PATIENCE):
                while len(issuer.requested_paths) == before:
                    await asyncio.sleep(0)
            linger = struct.pack("ii", 1, 0)  # the connection is reset
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
            assert (await page.http.get("/healthz")).status_code == 200  # the hub has noticed the reset by now
            issuer.hold.set()
            assert await text(page, "a__echo", {"text": "x"}) == "x"
            assert '"sleep"' not in record.read_text()


async def test_a_run_is_cancelled_when_its_page_session_ends(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": fake()}) as served, served.looking() as page, served.looking() as second:
        async with running(page, "a__sleep", {"seconds": 600}) as run:
            await until_busy(served, "a")
            response = await page.http.delete("/ui/api/session", headers={**page.headers, "origin": page.base})
            assert response.status_code == 200
            assert (await run.end())[0] == "error"
        await until_idle(served, "a")
        assert (await newest(second, server="a"))["verdict"] == "cancelled"


async def test_a_run_that_reports_progress_all_the_time_ends_with_the_token_of_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "HEARTBEAT", 1.0)
    async with (
        served_hub(tmp_path, {"a": fake()}, NETWORK, profiles=PROFILES) as served,
        served.looking(token=OTHER) as page,
    ):
        async with running(page, "a__count", {"steps": 200, "pause": 0.05}) as run:
            await run.until("progress")
            served.app.take(Listen(port=served.port, principals={"boss": {"token": ADMIN}}))  # type: ignore[dict-item]
            name, data = await run.end()
        assert (name, data.get("code")) == ("error", "cancelled")
        await until_idle(served, "a")


async def test_the_first_of_two_answers_to_an_elicitation_on_the_page_counts(tmp_path: Path) -> None:
    async with (
        served_hub(tmp_path, {"a": asking()}) as served,
        served.looking() as page,
        served.looking() as second_page,
    ):
        async with running(page, "a__ask", ASKED) as run:
            question = await run.until("question")
            assert question["mode"] == "form"
            assert question["message"] == "a asks: Which colour?"
            assert question["server"] == "a"
            assert question["schema"] == ASKED["params"]["requestedSchema"]  # type: ignore[index]
            body = {"id": question["id"], "action": "accept", "content": {"colour": "green"}}
            for invalid in ({**body, "action": "run"}, {**body, "content": []}):
                assert (await post(page, "answer", invalid)).status_code == 400
            assert (await post(page, "answer", {**body, "id": "hub-1"})).status_code == 404
            assert (await post(second_page, "answer", body)).status_code == 404, "a question is its own page's alone"
            responses = await asyncio.gather(
                post(page, "answer", body), post(page, "answer", {**body, "content": {"colour": "red"}})
            )
            assert sorted(response.status_code for response in responses) == [200, 409]
            _, data = await run.end()
        won = "green" if responses[0].status_code == 200 else "red"
        reply = json.loads(data["content"][0]["text"])
        assert reply["result"] == {"action": "accept", "content": {"colour": won}}
        assert (await post(page, "answer", body)).status_code == 404


async def test_an_elicitation_can_be_declined_and_a_url_elicitation_shows_its_url(tmp_path: Path) -> None:
    visit = {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "Pay", "url": "https://pay.example/1", "elicitationId": "1"},
    }
    async with served_hub(tmp_path, {"a": asking()}) as served, served.looking() as page:
        async with running(page, "a__ask", visit) as run:
            question = await run.until("question")
            assert (question["mode"], question["url"]) == ("url", "https://pay.example/1")
            assert (await post(page, "answer", {"id": question["id"], "action": "decline"})).status_code == 200
            _, data = await run.end()
        assert json.loads(data["content"][0]["text"])["result"] == {"action": "decline"}
        script = {**visit, "params": {**visit["params"], "url": "javascript:alert(1)"}}  # type: ignore[dict-item]
        async with running(page, "a__ask", script) as run:
            name, data = await run.end()
        assert name == "result"
        assert "error" in json.loads(data["content"][0]["text"])


async def test_a_sampling_request_of_a_tool_run_on_the_page_is_refused(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": {"type": "text", "text": "What is 2 and 2?"}}]
    sample = {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 5}}
    async with served_hub(tmp_path, {"a": asking()}) as served, served.looking() as page:
        async with running(page, "a__ask", sample) as run:
            name, data = await run.end()
        assert name == "result"
        assert "error" in json.loads(data["content"][0]["text"])


async def test_a_tool_that_has_to_be_confirmed_is_confirmed_in_the_page(tmp_path: Path) -> None:
    root: dict[str, Any] = {"confirm": ["a/add"]}
    async with served_hub(tmp_path, {"a": fake()}, **root) as served, served.looking() as page:
        for action, failed in (("decline", True), ("accept", False)):
            async with running(page, "a__add", {"a": 1, "b": 2}) as run:
                question = await run.until("question")
                assert question["mode"] == "form"
                (name,) = question["schema"]["properties"]
                content = {name: "once"} if action == "accept" else None
                body = {"id": question["id"], "action": action, "content": content}
                assert (await post(page, "answer", body)).status_code == 200
                _, data = await run.end()
            assert data.get("isError", False) is failed, data


async def test_a_page_that_closes_during_an_elicitation_leaves_no_state(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": asking()}) as served, served.looking() as page:
        async with running(page, "a__ask", ASKED) as run:
            question = await run.until("question")
        await until_idle(served, "a")
        body = {"id": question["id"], "action": "accept", "content": {"colour": "green"}}
        assert (await post(page, "answer", body)).status_code == 404


async def test_a_refused_tool_is_unknown_by_every_name_to_every_principal_it_is_hidden_from(
    tmp_path: Path,
) -> None:
    servers = {"a": fake(disable_tools=["add"])}
    async with (
        served_hub(tmp_path, servers, NETWORK, profiles=PROFILES) as served,
        served.looking(token=ADMIN) as boss,
        served.looking(token=GUEST) as guest,
    ):
        as_guest: dict[str, Any] = {"as": "guest"}
        views: list[tuple[OpenPage, dict[str, Any]]] = [(boss, {}), (boss, as_guest), (guest, {})]
        names = ("a__add", "a/add", "add", "a__ADD", "hub_call", "A__add", "a__add ")
        for name in names:
            for page, fields in views:
                async with running(page, name, {"a": 1, "b": 2}, **fields) as run:
                    kind, data = await run.end()
                assert (kind, data["message"]) == ("error", f"Unknown tool: {name}")
        for page, fields in [(boss, as_guest), (guest, {}), (guest, as_guest)]:
            async with running(page, "a__pid", **fields) as run:
                assert (await run.end())[1]["message"] == "Unknown tool: a__pid"
            assert await text(page, "a__echo", {"text": "x"}, **fields) == "x"
        assert await text(boss, "a__pid")
        assert (await post(guest, "run", {"tool": "a__echo", "as": "boss"})).status_code == 404
        assert (await newest(boss, text="a__pid", verdict="ok"))["principal"] == "boss"
        action = await newest(boss, text="run_as")
        assert (action["event"], action["principal"]) == ("action", "boss")


async def test_the_quota_of_a_principal_counts_for_its_runs(tmp_path: Path) -> None:
    listen = {"ui": True, "principals": {"other": {"token": OTHER, "limits": {"rate": 1}}}}
    async with served_hub(tmp_path, {"a": fake()}, listen) as served, served.looking(token=OTHER) as page:
        errors: list[bool] = []
        while len(errors) < 100 and True not in errors:
            async with running(page, "a__echo", {"text": "x"}) as run:
                errors.append((await run.end())[1].get("isError", False))
        assert errors[0] is False
        assert True in errors


async def test_a_reload_lets_a_running_tool_finish(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with (
        served_hub(tmp_path, {"a": fake("--hang-if", str(gate)), "b": fake()}) as served,
        served.looking() as page,
    ):
        async with running(page, "a__count", {"steps": 4, "pause": 0.3}) as run:
            await run.until("progress")
            path = write_config(tmp_path, {"a": fake(), "c": fake()})
            await served.hub.renew(load_config(path))
            _, data = await run.end()
        assert data["content"][0]["text"] == "counted"
        assert await text(page, "c__echo", {"text": "x"}) == "x"


async def test_a_run_gets_an_error_when_the_hub_stops(tmp_path: Path) -> None:
    record = tmp_path / "record"
    async with served_hub(tmp_path, {"a": fake("--record", str(record))}) as served, served.looking() as page:
        async with running(page, "a__sleep", {"seconds": 600}) as run:
            await until_busy(served, "a")
            served.stop.set()
            name, data = await run.end()
        assert (name, data["code"]) == ("error", "cancelled")
        await until_idle(served, "a")


async def test_more_runs_at_once_than_a_browser_has_connections_for_are_refused(tmp_path: Path) -> None:
    async with served_hub(tmp_path, {"a": fake()}) as served, served.looking() as page:
        async with asyncio.TaskGroup() as group:
            holding = asyncio.Event()
            started = asyncio.Semaphore(0)

            async def hold() -> None:
                async with running(page, "a__sleep", {"seconds": 600}):
                    started.release()
                    await holding.wait()

            for _ in range(runs.MAX_RUNS):
                group.create_task(hold())
            for _ in range(runs.MAX_RUNS):
                await started.acquire()
            answer = await post(page, "run", {"tool": "a__echo", "arguments": {}})
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "runs")
            holding.set()
        await until_idle(served, "a")
        assert await text(page, "a__echo", {"text": "x"}) == "x"
