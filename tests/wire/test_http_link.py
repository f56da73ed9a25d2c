import asyncio
import base64
import contextlib
import email.utils
import gzip
import json
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcp_hub.config.models import Deadlines
from mcp_hub.config.models import Server as Configured
from mcp_hub.wire import http_client
from mcp_hub.wire.http_client import HttpLink
from mcp_hub.wire.link import FrameTooLarge, LinkError, LinkLost, SessionLost, Unauthorized
from tests.wire.scripted_http import PATIENCE, Inbox, Reply, Request, scripted

pytestmark = pytest.mark.anyio

TOKEN = "Bearer s3cret-token-value"


def configured(url: str, **fields: Any) -> Configured:
    return Configured(id="up", transport="http", url=url, namespace="up", **fields)


@contextlib.asynccontextmanager
async def linked(url: str, **fields: Any) -> AsyncIterator[tuple[HttpLink, Inbox]]:
    link, inbox = HttpLink(configured(url, **fields)), Inbox()
    await link.open(inbox)
    try:
        yield link, inbox
    finally:
        async with asyncio.timeout(PATIENCE):
            await link.close()


def call(id: int | str = 1, method: str = "tools/call", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def answer(id: Any = 1, **result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


NOTE = {"jsonrpc": "2.0", "method": "notifications/initialized"}
PING = {"jsonrpc": "2.0", "id": "p", "method": "ping"}


async def ask(link: HttpLink, message: dict[str, Any] | None = None, **headers: str) -> None:
    async with asyncio.timeout(PATIENCE):
        await link.send(message or call(), {name.replace("_", "-"): value for name, value in headers.items()})


async def one_failure(script: Any, **fields: Any) -> LinkError:
    """What a single request is told when the server behaves like `script`; the link must live on."""
    async with scripted(script) as server, linked(server.url, **fields) as (link, inbox):
        await ask(link)
        error = await inbox.failure(1)
        assert len(server.asked("POST")) == 1, "a request is never sent twice"
        assert inbox.losses == []
        return error


def always(status: int, body: bytes = b"", **headers: str) -> Any:
    async def script(request: Request, reply: Reply) -> None:
        await reply.full(status, body, **headers)

    return script


# --- answers ---------------------------------------------------------------------------------------------------


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


async def test_an_answer_as_a_stream_brings_notifications_and_requests_before_it():
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


async def test_words_other_events_and_unreadable_notes_on_a_stream_are_left_out():
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
async def test_batches_are_taken_apart(as_stream):
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


async def test_fifty_requests_side_by_side_each_get_their_own_answer_in_any_order():
    all_here = asyncio.Event()

    async def script(request: Request, reply: Reply) -> None:
        if len(server.requests) == 50:
            all_here.set()
        await all_here.wait()
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


async def test_a_notification_is_delivered_when_send_returns_and_202_is_right():
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


async def test_a_notification_nobody_takes_ends_at_the_write_deadline():
    async def script(request: Request, reply: Reply) -> None:
        await reply.gone()

    async with scripted(script) as server, linked(server.url, deadlines=Deadlines(write=0.05)) as (link, _):
        with pytest.raises(LinkError, match=r"within 0\.05 s"):
            await ask(link, NOTE)


# --- sessions --------------------------------------------------------------------------------------------------


async def test_the_session_of_initialize_is_carried_until_it_is_ended():
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
        initialize, use, again, end = server.requests
    assert "mcp-session-id" not in initialize.headers | again.headers
    assert use.headers["mcp-session-id"] == "session-1"
    assert "mcp-protocol-version" not in again.headers, "a new handshake begins without a revision"
    assert end.method == "DELETE"
    assert end.headers["mcp-session-id"] == "session-3"


@pytest.mark.parametrize("bad", ["two words", "tab\there", "é", "x" * 1025])
async def test_a_session_id_that_is_not_visible_ascii_is_refused(bad):
    async def script(request: Request, reply: Reply) -> None:
        await reply.result(request, Mcp_Session_Id=bad)

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link, call(1, "initialize"))
        assert "Mcp-Session-Id" in str(await inbox.failure(1))


async def start(link: HttpLink, inbox: Inbox) -> None:
    await ask(link, call("init", "initialize"))
    assert (await inbox.next())["id"] == "init"


async def test_a_lost_session_is_told_as_such_and_the_request_was_not_executed():
    async def script(request: Request, reply: Reply) -> None:
        if request.method == "POST" and request.message["method"] == "initialize":
            await reply.result(request, Mcp_Session_Id="s-very-long")
        else:
            error = {"code": -32600, "message": "Session s-very-long not found"}
            await reply.json({"jsonrpc": "2.0", "id": 1, "error": error}, 404)

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await start(link, inbox)
        await ask(link)
        error = await inbox.failure(1)
        assert isinstance(error, SessionLost)
        assert (error.executed, error.status) == (False, 404)
        assert "s-very-long" not in str(error)


async def test_404_without_a_session_is_an_ordinary_failure():
    error = await one_failure(always(404, b"<h1>Not Found</h1>"))
    assert type(error) is LinkError
    assert (error.executed, error.status) == (False, 404)


# --- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
async def test_401_and_403_are_unauthorized_with_the_challenge_in_short(status):
    challenge = 'Bearer realm="x", error="invalid_token", resource_metadata="https://auth/?a=b"'
    error = await one_failure(always(status, b"secret body", WWW_Authenticate=challenge))
    assert isinstance(error, Unauthorized)
    assert (error.executed, error.status) == (False, status)
    assert 'Bearer, error="invalid_token"' in str(error)
    assert "auth" not in str(error).lower().replace("unauthorized", "")


@pytest.mark.parametrize(("status", "executed"), [(429, False), (503, True)])
async def test_retry_after_is_passed_on_in_seconds(status, executed):
    error = await one_failure(always(status, b"slow down", Retry_After="7"))
    assert type(error) is LinkError
    assert (error.status, error.retry_after, error.executed) == (status, 7.0, executed)


async def test_retry_after_may_be_a_date():
    date = email.utils.formatdate(time.time() + 100, usegmt=True)
    error = await one_failure(always(429, Retry_After=date))
    assert error.retry_after is not None
    assert 60 < error.retry_after <= 101


@pytest.mark.parametrize("value", ["soon", "-1", "1e9", ""])
async def test_a_retry_after_that_is_neither_is_ignored(value):
    assert (await one_failure(always(429, Retry_After=value))).retry_after is None


@pytest.mark.parametrize("id", [1, None, "absent"])
@pytest.mark.parametrize("status", [400, 404, 500])
async def test_a_json_rpc_error_in_an_http_error_is_the_answer(status, id):
    error = {"code": -32022, "message": "Unsupported", "data": {"supported": []}}
    body = {"jsonrpc": "2.0", "id": id, "error": error}
    if id == "absent":
        del body["id"]
    async with scripted(always(status, json.dumps(body).encode())) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert await inbox.next() == {"jsonrpc": "2.0", "id": 1, "error": error}


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":2,"error":{"code":1}}',
        b'{"error":"x"}',
        b'{"id":1,"result":{}}',
        b'{"id":1,"method":"m","error":{}}',
        b"{",
    ],
)
async def test_an_http_error_with_anything_else_is_a_failure_with_its_status(body):
    error = await one_failure(always(400, body))
    assert type(error) is LinkError
    assert (error.status, error.executed) == (400, False)


async def test_the_body_of_a_failure_is_shown_short_escaped_and_without_our_credentials():
    body = f"<html>\x1b[31m  you sent {TOKEN} and {TOKEN[7:]}\n{'x' * 999}".encode()
    error = await one_failure(always(500, body), headers={"Authorization": TOKEN})
    assert (error.status, error.executed) == (500, True)
    assert "\x1b" not in str(error)
    assert "\\x1b[31m you sent *** and *** xxx" in str(error)
    assert len(str(error)) < 250


async def test_an_error_whose_body_never_ends_is_told_all_the_same(monkeypatch):
    monkeypatch.setattr("mcp_hub.wire.http.ERROR_BODY_WAIT", 0.05)

    async def script(request: Request, reply: Reply) -> None:
        await reply.head(500, Content_Length="1000")
        await reply.raw(b"half")
        await reply.gone()

    assert "half" in str(await one_failure(script))


@pytest.mark.parametrize(("kind", "said"), [("text/html", "'text/html'"), ("", "no content type")])
async def test_an_answer_of_another_content_type_is_a_failure(kind, said):
    headers = {"Content_Type": kind} if kind else {}
    error = await one_failure(always(200, json.dumps(answer()).encode(), **headers))
    assert type(error) is LinkError
    assert said in str(error)


async def test_202_to_a_request_is_a_failure():
    assert (await one_failure(always(202))).status == 202


@pytest.mark.parametrize("body", [b"{", b"", b'{"jsonrpc":"2.0","id":1,"result":{"a":', b"nonsense"])
async def test_an_answer_that_is_no_json_is_a_failure(body):
    assert "JSON" in str(await one_failure(always(200, body, Content_Type="application/json")))


async def test_an_answer_to_another_request_is_passed_on_and_the_request_fails():
    async def script(request: Request, reply: Reply) -> None:
        await reply.json([answer("1"), answer(2)])

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert [await inbox.next(), await inbox.next()] == [answer("1"), answer(2)]
        assert "does not belong" in str(await inbox.failure(1))


async def test_a_message_that_json_cannot_say_is_refused_before_it_is_sent():
    async with scripted(always(200)) as server, linked(server.url) as (link, _):
        with pytest.raises(LinkError) as caught:
            await ask(link, call(x=object()))
        assert caught.value.executed is False
        assert server.requests == []


# --- broken connections ----------------------------------------------------------------------------------------


async def test_no_answer_but_an_end_may_have_been_executed_and_is_not_sent_again():
    async def script(request: Request, reply: Reply) -> None:
        await reply.cut()

    error = await one_failure(script)
    assert type(error) is LinkError
    assert error.executed is True


@pytest.mark.parametrize("kind", ["json", "chunked", "stream", "clean stream", "head", "nonsense"])
async def test_an_answer_that_breaks_off_fails_its_own_request_only(kind):
    async def script(request: Request, reply: Reply) -> None:
        if request.message["id"] == 2:
            await reply.result(request)
            return
        if kind == "json":
            await reply.head(200, Content_Type="application/json", Content_Length="100")
            await reply.raw(b'{"jsonrpc"')
        elif kind == "chunked":
            await reply.head(200, Content_Type="application/json", Transfer_Encoding="chunked")
            await reply.chunk(b'{"jsonrpc"')
        elif kind == "head":
            await reply.raw(b"HTTP/1.1 200 OK\r\nContent-")
        elif kind == "nonsense":
            await reply.raw(b"SSH-2.0-OpenSSH\r\n\r\n")
        else:
            await reply.stream()
            await reply.chunk(b'data: {"jsonrpc"')
            if kind == "clean stream":
                await reply.end()
        await reply.cut()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        error = await inbox.failure(1)
        assert type(error) is LinkError
        assert error.executed is True
        await ask(link, call(2))
        assert await inbox.next() == answer(2)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_a_refused_connection_was_not_executed_and_the_link_is_lost():
    url = f"http://user:pass-word@127.0.0.1:{free_port()}/mcp?key=sesame"
    async with linked(url) as (link, inbox):
        await ask(link)
        error = await inbox.failure(1)
        assert error.executed is False
        assert error.status is None
        assert not {"pass-word", "sesame"} & set(str(error).replace("?", " ").split())
        lost = await inbox.next()
        assert isinstance(lost, LinkLost)
        with pytest.raises(LinkLost) as caught:
            await ask(link, call(2))
        assert caught.value.executed is False


async def test_a_refused_connection_leaves_what_is_in_flight_to_end_by_itself():
    go = asyncio.Event()

    async def script(request: Request, reply: Reply) -> None:
        await server.stop_accepting()
        await go.wait()
        await reply.result(request, {"late": True})

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link, call(1))
        async with asyncio.timeout(PATIENCE):
            while not server.requests:
                await asyncio.sleep(0)
        await ask(link, call(2))
        assert (await inbox.failure(2)).executed is False
        assert inbox.losses == []
        go.set()
        assert await inbox.next() == answer(1, late=True)
        # The host answered on the old connection; with that gone, the next refusal is the end.
        assert inbox.losses == []


async def test_the_loss_is_told_behind_the_last_request_in_flight():
    go = asyncio.Event()

    async def script(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.event(NOTE)
        await server.stop_accepting()
        await go.wait()
        await reply.cut()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link, call(1))
        assert await inbox.next() == NOTE
        await ask(link, call(2))
        await inbox.failure(2)
        assert inbox.losses == []
        go.set()
        assert (await inbox.failure(1)).executed is True
        assert isinstance(await inbox.next(), LinkLost)


async def test_a_host_that_cannot_be_found_is_told_without_a_query(monkeypatch):
    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "no such host")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    async with linked("http://nowhere.example/mcp?key=sesame") as (link, inbox):
        await ask(link)
        error = await inbox.failure(1)
        assert error.executed is False
        assert str(error) == "cannot find the host of http://nowhere.example/mcp"


async def test_tls_towards_a_plain_server_was_not_executed():
    async with (
        scripted(always(200)) as server,
        linked(server.url.replace("http:", "https:"), deadlines=Deadlines(connect=0.3)) as (link, inbox),
    ):
        await ask(link)
        assert (await inbox.failure(1)).executed is False
        assert server.requests == []


async def test_a_connection_that_does_not_come_about_ends_at_the_connect_deadline():
    with socket.socket() as silent:  # its backlog is full, so that a connection hangs
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        address = silent.getsockname()
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                filler = stack.enter_context(socket.socket())
                filler.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    filler.connect(address)
            url = f"http://127.0.0.1:{address[1]}/mcp"
            async with linked(url, deadlines=Deadlines(connect=0.2)) as (link, inbox):
                await ask(link)
                error = await inbox.failure(1)
    assert error.executed is False
    assert "within 0.2 s" in str(error)


# --- limits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["length", "chunks", "gzip", "event", "line"])
async def test_an_answer_above_the_limit_fails_its_request_and_closes_its_connection(kind):
    text = b'{"jsonrpc":"2.0","id":1,"result":{"x":"' + b"x" * 200_000 + b'"}}'
    closed = asyncio.Event()

    async def script(request: Request, reply: Reply) -> None:
        if request.message["id"] == 2:
            await reply.result(request)
            return
        with contextlib.suppress(ConnectionError):
            if kind == "length":
                await reply.full(200, text, Content_Type="application/json")
            elif kind == "gzip":
                await reply.full(
                    200, gzip.compress(text * 50), Content_Type="application/json", Content_Encoding="gzip"
                )
            elif kind == "chunks":
                await reply.head(200, Content_Type="application/json", Transfer_Encoding="chunked")
                await reply.chunk(text)
            else:
                await reply.stream()
                await reply.chunk(b"data: " + text + (b"\n\n" if kind == "event" else b""))
            await reply.gone()
        closed.set()

    async with scripted(script) as server, linked(server.url, max_frame=100_000) as (link, inbox):
        await ask(link)
        error = await inbox.failure(1)
        assert isinstance(error, FrameTooLarge)
        assert "100,000" in str(error)
        await ask(link, call(2))
        assert await inbox.next() == answer(2)
        if kind != "length":
            async with asyncio.timeout(PATIENCE):
                await closed.wait()


# --- redirects -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_within_the_origin_is_followed_with_the_body(status):
    async def script(request: Request, reply: Reply) -> None:
        if request.path == "/mcp":
            await reply.full(status, Location="/mcp/")
        else:
            await reply.result(request)

    async with scripted(script) as server, linked(server.url, headers={"Authorization": TOKEN}) as (link, inbox):
        await ask(link)
        assert await inbox.next() == answer(1)
        assert [request.path for request in server.requests] == ["/mcp", "/mcp/"]
        assert server.requests[1].message == call()
        assert server.requests[1].headers["authorization"] == TOKEN


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_to_another_port_is_not_followed(status):
    async with scripted(always(200)) as other:
        where = f"http://127.0.0.1:{other.port}/steal?key=sesame"
        error = await one_failure(always(status, Location=where), headers={"Authorization": TOKEN})
        assert other.connections == 0
    assert (error.status, error.executed) == (status, False)
    assert f":{other.port}/steal" in str(error)
    assert "sesame" not in str(error)


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_that_would_turn_a_post_into_a_get_is_not_followed(status):
    error = await one_failure(always(status, Location="/elsewhere"))
    assert (error.status, error.executed) == (status, False)


@pytest.mark.parametrize("location", [None, "http://[", "http://host:99999/", "ftp://127.0.0.1/"])
async def test_a_redirect_to_nowhere_is_a_failure(location):
    error = await one_failure(always(307, **({} if location is None else {"Location": location})))
    assert (error.status, error.executed) == (307, False)


async def test_a_circle_of_redirects_ends():
    async with scripted(always(307, Location="/mcp")) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert (await inbox.failure(1)).executed is False
        assert len(server.requests) == 4


# --- giving up and resuming ------------------------------------------------------------------------------------


async def test_abandoning_a_request_closes_its_stream_and_says_nothing():
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


@pytest.mark.parametrize("clean", [True, False])
async def test_a_stream_with_event_ids_is_resumed_where_it_broke_off(clean):
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


async def test_resuming_ends_when_nothing_comes_any_more(monkeypatch):
    monkeypatch.setattr(http_client, "MAX_DELAY", 0.01)

    async def script(request: Request, reply: Reply) -> None:
        await reply.stream()
        if request.method == "POST":
            await reply.event(NOTE, id="1")
        await reply.end()

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert await inbox.next() == NOTE
        assert (await inbox.failure(1)).executed is True
        assert len(server.asked("GET")) == http_client.RESUMES


async def test_a_stream_that_cannot_be_resumed_may_have_been_executed(monkeypatch):
    monkeypatch.setattr(http_client, "MAX_DELAY", 0.01)

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


# --- the standing stream ---------------------------------------------------------------------------------------


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
async def test_a_standing_stream_that_is_not_offered_is_no_failure(status, monkeypatch):
    monkeypatch.setattr(http_client, "MAX_DELAY", 0.01)
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
                while len(server.asked("GET")) < 3:  # a server's own trouble may pass
                    await asyncio.sleep(0)
            else:
                assert link._standing is not None
                await link._standing
        await ask(link)
        assert await inbox.next() == answer(1)
        assert inbox.told == [answer(1)]


@pytest.mark.parametrize("clean", [True, False])
async def test_the_standing_stream_is_opened_again_with_the_last_id(clean):
    async def script(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.chunk(b"retry: 1\n\n")
        await reply.event(NOTE, id=str(len(server.requests)))
        await (reply.end() if clean else reply.cut())

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        link.open_standing_stream()
        assert [await inbox.next() for _ in range(4)] == [NOTE] * 4
        assert [request.headers.get("last-event-id") for request in server.requests[:4]] == [None, "1", "2", "3"]


async def test_a_large_message_on_the_standing_stream_costs_only_itself():
    async def script(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.chunk(b"data: {" + b"x" * 5000 + b"\n\ndata: {broken\n\n")
        await reply.event(PING)
        await reply.gone()

    async with scripted(script) as server, linked(server.url, max_frame=1000) as (link, inbox):
        link.open_standing_stream()
        assert await inbox.next() == PING
        assert len(server.requests) == 1


async def test_opening_the_standing_stream_again_replaces_it():
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


async def test_a_host_that_is_gone_when_the_standing_stream_opens_again_loses_the_link():
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


async def test_a_session_that_is_unknown_when_the_standing_stream_opens_again_loses_the_link():
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


# --- the end ---------------------------------------------------------------------------------------------------


async def test_closing_ends_session_streams_and_requests_once(monkeypatch):
    monkeypatch.setattr(http_client, "END_SESSION", 0.05)
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
    here = asyncio.Event()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        here.set()
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writers.append(writer)

    writers: list[asyncio.StreamWriter] = []
    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    link = HttpLink(configured(url))
    await link.open(Inbox())
    await ask(link, call(text="x" * 30_000_000))
    async with asyncio.timeout(PATIENCE):
        await here.wait()
        await link.close()
    assert [made for made in link._http._sockets if made.fileno() != -1] == []
    for writer in writers:
        writer.transport.abort()
    listening.close()
    await asyncio.sleep(0)


async def test_closing_before_opening_is_fine():
    link = HttpLink(configured("http://127.0.0.1:1/mcp"))
    async with asyncio.timeout(PATIENCE):
        await link.close()
    with pytest.raises(LinkLost):
        await ask(link)


# --- configuration ---------------------------------------------------------------------------------------------


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
async def test_a_url_that_cannot_be_used_is_refused(url):
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


async def test_proxies_of_the_environment_are_not_used(monkeypatch):
    async def script(request: Request, reply: Reply) -> None:
        await reply.result(request)

    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert await inbox.next() == answer(1)


async def test_connections_are_probed_by_tcp():
    async def script(request: Request, reply: Reply) -> None:
        await reply.result(request)

    async with scripted(script) as server, linked(server.url) as (link, inbox):
        await ask(link)
        await inbox.next()
        (used,) = link._http._sockets
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
