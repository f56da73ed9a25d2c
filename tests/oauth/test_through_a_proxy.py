"""Sign-ins through a forward proxy: metadata and tokens come that way, and what may not be asked is not."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import httpx2
import pytest

from mcp_hub.config.egress_settings import EgressSettings
from mcp_hub.config.field_types import SecretStr
from mcp_hub.oauth.token_flow import CheckedTransport
from mcp_hub.oauth.token_store import SignInError, TokenUnavailable
from mcp_hub.transport.egress import Egress
from tests.fakes.client import PATIENCE
from tests.fakes.private_authority import PrivateAuthority
from tests.transport.forward_proxy import ForwardingProxy, forwarding
from tests.transport.scripted_http import Reply, Request, scripted

pytestmark = pytest.mark.anyio

SERVER = "https://mcp.example/mcp"
NAME = "login.example"


async def tokens(request: Request, reply: Reply) -> None:
    await reply.json({"path": request.path, "said": request.body.decode()})


def by(proxy: ForwardingProxy, ca: Path | None = None) -> Egress:
    address = SecretStr(f"http://127.0.0.1:{proxy.port}")
    return Egress.of(EgressSettings(proxy=address, ca=None if ca is None else str(ca)), {})


async def ask(egress: Egress, url: str, allow: tuple[str, ...] = ()) -> httpx2.Response:
    checked = CheckedTransport(SERVER, allow, egress)
    async with httpx2.AsyncClient(transport=checked, timeout=PATIENCE) as http, asyncio.timeout(PATIENCE):
        return await http.post(url, data={"grant_type": "refresh_token"})


async def test_tokens_are_requested_through_the_proxy_which_resolves_the_host_name(tmp_path: Path) -> None:
    authority = PrivateAuthority(tmp_path)
    async with (
        scripted(tokens, authority.server(NAME)) as server,
        forwarding(hosts={NAME: server.port}) as proxy,
    ):
        answer = await ask(by(proxy, authority.ca), f"https://{NAME}/token")
        assert answer.json() == {"path": "/token", "said": "grant_type=refresh_token"}
        assert proxy.asked == [f"CONNECT {NAME}:443"]
        with pytest.raises(TokenUnavailable):
            await ask(by(proxy), f"https://{NAME}/token")
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "url",
    ["https://10.0.0.1/token", "https://169.254.169.254/x", "https://localhost/token", "https://login.internal/token",
     "https://login/token"],
)  # fmt: skip
async def test_private_addresses_and_names_are_refused_before_the_proxy_is_asked(url: str) -> None:
    async with forwarding(hosts={"login.internal": 1, "login": 1}) as proxy:
        with pytest.raises(SignInError):
            await ask(by(proxy), url)
        assert proxy.asked == []


async def test_a_refusal_by_the_proxy_is_reported() -> None:
    async with forwarding(user="me", password="word") as proxy:
        with pytest.raises(TokenUnavailable, match="wants a user and a password"):
            await ask(by(proxy), f"https://{NAME}/token")


async def test_the_client_certificate_of_an_entry_is_sent_only_to_its_own_server(tmp_path: Path) -> None:
    authority, clients = PrivateAuthority(tmp_path), PrivateAuthority(tmp_path, "clients")
    cert, key = clients.issue("hub")
    presented: list[str] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
        name = str(tls.server_side and writer.get_extra_info("peercert"))
        presented.append("hub" if "'hub'" in name else "nobody")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async def serving(name: str) -> tuple[asyncio.Server, int]:
        context = authority.server(name)
        context.load_verify_locations(clients.ca)
        context.verify_mode = ssl.CERT_OPTIONAL
        running = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
        return running, int(running.sockets[0].getsockname()[1])

    (own, own_port), (foreign, foreign_port) = await serving("mcp.example"), await serving(NAME)
    async with own, foreign, forwarding(hosts={"mcp.example": own_port, NAME: foreign_port}) as proxy:
        settings = EgressSettings(
            proxy=SecretStr(f"http://127.0.0.1:{proxy.port}"),
            ca=str(authority.ca),
            client_cert=str(cert),
            client_key=str(key),
        )
        for host in ("mcp.example", NAME):
            await ask(Egress.of(settings, {}), f"https://{host}/token")
    assert presented == ["hub", "nobody"]
