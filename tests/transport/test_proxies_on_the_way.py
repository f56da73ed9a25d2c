"""Servers that are reached through a forward proxy: what it is asked, what it never sees, and how it may fail."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import codes
from mcp_hub.config.egress_settings import EgressSettings
from mcp_hub.config.field_types import SecretStr
from mcp_hub.transport import LinkError
from mcp_hub.transport.egress import Egress
from mcp_hub.transport.http_link import HttpLink
from tests.fakes.private_authority import PrivateAuthority, strict
from tests.loops import anyio_backend  # noqa: F401
from tests.transport.forward_proxy import ForwardingProxy, forwarding
from tests.transport.scripted_http import PATIENCE, Inbox, Reply, Request, Server, ask, call, configured, scripted

pytestmark = pytest.mark.anyio

NAME = "mcp.intranet.example"
"""A name that only proxies know."""


async def answering(request: Request, reply: Reply) -> None:
    if request.method == "POST" and "id" in request.message:
        await reply.result(request, {"path": request.path})
    else:
        await reply.full(202)


@pytest.fixture
def authority(tmp_path: Path) -> PrivateAuthority:
    return PrivateAuthority(tmp_path)


def through(kind: str, proxy: ForwardingProxy, user: str = "") -> str:
    return f"{kind}://{user and f'{user}@'}127.0.0.1:{proxy.port}"


@contextlib.asynccontextmanager
async def reaching(
    url: str, proxy: str | None, environ: dict[str, str] | None = None, connect: float = PATIENCE, **egress: Any
) -> AsyncIterator[tuple[HttpLink, Inbox]]:
    """Opens a link to a server through the proxy of its entry, or of an environment."""
    own = proxy is not None
    settings = EgressSettings(proxy=SecretStr(proxy) if proxy is not None else None, own=own, **egress)
    server = configured(url, egress=settings, deadlines={"connect": connect})
    link, inbox = HttpLink(server, None, Egress.of(settings, environ or {})), Inbox()
    try:
        await link.open(inbox)
        yield link, inbox
    finally:
        await link.close()


async def asked(link: HttpLink, inbox: Inbox, number: int) -> Any:
    await ask(link, call(number))
    answer = await inbox.next()
    assert isinstance(answer, dict), answer
    return answer["result"]


async def result_of(url: str, proxy: str | None, environ: dict[str, str] | None = None, **egress: Any) -> Any:
    async with reaching(url, proxy, environ, **egress) as (link, inbox):
        return await asked(link, inbox, 1)


async def failure_of(url: str, proxy: str | None, connect: float = PATIENCE, **egress: Any) -> LinkError:
    async with reaching(url, proxy, connect=connect, **egress) as (link, inbox):
        await link.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}})
        error = await inbox.failure(1)
        assert error.executed is False
        return error


@contextlib.asynccontextmanager
async def encrypted(authority: PrivateAuthority, name: str = NAME) -> AsyncIterator[Server]:
    async with scripted(answering, authority.server(name)) as server:
        yield server


@pytest.mark.parametrize("kind", ["http", "https", "socks5h"])
async def test_an_https_server_is_reached_through_a_tunnel_and_the_proxy_resolves_its_name(
    kind: str, authority: PrivateAuthority
) -> None:
    tls = authority.server("127.0.0.1") if kind == "https" else None
    async with (
        encrypted(authority) as server,
        forwarding(tls, hosts={NAME: server.port}, socks=kind == "socks5h") as proxy,
    ):
        url = f"https://{NAME}/mcp"
        assert await result_of(url, through(kind, proxy), ca=str(authority.ca)) == {"path": "/mcp"}
        assert proxy.asked == [f"{'SOCKS' if kind == 'socks5h' else 'CONNECT'} {NAME}:443"]
        assert server.requests[0].headers["host"] == NAME
        assert not [name for name in server.requests[0].headers if name.startswith("proxy-")]


@pytest.mark.parametrize("kind", ["http", "https"])
async def test_requests_to_a_plain_http_server_are_sent_to_the_proxy_as_absolute_urls(
    kind: str, authority: PrivateAuthority
) -> None:
    tls = authority.server("127.0.0.1") if kind == "https" else None
    async with (
        scripted(answering) as server,
        forwarding(tls, hosts={NAME: server.port}, user="me", password="p@ss") as proxy,
    ):
        url = f"http://{NAME}/mcp?x=1"
        result = await result_of(url, through(kind, proxy, "me:p%40ss"), ca=str(authority.ca))
        assert result == {"path": "/mcp?x=1"}
        assert proxy.asked[0] == f"POST http://{NAME}/mcp?x=1"
        assert proxy.credentials[0] == proxy.expected
        assert "proxy-authorization" not in server.requests[0].headers


@pytest.mark.parametrize(("kind", "asked"), [("http", "CONNECT [fd00::1]:443"), ("socks5h", "SOCKS fd00::1:443")])
async def test_a_server_is_reached_by_an_ipv6_address_that_only_the_proxy_can_reach(
    kind: str, asked: str, authority: PrivateAuthority
) -> None:
    async with (
        encrypted(authority, "fd00::1") as server,
        forwarding(hosts={"fd00::1": server.port}, socks=kind == "socks5h") as proxy,
    ):
        assert await result_of("https://[fd00::1]/mcp", through(kind, proxy), ca=str(authority.ca)) == {"path": "/mcp"}
        assert proxy.asked == [asked]


async def test_a_plain_http_server_is_reached_through_a_socks_tunnel() -> None:
    async with scripted(answering) as server, forwarding(hosts={NAME: server.port}, socks=True) as proxy:
        assert await result_of(f"http://{NAME}/mcp", through("socks5", proxy)) == {"path": "/mcp"}
        assert proxy.asked == [f"SOCKS {NAME}:80"]


@pytest.mark.parametrize("socks", [False, True])
async def test_proxy_credentials_open_the_tunnel_and_are_not_sent_into_it(
    socks: bool, authority: PrivateAuthority
) -> None:
    async with (
        encrypted(authority) as server,
        forwarding(hosts={NAME: server.port}, user="me", password="secret", socks=socks) as proxy,
    ):
        kind = "socks5h" if socks else "http"
        await result_of(f"https://{NAME}/mcp", through(kind, proxy, "me:secret"), ca=str(authority.ca))
        assert "proxy-authorization" not in server.requests[0].headers


async def test_proxy_variables_select_the_proxy_and_no_proxy_bypasses_it() -> None:
    async with scripted(answering) as server, forwarding(hosts={NAME: server.port}) as proxy:
        environ = {"HTTP_PROXY": through("http", proxy), "NO_PROXY": "other.example"}
        assert await result_of(f"http://{NAME}/mcp", None, environ) == {"path": "/mcp"}
        count = len(proxy.asked)
        with pytest.raises(AssertionError, match="cannot find the host"):
            await result_of(f"http://{NAME}/mcp", None, {**environ, "NO_PROXY": "intranet.example"})
        assert await result_of(server.url, None, environ) == {"path": "/mcp"}, "this machine is reached directly"
        assert len(proxy.asked) == count


async def test_a_proxy_of_the_entry_is_also_used_for_loopback() -> None:
    async with scripted(answering) as server, forwarding() as proxy:
        assert await result_of(server.url, through("http", proxy)) == {"path": "/mcp"}
        assert proxy.asked[0] == f"POST {server.url}"
        assert await result_of(server.url, "direct", {"HTTP_PROXY": through("http", proxy)}) == {"path": "/mcp"}
        assert len([request for request in proxy.asked if request.startswith("POST")]) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_http_proxy_that_requires_credentials_is_named(scheme: str) -> None:
    async with forwarding(hosts={NAME: 1}, user="me", password="secret") as proxy:
        for user, reason in (("", "wants a user and a password"), ("me:wr0ng-w0rd", "does not accept")):
            error = await failure_of(f"{scheme}://{NAME}/mcp", through("http", proxy, user))
            assert error.hub_code == codes.PROXY_CREDENTIALS
            assert reason in str(error)
            assert f"http://127.0.0.1:{proxy.port}" in str(error)
            assert "wr0ng" not in str(error)


@pytest.mark.parametrize("user", ["", "me:wr0ng-w0rd"])
async def test_a_socks_proxy_that_requires_credentials_is_named(user: str) -> None:
    async with forwarding(hosts={NAME: 1}, user="me", password="secret", socks=True) as proxy:
        error = await failure_of(f"https://{NAME}/mcp", through("socks5h", proxy, user))
        assert error.hub_code == codes.PROXY_CREDENTIALS


async def test_an_unsupported_proxy_authentication_scheme_is_named() -> None:
    answer = b"HTTP/1.1 407 No\r\nProxy-Authenticate: Negotiate\r\nProxy-Authenticate: NTLM\r\n\r\n"
    async with forwarding(answer=answer) as proxy:
        error = await failure_of(f"https://{NAME}/mcp", through("http", proxy))
        assert error.hub_code == codes.PROXY_CREDENTIALS
        assert "Negotiate" in str(error)


@pytest.mark.parametrize("kind", ["http", "socks5h"])
async def test_an_unknown_host_is_reported_as_the_proxys_error(kind: str) -> None:
    async with forwarding(socks=kind == "socks5h") as proxy:
        error = await failure_of(f"https://{NAME}/mcp", through(kind, proxy))
        assert error.hub_code == codes.PROXY_REFUSED
        assert f"{NAME}:443" in str(error)


async def test_an_unknown_host_at_squid_is_not_reported_as_a_server_error() -> None:
    async with forwarding() as proxy:
        assert (await failure_of(f"http://{NAME}/mcp", through("http", proxy))).hub_code == codes.PROXY_REFUSED


LIES = {
    "closes": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a version that does not exist": b"HTTP/3.0 200 OK\r\n\r\n",
    "half a head": b"HTTP/1.1 200",
    "data before anything was asked": b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "an endless head": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000,
}


@pytest.mark.parametrize("lie", LIES)
async def test_an_invalid_or_interrupted_proxy_response_is_a_clear_failure(lie: str) -> None:
    async with forwarding(answer=LIES[lie]) as proxy:
        is_partial = lie == "half a head"
        error = await failure_of(f"https://{NAME}/mcp", through("http", proxy), connect=2.0 if is_partial else PATIENCE)
        assert error.hub_code == (codes.PROXY_REFUSED if is_partial else codes.PROXY_UNREACHABLE)
        assert "the proxy http://127.0.0.1" in str(error)


SOCKS_LIES = [b"", b"\x04\x5a", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x05\x07", b"\x05\x00\x05\x00\x00\x09"]


@pytest.mark.parametrize("lie", SOCKS_LIES)
async def test_a_proxy_that_does_not_speak_socks_is_a_clear_failure(lie: bytes) -> None:
    async with forwarding(answer=lie) as proxy:
        error = await failure_of(f"https://{NAME}/mcp", through("socks5h", proxy))
        assert error.hub_code == codes.PROXY_UNREACHABLE


async def test_a_silent_proxy_times_out_and_is_named() -> None:
    async with forwarding(silent=True) as proxy:
        error = await failure_of(f"https://{NAME}/mcp", through("http", proxy), connect=2.0)
        assert error.hub_code == codes.PROXY_REFUSED
        assert "in time" in str(error)


async def test_an_unreachable_proxy_is_named_with_the_place_of_its_setting() -> None:
    async with forwarding() as proxy:
        pass
    error = await failure_of(f"https://{NAME}/mcp", through("http", proxy))
    assert error.hub_code == codes.PROXY_UNREACHABLE
    assert "set by proxy" in str(error)
    error = await failure_of(f"https://{NAME}/mcp", "http://no-such-proxy.invalid:3128")
    assert error.hub_code == codes.PROXY_UNREACHABLE
    assert "not known" in str(error)


async def test_a_proxy_without_tls_at_an_https_address_is_named() -> None:
    async with forwarding(hosts={NAME: 1}) as proxy:
        error = await failure_of(f"https://{NAME}/mcp", through("https", proxy), connect=5)
        assert error.hub_code == codes.PROXY_UNREACHABLE


async def test_a_certificate_of_the_server_is_checked_inside_of_the_tunnel(authority: PrivateAuthority) -> None:
    async with (
        encrypted(authority, "other.example") as server,
        forwarding(hosts={NAME: server.port}) as proxy,
    ):
        error = await failure_of(f"https://{NAME}/mcp", through("http", proxy), ca=str(authority.ca))
        assert error.hub_code == codes.CERTIFICATE_REFUSED
        assert server.requests == []


async def test_tunnels_that_the_proxy_closes_while_idle_are_replaced(authority: PrivateAuthority) -> None:
    async with (
        encrypted(authority) as server,
        forwarding(hosts={NAME: server.port}) as proxy,
        reaching(f"https://{NAME}/mcp", through("http", proxy), ca=str(authority.ca)) as (link, inbox),
    ):
        for number in range(1, 4):
            assert await asked(link, inbox, number) == {"path": "/mcp"}
            proxy.cut()
            async with asyncio.timeout(PATIENCE):
                while server.open:
                    await asyncio.sleep(0)
        assert proxy.asked == [f"CONNECT {NAME}:443"] * 3


async def test_a_request_whose_proxy_dies_may_have_been_executed(authority: PrivateAuthority) -> None:
    arrived = asyncio.Event()

    async def silent(request: Request, reply: Reply) -> None:
        arrived.set()
        await reply.gone()

    async with (
        scripted(silent, authority.server(NAME)) as server,
        forwarding(hosts={NAME: server.port}) as proxy,
        reaching(f"https://{NAME}/mcp", through("http", proxy), ca=str(authority.ca)) as (link, inbox),
    ):
        await link.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}})
        async with asyncio.timeout(PATIENCE):
            await arrived.wait()
        proxy.cut()
        assert (await inbox.failure(1)).executed is True


async def test_an_invalid_proxy_url_is_reported_before_anything_is_sent() -> None:
    for value, reason in (("ftp://proxy", "ftp://"), ("http://me:s3cret@:1", "not the address"), ("http://p:x", "not")):
        with pytest.raises(LinkError, match=reason) as caught:
            await result_of(f"https://{NAME}/mcp", None, {"ALL_PROXY": value})
        assert "ALL_PROXY" in str(caught.value)
        assert "s3cret" not in str(caught.value)


async def test_a_private_authority_is_trusted_only_by_its_configured_file(authority: PrivateAuthority) -> None:
    async with scripted(answering, authority.server("localhost")) as server:
        url = f"https://localhost:{server.port}/mcp"
        assert await result_of(url, None, ca=str(authority.ca)) == {"path": "/mcp"}
        assert (await failure_of(url, "direct")).hub_code == codes.CERTIFICATE_REFUSED


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_server_that_requires_a_client_certificate_gets_that_of_its_entry(
    newest: ssl.TLSVersion, authority: PrivateAuthority, tmp_path: Path
) -> None:
    clients = PrivateAuthority(tmp_path, "clients")
    cert, key = clients.issue("hub")
    strange, strange_key = authority.issue("stranger")
    context = authority.server("localhost", clients=clients.ca)
    context.maximum_version = newest
    ca = str(authority.ca)
    with strict(context) as port:
        url = f"https://localhost:{port}/mcp"
        error = await failure_of(url, "direct", ca=ca, client_cert=str(cert), client_key=str(key))
        assert error.hub_code == codes.ACCESS_REFUSED, "the server has answered"
        none = await failure_of(url, "direct", ca=ca)
        assert none.hub_code in (codes.CERTIFICATE_WANTED, codes.CERTIFICATE_REFUSED)
        assert "client_cert" in str(none)
        wrong = await failure_of(url, "direct", ca=ca, client_cert=str(strange), client_key=str(strange_key))
        assert wrong.hub_code == codes.CERTIFICATE_WANTED
    async with scripted(answering, context) as server:
        egress = {"ca": ca, "client_cert": str(cert), "client_key": str(key)}
        assert await result_of(f"https://localhost:{server.port}/mcp", None, **egress) == {"path": "/mcp"}


async def test_unusable_certificate_files_are_named(authority: PrivateAuthority, tmp_path: Path) -> None:
    cert, key = authority.issue("hub")
    _, locked = authority.issue("locked", b"password")
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    wrong: list[tuple[dict[str, str], str]] = [
        ({"ca": str(empty)}, r"empty\.pem \(ca\) has no certificates"),
        ({"ca": str(tmp_path / "missing.pem")}, "No such file"),
        ({"client_cert": str(empty)}, r"empty\.pem \(client_cert\) has no certificate"),
        ({"client_cert": str(cert)}, "name the file of the key in client_key"),
        ({"client_cert": str(cert), "client_key": str(tmp_path / "missing.key")}, r"missing\.key \(client_key\)"),
        ({"client_cert": str(cert), "client_key": str(locked)}, "encrypted"),
        ({"client_cert": str(cert), "client_key": str(authority.issue("other")[1])}, "is not the private key"),
    ]
    for egress, reason in wrong:
        with pytest.raises(LinkError, match=reason) as caught:
            await result_of("https://localhost:1/mcp", None, **egress)
        assert caught.value.hub_code == codes.CERTIFICATE_FILE_WRONG
    assert key.is_file()


async def test_cookies_are_returned_within_their_session_if_the_entry_enables_them() -> None:
    async def balanced(request: Request, reply: Reply) -> None:
        if request.method == "POST" and "id" in request.message:
            headers = {"Set_Cookie": "route=n1; Path=/; HttpOnly"} if request.message["method"] == "initialize" else {}
            await reply.result(request, {}, **headers)
        else:
            await reply.full(202)

    for cookies in (True, False):
        async with scripted(balanced) as server, reaching(server.url, None, cookies=cookies) as (link, inbox):
            for number, method in enumerate(("initialize", "tools/list", "initialize", "tools/list")):
                await link.send({"jsonrpc": "2.0", "id": number, "method": method, "params": {}})
                await inbox.next()
            cookie_headers = [request.headers.get("cookie") for request in server.asked("POST")]
            assert cookie_headers == ([None, "route=n1", None, "route=n1"] if cookies else [None] * 4)
