"""The browser as the clients of a hub meet it: a browser of their own, rules that hold, nothing left afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import web

from tests.fakes.client import PATIENCE, hub
from tests.fakes.network import network_hub, sdk, text
from tests.servers.browser.browsing import below, chromiums
from tests.servers.scrape.site import Site, serving
from tests.transport.forward_proxy import forwarding

pytestmark = pytest.mark.anyio

SERVERS: dict[str, Any] = {"browser": {"builtin": "browser", "namespace": ""}}
WEB = {"allow_addresses": ["127.0.0.1"]}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving() as running:

        async def page(request: web.Request) -> web.Response:
            answer = web.Response(text=f"<title>Page</title>{dict(request.cookies)}", content_type="text/html")
            answer.set_cookie("who", request.query["who"])
            return answer

        running.answers["/page"] = page
        yield running


async def test_a_client_browses_through_the_hub_and_a_refused_url_starts_no_browser(tmp_path: Path, site: Site) -> None:
    rules = {"deny_urls": [f"127.0.0.1:{site.port}/secret"]}
    async with hub(tmp_path, SERVERS, web=WEB, guard=rules) as client:
        assert "browser_navigate" in await client.tool_names()
        result = await client.call("browser_navigate", {"url": site.url("/secret")})
        assert result["_meta"]["mcp-hub/error"]["code"] == "guard_blocked"
        assert "Title: Page" in await client.text("browser_navigate", {"url": site.url("/page?who=a")})
        hop = site.redirect("/hop", "/secret")
        result = await client.call("browser_navigate", {"url": hop})
        assert result["_meta"]["mcp-hub/error"]["code"] == "guard_blocked"
        picture = await client.call("browser_take_screenshot")
        assert picture.get("isError")  # of a refused page there is none
        await client.call("browser_navigate_back")
        picture = await client.call("browser_take_screenshot")
        assert [block["type"] for block in picture["content"]] == ["text", "image"]
    assert "/secret" not in site.asked


async def test_pages_are_browsed_through_the_root_proxy(tmp_path: Path, site: Site) -> None:
    name = "news.example"
    async with (
        forwarding(hosts={name: site.port}, user="me", password="w0rd") as proxy,
        hub(tmp_path, SERVERS, proxy=f"http://me:w0rd@127.0.0.1:{proxy.port}") as client,
    ):
        assert "Title: Page" in await client.text("browser_navigate", {"url": f"http://{name}/page?who=a"})
        assert f"GET http://{name}/page?who=a" in proxy.asked


async def test_each_of_two_callers_has_its_own_browser(tmp_path: Path, site: Site) -> None:
    async with (
        network_hub(tmp_path, SERVERS, web=WEB) as (_, base),
        sdk(f"{base}/mcp", "handshake") as first,
        sdk(f"{base}/mcp", "handshake") as second,
    ):
        for client, caller in ((first, "one"), (second, "two")):
            assert "{}" in await text(client, "browser_navigate", {"url": site.url(f"/page?who={caller}")})
        for client, caller in ((first, "one"), (second, "two")):
            assert f"'who': '{caller}'" in await text(
                client, "browser_navigate", {"url": site.url(f"/page?who={caller}")}
            )
            listed = await text(client, "browser_tabs", {"action": "list"})
            assert listed.splitlines() == [f"- 0: (current) [Page]({site.url(f'/page?who={caller}')})"]


async def test_no_browser_process_is_left_when_the_hub_is_killed(tmp_path: Path, temporary: Path, site: Site) -> None:
    async with hub(tmp_path, SERVERS, web=WEB) as client:
        await client.text("browser_navigate", {"url": site.url("/page?who=a")})
        started = below(client.process.pid)
        assert chromiums(client.process.pid)
        os.kill(client.process.pid, signal.SIGKILL)
        await client.exited()
        _, alive = await asyncio.to_thread(psutil.wait_procs, started, PATIENCE)
    assert alive == []
