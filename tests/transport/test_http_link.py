"""The streamable HTTP link when all goes well: answers, sessions, its configuration and its end."""

import asyncio
import base64
import gzip
import json
import socket

import pytest

from mcp_hub.config.models import Deadlines
from mcp_hub.transport import LinkError, LinkLost, SessionLost, http_link
from mcp_hub.transport.http_link import HttpLink
from tests.loops import anyio_backend  # noqa: F401
from tests.transport.scripted_http import (
    NOTE,
    PATIENCE,
    PING,
    TOKEN,
    Inbox,
    Reply,
    Request,
    always,
    answer,
    ask,
    call,
    configured,
    linked,
    one_failure,
    scripted,
    start,
)

pytestmark = pytest.mark.anyio


# --- answers -------------------------------------------------------------------------------------------------


async def test_a_json_answer_arrives_and_the_request_carries_the_right_headers():
    async def script(request: Request, reply: Reply) -> None:
        await reply.result(request, {"x": 1}, Set_Cookie="a=b")

    headers = {"Authorization": TOKEN, "accept": "text/html", "Mcp-Session-Id": "mine", "X-Key": " padded "}
    async with scripted(script) as server, linked(server.url, headers=headers) as (link, inbox):
        await ask(link, call(1, "tools/list"), Mcp_Method="tools/list", MCP_Protocol_Version="2026-07-28")
        assert await inbox.next() == answer(1, x=1)
        await ask(link, call(2, "tools/list"))
        assert await inbox.next() == answer(2, x=1)
        first, second = server.requests
    assert first.message == call(1, "tools/list")
    assert first.headers["accept"] == "application/json, text/event-stream"
    assert first.headers["content-type"] == "application/json"
    assert first.headers["authorization"] == TOKEN
    assert first.headers["x-key"] == "padded"
    assert first.headers["mcp-method"] == "tools/list"
    assert first.headers["mcp-protocol-version"] == second.headers["mcp-protocol-version"] == "2026-07-28"
    assert {"mcp-session-id", "cookie"}.isdisjoint(first.headers.keys() | second.headers.keys())
    assert first.connection == second.connection


async def test_a_stream_response_delivers_notifications_and_requests_before_the_result():
    note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}

    async def script(request: Request, reply: Reply) -> None:
        await reply.stream()
        text = b"".join(b"data: " + json.dumps(m).encode() + b"\r\n\r\n" for m in (note, PING, answer(1, ok=True)))
        for at in range(len(text)):
            await reply.chunk(text[at : at + 1])
        await reply.end()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert [await inbox.next() for _ in range(3)] == [note, PING, answer(1, ok=True)]
        await ask(link)
        await inbox.next()
        assert server.connections == 1, "the connection of a stream that ended is used again"


async def test_other_events_and_invalid_messages_on_a_stream_are_dropped():
    async def script(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.chunk(b': hi\n\nevent: ping\ndata: {"id":1,"result":{}}\n\ndata: hello\n\ndata:\n\n')
        await reply.chunk(b'data: {"jsonrpc":"2.0","id":9,"result":{"cut\n\ndata: [1, 2]\n\n')
        await reply.event(answer(1, ok=True))
        await reply.end()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert await inbox.next() == answer(1, ok=True)


@pytest.mark.parametrize("as_stream", [False, True])
async def test_the_messages_of_a_batched_answer_arrive_one_by_one(as_stream):
    async def script(request: Request, reply: Reply) -> None:
        batch = [NOTE, answer(1, ok=True)]
        if not as_stream:
            await reply.json(batch)
            return
        await reply.stream()
        await reply.event(batch)
        await reply.end()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert [await inbox.next() for _ in range(2)] == [NOTE, answer(1, ok=True)]


async def test_fifty_concurrent_requests_get_their_own_answers_in_any_order():
    all_arrived = asyncio.Event()

    async def script(request: Request, reply: Reply) -> None:
        if len(server.requests) == 50:
            all_arrived.set()
        await all_arrived.wait()
        await reply.result(request, {"echo": request.message["params"]["n"]})

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        for n in range(50):
            await ask(link, call(n, n=n))
        answers = [await inbox.next() for _ in range(50)]
    assert {a["id"]: a["result"]["echo"] for a in answers} == {n: n for n in range(50)}


async def test_a_compressed_answer_is_read():
    body = gzip.compress(json.dumps(answer(1, text="x" * 5000)).encode())
    script = always(200, body, Content_Type="application/json; charset=utf-8", Content_Encoding="gzip")
    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert (await inbox.next())["result"]["text"] == "x" * 5000


async def test_a_large_request_is_sent_whole():
    async def script(request: Request, reply: Reply) -> None:
        await reply.result(request, {"size": len(request.message["params"]["text"])})

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link, call(text="x" * 3_000_000))
        assert await inbox.next() == answer(1, size=3_000_000)


async def test_a_notification_answered_with_202_is_delivered_when_send_returns():
    async with scripted(always(202)) as server, linked(server.url) as (link, inbox):
        await ask(link, NOTE)
        await ask(link, answer("p"))
        assert [request.message for request in server.requests] == [NOTE, answer("p")]
        assert server.connections == 1
        assert inbox.told == []


async def test_a_refused_notification_raises():
    async with scripted(always(500, b"no")) as server, linked(server.url) as (link, inbox):
        with pytest.raises(LinkError, match="HTTP 500 Internal Server Error: no") as caught:
            await ask(link, NOTE)
        assert caught.value.status == 500
        assert inbox.told == []


async def test_a_notification_that_is_not_read_ends_at_the_write_deadline():
    async def script(request: Request, reply: Reply) -> None:
        await reply.gone()

    async with scripted(script) as server, linked(server.url, deadlines=Deadlines(write=0.05)) as (link, _):
        with pytest.raises(LinkError, match=r"within 0\.05 s"):
            await ask(link, NOTE)


# --- sessions ------------------------------------------------------------------------------------------------


async def test_the_session_id_of_initialize_is_sent_until_the_session_ends():
    async def script(request: Request, reply: Reply) -> None:
        if request.method == "DELETE":
            await reply.full(200)
        elif request.message["method"] == "initialize":
            await reply.result(request, Mcp_Session_Id=f"session-{len(server.requests)}")
        else:
            await reply.result(request, Mcp_Session_Id="another")

    async with scripted(script) as server:
        async with linked(server.url) as (link, inbox):
            for message in (call(1, "initialize"), call(2), call(3, "initialize")):
                await ask(link, message, **({} if message["method"] == "initialize" else {"MCP_Protocol_Version": "v"}))
                await inbox.next()
        initialize, use, second_initialize, end = server.requests
    assert "mcp-session-id" not in initialize.headers | second_initialize.headers
    assert use.headers["mcp-session-id"] == "session-1"
    assert "mcp-protocol-version" not in second_initialize.headers, "a new handshake begins without a revision"
    assert end.method == "DELETE"
    assert end.headers["mcp-session-id"] == "session-3"


@pytest.mark.parametrize("bad", ["two words", "tab\there", "é", "x" * 1025])
async def test_a_session_id_that_is_not_visible_ascii_is_refused(bad):
    async def script(request: Request, reply: Reply) -> None:
        await reply.result(request, Mcp_Session_Id=bad)

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link, call(1, "initialize"))
        assert "Mcp-Session-Id" in str(await inbox.failure(1))


@pytest.mark.parametrize(("status", "id"), [(404, None), (404, "server-error"), (410, None)])
async def test_a_lost_session_is_reported(status, id):
    async def script(request: Request, reply: Reply) -> None:
        if request.method == "POST" and request.message["method"] == "initialize":
            await reply.result(request, Mcp_Session_Id="s-very-long")
        else:
            error = {"code": -32600, "message": "Session s-very-long not found"}
            await reply.json({"jsonrpc": "2.0", "id": id, "error": error}, status)

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await start(link, inbox)
        await ask(link)
        error = await inbox.failure(1)
        assert isinstance(error, SessionLost)
        assert (error.executed, error.status) == (status == 410, status)
        assert "s-very-long" not in str(error)


async def test_404_with_an_error_under_the_id_of_the_request_is_its_answer_also_in_a_session():
    refused = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no such row"}}

    async def script(request: Request, reply: Reply) -> None:
        if request.method == "POST" and request.message["method"] == "initialize":
            await reply.result(request, Mcp_Session_Id="s")
        else:
            await reply.json(refused, 404)

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await start(link, inbox)
        await ask(link)
        assert await inbox.next() == refused
        assert inbox.losses == []


async def test_404_without_a_session_is_an_ordinary_failure():
    error = await one_failure(always(404, b"<h1>Not Found</h1>"))
    assert type(error) is LinkError
    assert (error.executed, error.status) == (True, 404)


# --- configuration -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers", [{"X-Key": "a\r\nb: sesame"}, {"X Key": "sesame"}, {"": "sesame"}, {"X": "sesame\0"}]
)
async def test_a_header_that_would_break_the_request_is_refused_by_name_only(headers):
    link = HttpLink(configured("http://127.0.0.1:1/mcp", headers=headers))
    with pytest.raises(LinkError) as caught:
        await link.open(Inbox())
    assert caught.value.executed is False
    assert "sesame" not in str(caught.value)
    await link.close()


@pytest.mark.parametrize("url", ["ftp://host/mcp", "/mcp", "http://", "http://[", "http://host:99999/"])
async def test_an_invalid_url_is_refused(url):
    link = HttpLink(configured(url))
    with pytest.raises(LinkError) as caught:
        await link.open(Inbox())
    assert caught.value.executed is False
    await link.close()


@pytest.mark.parametrize("headers", [{}, {"authorization": TOKEN}])
async def test_credentials_in_the_url_become_a_header_unless_one_is_configured(headers):
    async def script(request: Request, reply: Reply) -> None:
        await reply.result(request)

    async with scripted(script) as server:
        url = server.url.replace("//", "//user:pass@")
        async with linked(url, headers=headers) as (link, inbox):
            await ask(link)
            assert await inbox.next() == answer(1)
    basic = "Basic " + base64.b64encode(b"user:pass").decode()
    assert server.requests[0].headers["authorization"] == (TOKEN if headers else basic)


async def test_requests_to_loopback_do_not_use_the_environments_proxy(monkeypatch):
    async def script(request: Request, reply: Reply) -> None:
        await reply.result(request)

    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert await inbox.next() == answer(1)


async def test_tcp_keep_alive_is_enabled_on_connections():
    async def script(request: Request, reply: Reply) -> None:
        await reply.result(request)

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        await inbox.next()
        assert link._http._pool is not None
        (used,) = link._http._pool.sockets
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


# --- the end -------------------------------------------------------------------------------------------------


async def test_closing_ends_session_streams_and_requests_once(monkeypatch):
    monkeypatch.setattr(http_link, "END_SESSION", 0.05)
    closed: list[str] = []

    async def script(request: Request, reply: Reply) -> None:
        if request.method == "POST" and request.message["method"] == "initialize":
            await reply.result(request, Mcp_Session_Id="s")
            return
        if request.method != "DELETE":
            await reply.stream()
            await reply.event(NOTE)
        await reply.gone()  # also for the DELETE, which is never answered
        closed.append(request.method)

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await start(link, inbox)
        link.open_standing_stream()
        await ask(link)
        assert [await inbox.next(), await inbox.next()] == [NOTE, NOTE]
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(link.close(), link.close())
            await link.close()
            while len(closed) < 3:
                await asyncio.sleep(0)
        assert sorted(closed) == ["DELETE", "GET", "POST"]
        assert len(server.asked("DELETE")) == 1
        assert inbox.losses == []
        with pytest.raises(LinkLost) as caught:
            await ask(link)
        assert caught.value.executed is False
        link.open_standing_stream()
        assert link.last_words == ()


async def test_closing_does_not_wait_for_a_peer_that_does_not_read():
    arrived = asyncio.Event()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writers.append(writer)

    writers: list[asyncio.StreamWriter] = []
    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    link = HttpLink(configured(url))
    await link.open(Inbox())
    await ask(link, call(text="x" * 30_000_000))
    async with asyncio.timeout(PATIENCE):
        await arrived.wait()
        assert link._http._pool is not None
        while not link._http._pool.sockets:
            await asyncio.sleep(0)
        (handle,) = link._http._pool.sockets
        await link.close()
        while handle.fileno() != -1:  # uvloop closes it in its next round
            await asyncio.sleep(0)
    for writer in writers:
        writer.transport.abort()
    listening.close()
    await asyncio.sleep(0)


async def test_a_link_can_be_closed_before_it_is_opened():
    link = HttpLink(configured("http://127.0.0.1:1/mcp"))
    async with asyncio.timeout(PATIENCE):
        await link.close()
    with pytest.raises(LinkLost):
        await ask(link)
