"""The proxy of the browser: requests of a browser, and of other programs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from mcp_hub.security.address_rules import AddressRules
from mcp_hub.security.url_rules import UrlRules
from mcp_hub.servers.builtin import proxy as proxy_module
from mcp_hub.servers.builtin.page_guard import PageGuard
from mcp_hub.servers.builtin.proxy import USER, Proxy
from tests.fakes.client import PATIENCE
from tests.servers.scrape.site import Site, serving

pytestmark = pytest.mark.anyio

MESSAGE = "Not this one, please."


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving() as running:

        async def echo(request: web.Request) -> web.Response:
            return web.json_response({"body": await request.text(), "headers": dict(request.headers)})

        running.answers["/echo"] = echo
        yield running


@pytest.fixture
async def private() -> AsyncIterator[Site]:
    async with serving() as running:
        yield running


@pytest.fixture
async def proxy(site: Site) -> AsyncIterator[Proxy]:
    """It lets `site` be reached, but nothing below /secret there."""
    rules = UrlRules(deny=("127.0.0.1/secret*",), message=MESSAGE)
    running = Proxy(AddressRules(allow=(f"127.0.0.1:{site.port}",)), rules)
    await running.start()
    yield running
    await running.close()


class Peer:
    """A connection to the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *lines: str, body: bytes = b"") -> None:
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def answer(self) -> tuple[int, bytes]:
        """Status and body of an answer, or all that comes until the connection ends."""
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            body = await (self.reader.readexactly(int(length)) if length else self.reader.read(65536))
        return int(head.split()[1]), body

    async def head(self) -> int:
        async with asyncio.timeout(PATIENCE):
            return int((await self.reader.readuntil(b"\r\n\r\n")).split()[1])

    async def remainder(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""


@contextlib.asynccontextmanager
async def connected(proxy: Proxy) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()


def key(proxy: Proxy, password: str | None = None) -> str:
    credential = base64.b64encode(f"{USER}:{password or proxy.password}".encode()).decode()
    return f"Proxy-Authorization: Basic {credential}"


async def response_to(proxy: Proxy, *lines: str, body: bytes = b"") -> tuple[int, bytes]:
    async with connected(proxy) as peer:
        peer.send(*lines, body=body)
        return await peer.answer()


async def test_a_proxy_request_without_the_right_credential_is_refused(proxy: Proxy, site: Site) -> None:
    for headers in ([], [key(proxy, "guessed")], ["Proxy-Authorization: Bearer x"]):
        assert (await response_to(proxy, f"GET {site.url('/echo')} HTTP/1.1", *headers))[0] == 407
        assert (await response_to(proxy, f"CONNECT 127.0.0.1:{site.port} HTTP/1.1", *headers))[0] == 407
    assert site.requests == []


async def test_the_credential_may_come_with_a_later_request_and_is_not_forwarded(proxy: Proxy, site: Site) -> None:
    async with connected(proxy) as peer:
        peer.send(f"POST {site.url('/echo')} HTTP/1.1", "Host: x", "Content-Length: 3", body=b"abc")
        assert (await peer.answer())[0] == 407
        peer.send(f"POST {site.url('/echo')} HTTP/1.1", "Host: x", key(proxy), "Content-Length: 3", body=b"abc")
        status, body = await peer.answer()
    assert status == 200
    assert b'"body": "abc"' in body
    assert b"uthorization" not in body
    assert len(site.requests) == 1


async def test_a_chunked_body_arrives_whole(proxy: Proxy, site: Site) -> None:
    chunks = b"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n"
    lines = (f"POST {site.url('/echo')} HTTP/1.1", "Host: x", key(proxy), "Transfer-Encoding: chunked")
    status, body = await response_to(proxy, *lines, body=chunks)
    assert (status, b'"body": "abcdefg"' in body) == (200, True)


async def test_a_second_request_smuggled_behind_the_first_is_not_forwarded(
    proxy: Proxy, site: Site, private: Site
) -> None:
    hidden = f"GET {private.url('/')} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    for lines, body in (
        (("Content-Length: 0",), hidden),
        (("Content-Length: 5", "Transfer-Encoding: chunked"), b"0\r\n\r\n" + hidden),
        (("Content-Length: 0", f"Content-Length: {len(hidden)}"), hidden),
        (("Transfer-Encoding: chunked, identity",), b"0\r\n\r\n" + hidden),
    ):
        async with connected(proxy) as peer:
            peer.send(f"POST {site.url('/echo')} HTTP/1.1", "Host: x", key(proxy), *lines, body=body)
            await peer.remainder()
    assert private.requests == []
    assert all(request.method == "POST" for request in site.requests)


async def test_requests_and_tunnels_to_refused_addresses_are_refused_naming_the_setting(
    proxy: Proxy, private: Site
) -> None:
    targets: list[str] = []
    proxy.on_refused = lambda target, reason: targets.append(target)
    for line in (f"GET {private.url('/')} HTTP/1.1", f"CONNECT 127.0.0.1:{private.port} HTTP/1.1"):
        status, body = await response_to(proxy, line, key(proxy))
        assert (status, b"web.allow_addresses" in body) == (403, True)
    assert private.requests == []
    assert targets == [private.url("/"), f"127.0.0.1:{private.port}"]


async def test_plain_http_requests_to_refused_urls_are_refused(proxy: Proxy, site: Site) -> None:
    status, body = await response_to(proxy, f"GET {site.url('/x/../secret/1')} HTTP/1.1", key(proxy))
    assert (status, MESSAGE.encode() in body) == (403, True)
    async with connected(proxy) as peer:
        peer.send(f"CONNECT 127.0.0.1:{site.port} HTTP/1.1", key(proxy))
        assert await peer.head() == 200
        peer.writer.write(b"GET /secr")
        await peer.writer.drain()
        peer.send("et/socket HTTP/1.1", "Host: x", "Upgrade: websocket", "Connection: Upgrade")
        assert await peer.head() == 403
    assert site.requests == []


async def test_a_tunnel_carries_bytes_both_ways_and_can_be_closed(proxy: Proxy, site: Site) -> None:
    guard = PageGuard(UrlRules(deny=("127.0.0.1/secret*",)), proxy)

    async with connected(proxy) as peer:
        peer.send(f"CONNECT 127.0.0.1:{site.port} HTTP/1.1", key(proxy))
        assert await peer.head() == 200
        peer.send("POST /echo HTTP/1.1", "Host: x", "Content-Length: 2", body=b"hi")
        assert await peer.head() == 200
        guard.websocket(f"wss://127.0.0.1:{site.port}/open")
        peer.send("POST /echo HTTP/1.1", "Host: x", "Content-Length: 2", body=b"ho")
        async with asyncio.timeout(PATIENCE):
            assert b"hi" in await peer.reader.readuntil(b"}}")
            assert b"ho" in await peer.reader.readuntil(b"}}")
        guard.websocket(f"wss://127.0.0.1:{site.port}/secret/socket")
        assert await peer.remainder() == b""
    assert len(guard.take_notes()) == 1


async def test_a_name_is_resolved_once_and_the_checked_address_is_dialled(
    proxy: Proxy, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [["10.0.0.9", "127.0.0.1"], ["10.0.0.9"]]
    asked_for: list[str] = []
    real = socket.getaddrinfo

    def changing(host: Any, port: Any, *arguments: Any, **options: Any) -> list[Any]:
        if host != "changing.example":
            return real(host, port, *arguments, **options)
        asked_for.append(host)
        return [(2, 1, 6, "", (address, port)) for address in answers[len(asked_for) - 1]]

    monkeypatch.setattr(socket, "getaddrinfo", changing)
    target = f"http://changing.example:{site.port}/echo"
    assert (await response_to(proxy, f"POST {target} HTTP/1.1", "Host: x", key(proxy), "Content-Length: 0"))[0] == 200
    assert len(asked_for) == 1
    assert (await response_to(proxy, f"POST {target} HTTP/1.1", "Host: x", key(proxy), "Content-Length: 0"))[0] == 403
    assert len(site.requests) == 1


async def test_the_proxy_does_not_connect_to_itself(site: Site) -> None:
    proxy = Proxy(AddressRules(allow=("127.0.0.1",)), UrlRules())
    await proxy.start()
    try:
        assert (await response_to(proxy, f"CONNECT 127.0.0.1:{proxy.port} HTTP/1.1", key(proxy)))[0] == 403
    finally:
        await proxy.close()


async def test_an_error_names_the_unreachable_host(proxy: Proxy, site: Site) -> None:
    async with serving() as closed_site:
        port = closed_site.port
    running = Proxy(AddressRules(allow=("127.0.0.1",)), UrlRules())
    await running.start()
    try:
        status, body = await response_to(running, f"GET http://127.0.0.1:{port}/ HTTP/1.1", key(running))
        assert (status, str(port).encode() in body) == (502, True)
        assert f"127.0.0.1:{port}" in (running.failure_at(f"http://127.0.0.1:{port}/x") or "")
        assert (await response_to(running, "GET ftp://127.0.0.1/ HTTP/1.1", key(running)))[0] == 502
        assert (await response_to(running, "CONNECT nowhere HTTP/1.1", key(running)))[0] == 502
    finally:
        await running.close()


async def test_a_request_abandoned_by_the_browser_is_not_recorded_as_a_host_failure(proxy: Proxy, site: Site) -> None:
    requested, closed = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        requested.set()
        await reader.read()
        writer.close()
        closed.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    running = Proxy(AddressRules(allow=("127.0.0.1",)), UrlRules())
    await running.start()
    try:
        async with asyncio.timeout(PATIENCE):
            async with connected(running) as peer:
                peer.send(f"GET {url} HTTP/1.1", "Host: x", key(running))
                await requested.wait()
            await closed.wait()
        await running.close()
        assert running.failure_at(url) is None
    finally:
        await running.close()
        server.close()


async def test_connecting_to_a_silent_host_is_bounded_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "DIAL_WAIT", 0.5)
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        for waiting in (first, second):  # there is room for one, and some systems count from zero
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        running = Proxy(AddressRules(allow=("127.0.0.1",)), UrlRules())
        await running.start()
        try:
            assert (await response_to(running, f"GET http://127.0.0.1:{port}/ HTTP/1.1", key(running)))[0] == 502
            assert "no connection within 0.5 s" in (running.failure_at(f"http://127.0.0.1:{port}/") or "")
        finally:
            await running.close()


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET\r\n\r\n", b"x" * 100_000 + b"\r\n\r\n",
                                  b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 60_000 + b"\r\n"])  # fmt: skip
async def test_invalid_http_ends_only_its_own_proxy_connection(proxy: Proxy, site: Site, data: bytes) -> None:
    async with connected(proxy) as peer:
        with contextlib.suppress(ConnectionError):
            peer.writer.write(data)
            await peer.writer.drain()
        assert b" 200 " not in await peer.remainder()
    lines = (f"POST {site.url('/echo')} HTTP/1.1", "Host: x", key(proxy), "Content-Length: 0")
    assert (await response_to(proxy, *lines))[0] == 200


async def test_names_that_never_resolve_hold_up_nothing_but_their_own_requests(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    def hanging(host: str, *_: Any, **__: Any) -> list[Any]:
        answered.wait(PATIENCE)
        raise OSError(host)

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    checks = [asyncio.ensure_future(proxy.check(f"{number}.example", 443)) for number in range(40)]
    try:
        async with asyncio.timeout(PATIENCE):
            await asyncio.sleep(0)
            assert await asyncio.to_thread(answered.is_set) is False
    finally:
        answered.set()
        await asyncio.gather(*checks, return_exceptions=True)
