"""Event streams over streamable HTTP: given up, broken off and resumed, and the standing one."""

import asyncio
import json

import pytest

from mcp_hub.transport import LinkError, LinkLost, http_link, http_stream
from tests.loops import anyio_backend  # noqa: F401
from tests.transport.scripted_http import (
    NOTE,
    PATIENCE,
    PING,
    Reply,
    Request,
    answer,
    ask,
    call,
    linked,
    scripted,
    start,
)

pytestmark = pytest.mark.anyio


# --- giving up and resuming ----------------------------------------------------------------------------------


async def test_abandoning_a_request_closes_its_stream_without_a_cancellation():
    closed = asyncio.Event()

    async def script(request: Request, reply: Reply) -> None:
        if request.message["id"] == 2:
            await reply.result(request)
            return
        await reply.stream()
        await reply.event(NOTE)
        await reply.gone()
        closed.set()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert await inbox.next() == NOTE
        link.abandon(1)
        link.abandon("unknown")
        async with asyncio.timeout(PATIENCE):
            await closed.wait()
        await ask(link, call(2))
        assert await inbox.next() == answer(2)
        assert inbox.told == [NOTE, answer(2)]


@pytest.mark.parametrize(
    "text", [b"[INFO] ready", b'[DEBUG] {"jsonrpc":"2.0","id":1,"result":{}}', b"{ port: 3000 }", b"{'a': 1}", b"{"]
)
async def test_text_on_a_stream_that_is_no_message_does_not_end_its_request(text):
    async def script(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.chunk(b"data: " + text + b"\n\n")
        await reply.event(answer(1, ok=True))
        await reply.end()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert await inbox.next() == answer(1, ok=True)


async def test_events_are_delivered_as_they_arrive_even_with_a_content_length():
    async def script(request: Request, reply: Reply) -> None:
        events = [b"data: " + json.dumps(value).encode() + b"\n\n" for value in (NOTE, answer(1))]
        await reply.head(200, Content_Type="text/event-stream", Content_Length=str(sum(map(len, events))))
        await reply.raw(events[0])
        await received.wait()
        await reply.raw(events[1])

    received = asyncio.Event()
    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert await inbox.next() == NOTE
        received.set()
        assert await inbox.next() == answer(1)


async def test_a_request_abandoned_as_its_stream_begins_leaves_no_open_connection():
    async def script(request: Request, reply: Reply) -> None:
        if request.message["id"] == 1:
            await reply.result(request)
            return
        await reply.stream()
        await reply.gone()
        closed.set()

    closed = asyncio.Event()
    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert await inbox.next() == answer(1)
        await ask(link, call(2))  # it uses the pooled connection, so it needs no task
        carrier = link._requests[2]
        async with asyncio.timeout(PATIENCE):
            while link._requests[2] is carrier:
                await asyncio.sleep(0)
            link.abandon(2)  # its task may not have started yet
            await closed.wait()
        assert inbox.told == [answer(1)]


@pytest.mark.parametrize("clean", [True, False])
async def test_a_broken_stream_with_event_ids_is_resumed_after_the_last_event(clean):
    async def script(request: Request, reply: Reply) -> None:
        if request.method == "DELETE":
            await reply.full(200)
        elif request.method == "POST" and request.message["method"] == "initialize":
            await reply.result(request, Mcp_Session_Id="s")
        elif request.method == "POST":
            await reply.stream()
            await reply.chunk(b"id: a1\nretry: 1\ndata:\n\n")
            await reply.event(NOTE, id="a2")
            await (reply.end() if clean else reply.cut())
        elif len(server.asked("GET")) < 9:
            await reply.stream()
            await reply.event(NOTE, id=f"b{len(server.asked('GET'))}")
            await reply.end()
        else:
            await reply.stream()
            await reply.event(answer(1, ok=True))
            await reply.end()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await start(link, inbox)
        await ask(link, call(), MCP_Protocol_Version="2025-11-25")
        assert [await inbox.next() for _ in range(10)] == [*[NOTE] * 9, answer(1, ok=True)]
        gets = server.asked("GET")
        assert [get.headers["last-event-id"] for get in gets] == ["a2", *(f"b{n}" for n in range(1, 9))]
        assert gets[0].headers["accept"] == "text/event-stream"
        assert gets[0].headers["mcp-session-id"] == "s"
        assert gets[0].headers["mcp-protocol-version"] == "2025-11-25"
        assert "content-type" not in gets[0].headers
        assert len(server.asked("POST")) == 2, "the request itself is not sent again"


async def test_resuming_ends_after_attempts_without_an_event(monkeypatch):
    monkeypatch.setattr(http_stream, "MAX_DELAY", 0.01)

    async def script(request: Request, reply: Reply) -> None:
        await reply.stream()
        if request.method == "POST":
            await reply.event(NOTE, id="1")
        await reply.end()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert await inbox.next() == NOTE
        assert (await inbox.failure(1)).executed is True
        assert len(server.asked("GET")) == http_link.RESUMES


async def test_an_invalid_answer_on_a_stream_is_not_resumed():
    async def script(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.chunk(b'id: 1\ndata:\n\nid: 2\ndata: {"jsonrpc":"2.0","id":1,"result":{oops}}\n\n')
        await reply.gone()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert "JSON" in str(await inbox.failure(1))
        assert server.asked("GET") == []


async def test_a_stream_that_cannot_be_resumed_may_have_been_executed(monkeypatch):
    monkeypatch.setattr(http_stream, "MAX_DELAY", 0.01)

    async def script(request: Request, reply: Reply) -> None:
        if request.method == "GET":
            await reply.full(405)
            return
        await reply.stream()
        await reply.event(NOTE, id="1")
        await reply.cut()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert await inbox.next() == NOTE
        error = await inbox.failure(1)
        assert (type(error), error.executed, error.status) == (LinkError, True, 405)


async def test_resuming_goes_on_while_the_server_refuses_for_a_while(monkeypatch):
    monkeypatch.setattr(http_stream, "MAX_DELAY", 0.01)
    refusals = [(502, {}), (503, {"Retry_After": "0"}), (429, {"Retry_After": "0"}), (408, {}), (500, {})] * 2

    async def script(request: Request, reply: Reply) -> None:
        if request.method == "POST":
            await reply.stream()
            await reply.event(NOTE, id="1")
            await reply.end()
        elif len(server.asked("GET")) == 1:
            await reply.cut()  # while the server is being restarted
        elif refusals:
            status, headers = refusals.pop()
            await reply.full(status, **headers)
        else:
            await reply.stream()
            await reply.event(answer(1))
            await reply.end()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert [await inbox.next(), await inbox.next()] == [NOTE, answer(1)]
        assert refusals == []
        assert len(server.asked("POST")) == 1


async def test_a_call_whose_stream_cannot_be_resumed_without_a_sign_in_may_have_been_executed(monkeypatch):
    monkeypatch.setattr(http_stream, "MAX_DELAY", 0.01)

    async def script(request: Request, reply: Reply) -> None:
        if request.method == "GET":
            await reply.full(302, Location="http://127.0.0.1:1/login")
            return
        await reply.stream()
        await reply.event(NOTE, id="1")
        await reply.cut()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert await inbox.next() == NOTE
        error = await inbox.failure(1)
        assert (type(error), error.executed, error.status) == (LinkError, True, 302)


# --- the standing stream -------------------------------------------------------------------------------------


async def test_a_ping_on_the_standing_stream_arrives_and_can_be_answered():
    async def script(request: Request, reply: Reply) -> None:
        if request.method == "GET":
            await reply.stream()
            await reply.event(PING)
            await reply.gone()
        elif request.method == "DELETE":
            await reply.full(200)
        elif request.message.get("method") == "initialize":
            await reply.result(request, Mcp_Session_Id="s")
        else:
            await reply.full(202)

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await start(link, inbox)
        link.open_standing_stream({"MCP-Protocol-Version": "2025-11-25"})
        assert await inbox.next() == PING
        await ask(link, answer("p"))
        (get,) = server.asked("GET")
        assert get.headers["accept"] == "text/event-stream"
        assert get.headers["mcp-session-id"] == "s"
        reply = server.requests[-1]
        assert reply.message == answer("p")
        assert reply.headers["mcp-protocol-version"] == get.headers["mcp-protocol-version"] == "2025-11-25"


@pytest.mark.parametrize("status", [400, 404, 405, 501])
async def test_a_server_without_a_standing_stream_is_not_a_failure(status, monkeypatch):
    monkeypatch.setattr(http_stream, "MAX_DELAY", 0.01)
    refused = asyncio.Event()

    async def script(request: Request, reply: Reply) -> None:
        if request.method == "GET":
            await reply.full(status)
            refused.set()
        else:
            await reply.result(request)

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        link.open_standing_stream()
        async with asyncio.timeout(PATIENCE):
            await refused.wait()
            if status == 501:
                while len(server.asked("GET")) < 3:  # the link retries, as a server error may be temporary
                    await asyncio.sleep(0)
            else:
                assert link._standing_task is not None
                await link._standing_task
        await ask(link)
        assert await inbox.next() == answer(1)
        assert inbox.told == [answer(1)]


@pytest.mark.parametrize("opens_first", [True, False])
@pytest.mark.parametrize("status", [401, 403, 409, 429, 503])
async def test_a_standing_stream_that_is_refused_for_a_while_is_opened_later(status, opens_first, monkeypatch):
    monkeypatch.setattr(http_stream, "MAX_DELAY", 0.01)

    async def script(request: Request, reply: Reply) -> None:
        number = len(server.requests)
        if number in (2, 3) or (number == 1 and not opens_first):
            await reply.full(status)
            return
        await reply.stream()
        await reply.event(PING)
        if number == 1:
            await reply.end()
        else:
            await reply.gone()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        link.open_standing_stream()
        for _ in range(2 if opens_first else 1):
            assert await inbox.next() == PING
        assert len(server.requests) == 4


async def test_the_standing_stream_is_opened_anew_if_the_server_does_not_know_its_last_event_any_more():
    async def script(request: Request, reply: Reply) -> None:
        if request.method == "POST":
            await reply.result(request, Mcp_Session_Id="s")
        elif request.method == "DELETE":
            await reply.full(200)
        elif "last-event-id" in request.headers:
            await reply.full(400, b"Invalid event ID")
        else:
            await reply.stream()
            await reply.chunk(b"retry: 1\n\n")
            await reply.event(NOTE, id="1")
            await reply.end()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await start(link, inbox)
        link.open_standing_stream()
        assert [await inbox.next() for _ in range(3)] == [NOTE] * 3
        assert inbox.losses == []


@pytest.mark.parametrize("clean", [True, False])
async def test_the_standing_stream_is_reopened_with_the_last_event_id(clean):
    async def script(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.chunk(b"retry: 1\n\n")
        await reply.event(NOTE, id=str(len(server.requests)))
        await (reply.end() if clean else reply.cut())

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        link.open_standing_stream()
        assert [await inbox.next() for _ in range(4)] == [NOTE] * 4
        assert [request.headers.get("last-event-id") for request in server.requests[:4]] == [None, "1", "2", "3"]


@pytest.mark.parametrize("id", ["a\x01b", "a" * 20_000])
async def test_the_standing_stream_is_reopened_after_an_event_id_that_no_header_can_carry(id):
    async def script(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.chunk(b"retry: 1\n\n")
        await reply.event(NOTE, id=id if len(server.requests) == 1 else None)
        await reply.end()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        link.open_standing_stream()
        assert [await inbox.next() for _ in range(3)] == [NOTE] * 3
        assert {request.headers.get("last-event-id") for request in server.requests} == {None}


async def test_a_message_above_the_limit_on_the_standing_stream_is_dropped_alone():
    async def script(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.chunk(b"data: {" + b"x" * 5000 + b"\n\ndata: {broken\n\n")
        await reply.event(PING)
        await reply.gone()

    async with scripted(script) as server, linked(server.url, max_frame=1000) as (link, inbox):
        link.open_standing_stream()
        assert await inbox.next() == PING
        assert len(server.requests) == 1


async def test_reopening_the_standing_stream_replaces_it():
    closed = asyncio.Event()

    async def script(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.event(PING)
        await reply.gone()
        closed.set()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        link.open_standing_stream()
        await inbox.next()
        link.open_standing_stream()
        await inbox.next()
        async with asyncio.timeout(PATIENCE):
            await closed.wait()
        assert len(server.requests) == 2


async def test_an_unreachable_host_on_reopening_the_standing_stream_loses_the_link():
    async def script(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.chunk(b"retry: 1\n\n")
        await reply.event(NOTE)
        await server.stop_accepting()
        await reply.cut()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        link.open_standing_stream()
        assert await inbox.next() == NOTE
        lost = await inbox.next()
        assert isinstance(lost, LinkLost)
        assert "cannot connect" in str(lost)


async def test_an_unknown_session_on_reopening_the_standing_stream_loses_the_link():
    async def script(request: Request, reply: Reply) -> None:
        if request.method == "POST":
            await reply.result(request, Mcp_Session_Id="s")
        elif request.method == "DELETE" or len(server.asked("GET")) > 1:
            await reply.full(404)
        else:
            await reply.stream()
            await reply.chunk(b"retry: 1\n\n")
            await reply.end()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await start(link, inbox)
        link.open_standing_stream()
        lost = await inbox.next()
        assert isinstance(lost, LinkLost)
        assert lost.status == 404
    assert server.asked("DELETE") == [], "a session that is gone is not ended"
