from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from mcp_hub import errors
from mcp_hub.config.models import Listen
from mcp_hub.downstream import event_stream
from mcp_hub.downstream.admission import Gate
from tests.downstream.fronts import HANG_BOUND
from tests.downstream.raw_http import BOTH, Connection, call, connected, fetch, message, modern, request
from tests.downstream.scripted import Served, serving

pytestmark = pytest.mark.anyio

JSON = [("Content-Type", "application/json")]


@contextlib.asynccontextmanager
async def opened(served: Served, headers: list[tuple[str, str]] | None = None) -> AsyncIterator[tuple[Connection, str]]:
    """A stream and the path its messages go to."""
    async with connected(served) as stream:
        stream.send(request(served, "GET", "/sse", [("Accept", "text/event-stream"), *(headers or [])]))
        head = await stream.head()
        assert (head.status, head.headers["content-type"]) == (200, "text/event-stream")
        name, endpoint = await stream.event()
        assert name == "endpoint"
        yield stream, endpoint


async def test_the_sse_stream_announces_its_endpoint_and_carries_the_responses() -> None:
    async with serving() as served, opened(served) as (stream, endpoint):
        assert endpoint.startswith("/messages?session_id=")
        assert len(endpoint.partition("=")[2]) >= 22
        answer = await fetch(served, "POST", endpoint, JSON, call("echo", {"text": "hi"}))
        assert (answer.status, answer.body) == (202, b"")
        name, data = await stream.event()
        assert (name, data["result"]["content"][0]["text"]) == ("message", "hi")


async def test_progress_precedes_its_response_and_slow_calls_delay_no_other() -> None:
    async with serving() as served, opened(served) as (stream, endpoint):
        for body in (call("wait", {}, 1), call("progress", {"steps": 1}, 2)):
            assert (await fetch(served, "POST", endpoint, JSON, body)).status == 202
        assert (await stream.event())[1]["method"] == "notifications/progress"
        assert (await stream.event())[1]["id"] == 2
        served.dispatcher.release.set()
        assert (await stream.event())[1]["id"] == 1


async def test_one_stream_carries_requests_of_either_era() -> None:
    async with serving() as served, opened(served) as (stream, endpoint):
        for body in (message("tools/list", request_id=1), modern("tools/list", request_id=2)[1]):
            await fetch(served, "POST", endpoint, JSON, body)
        answers = {answer["id"]: answer for answer in [(await stream.event())[1] for _ in range(2)]}
        assert "resultType" not in answers[1]["result"]
        assert answers[2]["result"]["resultType"] == "complete"


async def test_unsolicited_notifications_reach_the_stream() -> None:
    async with serving() as served, opened(served) as (stream, endpoint):
        changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        served.dispatcher.joined[0].notify(changed)
        assert await stream.event() == ("message", changed)
        await fetch(served, "POST", endpoint, JSON, message("notifications/initialized", request_id=None))
        assert served.dispatcher.joined[0].initialized


async def test_closing_the_sse_stream_cancels_its_running_calls() -> None:
    async with serving() as served:
        async with opened(served) as (_, endpoint):
            await fetch(served, "POST", endpoint, JSON, call("hang"))
            await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        await asyncio.wait_for(served.dispatcher.cancelled.wait(), HANG_BOUND)
        assert served.dispatcher.left == served.dispatcher.joined
        assert (await fetch(served, "POST", endpoint, JSON, call("echo"))).status == 404


async def test_messages_without_a_valid_session_are_refused() -> None:
    async with serving() as served, opened(served) as (_, endpoint):
        assert (await fetch(served, "POST", "/messages", JSON, call("echo"))).status == 400
        assert (await fetch(served, "POST", "/messages?session_id=a&session_id=b", JSON, call("echo"))).status == 400
        assert (await fetch(served, "POST", "/messages?session_id=unknown", JSON, call("echo"))).status == 404
        assert (await fetch(served, "GET", endpoint)).status == 405
        assert (await fetch(served, "POST", "/sse", BOTH, call("echo"))).status == 405
        assert (await fetch(served, "GET", "/sse", [("Accept", "application/json")])).status == 406
        assert served.dispatcher.methods == []


async def test_the_sse_stream_of_another_principal_is_answered_404() -> None:
    a, b = ([("Authorization", f"Bearer {letter * 32}")] for letter in "ab")
    listen = Listen(port=0, token="a" * 32)
    async with (
        serving(listen, gate=Gate(listen, {b"a" * 32: "a", b"b" * 32: "b"})) as served,
        opened(served, a) as (_, endpoint),
    ):
        stolen = await fetch(served, "POST", endpoint, [*JSON, *b], call("echo"))
        unknown = await fetch(served, "POST", endpoint + "x", [*JSON, *b], call("echo"))
        assert (stolen.status, stolen.body) == (unknown.status, unknown.body)
        assert stolen.status == 404
        assert (await fetch(served, "POST", endpoint, [*JSON, *a], call("echo"))).status == 202


async def test_invalid_bodies_are_refused_and_the_sse_stream_continues() -> None:
    async with serving(Listen(port=0, max_body=1000)) as served, opened(served) as (stream, endpoint):
        assert (await fetch(served, "POST", endpoint, JSON, b" " * 2000)).status == 413
        assert (await fetch(served, "POST", endpoint, [("Content-Type", "text/plain")], call("echo"))).status == 415
        for body, code in ((b"{", errors.PARSE_ERROR), (b"7", errors.INVALID_REQUEST), (b"[]", errors.INVALID_REQUEST)):
            assert (await fetch(served, "POST", endpoint, JSON, body)).status == 202
            assert (await stream.event())[1]["error"]["code"] == code
        await fetch(served, "POST", endpoint, JSON, message("ping"))
        assert (await stream.event())[1]["result"] == {}


async def test_a_silent_stream_gets_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE", 0.01)
    async with serving() as served, opened(served) as (stream, _):
        assert [(await stream.event())[0] for _ in range(3)] == ["comment"] * 3


async def test_a_stopping_hub_sends_pending_responses_before_it_closes_the_sse_stream() -> None:
    async with serving() as served, opened(served) as (stream, endpoint):
        await fetch(served, "POST", endpoint, JSON, call("wait"))
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        served.stop.set()
        await asyncio.wait_for(served.dispatcher.closing.wait(), HANG_BOUND)
        served.dispatcher.release.set()
        assert (await stream.event())[1]["id"] == 1
        assert await stream.event() == ("end", None)


async def test_cancelling_one_member_of_a_batch_leaves_the_others_their_answers_on_the_stream() -> None:
    async with serving() as served, opened(served) as (stream, endpoint):
        await fetch(served, "POST", endpoint, JSON, message("initialize", {"protocolVersion": "2025-03-26"}))
        await stream.event()
        members = [call("hang", request_id=2), call("wait", {"text": "done"}, 3)]
        await fetch(served, "POST", endpoint, JSON, b"[" + b",".join(members) + b"]")
        await asyncio.wait_for(served.dispatcher.started.wait(), HANG_BOUND)
        await fetch(served, "POST", endpoint, JSON, message("notifications/cancelled", {"requestId": 2}, None))
        await asyncio.wait_for(served.dispatcher.cancelled.wait(), HANG_BOUND)
        served.dispatcher.release.set()
        answers = (await stream.event())[1]
        assert [(reply["id"], reply["result"]["content"][0]["text"]) for reply in answers] == [(3, "done")]


async def test_a_message_whose_stream_closes_before_it_is_complete_is_answered_404() -> None:
    async with serving() as served, connected(served) as client:
        body = call("hang")
        async with opened(served) as (_, endpoint):
            head = request(served, "POST", endpoint, [*JSON, ("Expect", "100-continue")], body)
            client.send(head[: -len(body)])
            assert (await client.head()).status == 100  # the stream was found; the body is awaited
        async with asyncio.timeout(HANG_BOUND):
            while not served.dispatcher.left:
                await asyncio.sleep(0)
        client.send(body)
        assert (await client.response()).status == 404
        assert served.dispatcher.methods == []
