"""What another page, or another program of this machine, can do to somebody who has the page of a hub open: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.async_api import Browser

from mcp_hub.downstream.page import sessions
from tests.downstream.page.browser.looking import WAIT, looking
from tests.downstream.page.opened import ServedHub, served_hub
from tests.fakes.client import PATIENCE, fake

pytestmark = pytest.mark.anyio

ALPHA = {"alpha": fake("--name", "alpha")}
TRY = """
async ([base, secret]) => {
    const results = {};
    const send = async (name, path, options) => {
        try {
            const answer = await fetch(base + path, { credentials: "include", ...options });
            results[name] = answer.type === "opaque" ? "opaque" : String(answer.status);
        } catch { results[name] = "blocked"; }
    };
    const json = { "Content-Type": "application/json" };
    const body = JSON.stringify({ secret });
    await send("state", "/ui/api/state", {});
    await send("use the link", "/ui/api/session", { method: "POST", headers: json, body });
    await send("use the link blindly", "/ui/api/session", { method: "POST", mode: "no-cors", body });
    await send("restart", "/ui/api/actions/restart", { method: "POST", headers: json, body: '{"server": "alpha"}' });
    await send("run blindly", "/ui/api/run", { method: "POST", mode: "no-cors", body: '{"tool": "alpha__pid"}' });
    const script = document.createElement("script");
    results.script = await new Promise((done) => {
        script.onload = () => done("ran");
        script.onerror = () => done("blocked");
        script.src = `${base}/ui/static/app.js`;
        document.head.append(script);
    });
    return results;
}
"""


class OtherSite:
    """A program on another port of this machine, which keeps what browsers send it."""

    def __init__(self) -> None:
        self.base = ""
        self.heads: list[str] = []
        self.html = "<!doctype html><title>other</title>"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            body = self.html.encode()
            head = f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\n"
            writer.write(f"{head}connection: close\r\n\r\n".encode() + body)
            await writer.drain()
        writer.close()

    def cookies(self) -> list[str]:
        """The cookies of the hub's page that browsers have sent here."""
        lines = [line for head in self.heads for line in head.split("\r\n") if line.lower().startswith("cookie:")]
        return [line.partition(":")[2].strip() for line in lines if "mcp_hub_page" in line]


@pytest.fixture
async def other() -> AsyncIterator[OtherSite]:
    site = OtherSite()
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    site.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield site
    finally:
        server.close()
        await server.wait_closed()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHub]:
    async with served_hub(tmp_path / "hub", ALPHA) as running:
        yield running


async def test_a_page_of_another_origin_cannot_read_or_act(
    browser: Browser, served: ServedHub, other: OtherSite
) -> None:
    secret = await served.secret()
    async with looking(browser, served.base) as looker:
        await looker.enter(await served.access.link())
        await looker.sees(looker.row("alpha"))
        upstream = served.hub.upstreams["alpha"]
        calls = dict(served.hub.metrics.calls)
        evil = await looker.page.context.new_page()
        await evil.goto(other.base)
        outcomes = await evil.evaluate(TRY, [served.base, secret])
        assert outcomes.pop("use the link blindly") in ("opaque", "blocked")
        assert outcomes.pop("run blindly") in ("opaque", "blocked")
        assert set(outcomes.values()) == {"blocked"}, outcomes
        assert served.hub.upstreams["alpha"] is upstream
        assert dict(served.hub.metrics.calls) == calls
        assert len(served.access.page.sessions) == 1
        assert served.access.page.links.redeem(secret), "the link is used up"
        await evil.close()


async def test_a_program_on_another_port_cannot_use_the_cookie(
    browser: Browser, served: ServedHub, other: OtherSite
) -> None:
    """Browsers send cookies of 127.0.0.1 to every port of it, below the path of the page."""
    async with looking(browser, served.base) as looker:
        await looker.enter(await served.access.link())
        evil = await looker.page.context.new_page()
        await evil.goto(f"{other.base}/ui/")
        (cookie,) = other.cookies()
        async with httpx2.AsyncClient(base_url=served.base, timeout=PATIENCE) as http:
            for token in ("", cookie.partition("=")[2], cookie):
                answer = await http.get("/ui/api/state", headers={"cookie": cookie, "x-mcp-hub-page": token})
                assert answer.status_code == 401
        assert await evil.evaluate("[document.cookie, sessionStorage.length, localStorage.length]") == ["", 0, 0]
        await evil.close()


async def test_another_site_can_neither_embed_the_page_nor_open_it_with_a_link(
    browser: Browser, served: ServedHub, other: OtherSite
) -> None:
    other.html = f"<!doctype html><title>other</title><iframe src='{served.base}/ui'></iframe>"
    link = await served.access.link()
    async with looking(browser, served.base) as looker:
        await looker.page.goto(other.base)
        framed = looker.page.frame_locator("iframe").locator("body")
        await looker.has_text(framed, "A web page of another site sends no request here")
        async with looker.page.context.expect_page(timeout=WAIT) as opened:
            await looker.page.evaluate("link => { open(link); }", link)
        window = await opened.value
        await looker.has_text(window.locator("body"), "A web page of another site sends no request here")
        await window.close()
    assert served.access.page.links.redeem(link.partition("#s=")[2]), "the link is used up"


async def test_an_expired_link_says_so_and_how_to_get_a_new_one(
    browser: Browser, served: ServedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LINK_SECONDS", -1.0)
    link = await served.access.link()
    async with looking(browser, served.base) as looker:
        await looker.page.goto(link)
        await looker.sees("older than 60 seconds")
        await looker.sees("mcp-hub open")
        await looker.sees_not(looker.page.get_by_role("tab"))


async def test_an_error_of_the_page_api_is_json_and_escapes_markup(browser: Browser, served: ServedHub) -> None:
    """Nothing that the hub answers at its origin is a document, but the page itself."""
    async with looking(browser, served.base) as looker:
        await looker.enter(await served.access.link())
        response: Any = await looker.page.evaluate(
            "async () => { const answer = await fetch('/ui/api/none/%3Cscript%3E'); "
            "return [answer.headers.get('content-type'), await answer.text()]; }"
        )
        assert response[0].startswith("application/json")
        assert "<script>" not in json.loads(response[1])["error"]["message"]
