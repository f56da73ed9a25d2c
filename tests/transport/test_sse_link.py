import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from mcp_hub import codes
from mcp_hub.config.models import Deadlines
from mcp_hub.config.models import Server as Configured
from mcp_hub.transport import FrameTooLarge, LinkError, LinkLost, SessionLost, SignInNeeded, Unauthorized, http_client
from mcp_hub.transport.sse_link import SseLink
from tests.loops import anyio_backend  # noqa: F401
from tests.transport.scripted_http import PATIENCE, Inbox, Reply, Request, Server, scripted

pytestmark = pytest.mark.anyio

TOKEN = "Bearer s3cret-token-value"
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
ANSWER = {"jsonrpc": "2.0", "id": 1, "result": {}}
PING = {"jsonrpc": "2.0", "id": "p", "method": "ping"}


class Board:
    """An SSE server with one stream; it answers each POST with 202 unless a test sets another reply."""

    def __init__(self, endpoint: bytes = b"/messages?session_id=0123456789") -> None:
        self.endpoint = endpoint
        self.stream: Reply | None = None
        self.ended = asyncio.Event()
        self.posted: Callable[[Request, Reply], Awaitable[None]] = self._accept

    async def _accept(self, request: Request, reply: Reply) -> None:
        await reply.full(202, b"Accepted")

    async def __call__(self, request: Request, reply: Reply) -> None:
        if request.method == "POST":
            await self.posted(request, reply)
            return
        await reply.stream()
        await reply.chunk(b"event: endpoint\r\ndata: " + self.endpoint + b"\r\n\r\n")
        self.stream = reply
        await reply.gone()
        self.ended.set()


@contextlib.asynccontextmanager
async def linked(board: Board, **fields: Any) -> AsyncIterator[tuple[Server, SseLink, Inbox, Reply]]:
    async with scripted(board) as server:
        link, inbox = new(server.url, **fields), Inbox()
        try:
            async with asyncio.timeout(PATIENCE):
                await link.open(inbox)
            assert board.stream is not None
            yield server, link, inbox, board.stream
        finally:
            async with asyncio.timeout(PATIENCE):
                await link.close()


def new(url: str, **fields: Any) -> SseLink:
    return SseLink(Configured(id="up", transport="sse", url=url, namespace="up", **fields))


async def refused_to_open(script: Any, **fields: Any) -> LinkError:
    """Returns the error of opening a link to a server that runs `script`."""
    async with scripted(script) as server:
        link, inbox = new(server.url, **fields), Inbox()
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(LinkError) as caught:
                await link.open(inbox)
            with pytest.raises(LinkError):
                await link.send(CALL)
            await link.close()
        assert inbox.told == []
        return caught.value


async def ask(link: SseLink) -> None:
    async with asyncio.timeout(PATIENCE):
        await link.send(CALL)


async def posted(server: Server) -> Request:
    """Waits for the first POST."""
    async with asyncio.timeout(PATIENCE):
        while not server.asked("POST"):
            await asyncio.sleep(0)
    return server.asked("POST")[0]


async def test_messages_are_posted_to_the_endpoint_and_received_on_the_stream():
    async with linked(Board(), headers={"Authorization": TOKEN}) as (server, link, inbox, stream):
        await ask(link)
        await stream.event(PING)
        await stream.event([ANSWER, PING])
        assert [await inbox.next() for _ in range(3)] == [PING, ANSWER, PING]
        get, post = server.asked("GET")[0], await posted(server)
        assert (get.method, get.path, get.headers["accept"]) == ("GET", "/mcp", "text/event-stream")
        assert (post.method, post.path) == ("POST", "/messages?session_id=0123456789")
        assert post.message == CALL
        assert post.headers["content-type"] == "application/json"
        assert get.headers["authorization"] == post.headers["authorization"] == TOKEN
        assert link.last_words == ()
        link.abandon(1)


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [(b"messages", "/messages"), (b"?s=1", "/mcp?s=1"), (b"//127.0.0.1:%d/x", "/x"), (b"x/#f", "/x/")],
)
async def test_the_endpoint_may_be_relative(endpoint, path):
    board = Board(endpoint)
    async with scripted(board) as server:
        board.endpoint = endpoint.replace(b"%d", str(server.port).encode())
        link = new(server.url)
        async with asyncio.timeout(PATIENCE):
            await link.open(Inbox())
            await ask(link)
            assert (await posted(server)).path == path
            await link.close()


async def test_an_endpoint_of_another_origin_is_refused_and_gets_no_request():
    async with scripted(Board()) as second_server:
        endpoint = f"http://127.0.0.1:{second_server.port}/messages?key=sesame"
        error = await refused_to_open(Board(endpoint.encode()), headers={"Authorization": TOKEN})
        assert second_server.connections == 0
    assert error.executed is False
    assert "same origin" in str(error)
    assert "sesame" not in str(error)


@pytest.mark.parametrize("endpoint", [b"http://[", b"\xff", b"http://host:99999/"])
async def test_an_invalid_endpoint_url_is_refused(endpoint):
    assert (await refused_to_open(Board(endpoint))).executed is False


async def test_a_second_endpoint_event_is_ignored():
    async with linked(Board()) as (server, link, inbox, stream):
        await stream.chunk(b"event: endpoint\ndata: /other\n\n")
        await stream.event(PING)
        assert await inbox.next() == PING
        await ask(link)
        assert (await posted(server)).path.startswith("/messages")


@pytest.mark.parametrize(
    ("status", "kind"), [(401, SignInNeeded), (403, Unauthorized), (404, LinkError), (500, LinkError)]
)
async def test_a_stream_that_is_refused_cannot_be_opened(status, kind):
    async def script(request: Request, reply: Reply) -> None:
        await reply.full(status, b"no")

    error = await refused_to_open(script)
    assert type(error) is kind
    assert error.status == status


async def test_a_response_that_is_not_a_stream_cannot_be_opened():
    async def script(request: Request, reply: Reply) -> None:
        await reply.json({})

    assert "application/json" in str(await refused_to_open(script))


async def test_a_stream_that_ends_before_it_names_its_endpoint_cannot_be_opened():
    async def script(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.chunk(b": hello\n\n")
        await reply.end()

    error = await refused_to_open(script)
    assert isinstance(error, LinkLost)
    assert error.executed is False


async def test_opening_can_be_cancelled():
    waiting = asyncio.Event()

    async def script(request: Request, reply: Reply) -> None:
        await reply.stream()
        waiting.set()
        await reply.gone()

    async with scripted(script) as server:
        link = new(server.url)
        opening = asyncio.create_task(link.open(Inbox()))
        async with asyncio.timeout(PATIENCE):
            await waiting.wait()
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            await link.close()


@pytest.mark.parametrize("clean", [True, False])
async def test_the_end_of_the_stream_loses_the_link_once(clean):
    async with linked(Board()) as (_, link, inbox, stream):
        await stream.event(PING)
        await (stream.end() if clean else stream.cut())
        assert await inbox.next() == PING
        assert isinstance(await inbox.next(), LinkLost)
        with pytest.raises(LinkLost) as caught:
            await ask(link)
        assert caught.value.executed is False


@pytest.mark.parametrize(("status", "executed"), [(400, True), (413, False), (504, True)])
async def test_a_refused_post_fails_its_request(status, executed):
    board = Board()

    async def post(request: Request, reply: Reply) -> None:
        await reply.full(status, b"bad \x07 request")

    board.posted = post
    async with linked(board) as (_, link, inbox, _stream):
        await ask(link)
        error = await inbox.failure(1)
        assert (error.executed, error.status) == (executed, status)
        assert rf"HTTP {status}" in str(error)
        assert r"bad \x07 request" in str(error)


@pytest.mark.parametrize(("status", "id"), [(404, 1), (500, 1), (500, None)])
async def test_a_json_rpc_error_in_the_response_to_a_post_is_the_answer(status, id):
    board, error = Board(), {"code": -32602, "message": "no such row"}

    async def post(request: Request, reply: Reply) -> None:
        await reply.json({"jsonrpc": "2.0", "id": id, "error": error}, status)

    board.posted = post
    async with linked(board) as (_, link, inbox, _stream):
        await ask(link)
        assert await inbox.next() == {"jsonrpc": "2.0", "id": 1, "error": error}


async def test_a_post_to_an_ended_session_is_reported_without_the_session_id():
    board = Board()

    async def post(request: Request, reply: Reply) -> None:
        await reply.full(404, b"no session 0123456789")

    async with linked(board) as (_, link, inbox, stream):
        await ask(link)
        await stream.event(ANSWER)
        assert await inbox.next() == ANSWER
        board.posted = post
        await ask(link)
        error = await inbox.failure(1)
        assert isinstance(error, SessionLost)
        assert error.executed is False
        assert "0123456789" not in str(error)


@pytest.mark.parametrize("status", [404, 405])
async def test_an_endpoint_that_never_took_a_message_is_named_and_is_no_lost_session(status):
    board = Board()

    async def post(request: Request, reply: Reply) -> None:
        await reply.full(status, b"nginx: 0123456789")

    board.posted = post
    async with linked(board) as (server, link, inbox, _stream):
        await ask(link)
        error = await inbox.failure(1)
        assert not isinstance(error, SessionLost)
        assert (error.executed, error.status, error.hub_code) == (False, status, codes.NO_MCP_HERE)
        assert f"{server.url.removesuffix('/mcp')}/messages" in str(error)
        assert "0123456789" not in str(error)


async def test_a_post_with_a_truncated_response_may_have_been_executed():
    board = Board()

    async def post(request: Request, reply: Reply) -> None:
        await reply.cut()

    board.posted = post
    async with linked(board) as (server, link, inbox, _stream):
        await ask(link)
        assert (await inbox.failure(1)).executed is True
        assert len(server.asked("POST")) == 1


async def test_a_post_that_cannot_connect_was_not_executed():
    board = Board()
    async with linked(board) as (server, link, inbox, _stream):
        await server.stop_accepting()
        await ask(link)
        assert (await inbox.failure(1)).executed is False


@pytest.mark.parametrize("status", [200, 500, 504])
async def test_an_answer_counts_however_late_and_with_whatever_status_its_post_ends(status):
    """Servlets of the Java SDK answer a POST only after its work, and a proxy in between may give up on it."""
    board, ended = Board(), asyncio.Event()

    async def post(request: Request, reply: Reply) -> None:
        await ended.wait()
        await reply.full(status, b"late")

    board.posted = post
    async with linked(board, deadlines=Deadlines(write=0.05)) as (_, link, inbox, stream):
        await ask(link)
        await stream.event(PING)  # the request outlives the write deadline
        assert await inbox.next() == PING
        await stream.event(ANSWER)
        assert await inbox.next() == ANSWER
        ended.set()
        await stream.event(PING)
        assert await inbox.next() == PING


async def test_a_post_whose_head_comes_before_its_work_is_not_broken_off(monkeypatch):
    monkeypatch.setattr(http_client, "ERROR_BODY_WAIT", 0.05)
    board, closed = Board(), asyncio.Queue()

    async def post(request: Request, reply: Reply) -> None:
        await reply.head(200, Content_Length="4")
        await reply.raw(b"d")
        await reply.gone()
        closed.put_nowait(request.message.get("id"))

    board.posted = post
    async with linked(board) as (server, link, inbox, stream):
        await ask(link)
        await posted(server)
        async with asyncio.timeout(PATIENCE):
            await link.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
            assert await closed.get() is None  # a notification's response is dropped, the request's is not
        await stream.event(ANSWER)
        assert await inbox.next() == ANSWER
        assert closed.empty()


@pytest.mark.parametrize("answered", [True, False])
async def test_a_post_without_an_end_is_closed_once_its_request_is_over(answered):
    board, closed = Board(), asyncio.Event()

    async def post(request: Request, reply: Reply) -> None:
        await reply.gone()
        closed.set()

    board.posted = post
    async with linked(board, deadlines=Deadlines(write=0.05)) as (server, link, inbox, stream):
        await ask(link)
        await posted(server)
        async with asyncio.timeout(PATIENCE):
            if answered:
                await stream.event(ANSWER)
            else:
                link.abandon(1)
            await closed.wait()
        assert inbox.told == ([ANSWER] if answered else [])


async def test_a_notification_that_is_not_read_ends_at_the_write_deadline():
    board = Board()

    async def post(request: Request, reply: Reply) -> None:
        await reply.gone()

    board.posted = post
    async with linked(board, deadlines=Deadlines(write=0.05)) as (_, link, _inbox, _stream):
        with pytest.raises(LinkError, match=r"within 0\.05 s") as caught:
            async with asyncio.timeout(PATIENCE):
                await link.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert caught.value.executed is True


async def test_a_redirect_of_the_stream_within_the_origin_is_followed():
    board = Board()

    async def script(request: Request, reply: Reply) -> None:
        if request.path == "/mcp":
            await reply.full(302, Location="/sse/")
        else:
            await board(request, reply)

    async with scripted(script) as server:
        link = new(server.url)
        async with asyncio.timeout(PATIENCE):
            await link.open(Inbox())
            await link.close()
        assert [request.path for request in server.requests] == ["/mcp", "/sse/"]


@pytest.mark.parametrize(
    "text",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{"x":"' + b"x" * 5000 + b'"}}',
        b'{"result":{"x":"' + b"x" * 5000 + b'"},"jsonrpc":"2.0","id":1}',
    ],
)
async def test_a_message_above_the_limit_fails_the_request_it_answers(text):
    async with linked(Board(), max_frame=1000) as (_, _link, inbox, stream):
        await stream.chunk(b"data: " + text + b"\n\n")
        await stream.event(PING)
        assert isinstance(await inbox.failure(1), FrameTooLarge)
        assert await inbox.next() == PING


@pytest.mark.parametrize(
    "text", [b"[INFO] ready", b'[DEBUG] {"jsonrpc":"2.0","id":1,"result":{}}', b"{ port: 3000 }", b"{'a': 1}", b"{"]
)
async def test_text_on_the_stream_that_is_no_message_ends_no_request(text):
    async with linked(Board()) as (_, link, inbox, stream):
        await ask(link)
        await stream.chunk(b"data: " + text + b"\n\n")
        await stream.event(ANSWER)
        assert await inbox.next() == ANSWER
        assert inbox.told == [ANSWER]


async def test_a_message_that_is_not_json_fails_the_request_it_answers():
    async with linked(Board()) as (_, _link, inbox, stream):
        await stream.chunk(b'data: {"id":1,"result":oops}\n\ndata: words\n\n')
        await stream.event(PING)
        error = await inbox.failure(1)
        assert type(error) is LinkError
        assert await inbox.next() == PING


async def test_closing_ends_the_stream_and_reports_no_loss():
    board = Board()
    async with linked(board) as (_, link, inbox, _stream):
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(link.close(), link.close())
            await board.ended.wait()
        with pytest.raises(LinkLost):
            await ask(link)
        assert inbox.told == []


async def test_a_link_can_be_closed_before_it_is_opened():
    link = new("http://127.0.0.1:1/sse")
    async with asyncio.timeout(PATIENCE):
        await link.close()
    with pytest.raises(LinkLost):
        await ask(link)
