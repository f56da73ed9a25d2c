"""A real browser that shows the live page of a real hub."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, Error, Locator, Page, async_playwright, expect

from mcp_hub.servers.builtin.chromium import find
from tests.downstream.network.visitor import Visitor, network_hub, visiting
from tests.fakes.client import HUB, PATIENCE, StdioClient, write_config
from tests.peers.programs import NODE, NPM

WAIT = PATIENCE * 1000
"""Milliseconds that anything in the page may take; a bound against hangs."""
VIEWS = ("servers", "tools", "calls", "rules", "clients", "configuration")
FILLED = ".grid-body [role=row]:visible, .page-view h2, .empty:visible"
"""Matches what a view shows once it has its data."""
EVERYTHING = {
    "command": str(NODE),
    "args": [str(NPM / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js")],
}
"""The entry of the protocol's own reference server."""
NO_ADDRESS_BAR = "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup"
"""Half the work of a start is a page for the list below the address bar, which nobody sees here."""
BROKEN = """
window.broken = [];
window.lastClick = undefined;
addEventListener("securitypolicyviolation", (event) => broken.push(`${event.violatedDirective} ${event.blockedURI}`));
addEventListener("error", (event) => broken.push(String(event.message)));
addEventListener("unhandledrejection", (event) => broken.push(String(event.reason)));
addEventListener("click", (event) => { lastClick = event; }, { capture: true });
"""
"""Notes what goes wrong in the page, such as a script that its policy stopped, and the last click."""


class Looker:
    """A tab of a browser with the page of one hub."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.dialogs: list[str] = []
        """The dialogs that the page opened: only an attack opens one."""
        page.on("dialog", self._dialog)
        page.set_default_timeout(WAIT)

    async def _dialog(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        await dialog.dismiss()

    async def enter(self, link: str) -> None:
        """Opens a link, and waits for the first view."""
        await self.page.goto(link)
        await self.sees(self.page.get_by_role("tab", name="Servers"))

    async def sign_in(self, token: str) -> None:
        """Opens the page and enters a token, as a caller on a network does."""
        await self.page.goto(f"{self.base}/ui")
        await self.page.get_by_text("With a token").click()
        await self.page.get_by_label("Your token").fill(token)
        await self.press("Enter")

    async def view(self, name: str, key: str | None = None) -> Locator:
        """Goes to a view, or to a row in it, as a link does; returns the view."""
        await self.page.evaluate("hash => { location.hash = hash; }", name if key is None else f"{name}/{key}")
        view = self.page.locator(f".{name}-view")
        await self.sees(view)
        return view

    def row(self, text: str) -> Locator:
        """The row of the list that has this text."""
        return self.page.locator(".grid-body [role=row]:not([hidden])").filter(has_text=text)

    def panel(self) -> Locator:
        return self.page.locator("section.panel:visible")

    async def open(self, text: str) -> Locator:
        """Clicks a row; returns the panel."""
        await self.row(text).first.click()
        await self.has_text(self.panel().locator("h2"), text)
        return self.panel()

    async def listed(self, *servers: str) -> None:
        """Waits in the view of servers until the tools of these are listed."""
        for server in servers:
            await expect(self.row(server).locator(".cell.tools")).not_to_have_text("0", timeout=WAIT)

    async def press(self, button: str, within: Locator | None = None) -> None:
        """Clicks a button, once more for each click that the page ignored because the button had just moved."""
        control = (within or self.page).get_by_role("button", name=button, exact=True)
        async with asyncio.timeout(PATIENCE):
            await control.click()
            while await self._ignored_a_click():
                await control.click()

    async def _ignored_a_click(self) -> bool:
        try:
            return bool(await self.page.evaluate("lastClick?.defaultPrevented"))
        except Error:  # the click has led to another page
            return False

    async def confirm(self, button: str) -> None:
        """Confirms the action that a dialog asks about, and waits until it is done."""
        dialog = self.page.get_by_role("dialog")
        await self.press(button, dialog)
        await expect(dialog).to_have_count(0, timeout=WAIT)

    async def sees(self, target: Locator | str) -> None:
        locator = self.page.get_by_text(target) if isinstance(target, str) else target
        await expect(locator.first).to_be_visible(timeout=WAIT)

    async def sees_not(self, element: Locator) -> None:
        await expect(element).to_have_count(0, timeout=WAIT)

    async def has_text(self, element: Locator, text: str | re.Pattern[str]) -> None:
        """Waits until an element has a text in it."""
        await expect(element).to_contain_text(text, timeout=WAIT)

    async def broken(self) -> list[str]:
        """What went wrong in the page."""
        problems: list[str] = await self.page.evaluate("broken")
        return problems + self.dialogs


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Chromium without windows where that is installed, which takes half as long for a page; else the browser found."""
    async with async_playwright() as playwright:
        path = shutil.which("chromium-headless-shell") or find(None, os.environ, Path.home())
        browser = await playwright.chromium.launch(
            executable_path=path, chromium_sandbox=os.geteuid() != 0, args=[NO_ADDRESS_BAR]
        )
        try:
            yield browser
        finally:
            await browser.close()


@contextlib.asynccontextmanager
async def looking(browser: Browser, base: str, **context: Any) -> AsyncIterator[Looker]:
    """A fresh profile with one tab; fails for whatever went wrong in the page."""
    browser_context: BrowserContext = await browser.new_context(
        **{"viewport": {"width": 1280, "height": 800}, "locale": "en-GB", **context}
    )
    await browser_context.add_init_script(BROKEN)
    try:
        looker = Looker(await browser_context.new_page(), base)
        yield looker
        assert await looker.broken() == []
    finally:
        await browser_context.close()


class WatchedHub:
    """A hub as a process, its configuration, and links to its page."""

    def __init__(self, process: StdioClient, base: str, config: Path) -> None:
        self.process = process
        self.base = base
        self.config = config

    async def link(self) -> str:
        """A new link to the page, as `mcp-hub open` prints it."""
        argv = [*HUB, "open", "--print", "--config", str(self.config)]
        pipe = asyncio.subprocess.PIPE
        opening = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
        async with asyncio.timeout(PATIENCE):
            output, problem = await opening.communicate()
        assert opening.returncode == 0, problem.decode()
        return output.decode().split()[0]

    def write(self, servers: dict[str, Any], **root: Any) -> None:
        """Another configuration, which the hub reads by itself."""
        write_config(self.config.parent, servers, listen={"port": 0}, **root)

    @contextlib.asynccontextmanager
    async def visitor(self) -> AsyncIterator[Visitor]:
        """A client of the hub."""
        async with visiting(self.base, "handshake") as visitor:
            yield visitor


@contextlib.asynccontextmanager
async def watched_hub(
    directory: Path, servers: dict[str, Any], listen: dict[str, Any] | None = None, **root: Any
) -> AsyncIterator[WatchedHub]:
    """A hub over HTTP with these servers."""
    with contextlib.suppress(ProcessLookupError):  # a test may have killed it
        async with network_hub(directory, servers, listen or {}, **root) as (process, base):
            yield WatchedHub(process, base, directory / "servers.json")


@contextlib.asynccontextmanager
async def page_of(browser: Browser, hub: WatchedHub, **context: Any) -> AsyncIterator[Looker]:
    """The page of a hub, opened by a link."""
    async with looking(browser, hub.base, **context) as looker:
        await looker.enter(await hub.link())
        yield looker


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Waits until a condition holds, asked again and again."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.02)
