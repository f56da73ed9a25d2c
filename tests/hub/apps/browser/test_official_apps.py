"""The official servers with apps (ext-apps), opened in Chromium by a host: behind the hub as directly."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from playwright.async_api import Browser, expect

from tests.downstream.page.browser.looking import chromium
from tests.fakes.client import HUB, PATIENCE, free_port, write_config
from tests.fakes.network import network_hub
from tests.hub.apps.browser.app_host import AppHost
from tests.peers.catalogue import LOOPBACK_ONLY
from tests.peers.programs import HERE, NODE, PEERS, installed, network_server

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),  # of the handshake era
]

PACKAGES: Final = PEERS / "apps" / "node_modules" / "@modelcontextprotocol"
SERVERS: Final = {
    "react": "server-basic-react",
    "vanilla": "server-basic-vanillajs",
    "budget": "server-budget-allocator",
    "monitor": "server-system-monitor",
    "video": "server-video-resource",
}
TRANSPORTS: Final = ("stdio", "http")
WAIT: Final = PATIENCE * 1000


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


def command(name: str) -> list[str]:
    program = installed(PACKAGES / SERVERS[name] / "dist" / "index.js")
    preloaded = [
        option for file in (LOOPBACK_ONLY, HERE / "servers" / "fetches_nothing.cjs") for option in ("-r", str(file))
    ]
    return [installed(NODE), *preloaded, program]


@contextlib.asynccontextmanager
async def entries(directory: Path, transport: str, *names: str) -> AsyncIterator[dict[str, Any]]:
    """Entries of these servers; those over HTTP run."""
    async with contextlib.AsyncExitStack() as stack:
        made: dict[str, Any] = {}
        for name in names:
            program, *arguments = command(name)
            made[name] = {"command": program, "args": [*arguments, "--stdio"]}
            if transport == "http":
                port = free_port()
                log = directory / f"{name}.log"
                running = network_server([program, *arguments], port, {"PORT": str(port)}, log=log)
                await stack.enter_async_context(running)
                made[name] = {"url": f"http://127.0.0.1:{port}/mcp"}
        yield made


def client_of(entry: dict[str, Any]) -> Client:
    if "url" in entry:
        return Client(streamable_http_client(entry["url"]), mode="legacy")
    parameters = StdioServerParameters(command=entry["command"], args=entry["args"])
    return Client(stdio_client(parameters), mode="legacy")


@contextlib.asynccontextmanager
async def hosts(browser: Browser, directory: Path, transport: str, *names: str) -> AsyncIterator[dict[str, AppHost]]:
    """A host of each server by its name, and of a hub before all of them as `hub`."""
    async with contextlib.AsyncExitStack() as stack:
        servers = await stack.enter_async_context(entries(directory, transport, *names))
        root = {"call_log": {"file": str(directory / "calls.jsonl")}}
        if transport == "http":
            _, url = await stack.enter_async_context(network_hub(directory, servers, **root))
            connections = {**servers, "hub": {"url": f"{url}/mcp"}}
        else:
            config = write_config(directory, servers, **root)
            program, *arguments = HUB
            connections = {
                **servers,
                "hub": {"command": program, "args": [*arguments, "serve", "--config", str(config)]},
            }
        yield {
            name: AppHost(browser, await stack.enter_async_context(client_of(entry)))
            for name, entry in connections.items()
        }


def without_time(value: Any) -> Any:
    """A value without what differs with each call of these servers: times, and what a machine measures."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", json.dumps(value))
    return re.sub(r"-?\d+(\.\d+)?", "N", text)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_app_behind_the_hub_does_what_it_does_directly(
    browser: Browser, tmp_path: Path, transport: str
) -> None:
    async with hosts(browser, tmp_path, transport, "budget", "monitor", "video") as by_name:
        for server, tool, done in (
            ("budget", "get-budget-data", "text=Budget Allocator"),
            ("monitor", "get-system-info", "text=/GB|GiB/"),
            ("video", "play_video", "#player"),
        ):
            seen = []
            for host, name in ((by_name[server], tool), (by_name["hub"], f"{server}__{tool}")):
                async with host.opened(name) as app:
                    await expect(app.frame.locator(done).first).to_be_visible(timeout=WAIT)
                    if server == "monitor":
                        await expect(app.frame.locator("body")).to_contain_text(re.compile(r"[1-9]\d*%"), timeout=WAIT)
                    assert app.resource["mimeType"] == "text/html;profile=mcp-app"
                    seen.append((
                        app.tool["_meta"], app.resource, without_time(app.result), without_time(app.asked[:1]),
                    ))  # fmt: skip
            directly, through_hub = seen
            assert through_hub == directly
            if server == "monitor":
                assert "poll-system-stats" in directly[3]  # a tool for apps alone
            if server == "video":
                assert "videos://bunny" in directly[3]
                assert base64.b64encode(b"bytes of https://test-videos.co.uk/").decode()[:40] in json.dumps(app.asked)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_of_two_servers_with_equal_tools_an_app_reaches_its_own(
    browser: Browser, tmp_path: Path, transport: str
) -> None:
    async with hosts(browser, tmp_path, transport, "react", "vanilla") as by_name:
        async with by_name["hub"].opened("vanilla__get-time") as app:
            assert app.resource["text"] == (PACKAGES / SERVERS["vanilla"] / "dist" / "mcp-app.html").read_text()
            time = app.frame.locator("#server-time")
            await expect(time).to_contain_text("T", timeout=WAIT)
            first = await time.text_content()
            assert first is not None
            assert first.strip() == app.result["content"][0]["text"]
            await app.frame.get_by_role("button", name="Get Server Time").click()
            await expect(time).not_to_have_text(first, timeout=WAIT)
            assert [method for method, _, _ in app.asked if method == "tools/call"] == ["tools/call"]
        async with by_name["hub"].opened("react__get-time") as app:
            assert app.resource["text"] == (PACKAGES / SERVERS["react"] / "dist" / "mcp-app.html").read_text()
            async with app.page.expect_event("console", lambda message: True, timeout=WAIT):
                await app.frame.get_by_role("button", name="Get Server Time").click()
            await expect(app.frame.locator("code").first).to_contain_text("ERROR", timeout=WAIT)
            refused = [answer for method, _, answer in app.asked if method == "tools/call"]
            assert refused[0]["error"]["data"] == {"ambiguous": "get-time"}  # both apps are open in this session
    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    answered = [line["upstream"] for line in lines if line["method"] == "tools/call" and line.get("upstream")]
    assert answered == ["vanilla", "vanilla", "react"]
