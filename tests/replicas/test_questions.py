"""Requests of servers, their answers, cancellation and reads at another replica than that of the call."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.protocol.era import BATCHING_REVISION
from tests import fakes
from tests.catalog.uris.test_links_and_rules import server
from tests.fakes.client import PATIENCE, fake
from tests.protocol.extensions.test_states_of_tasks import server as tasks
from tests.replicas.raw_client import code_of, raw, text_of
from tests.replicas.served import cluster

pytestmark = pytest.mark.anyio
ASKING = Path(fakes.__file__).with_name("asking.py")
QUESTION = {"method": "elicitation/create", "params": {"message": "who?", "requestedSchema": {"type": "object"}}}
ANSWER = {"action": "accept", "content": {"name": "ann"}}


def asking(**entry: Any) -> dict[str, Any]:
    return {"ask": {"command": sys.executable, "args": [str(ASKING)], **entry}}


async def test_a_server_request_can_be_answered_at_another_replica(tmp_path: Path) -> None:
    async with cluster(tmp_path, asking(), 2, balanced=False) as served, raw(served.url) as client:
        await client.begin(elicitation={})
        call = {"name": "ask__ask", "arguments": QUESTION}
        message = {"jsonrpc": "2.0", "id": "one", "method": "tools/call", "params": call}
        async with contextlib.aclosing(client.events(message)) as events:
            async for _, got in events:
                if got.get("method") == "elicitation/create":
                    answer = {"jsonrpc": "2.0", "id": got["id"], "result": ANSWER}
                    assert await client.post(answer, served.urls[1]) == 202
                elif got.get("id") == "one":
                    assert json.loads(text_of(got))["result"] == ANSWER
                    return
    raise AssertionError


async def test_a_batch_can_answer_and_cancel_calls_of_several_replicas(tmp_path: Path) -> None:
    record, servers = tmp_path / "record", asking()
    servers["up"] = fake("--record", str(record))
    async with (
        cluster(tmp_path, servers, balanced=False) as served,
        raw(served.url, revision=BATCHING_REVISION) as client,
    ):
        await client.begin(elicitation={})
        sleep: dict[str, Any] = {"name": "up__sleep", "arguments": {"seconds": 600}}
        sleeping = {"jsonrpc": "2.0", "id": "sleeping", "method": "tools/call", "params": sleep}
        calling = asyncio.ensure_future(client.post(sleeping, served.urls[2]))
        await written(record, '"sleep"')
        ask = {"name": "ask__ask", "arguments": QUESTION}
        message = {"jsonrpc": "2.0", "id": "asking", "method": "tools/call", "params": ask}
        async with contextlib.aclosing(client.events(message, served.urls[1])) as events:
            _, question = await anext(events)
            level = {"jsonrpc": "2.0", "id": "level", "method": "logging/setLevel", "params": {"level": "error"}}
            answer = {"jsonrpc": "2.0", "id": question["id"], "result": ANSWER}
            cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "sleeping"}}
            assert await client.post([answer, cancelled, level], served.urls[2]) == 200
            _, got = await anext(events)
            assert json.loads(text_of(got))["result"] == ANSWER
        await written(record, "notifications/cancelled")
        await calling
        for url in served.urls:
            assert text_of(await client.call("ask__log", {"level": "warning"}, url)) == "logged"
    assert client.asked == []


async def test_a_parked_call_resumes_at_any_replica(tmp_path: Path) -> None:
    async with cluster(tmp_path, asking(), 2, balanced=False) as served, raw(served.url) as client:
        call = {"name": "ask__ask", "arguments": QUESTION}
        result = (await client.modern("tools/call", call, served.urls[0], elicitation={}))["result"]
        assert result["resultType"] == "input_required"
        retry = {
            **call,
            "requestState": result["requestState"],
            "inputResponses": {key: ANSWER for key in result["inputRequests"]},
        }
        answer = await client.modern("tools/call", retry, served.urls[1], elicitation={})
        assert json.loads(text_of(answer))["result"] == ANSWER


async def test_an_answer_to_a_modern_stdio_server_reaches_the_process_that_asked(tmp_path: Path) -> None:
    servers = asking()
    servers["ask"]["args"] += ["--era", "modern"]
    async with cluster(tmp_path, servers, balanced=False) as served, raw(served.url) as client:
        call = {"name": "ask__process", "arguments": {}}
        for url in served.urls:
            result = (await client.modern("tools/call", call, served.urls[0], roots={}))["result"]
            responses: dict[str, Any] = {key: {"roots": []} for key in result["inputRequests"]}
            retry = {**call, "requestState": result["requestState"], "inputResponses": responses}
            assert text_of(await client.modern("tools/call", retry, url, roots={})) == "the same"
        await served.end(0)
        retry["requestState"] = result["requestState"]
        assert text_of(await client.modern("tools/call", retry, served.urls[1], roots={})) == "another"


async def test_a_parked_call_of_a_dead_replica_is_cancelled_and_not_sent_again(tmp_path: Path) -> None:
    received = tmp_path / "received"
    line = f"tee -a {shlex.quote(str(received))} | {shlex.quote(sys.executable)} {shlex.quote(str(ASKING))}"
    servers = {"ask": {"command": "sh", "args": ["-c", line]}}
    async with cluster(tmp_path, servers, 2, balanced=False) as served, raw(served.url) as client:
        call = {"name": "ask__ask", "arguments": QUESTION}
        result = (await client.modern("tools/call", call, served.urls[0], elicitation={}))["result"]
        retry = {**call, "requestState": result["requestState"], "inputResponses": {}}
        await served.end(0)
        assert code_of(await client.modern("tools/call", retry, served.urls[1], elicitation={})) == "cancelled"
        second_call = {"name": "ask__echo", "arguments": {"text": "behind it"}}
        assert text_of(await client.modern("tools/call", second_call, served.urls[1])) == "behind it"
    assert received.read_text().count('"method":"tools/call"') == 2


async def test_a_task_can_be_read_at_every_replica(tmp_path: Path) -> None:
    extension: dict[str, Any] = {"io.modelcontextprotocol/tasks": {}}
    servers = {"a": server("a")}
    async with cluster(tmp_path, servers, 2, balanced=False, list_wait=20) as served, raw(served.url) as client:
        call = {"name": "a__slow_compute", "arguments": {"seconds": 60}}
        task_id = (await client.modern("tools/call", call, served.urls[0], extensions=extension))["result"]["taskId"]
        for url in served.urls:
            answer = await client.modern("tasks/get", {"taskId": task_id}, url, extensions=extension)
            assert answer["result"]["status"] == "working"
        assert "result" in await client.modern(
            "tasks/cancel", {"taskId": task_id}, served.urls[1], extensions=extension
        )
        answer = await client.modern("tasks/get", {"taskId": task_id}, served.urls[0], extensions=extension)
        assert answer["result"]["status"] == "cancelled"


async def test_the_states_of_a_task_are_told_at_every_replica(tmp_path: Path) -> None:
    extension: dict[str, Any] = {"io.modelcontextprotocol/tasks": {}}
    servers = {"a": tasks(tmp_path)}
    async with cluster(tmp_path, servers, 2, balanced=False) as served, raw(served.url) as client:
        call = {"name": "a__begin", "arguments": {}}
        task_id = (await client.modern("tools/call", call, served.urls[0], extensions=extension))["result"]["taskId"]
        for url in served.urls:
            watched: dict[str, Any] = {"notifications": {"taskIds": [task_id]}}
            told = client.modern_events("subscriptions/listen", watched, url, extensions=extension)
            async with contextlib.aclosing(told):
                assert (await anext(told))["params"]["notifications"] == {"taskIds": [task_id]}
                assert (await anext(told))["params"]["status"] == "working"


async def test_a_call_is_cancelled_from_another_replica(tmp_path: Path) -> None:
    record = tmp_path / "record"
    servers = {"up": fake("--record", str(record))}
    async with cluster(tmp_path, servers, 2, balanced=False) as served, raw(served.url) as client:
        await client.begin()
        params = {"name": "up__sleep", "arguments": {"seconds": 50}}
        message = {"jsonrpc": "2.0", "id": "one", "method": "tools/call", "params": params}
        calling = asyncio.ensure_future(client.post(message))
        await written(record, '"sleep"')
        assert await client.notify("notifications/cancelled", {"requestId": "one"}, served.urls[1]) == 202
        await written(record, "notifications/cancelled")
        await calling


async def test_no_replica_begins_to_serve_a_session_for_a_message_to_all_replicas(tmp_path: Path) -> None:
    servers = {"up": fake("--record", str(tmp_path / "record"))}
    limits = {"limits": {"sessions": 1}}
    async with cluster(tmp_path, servers, 3, balanced=False, listen=limits) as served, raw(served.url) as client:
        await client.begin()
        assert await client.notify("notifications/cancelled", {"requestId": "none"}) == 202
        assert "result" in await client.request("logging/setLevel", {"level": "error"})
        for url in served.urls[1:]:
            other = client.of(None)
            await other.begin(url)
            assert await other.end(url) == 204


async def test_a_log_level_applies_at_every_replica(tmp_path: Path) -> None:
    async with cluster(tmp_path, asking(), 2, balanced=False) as served, raw(served.url) as client:
        await client.begin()
        assert "result" in await client.request("logging/setLevel", {"level": "error"}, served.urls[1])
        for url in served.urls:
            for level in ("warning", "error"):
                assert text_of(await client.call("ask__log", {"level": level}, url)) == "logged"
    assert [message["params"]["level"] for message in client.asked] == ["error", "error"]


async def test_the_pages_of_a_long_result_are_read_at_every_replica(tmp_path: Path) -> None:
    rules = {"max_result_bytes": 2000}
    async with cluster(tmp_path, {"up": fake(**rules)}, 2, balanced=False) as served, raw(served.url) as client:
        await client.begin()
        answer = await client.call("up__big", {"bytes": 10_000}, served.urls[0])
        uri = next(token for token in json.dumps(answer).replace('"', " ").split() if token.startswith("mcp-hub://"))
        pages = [await client.request("resources/read", {"uri": uri.rstrip(".,")}, url) for url in served.urls]
        assert [page.get("error") for page in pages] == [None, None]
        assert pages[0]["result"] == pages[1]["result"]
        assert (await client.request("resources/read", {"uri": "mcp-hub://result/unknown"}, served.urls[1]))["error"]


async def written(file: Path, text: str) -> None:
    """Waits until a file contains a text."""
    async with asyncio.timeout(PATIENCE):
        while not (file.exists() and text in file.read_text()):
            await asyncio.sleep(0.01)


async def test_cookies_of_other_programs_stay_at_the_replica_that_gets_them(tmp_path: Path) -> None:
    async with cluster(tmp_path, asking(), 2, balanced=False) as served, raw(served.url) as client:
        client._head["Cookie"] = f"session={'x' * 40_000}; mcp-hub-program={'p' * 24}"
        call = {"name": "ask__ask", "arguments": QUESTION}
        first = await client.modern("tools/call", call, elicitation={})
        ((key, _),) = first["result"]["inputRequests"].items()
        retry = {"requestState": first["result"]["requestState"], "inputResponses": {key: ANSWER}}
        final = await client.modern("tools/call", {**call, **retry}, served.urls[1], elicitation={})
        assert json.loads(text_of(final)) == {"result": ANSWER}
