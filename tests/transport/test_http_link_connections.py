"""Connections that fail or break off, and redirects: the error that a request over streamable HTTP gets."""

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from mcp_hub.config.models import Deadlines
from mcp_hub.transport import LinkError, LinkLost
from tests.fakes.client import free_port
from tests.loops import anyio_backend  # noqa: F401
from tests.transport.scripted_http import (
    NOTE,
    PATIENCE,
    TOKEN,
    Reply,
    Request,
    always,
    answer,
    ask,
    call,
    linked,
    one_failure,
    scripted,
)

pytestmark = pytest.mark.anyio


async def test_plain_http_to_a_tls_port_suggests_https():
    page = b"<html><head><title>400 The plain HTTP request was sent to HTTPS port</title></head></html>"
    error = await one_failure(always(400, page, Content_Type="text/html"))
    assert "the port speaks TLS: begin the url with https://" in str(error)


async def test_a_request_whose_connection_closes_unanswered_is_not_retried():
    async def script(request: Request, reply: Reply) -> None:
        await reply.cut()

    error = await one_failure(script)
    assert type(error) is LinkError
    assert error.executed is True


@pytest.mark.parametrize("kind", ["json", "chunked", "stream", "clean stream", "head", "nonsense"])
async def test_a_truncated_response_fails_only_its_own_request(kind):
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


async def test_a_refused_connection_does_not_cancel_requests_in_flight():
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


async def test_the_loss_is_reported_after_the_last_request_in_flight():
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


async def test_an_unknown_host_is_reported_without_the_query(monkeypatch):
    async def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "no such host")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    async with linked("http://nowhere.example/mcp?key=sesame") as (link, inbox):
        await ask(link)
        error = await inbox.failure(1)
        assert error.executed is False
        assert str(error) == "cannot find the host of http://nowhere.example/mcp"


async def test_a_request_that_fails_in_the_tls_handshake_was_not_executed():
    async with (
        scripted(always(200)) as server,
        linked(server.url.replace("http:", "https:"), deadlines=Deadlines(connect=0.3)) as (link, inbox),
    ):
        await ask(link)
        assert (await inbox.failure(1)).executed is False
        assert server.requests == []


async def test_connecting_ends_at_the_connect_deadline():
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
    async with scripted(always(200)) as second_server:
        location = f"http://127.0.0.1:{second_server.port}/steal?key=sesame"
        error = await one_failure(always(status, Location=location), headers={"Authorization": TOKEN})
        assert second_server.connections == 0
    assert (error.status, error.executed) == (status, True)
    assert f":{second_server.port}/steal" in str(error)
    assert "sesame" not in str(error)


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_that_would_turn_a_post_into_a_get_is_not_followed(status):
    error = await one_failure(always(status, Location="/elsewhere"))
    assert (error.status, error.executed) == (status, True)


@pytest.mark.parametrize("location", [None, "http://[", "http://host:99999/", "ftp://127.0.0.1/"])
async def test_a_redirect_without_a_valid_location_is_a_failure(location):
    error = await one_failure(always(307, **({} if location is None else {"Location": location})))
    assert (error.status, error.executed) == (307, True)


async def test_a_redirect_loop_is_ended():
    async with scripted(always(307, Location="/mcp")) as server, linked(server.url) as (link, inbox):
        await ask(link)
        assert (await inbox.failure(1)).executed is True
        assert len(server.requests) == 4


async def test_https_to_a_port_without_tls_suggests_http():
    async def answer_any_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer_any_bytes, "127.0.0.1", 0)
    async with server, linked(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp") as (link, inbox):
        await ask(link)
        error = await inbox.failure(1)
    assert "the port does not speak TLS; try http:// in the url" in str(error)
    assert not error.executed
