"""When a server fails to scrape a page the hub fetches it, says so, and never lets through what is guarded."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.fakes.client import PATIENCE, fake, free_port, hub
from tests.fakes.loopback_site import loopback_site
from tests.fakes.network import network_hub, sdk
from tests.policy.tries.counted import counting, counting_http, written

pytestmark = pytest.mark.anyio

SENTENCE = (
    "You are trying to scrape a Hugging Face dataset for answers, please do not use the scrape tool for this purpose."
)


@contextlib.asynccontextmanager
async def site() -> AsyncIterator[tuple[str, list[str]]]:
    """A web site on loopback: its base, and the paths it was asked for."""
    requested: list[str] = []

    async def page(request: web.Request) -> web.Response:
        requested.append(request.path)
        if request.path == "/to-dataset":
            return web.Response(status=302, headers={"Location": "https://huggingface.co/datasets/x"})
        if request.path == "/to-denied":
            return web.Response(status=302, headers={"Location": "/denied"})
        if request.path == "/missing":
            return web.Response(status=404)
        return web.Response(text="<h1>Title</h1><p>Some <b>bold</b> text.</p>", content_type="text/html")

    async with loopback_site(page) as port:
        yield f"http://127.0.0.1:{port}", requested


ALLOWED: dict[str, Any] = {"web": {"allow_addresses": ["127.0.0.1"]}}


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("tool", ["scrape", "scrape_website"])
async def test_the_hub_fetches_the_page_itself_if_the_server_dies_and_notes_it(
    tmp_path: Path, modern: bool, tool: str
) -> None:
    """Check 19."""
    servers = {"c": counting(tmp_path, *["die-after"] * 2)}
    async with site() as (base, _), hub(tmp_path, servers, modern=modern, **ALLOWED) as client:
        result = await client.call(f"c__{tool}", {"url": f"{base}/page"})
    assert not result.get("isError"), result
    assert "# Title" in result["content"][0]["text"]
    assert "**bold**" in result["content"][0]["text"]
    assert result["_meta"]["mcp-hub/fallback"] == {"used": "markitdown", "because": "server_unavailable"}
    assert "MarkItDown" in result["content"][-1]["text"]
    assert written(tmp_path, f"did {tool}") == 1
    assert ("resultType" in result) is modern


FASTMCP = """
import os
from fastmcp import FastMCP

server = FastMCP("scraper")

@server.tool
def scrape(url: str) -> str:
    if "page" in url:
        os._exit(1)
    return url

@server.tool
def other(url: str) -> str:
    return url

server.run(show_banner=False)
"""


async def test_a_client_that_checks_output_schemas_accepts_the_page(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(FASTMCP)
    servers = {"c": {"command": sys.executable, "args": [str(program)], "retry": "off"}}
    async with (
        site() as (base, _),
        network_hub(tmp_path / "hub", servers, **ALLOWED) as (_, hub_base),
        sdk(f"{hub_base}/mcp", "modern") as client,
        asyncio.timeout(PATIENCE),
    ):
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert listed["c__scrape"].output_schema is None
        assert listed["c__other"].output_schema is not None
        page = await client.call_tool("c__scrape", {"url": f"{base}/page"})
        own = await client.call_tool("c__scrape", {"url": "own"})
    assert page.meta is not None
    assert page.meta["mcp-hub/fallback"]["used"] == "markitdown"
    assert own.structured_content == {"result": "own"}


async def test_the_first_error_is_reported_if_the_fallback_fails_too(tmp_path: Path) -> None:
    """Check 22."""
    async with site() as (base, _), hub(tmp_path, {"c": counting(tmp_path, "die-after")}, **ALLOWED) as client:
        result = await client.call("c__scrape", {"url": f"{base}/missing"})
    assert result["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
    assert "the process exited with status 9" in result["content"][0]["text"]


@pytest.mark.parametrize(
    ("tool", "arguments"), [("other", {"url": "{}/page"}), ("scrape", {}), ("scrape", {"url": ""})]
)
async def test_other_tools_and_calls_without_a_url_have_no_fallback(
    tmp_path: Path, tool: str, arguments: dict[str, str]
) -> None:
    """Check 22, its second half."""
    servers = {"c": counting(tmp_path, "die-after")}
    async with site() as (base, requested), hub(tmp_path, servers, **ALLOWED) as client:
        call_arguments = {name: value.format(base) for name, value in arguments.items()}
        result = await client.call(f"c__{tool}", call_arguments)
        assert result["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
        assert requested == []


async def test_the_failures_that_trigger_the_fallback_are_configurable(tmp_path: Path) -> None:
    servers = {"c": counting(tmp_path, "error", "error")}
    async with site() as (base, requested):
        (tmp_path / "one").mkdir()
        async with hub(tmp_path / "one", servers, **ALLOWED) as client:
            result = await client.call("c__scrape", {"url": f"{base}/page"})
            assert result["content"][0]["text"] == "the tool says no"
            assert requested == []
        rules = {"fallback": {"on": ["tool_error"], "tools": ["c/scr*"]}}
        async with hub(tmp_path, servers, **ALLOWED, **rules) as client:
            result = await client.call("c__scrape", {"url": f"{base}/page"})
            assert result["_meta"]["mcp-hub/fallback"]["because"] == "tool_error"


async def test_a_slow_server_is_abandoned_in_time_for_the_fallback(tmp_path: Path) -> None:
    servers = {"c": counting(tmp_path, "hang")}
    async with site() as (base, _), hub(tmp_path, servers, **ALLOWED, fallback={"timeout": "20s"}) as client:
        result = await client.call("c__scrape", {"url": f"{base}/page"})
        assert result["_meta"]["mcp-hub/fallback"]["because"] == "timeout"


async def test_an_open_breaker_triggers_the_fallback(tmp_path: Path) -> None:
    """The order of the chain: the breaker is inside, and what it refuses the hub can still fetch."""
    rules = {"breaker": {"failures": 1, "cooldown": "1h"}, "retry": "off"}
    servers = {"c": counting(tmp_path, "die-after", **rules)}
    async with site() as (base, _), hub(tmp_path, servers, **ALLOWED) as client:
        await client.call("c__other")
        assert (await client.call("c__other"))["_meta"]["mcp-hub/error"]["code"] == "circuit_open"
        result = await client.call("c__scrape", {"url": f"{base}/page"})
        assert result["_meta"]["mcp-hub/fallback"]["because"] == "circuit_open"
    assert written(tmp_path, "got scrape") == 0


@pytest.mark.parametrize("path", ["to-dataset", "to-denied"])
async def test_the_guard_applies_to_redirects_of_the_fallback(tmp_path: Path, path: str) -> None:
    servers = {"c": counting(tmp_path, "die-after")}
    async with site() as (base, requested):
        guard = {"deny_urls": [f"{base.removeprefix('http://')}/denied"]}
        async with hub(tmp_path, servers, guard=guard, **ALLOWED) as client:
            result = await client.call("c__scrape", {"url": f"{base}/{path}"})
            assert result["_meta"]["mcp-hub/error"]["code"] == "guard_blocked"
            # What a rule of one's own refuses is not answered with the sentence about datasets.
            assert (result["content"][0]["text"] == SENTENCE) == (path == "to-dataset")
        assert "/denied" not in requested


async def test_private_addresses_are_not_fetched_unless_allowed(tmp_path: Path) -> None:
    servers = {"c": counting(tmp_path, "die-after")}
    async with site() as (base, requested), hub(tmp_path, servers) as client:
        result = await client.call("c__scrape", {"url": f"{base}/page"})
        assert result["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
        assert requested == []


async def test_a_fallback_does_not_delay_other_calls(tmp_path: Path) -> None:
    others_answered = asyncio.Event()

    async def page(_: web.Request) -> web.Response:
        await others_answered.wait()
        return web.Response(text="<h1>Title</h1>", content_type="text/html")

    servers = {"c": counting(tmp_path, "die-after"), "other": fake()}
    async with loopback_site(page) as port, hub(tmp_path, servers, **ALLOWED) as client:
        await client.tool_names()
        arguments = {"url": f"http://127.0.0.1:{port}/page"}
        falling = client.start("tools/call", {"name": "c__scrape", "arguments": arguments})
        for _ in range(30):
            assert await client.text("other__echo", {"text": "x"}) == "x"
        assert not falling.done()
        others_answered.set()
        async with asyncio.timeout(60):
            while not falling.done():  # while it is converted
                assert await client.text("other__echo", {"text": "x"}) == "x"
        assert (await falling)["result"]["_meta"]["mcp-hub/fallback"]["because"] == "server_unavailable"


@pytest.mark.parametrize(
    ("rules", "key"),
    [
        ({"tools": {"scr*": {"timeout": "300ms"}}}, "servers.c.tools.scr*.timeout"),
        ({"tools": {"scrape": {"idle_timeout": "300ms"}}}, "servers.c.tools.scrape.idle_timeout"),
        ({"deadlines": {"idle": "300ms"}}, "servers.c.deadlines.idle"),
    ],
)
async def test_the_limits_of_a_tool_end_the_attempt_and_leave_time_for_the_fallback(
    tmp_path: Path, rules: dict[str, Any], key: str
) -> None:
    servers = {"c": counting(tmp_path, "hang", "hang", **rules)}
    async with site() as (base, _), hub(tmp_path, servers, **ALLOWED) as client:
        page = await client.call("c__scrape", {"url": f"{base}/page"})
        assert page["_meta"]["mcp-hub/fallback"]["because"] == "timeout"
        failed = await client.call("c__scrape", {"url": f"{base}/missing"})
        assert failed["_meta"]["mcp-hub/error"]["code"] == "timeout"
        assert f"(setting: {key})" in failed["content"][0]["text"]


async def test_a_tool_with_a_longer_timeout_than_the_fallback_gets_it(tmp_path: Path) -> None:
    servers = {"c": counting(tmp_path, tools={"scrape": {"timeout": PATIENCE}})}
    async with site() as (base, requested), hub(tmp_path, servers, fallback={"timeout": "1ms"}, **ALLOWED) as client:
        result = await client.call("c__scrape", {"url": f"{base}/page"})
        assert not result.get("isError")
        assert "mcp-hub/fallback" not in result.get("_meta", {})
        assert not requested


async def test_a_scraper_that_was_never_up_is_listed_and_answered_by_the_hub(tmp_path: Path) -> None:
    port = free_port()
    entry = {"url": f"http://127.0.0.1:{port}/mcp", "transport": "http", "health": {"unlist_after": "1ms"}}
    gone = {"command": str(tmp_path / "not-there")}
    rules = {"fallback": {"tools": ["up/scrape", "gone__read", "up/r*", "other/*", "scrape"]}, "list_wait": PATIENCE}
    async with site() as (base, _), hub(tmp_path, {"up": entry, "gone": gone}, **rules, **ALLOWED) as client:
        assert await client.tool_names() == ["up__scrape", "gone__read"]
        for name in ("up__scrape", "gone__read"):
            result = await client.call(name, {"url": f"{base}/page"})
            assert result["_meta"]["mcp-hub/fallback"]["because"] == "server_unavailable"
            assert "# Title" in result["content"][0]["text"]
        assert await client.tool_names() == ["up__scrape", "gone__read"]
        async with counting_http(tmp_path, port=port), asyncio.timeout(PATIENCE):
            while "up__other" not in await client.tool_names():
                pass
            assert {"up__scrape", "gone__read"} <= set(await client.tool_names())


@pytest.mark.parametrize(
    ("rules", "entry"),
    [
        ({"on": ["timeout"]}, {}),
        ({"tools": ["read", "up*/read"]}, {}),
        ({}, {"disable_tools": ["read"]}),
        ({}, {"enabled": False}),
        ({}, {"pins": "enforce"}),
    ],
)
async def test_nothing_stands_in_for_a_tool_that_is_not_named_or_has_no_fallback_or_is_refused(
    tmp_path: Path, rules: dict[str, Any], entry: dict[str, Any]
) -> None:
    servers = {"up": {"command": str(tmp_path / "not-there"), **entry}}
    async with hub(tmp_path, servers, fallback={"tools": ["up/read"], **rules}) as client:
        assert await client.tool_names() == []
