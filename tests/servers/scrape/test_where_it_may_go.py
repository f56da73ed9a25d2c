"""Which addresses are dialled at all, however they are written and by whatever way they are reached."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from yarl import URL

from mcp_hub.security.address_rules import AddressRules
from mcp_hub.security.url_rules import UrlRules
from mcp_hub.servers.builtin import Settings
from mcp_hub.servers.builtin.page_fetcher import Fetcher
from mcp_hub.servers.local.tool_results import ToolRefused
from tests.fakes.client import StdioClient
from tests.servers.scrape.site import Site, refused, scrape, scraper, serving, source

pytestmark = pytest.mark.anyio

MESSAGE = "Not this one, please."


@pytest.fixture(scope="module")
async def site() -> AsyncIterator[Site]:
    async with serving() as running:
        yield running


@pytest.fixture(scope="module")
async def other() -> AsyncIterator[Site]:
    async with serving() as running:
        yield running


@pytest.fixture(scope="module")
async def client(site: Site) -> AsyncIterator[StdioClient]:
    """It may reach `site` by its address, by no name, and not its pages below /secret; nor any `other`."""
    rules = UrlRules(deny=("127.0.0.1/secret*",), message=MESSAGE)
    addresses = AddressRules(allow=(f"127.0.0.1:{site.port}",))
    async with scraper(Settings(url_rules=rules, address_rules=addresses, javascript=False)) as running:
        yield running


@pytest.fixture(scope="module")
async def closed() -> AsyncIterator[StdioClient]:
    """As it comes: no private address is allowed."""
    async with scraper(Settings(javascript=False)) as running:
        yield running


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed_and_counted(client: StdioClient, site: Site, status: int) -> None:
    end = site.put("/end", "the end", "text/plain")
    site.redirect("/second", end, status)
    start = site.redirect("/first", "second?x=1", status)
    assert await scrape(client, start) == "the end"
    facts = await source(client, start)
    assert (facts["url"], facts["redirects"]) == (end, 2)


@pytest.mark.parametrize(
    "target", ["/a%2Fb?x=%2F%28%29&y=%3D%26", "/%28c%29/%7e;v=1?redirect=https%3A%2F%2Fh%2F", "/%c3%a4"]
)
async def test_an_address_is_sent_as_it_is_written(client: StdioClient, site: Site, target: str) -> None:
    for url in (site.url(target), site.redirect("/there", target), site.redirect("/back", site.url(target))):
        await client.call("scrape_website", {"url": url})
        assert site.requests[-1].raw_path == target


async def test_a_redirect_keeps_the_bytes_of_an_old_encoding() -> None:
    paths: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        paths.append((await reader.readuntil(b"\r\n\r\n")).split(b" ")[1])
        head = b"HTTP/1.1 302 Found\r\nLocation: /caf\xe9?q=\xfc" if len(paths) == 1 else b"HTTP/1.1 200 OK"
        writer.write(head + b"\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, scraper() as client:
        port = server.sockets[0].getsockname()[1]
        facts = await source(client, f"http://127.0.0.1:{port}/")
    assert paths == [b"/", b"/caf%E9?q=%FC"]
    assert facts["url"] == f"http://127.0.0.1:{port}/caf%E9?q=%FC"


async def test_a_redirect_loop_ends_with_an_error(client: StdioClient, site: Site) -> None:
    url = site.redirect("/loop", "/loop")
    before = len(site.requests)
    assert await refused(client, url) == "tool_error"
    assert len(site.requests) - before == 11


async def test_a_redirect_to_a_guarded_url_sends_no_request_there(client: StdioClient, site: Site) -> None:
    guarded = site.put("/secret/page", "secret", "text/plain")
    for number, location in enumerate((guarded, "/secret/page", "/open/../secret/page", "/%73ecret/page")):
        start = site.redirect(f"/to-secret/{number}", location)
        result = await client.call("scrape_website", {"url": start})
        assert result["_meta"]["mcp-hub/error"]["code"] == "guard_blocked"
        assert result["content"] == [{"type": "text", "text": MESSAGE}]
        assert f"/to-secret/{number}" in site.asked
    assert await refused(client, guarded) == "guard_blocked"
    assert "/secret/page" not in site.asked


async def test_a_guarded_url_inside_another_is_refused_as_well(client: StdioClient, site: Site) -> None:
    site.put("/reader", "read for you", "text/plain")
    assert await refused(client, site.url("/reader?url=https%3A%2F%2Fhuggingface.co%2Fdatasets%2Fx")) == "guard_blocked"
    assert "/reader" not in site.asked


async def test_a_redirect_to_a_private_address_sends_no_request_there(
    client: StdioClient, site: Site, other: Site
) -> None:
    other.put("/", "inside", "text/plain")
    for number, host in enumerate(("127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0")):
        start = site.redirect(f"/inside/{number}", other.url("/", host))
        assert await refused(client, start) == "guard_blocked", host
        assert f"/inside/{number}" in site.asked
    assert other.requests == []


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "LOCALHOST", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1", "0.0.0.0",
     "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "127.0.0.1.", "１２７.0.0.1",
     "someone:word@127.0.0.1", "169.254.169.254", "10.0.0.1", "[fe80::1]"],
)  # fmt: skip
async def test_no_private_address_is_reached_by_any_spelling(closed: StdioClient, site: Site, host: str) -> None:
    before = len(site.requests)
    assert await refused(closed, site.url("/page", host)) == "guard_blocked"
    assert len(site.requests) == before


async def test_the_refusal_names_the_setting_and_shows_no_secret_of_the_url(closed: StdioClient, site: Site) -> None:
    url = f"http://someone:password@127.0.0.1:{site.port}/page?token=secret#part"
    text = (await closed.call("scrape_website", {"url": url}))["content"][0]["text"]
    assert "web.allow_addresses" in text
    assert f"127.0.0.1:{site.port}/page" in text
    assert not {word for word in ("someone", "password", "token", "secret", "part") if word in text}


async def test_an_allowed_address_matches_in_every_numeric_form(client: StdioClient, site: Site) -> None:
    url = site.put("/by-number", "found", "text/plain")
    assert await scrape(client, site.url("/by-number", "2130706433")) == "found"
    assert (await source(client, site.url("/by-number", "0x7f.1")))["url"] == url
    assert {request.host for request in site.requests if request.path == "/by-number"} == {f"127.0.0.1:{site.port}"}


async def test_an_allowed_name_keeps_its_host_header(site: Site) -> None:
    site.put("/named", "found", "text/plain")
    addresses = AddressRules(allow=(f"localhost:{site.port}",))
    async with scraper(Settings(address_rules=addresses, javascript=False)) as client:
        assert await scrape(client, site.url("/named", "localhost")) == "found"
        assert site.requests[-1].host == f"localhost:{site.port}"
        assert await refused(client, site.url("/named")) == "guard_blocked"


async def test_url_credentials_are_sent_only_to_their_own_origin(site: Site, other: Site) -> None:
    end = other.put("/elsewhere", "end", "text/plain")
    site.redirect("/login", "/login2")
    site.redirect("/login2", end)
    async with scraper() as client:
        url = site.url("/login").replace("//", "//user:word@")
        assert await scrape(client, url) == "end"
        assert (await source(client, url))["url"] == end
    sent = {request.path: request.headers.get("Authorization") for request in [*site.requests, *other.requests]}
    assert sent["/login"] == sent["/login2"] == "Basic dXNlcjp3b3Jk"
    assert sent["/elsewhere"] is None


async def test_cookies_are_kept_for_one_page_only(site: Site) -> None:
    site.put("/with-cookie", "end", "text/plain")
    site.put("/sets", b"", status=302, headers={"Location": "/with-cookie", "Set-Cookie": "seen=1"})
    async with scraper(address_rules=AddressRules(allow=("localhost",))) as client:
        for path in ("/sets", "/with-cookie"):
            assert await scrape(client, site.url(path, "localhost")) == "end"
    cookies = [request.headers.get("Cookie") for request in site.requests if request.path == "/with-cookie"]
    assert cookies == ["seen=1", None]


async def test_a_name_is_resolved_once_and_the_checked_address_is_dialled(
    monkeypatch: pytest.MonkeyPatch, site: Site
) -> None:
    """A name server that says something else at the second question, and names a private address among others."""
    url = site.put("/rebound", "what was checked", "text/plain")
    asked: list[str] = []
    resolve = socket.getaddrinfo

    def answers(host: str, port: int, *given: Any, **named: Any) -> Any:
        asked.append(host)
        names = {"rebound.test": ["127.0.0.1"] if asked.count(host) == 1 else ["127.0.0.2"],
                 "both.test": ["127.0.0.2", "127.0.0.1"]}  # fmt: skip
        return [found for name in names.get(host, [host]) for found in resolve(name, port, *given, **named)]

    async with serving("127.0.0.2", site.port) as inside:
        inside.put("/rebound", "inside", "text/plain")
        monkeypatch.setattr(socket, "getaddrinfo", answers)
        fetcher = Fetcher(Settings(address_rules=AddressRules(allow=(f"127.0.0.1:{site.port}",))))
        for name in ("rebound.test", "both.test"):
            page = await fetcher.fetch(URL(url).with_host(name))
            assert page.body == b"what was checked"
        with pytest.raises(ToolRefused) as refusal:
            await fetcher.fetch(URL(url).with_host("rebound.test"))
        fetcher.close()
        assert refusal.value.code == "guard_blocked"
        assert inside.requests == []
    assert asked.count("rebound.test") == 2


@pytest.mark.parametrize(
    "location", ["file:///etc/hostname", "ftp://127.0.0.1/", "javascript:alert(1)", "http://", "\x80"]
)
async def test_a_redirect_to_another_scheme_than_http_is_an_error(
    client: StdioClient, site: Site, location: str
) -> None:
    assert await refused(client, site.redirect("/away", location)) == "tool_error"


@pytest.mark.parametrize(
    "text",
    ["", "   ", "file:///etc/hostname", "/etc/hostname", "data:text/html,hello", "javascript:alert(1)", "mailto:a@b.c",
     "ftp://example.com/", "http://", "https:///path", "http://exa mple.com/", "http://example.com:99999/",
     "http://[::1/", "http:\\\\127.0.0.1\\", "http://example.com/\nHost: x", "view-source:http://127.0.0.1/",
     "http://" + "a" * 9000, "?", "//"],
)  # fmt: skip
async def test_an_invalid_page_url_is_refused_as_an_argument(closed: StdioClient, text: str) -> None:
    assert await refused(closed, text) == "invalid_parameters"


async def test_a_proxy_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch, site: Site, other: Site) -> None:
    url = site.put("/direct", "direct", "text/plain")
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, other.url())
    before = len(other.requests)
    async with scraper() as client:
        assert await scrape(client, url) == "direct"
    assert len(other.requests) == before
