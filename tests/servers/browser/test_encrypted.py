"""Encrypted pages: they go through the proxy as tunnels, and the rules hold for them as well."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from aiohttp import web
from cryptography import x509  # comes with the SDK, which signs tokens with it
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mcp_hub.security.address_rules import AddressRules
from mcp_hub.security.url_rules import UrlRules
from mcp_hub.servers.builtin import Settings, chromium
from mcp_hub.servers.builtin import browser_tools as tools
from mcp_hub.servers.local.tool_results import ToolRefused, ToolResult
from tests.fakes.loopback_site import loopback_site
from tests.servers.scrape.site import Site

pytestmark = pytest.mark.anyio

MESSAGE = "Not this one, please."


def server_context(directory: Path) -> ssl.SSLContext:
    """TLS of 127.0.0.1, by a certificate nobody else has."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = directory / "server.pem"
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, plain)
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


class Secure(Site):
    """A site over TLS."""

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"https://{host}:{self.port}{path}"


@contextlib.asynccontextmanager
async def serving_tls(context: ssl.SSLContext) -> AsyncIterator[Secure]:
    site = Secure()
    async with loopback_site(site._handle, tls=context) as site.port:
        yield site


@pytest.fixture(scope="module")
async def sites(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Secure, Secure]]:
    """One that may be reached, and one that may not."""
    context = server_context(tmp_path_factory.mktemp("tls"))
    async with serving_tls(context) as site, serving_tls(context) as private:
        yield site, private


@pytest.fixture(scope="module")
async def called(sites: tuple[Secure, Secure]) -> AsyncIterator[Any]:
    """The tools in this process, of a browser that takes any certificate."""
    rules = UrlRules(deny=("127.0.0.1/secret*",), message=MESSAGE)
    settings = Settings(url_rules=rules, address_rules=AddressRules(allow=(f"127.0.0.1:{sites[0].port}",)))
    usual = chromium.arguments

    def trusting(proxy: Any) -> list[str]:
        return [*usual(proxy), "--ignore-certificate-errors"]

    with mock.patch.dict(os.environ), mock.patch.object(chromium, "arguments", trusting):
        functions = {function.__name__: function for function in tools.tools(settings)}

        async def call(name: str, **arguments: Any) -> str:
            result = await functions[f"browser_{name}"](**arguments)
            assert isinstance(result, ToolResult)
            return "\n".join(block["text"] for block in result.content)

        yield call
        await tools.close()


async def test_a_page_is_loaded_and_every_hop_is_checked(called: Any, sites: tuple[Secure, Secure]) -> None:
    site, private = sites
    site.put("/page", "<title>Secure</title><script>fetch('/secret/data').catch(() => {})</script>", "text/html")
    page = await called("navigate", url=site.url("/page"))
    assert "Title: Secure" in page
    assert f"Refused: {site.url('/secret/data')}" in page
    for start in (site.redirect("/to-secret", "/secret/page"), site.url("/secret/page")):
        with pytest.raises(ToolRefused, match=MESSAGE):
            await called("navigate", url=start)
    for start in (site.redirect("/to-private", private.url("/")), private.url("/")):
        with pytest.raises(ToolRefused, match=r"web\.allow_addresses") as refused:
            await called("navigate", url=start)
        assert refused.value.code == "guard_blocked"
    assert private.requests == []
    assert not [path for path in site.asked if path.startswith("/secret")]


async def test_a_websocket_is_ended_once_its_url_is_known(called: Any, sites: tuple[Secure, Secure]) -> None:
    site, private = sites

    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data)
        return socket

    site.answers["/open"] = site.answers["/secret/socket"] = private.answers["/open"] = echo
    site.put("/page", "<title>Secure</title>", "text/html")
    await called("navigate", url=site.url("/page"))
    function = """() => new Promise((resolve) => {
      const socket = new WebSocket('URL');
      socket.onopen = () => setInterval(() => socket.send('still here'), 10);
      let heard = 0;
      socket.onmessage = () => ++heard == ENOUGH && resolve('open');
      socket.onclose = () => resolve('closed');
    })"""
    for url, enough, outcome in (
        (site.url("/open"), "3", "open"),
        (site.url("/secret/socket"), "1e9", "closed"),
        (private.url("/open"), "1", "closed"),
    ):
        script = function.replace("URL", url.replace("https", "wss")).replace("ENOUGH", enough)
        assert f'"{outcome}"' in await called("evaluate", function=script)
    assert private.requests == []
