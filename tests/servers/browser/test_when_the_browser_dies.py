"""A browser that dies costs its pages, says so, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest
from aiohttp import web

from mcp_hub.servers.builtin import Settings
from mcp_hub.servers.builtin.browser_session import CurrentBrowser, OpenBrowser
from mcp_hub.servers.builtin.chromium import BrowserProfile
from mcp_hub.servers.builtin.pages import text_result
from mcp_hub.servers.builtin.scratch import Scratch
from mcp_hub.servers.local.tool_results import ToolResult
from tests.fakes.client import PATIENCE
from tests.servers.browser.browsing import LOOPBACK, Browsing, below, browsing, chromiums
from tests.servers.scrape.site import Site, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def site() -> AsyncIterator[Site]:
    async with serving() as running:
        running.put("/one", "<title>One</title><h1>First page</h1>", "text/html")
        running.put("/two", "<title>Two</title><h1>Second page</h1>", "text/html")
        yield running


def started_by(browser: Browsing) -> list[psutil.Process]:
    """Every process that the browser's own has started, directly or not."""
    return below(browser.client.process.pid)


def chromium(browser: Browsing) -> psutil.Process:
    """The first process of Chromium."""
    (process,) = chromiums(browser.client.process.pid)
    return process


def driver(browser: Browsing) -> psutil.Process:
    """Playwright's driver."""
    (process,) = below(browser.client.process.pid, "run-driver")
    return process


async def under_way(browser: Browsing, site: Site) -> asyncio.Future[Any]:
    """Starts a call that does not end by itself; returns it once the page executes it."""
    requested = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        requested.set()
        return web.Response()

    site.answers["/begun"] = answer
    function = "() => fetch('/begun').then(() => new Promise(() => {}))"
    waiting = browser.client.start("tools/call", {"name": "browser_evaluate", "arguments": {"function": function}})
    async with asyncio.timeout(PATIENCE):
        await requested.wait()
    return waiting


@pytest.mark.parametrize("victim", [chromium, driver])
async def test_a_browser_that_died_between_calls_is_replaced_and_the_loss_reported(site: Site, victim: object) -> None:
    assert callable(victim)
    async with browsing() as browser:
        await browser.call("navigate", url=site.url("/one"))
        await browser.call("tabs", action="new", url=site.url("/two"))
        dead = victim(browser)
        dead.kill()
        psutil.wait_procs([dead], PATIENCE)
        result = await browser.client.call("browser_navigate", {"url": site.url("/one")})
        if result.get("isError"):  # the news of its end came with this very call
            assert result["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
            result = await browser.call("navigate", url=site.url("/one"))
        lost, page = (block["text"] for block in result["content"])
        assert site.url("/one") in lost
        assert site.url("/two") in lost
        assert "First page" in page
        assert len((await browser.call("snapshot"))["content"]) == 1
        assert await browser.text("tabs", action="list") == f"- 0: (current) [One]({site.url('/one')})"


@pytest.mark.parametrize("victim", [chromium, driver])
async def test_a_browser_that_dies_during_a_call_ends_that_call_at_once(site: Site, victim: object) -> None:
    assert callable(victim)
    async with browsing() as browser:
        await browser.call("navigate", url=site.url("/one"))
        waiting = await under_way(browser, site)
        victim(browser).kill()
        async with asyncio.timeout(PATIENCE):
            answer = (await waiting)["result"]
        assert answer["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
        code, text = await browser.refused("click", ref="e2")
        assert code == "tool_error"
        assert site.url("/one") in text


async def test_crashed_tabs_are_closed_and_the_browser_continues(site: Site) -> None:
    async with browsing() as browser:
        await browser.call("navigate", url=site.url("/one"))
        await browser.call("cookies", action="set", name="kept", value="1", url=site.url())
        waiting = await under_way(browser, site)
        for process in below(browser.client.process.pid, "--type=renderer"):
            process.kill()
        async with asyncio.timeout(PATIENCE):
            answer = (await waiting)["result"]
        assert answer["_meta"]["mcp-hub/error"]["code"] == "tool_error"
        after = await browser.text("navigate", url=site.url("/two"))
        assert f"The tab at {site.url('/one')} crashed" in after
        assert "Second page" in after
        assert await browser.evaluate("() => document.cookie") == "kept=1"


async def test_a_tab_whose_process_dies_as_it_opens_is_opened_again(site: Site) -> None:
    async with browsing() as browser:
        await browser.call("navigate", url=site.url("/one"))
        await browser.call("tabs", action="close")
        for process in below(browser.client.process.pid, "--type=renderer"):
            process.kill()
        opening = asyncio.ensure_future(browser.text("navigate", url=site.url("/two")))
        async with asyncio.timeout(PATIENCE):
            while not (renderers := below(browser.client.process.pid, "--type=renderer")):
                await asyncio.sleep(0)
        for process in renderers:
            process.kill()
        assert "Second page" in await opening


@pytest.mark.parametrize("deaths", [1, 2])
async def test_a_page_whose_process_dies_as_it_loads_is_opened_again_once(site: Site, deaths: int) -> None:
    requests: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def page(request: web.Request) -> web.Response:
        requests.put_nowait(released := asyncio.Event())
        await released.wait()
        return web.Response(text="<p>Here at last</p>", content_type="text/html")

    site.answers["/slow"] = page
    async with browsing() as browser, asyncio.timeout(PATIENCE):
        await browser.call("navigate", url=site.url("/one"))
        await browser.call("tabs", action="new")
        opening = asyncio.ensure_future(browser.client.call("browser_navigate", {"url": site.url("/slow")}))
        for _ in range(deaths):
            await requests.get()
            for process in below(browser.client.process.pid, "--type=renderer"):
                process.kill()
        if deaths == 1:
            (await requests.get()).set()
        result = await opening
        assert ("Here at last" in str(result["content"]), bool(result.get("isError"))) == (deaths == 1, deaths == 2)


async def test_a_browser_inherits_no_secret_and_ends_with_stdin(site: Site, temporary: Path) -> None:
    env = {"MY_API_KEY": "canary-7311", "MCP_HUB_RUN": "run:1:browser:"}
    async with browsing(env=env) as browser:
        await browser.call("navigate", url=site.url("/one"))
        started = started_by(browser)
        for process in (driver(browser), chromium(browser)):
            environ = process.environ()
            assert "canary-7311" not in str(environ)
            assert "MCP_HUB_BUILTIN" not in environ
            assert environ["MCP_HUB_RUN"] == "run:1:browser:"
        # Not on a command line either, where every user of the machine can read it.
        (proxy,) = [argument for argument in chromium(browser).cmdline() if argument.startswith("--proxy-server")]
        assert "@" not in proxy
        assert any(temporary.glob("mcp-hub-*"))
    assert len(started) > 3
    _, alive = psutil.wait_procs(started, PATIENCE)
    assert alive == []
    assert list(temporary.glob("mcp-hub-*")) == []


async def test_no_browser_or_file_is_left_when_the_servers_process_is_killed(
    site: Site, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browsing() as browser:
        await browser.call("navigate", url=site.url("/one"))
        started = started_by(browser)
        browser.client.process.kill()
        await browser.client.exited()
    _, alive = psutil.wait_procs(started, PATIENCE)
    assert alive == []
    # What a killed process cannot take away, the next one does, once it is certain that nobody is about to use it.
    (abandoned,) = temporary.glob("mcp-hub-browser-*")
    os.utime(abandoned, (0, 0))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    scratch = Scratch("browser")
    try:
        assert list(temporary.glob("mcp-hub-browser-*")) == [scratch.path]
        os.utime(scratch.path, (0, 0))
        second = Scratch("browser")
        assert scratch.path.exists()
        second.remove()
    finally:
        scratch.remove()
    assert list(temporary.glob("mcp-hub-browser-*")) == []


async def test_a_profile_is_kept_across_restarts_and_used_by_one_browser_at_a_time(site: Site, tmp_path: Path) -> None:
    profile = str(tmp_path / "profile")
    async with browsing(profile=profile) as browser:
        await browser.call("navigate", url=site.url("/one"))
        assert Path(profile).stat().st_mode & 0o077 == 0
        await browser.call("cookies", action="set", name="kept", value="1", url=site.url(), expires=4_000_000_000)
        await browser.call("cookies", action="set", name="of_the_session", value="1", url=site.url())
        assert "of_the_session=1" in str(await browser.evaluate("() => document.cookie"))
        await browser.evaluate("() => localStorage.setItem('stored', 'yes')")
        async with browsing(profile=profile) as second:
            code, text = await second.refused("navigate", url=site.url("/one"))
            assert code == "tool_error"
            assert profile in text
            assert "browser.profile" in text
        async with browsing() as without_profile:
            await without_profile.call("navigate", url=site.url("/one"))
            assert await without_profile.evaluate("() => [document.cookie, localStorage.length]") == ["", 0]
    async with browsing(profile=profile) as browser:
        await browser.call("navigate", url=site.url("/one"))
        assert await browser.evaluate("() => [document.cookie, localStorage.getItem('stored')]") == ["kept=1", "yes"]


async def test_a_profile_left_by_a_killed_browser_is_reused(site: Site, temporary: Path) -> None:
    async with browsing(profile=str(temporary / "profile")) as browser:
        await browser.call("navigate", url=site.url("/one"))
        started = started_by(browser)
        chromium(browser).send_signal(signal.SIGKILL)
        browser.client.process.kill()
        await browser.client.exited()
        psutil.wait_procs(started, PATIENCE)
    async with browsing(profile=str(temporary / "profile")) as browser:
        assert "First page" in await browser.text("navigate", url=site.url("/one"))


async def test_a_profile_open_in_another_chromium_is_not_used(site: Site, tmp_path: Path) -> None:
    from playwright.async_api import async_playwright

    from mcp_hub.servers.builtin.chromium import find, needs_no_sandbox

    profile = tmp_path / "profile"
    async with async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(
            profile, executable_path=find(None, os.environ, Path.home()), chromium_sandbox=not needs_no_sandbox()
        )
        async with browsing(profile=str(profile)) as browser:
            code, text = await browser.refused("navigate", url=site.url("/one"))
            assert code == "tool_error"
            assert str(profile) in text
        await context.close()


def test_a_process_that_got_the_id_of_a_dead_browser_is_not_killed(tmp_path: Path) -> None:
    browser = subprocess.Popen(["sleep", "600"])
    started = psutil.Process(browser.pid).create_time()
    bystander = subprocess.Popen(["sleep", "600"])
    while psutil.Process(bystander.pid).create_time() == started:  # no system gives an id again that soon
        bystander.kill()
        bystander.wait(PATIENCE)
        bystander = subprocess.Popen(["sleep", "600"])
    try:
        profile = BrowserProfile(tmp_path / "profile")
        (profile.path / "SingletonLock").symlink_to(f"host-{browser.pid}")
        profile.opened()
        browser.kill()
        browser.wait(PATIENCE)
        profile._process = bystander.pid  # as if the system had given the id again
        profile.release()
        assert bystander.poll() is None
    finally:
        browser.kill()
        bystander.kill()
        bystander.wait(PATIENCE)


def test_a_browser_that_does_not_end_by_itself_is_killed(tmp_path: Path) -> None:
    browser = subprocess.Popen(["sleep", "600"])
    profile = BrowserProfile(tmp_path / "profile")
    (profile.path / "SingletonLock").symlink_to(f"host-{browser.pid}")
    profile.opened()
    profile.release()
    assert browser.wait(PATIENCE) == -signal.SIGKILL


async def test_a_profile_is_free_again_when_closing_its_browser_was_cancelled(site: Site, tmp_path: Path) -> None:
    current = CurrentBrowser(Settings(address_rules=LOOPBACK, profile=str(tmp_path / "profile")))

    async def work(browser: OpenBrowser) -> ToolResult:
        return text_result((await browser.tabs.current()).url)

    with mock.patch.dict(os.environ):
        await current.run(work)
        closing = asyncio.ensure_future(current.close())
        await asyncio.sleep(0)
        while not closing.done():
            closing.cancel()
            await asyncio.sleep(0)
        try:
            assert [block["text"] for block in (await current.run(work)).content] == ["about:blank"]
        finally:
            await current.close()
