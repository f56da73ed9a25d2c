"""Connections to one origin: made, kept, shared, and given up."""

import asyncio
import socket
import ssl
from typing import Any

import pytest

from mcp_hub.transport.http1 import dialler, pool
from mcp_hub.transport.http1.client_response import (
    CertificateRefused,
    ConnectFailed,
    ConnectTimeout,
    EmptyReply,
    HttpFailure,
    NameUnknown,
    PoolClosed,
    TlsFailed,
)
from tests.downstream.network.test_tls import certificate
from tests.loops import anyio_backend  # noqa: F401
from tests.transport.pooled import ask, body_of, pool_of, pooled, saying, until
from tests.transport.scripted_http import PATIENCE, Reply, Request, scripted

pytestmark = pytest.mark.anyio

TWO = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def refusing() -> int:
    """A port at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# --- kept connections ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_a_request_unanswered_on_a_reused_connection_is_retried_unless_it_is_a_post(method):
    async def script(request: Request, reply: Reply) -> None:
        if request.method == method and request.connection == 1:
            await reply.cut()
        else:
            await reply.raw(TWO)

    async with pooled(script) as (server, http_pool):
        first_method = "GET" if method == "POST" else "POST"
        assert await body_of(await ask(http_pool, first_method)) == b"{}"
        if method == "POST":
            with pytest.raises(EmptyReply):
                await ask(http_pool, method)
            assert len(server.asked(method)) == 1
        else:
            assert await body_of(await ask(http_pool, method)) == b"{}"
            assert [request.connection for request in server.asked(method)] == [1, 2]


async def test_a_request_unanswered_on_a_new_connection_is_not_retried():
    async with pooled(saying(b"", end=True)) as (server, http_pool):
        with pytest.raises(EmptyReply):
            await ask(http_pool, "GET", None)
        assert len(server.requests) == 1


async def test_a_pooled_connection_closed_by_the_server_is_not_used(monkeypatch):
    monkeypatch.setattr(pool, "LOOK_AFTER", 0.0)

    async def script(request: Request, reply: Reply) -> None:
        await reply.raw(TWO)
        replies.append(reply)

    replies: list[Reply] = []
    async with pooled(script) as (server, http_pool):
        assert await body_of(await ask(http_pool)) == b"{}"
        (handle,) = http_pool.sockets
        accepted = replies[0]._writer.get_extra_info("socket")
        with socket.socket(fileno=socket.dup(accepted.fileno())) as same:
            same.shutdown(socket.SHUT_WR)
        while handle.recv(1, socket.MSG_PEEK) != b"":  # the close has arrived, and the loop has not run since
            pass
        assert await body_of(await ask(http_pool)) == b"{}"
        assert server.connections == 2
        assert len(server.requests) == 2


async def test_idle_connections_are_closed_after_the_idle_timeout():
    async with pooled(saying(TWO), keep=0.02) as (server, http_pool):
        assert await body_of(await ask(http_pool)) == b"{}"
        await until(lambda: not http_pool.sockets)
        assert await body_of(await ask(http_pool)) == b"{}"
        assert server.connections == 2


async def test_closing_an_unread_response_keeps_the_connection_only_if_it_is_complete():
    async def script(request: Request, reply: Reply) -> None:
        if len(server.requests) == 1:
            await reply.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n{}")
            await reply.gone()
        else:
            await reply.raw(TWO)

    async with pooled(script) as (server, http_pool):
        (await ask(http_pool)).close()
        (await ask(http_pool)).close()
        (await ask(http_pool)).close()
        assert [request.connection for request in server.requests] == [1, 2, 2]


# --- in turn -------------------------------------------------------------------------------------------------


async def test_requests_above_the_connection_limit_wait_for_a_free_connection():
    async with pooled(saying(TWO), limit=2) as (server, http_pool):
        answers = await asyncio.gather(*(ask(http_pool) for _ in range(2)))
        late = [asyncio.create_task(ask(http_pool)) for _ in range(3)]
        await asyncio.sleep(0)
        late[0].cancel()
        for answer in answers:
            assert await body_of(answer) == b"{}"
        assert await body_of(await late[1]) == b"{}"
        assert await body_of(await late[2]) == b"{}"
        assert late[0].cancelled()
        assert server.connections == 2


async def test_a_freed_connection_slot_goes_to_the_next_waiter():
    async with pooled(saying(TWO), limit=1) as (server, http_pool):
        first = await ask(http_pool)
        late = [asyncio.create_task(ask(http_pool)) for _ in range(2)]
        await asyncio.sleep(0)
        first.refuse()
        for task in late:
            assert await body_of(await task) == b"{}"
        assert server.connections == 2


async def test_a_connection_given_to_a_cancelled_waiter_goes_to_the_next():
    async with pooled(saying(TWO), limit=1) as (server, http_pool):
        first = await ask(http_pool)
        late = [asyncio.create_task(ask(http_pool)) for _ in range(2)]
        await asyncio.sleep(0)
        assert await body_of(first) == b"{}"  # the first waiter has the connection now, and has not run yet
        late[0].cancel()
        assert await body_of(await late[1]) == b"{}"
        assert server.connections == 1


async def test_waiting_for_a_connection_ends_at_the_connect_deadline():
    async with pooled(saying(TWO), limit=1, connect=1.0) as (server, http_pool):
        first = await ask(http_pool)
        with pytest.raises(ConnectTimeout):
            await ask(http_pool)
        assert await body_of(first) == b"{}"
        assert await body_of(await ask(http_pool)) == b"{}"
        assert server.connections == 1


async def test_closing_the_pool_ends_waiting_and_running_requests():
    async def script(request: Request, reply: Reply) -> None:
        await reply.gone()

    async with pooled(script, limit=1) as (server, http_pool):
        requests = [asyncio.create_task(ask(http_pool)) for _ in range(3)]
        await until(lambda: server.requests)
        async with asyncio.timeout(PATIENCE):
            await http_pool.close()
            failed = await asyncio.gather(*requests, return_exceptions=True)
        assert [type(error) for error in failed] == [EmptyReply, PoolClosed, PoolClosed]
        assert http_pool.sockets == []
        with pytest.raises(PoolClosed):
            await ask(http_pool)


# --- requests ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, 5_000_000])
async def test_a_body_of_any_size_arrives(size):
    async with pooled(saying(TWO)) as (server, http_pool):
        for _ in range(2):
            assert await body_of(await ask(http_pool, body=b"x" * size)) == b"{}"
        assert [len(request.body) for request in server.requests] == [size, size]
        assert server.connections == 1


async def test_a_response_before_the_end_of_the_request_body_stops_sending():
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        writers.append(writer)

    writers: list[asyncio.StreamWriter] = []
    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with listening, pool_of(listening.sockets[0].getsockname()[1]) as http_pool:
        response = await ask(http_pool, body=b"x" * 50_000_000)
        assert response.status == 413
        assert await body_of(response) == b"no"
        await until(lambda: not http_pool.sockets)
        writers[0].transport.abort()
        await asyncio.sleep(0)


async def test_a_cancelled_request_closes_its_connection():
    arrived, disconnected = asyncio.Event(), asyncio.Event()

    async def script(request: Request, reply: Reply) -> None:
        arrived.set()
        await reply.gone()
        disconnected.set()

    async with pooled(script) as (_, http_pool):
        task = asyncio.create_task(ask(http_pool))
        async with asyncio.timeout(PATIENCE):
            await arrived.wait()
            task.cancel()
            await disconnected.wait()
        assert http_pool.sockets == []


# --- dialling ------------------------------------------------------------------------------------------------


def resolving(monkeypatch: Any, *addresses: tuple[str, int]) -> list[str]:
    """Resolves every name to these addresses; returns the list of the names that are looked up."""
    lookups: list[str] = []
    real = asyncio.get_running_loop().getaddrinfo

    async def getaddrinfo(host: str, port: int, **options: Any) -> list[Any]:
        if host == "127.0.0.1":  # uvloop looks the host up before it connects
            return await real(host, port, **options)
        lookups.append(host)
        await asyncio.sleep(0)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "no such host")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    return lookups


async def test_a_refusing_address_is_followed_by_the_next_one(monkeypatch):
    async with scripted(saying(TWO)) as server:
        resolving(monkeypatch, ("127.0.0.1", refusing()), ("127.0.0.1", server.port))
        async with pool_of(1, "two.example") as http_pool:
            assert await body_of(await ask(http_pool)) == b"{}"


async def test_a_silent_address_is_followed_by_the_next_one(monkeypatch):
    monkeypatch.setattr("mcp_hub.transport.http1.dialler.STAGGER", 0.01)
    monkeypatch.setattr("mcp_hub.transport.http1.dialler._connect", silent := Silent())
    async with scripted(saying(TWO)) as server:
        resolving(monkeypatch, ("127.0.0.1", 1), ("127.0.0.1", server.port))
        async with pool_of(1, "two.example") as http_pool:
            assert await body_of(await ask(http_pool)) == b"{}"
            assert silent.is_cancelled


class Silent:
    """Connects to every address but the first one that is tried, which never answers."""

    def __init__(self) -> None:
        from mcp_hub.transport.http1 import dialler

        self._connect = dialler._connect
        self._first = True
        self.is_cancelled = False

    async def __call__(self, address: Any) -> socket.socket:
        first, self._first = self._first, False
        if first:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.is_cancelled = True
                raise
        return await self._connect(address)


async def test_if_no_address_accepts_the_failure_has_the_errno(monkeypatch):
    resolving(monkeypatch, ("127.0.0.1", refusing()), ("127.0.0.1", refusing()))
    async with pool_of(1, "two.example") as http_pool:
        with pytest.raises(ConnectFailed) as caught:
            await ask(http_pool)
        assert caught.value.error.errno is not None


async def test_a_name_is_resolved_once_for_all_and_again_after_its_answer_expires(monkeypatch):
    async with scripted(saying(TWO)) as server:
        lookups = resolving(monkeypatch, ("127.0.0.1", server.port))
        async with pool_of(1, "one.example") as http_pool:
            await asyncio.gather(*(ask(http_pool) for _ in range(5)))
            assert lookups == ["one.example"]
            monkeypatch.setattr(dialler, "FRESH", 0.0)
            for _ in range(2):
                await dialler.Addresses.get(http_pool._dialler._addresses)
            http_pool._dialler._addresses._expires_at = 0.0
            (await ask(http_pool)).close()
            assert lookups[1:] == ["one.example"]


async def test_an_unknown_name_is_reported_and_resolved_again_next_time(monkeypatch):
    lookups = resolving(monkeypatch)
    async with pool_of(1, "nowhere.example") as http_pool:
        for _ in range(2):
            with pytest.raises(NameUnknown):
                await ask(http_pool)
    assert lookups == ["nowhere.example"] * 2


async def test_address_families_alternate():
    ipv6, ipv4 = socket.AF_INET6, socket.AF_INET
    rows = [(ipv6, 1, 6, "a"), (ipv6, 1, 6, "b"), (ipv4, 1, 6, "c"), (ipv6, 1, 6, "d")]
    assert [row[3] for row in dialler._interleaved(rows)] == ["a", "c", "b", "d"]


async def test_an_ipv6_literal_is_dialled_without_resolution(monkeypatch):
    lookups = []
    real = socket.getaddrinfo

    def resolve(host, port, family=0, type=0, proto=0, flags=0):
        lookups.append((host, flags & socket.AI_NUMERICHOST))
        return real(host, port, family, type, proto, flags)

    async def answers(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(TWO)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answers, "::1", 0)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    async with server, pool_of(server.sockets[0].getsockname()[1], "::1") as http_pool:
        assert await body_of(await ask(http_pool)) == b"{}"
    assert all(host == "::1" and numeric for host, numeric in lookups)


# --- TLS -----------------------------------------------------------------------------------------------------


async def test_a_trusted_self_signed_certificate_is_accepted_and_another_is_refused(tmp_path):
    files = certificate(tmp_path)
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_tls.load_cert_chain(files["cert"], files["key"])
    heads: list[bytes] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                heads.append(await reader.readuntil(b"\r\n\r\n"))
                await reader.readexactly(2)
            except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
                break
            writer.write(TWO)
        writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=server_tls)
    port = listening.sockets[0].getsockname()[1]
    async with listening:
        trusting = ssl.create_default_context(cafile=files["cert"])
        async with pool_of(port, tls=trusting) as http_pool:
            for _ in range(2):
                assert await body_of(await ask(http_pool)) == b"{}"
            assert len(http_pool.sockets) == 1
        assert len(heads) == 2
        async with pool_of(port, tls=ssl.create_default_context()) as http_pool:
            with pytest.raises(CertificateRefused) as caught:
                await ask(http_pool)
            assert "self-signed" in str(caught.value)
        async with pool_of(port, "localhost", tls=trusting) as http_pool:
            with pytest.raises(CertificateRefused):
                await ask(http_pool)
        assert len(heads) == 2


async def test_tls_to_a_plain_server_is_a_tls_failure():
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with listening, pool_of(listening.sockets[0].getsockname()[1], tls=ssl.create_default_context()) as http_pool:
        with pytest.raises(TlsFailed):
            await ask(http_pool)


async def test_every_failure_is_an_http_failure():
    assert {kind.__mro__[1] for kind in HttpFailure.__subclasses__()} == {HttpFailure}
