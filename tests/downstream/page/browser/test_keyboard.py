"""The page without a mouse: tabs, lists, filters, panels and dialogs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.downstream.page.browser.looking import WAIT, Looker, WatchedHub, page_of, watched_hub
from tests.fakes.client import fake

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WatchedHub]:
    directory: Path = tmp_path_factory.mktemp("keyboard")
    servers = {"alpha": fake("--name", "alpha", "--tools", "60"), "beta": fake("--name", "beta")}
    async with watched_hub(directory, servers) as running:
        yield running


@pytest.fixture
async def looker(browser: Browser, hub: WatchedHub) -> AsyncIterator[Looker]:
    async with page_of(browser, hub) as opened:
        await opened.listed("alpha", "beta")
        yield opened


async def focused(looker: Looker) -> str:
    """The role of the focused element, and its id or class."""
    script = "(one => `${one.getAttribute('role') ?? one.tagName} ${one.id || one.className}`)(document.activeElement)"
    return str(await looker.page.evaluate(script))


async def test_arrow_keys_move_between_tabs_and_wrap_around(looker: Looker) -> None:
    keys = looker.page.keyboard
    await looker.page.get_by_role("tab", name="Servers").focus()
    for name in ("Tools", "Calls", "Rules", "Clients", "Configuration", "Servers"):
        await keys.press("ArrowRight")
        tab = looker.page.get_by_role("tab", name=name)
        await expect(tab).to_be_focused(timeout=WAIT)
        await expect(tab).to_have_attribute("aria-selected", "true", timeout=WAIT)
    await keys.press("End")
    await expect(looker.page.get_by_role("tab", name="Configuration")).to_be_focused(timeout=WAIT)
    await expect(looker.page.locator("[role=tab][tabindex='0']")).to_have_count(1, timeout=WAIT)


async def test_arrow_keys_move_through_a_list_and_enter_opens_and_closes_a_row(looker: Looker) -> None:
    keys = looker.page.keyboard
    await looker.view("servers")
    await looker.sees(looker.row("beta"))
    await keys.press("/")
    assert await focused(looker) == "INPUT "
    await keys.press("ArrowDown")
    assert (await focused(looker)).startswith("grid")
    await looker.sees(looker.page.locator(".is-active").filter(has_text="alpha"))
    await keys.press("ArrowDown")
    active = await looker.page.locator("[role=grid]").get_attribute("aria-activedescendant")
    assert active is not None
    await looker.has_text(looker.page.locator(f"#{active}"), "beta")
    await keys.press("Enter")
    await looker.has_text(looker.panel().locator("h2"), "beta")
    await expect(looker.panel().locator("h2")).to_be_focused(timeout=WAIT)
    await keys.press("Escape")
    await looker.sees_not(looker.panel())
    assert (await focused(looker)).startswith("grid")


async def test_end_and_home_reach_rows_that_were_not_drawn(looker: Looker) -> None:
    keys = looker.page.keyboard
    await looker.view("tools")
    await looker.sees(looker.row("alpha__echo"))
    grid = looker.page.locator("[role=grid]")
    total = int(await grid.get_attribute("aria-rowcount") or 0)
    assert total > 60
    assert await looker.row("").count() < total
    await grid.focus()
    await keys.press("End")
    last = looker.page.locator(f"[aria-rowindex='{total}']")
    await expect(last).to_be_in_viewport(timeout=WAIT)
    await keys.press("Home")
    await expect(looker.page.locator("[aria-rowindex='2']")).to_be_in_viewport(timeout=WAIT)


async def test_escape_clears_the_filter_first(looker: Looker) -> None:
    keys = looker.page.keyboard
    await looker.view("tools")
    await looker.sees(looker.row("alpha__echo"))
    await keys.press("/")
    await keys.type("beta")
    await looker.sees_not(looker.row("alpha__echo"))
    await keys.press("Escape")
    await looker.sees(looker.row("alpha__echo"))


async def test_a_dialog_traps_the_focus_and_escape_declines(looker: Looker) -> None:
    keys = looker.page.keyboard
    await looker.has_text(looker.row("beta"), "ready")
    panel = await looker.open("beta")
    process = panel.locator("dt:text-is('Process') + dd")
    before = await process.inner_text()
    restart = panel.get_by_role("button", name="Restart…")
    await expect(restart).to_be_enabled(timeout=WAIT)
    await restart.focus()
    await keys.press("Enter")
    dialog = looker.page.get_by_role("dialog")
    await looker.sees(dialog)
    for _ in range(4):
        await keys.press("Tab")
        assert await looker.page.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
    await keys.press("Escape")
    await looker.sees_not(dialog)
    await expect(panel.get_by_role("button", name="Restart…")).to_be_focused(timeout=WAIT)
    assert await process.inner_text() == before


async def test_the_focused_element_has_a_visible_focus_ring(looker: Looker) -> None:
    await looker.view("servers")
    await looker.sees(looker.row("beta"))
    await looker.page.locator("body").press("Tab")
    for _ in range(12):
        is_body = "document.activeElement === document.body"
        outline = "getComputedStyle(document.activeElement).outlineStyle !== 'none'"
        assert await looker.page.evaluate(f"{is_body} || {outline}"), await focused(looker)
        await looker.page.keyboard.press("Tab")
