"""axe-core in every view, light and dark, wide and narrow; and no view wider than its window."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser

from tests.downstream.page.browser.looking import FILLED, VIEWS, Looker, WatchedHub, looking, page_of, watched_hub
from tests.fakes.client import fake
from tests.peers.programs import NPM, installed

pytestmark = pytest.mark.anyio

RUN = (
    "() => axe.run(document, {resultTypes: ['violations']})"
    ".then(found => found.violations.map(one => [one.id, one.help, one.nodes.map(node => node.html)]))"
)
OUTSIDE = """
[...document.querySelectorAll('button, input, select, h2')]
    .filter(one => !one.closest('[role=tablist]') && one.checkVisibility())
    .filter(one => one.getBoundingClientRect().right > innerWidth + 1 || one.getBoundingClientRect().left < -1)
    .map(one => one.outerHTML)
"""
"""Lists the controls that lie outside the window."""
NARROWEST, WIDEST = 360, 2560


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WatchedHub]:
    directory: Path = tmp_path_factory.mktemp("accessible")
    servers = {
        "alpha": fake("--name", "alpha", disable_tools=["crash"]),
        "gone": fake("--die", "the licence has expired"),
    }
    groups = {"numbers": {"description": "Tools that count", "tools": ["alpha__add"], "active": True}}
    async with watched_hub(directory, servers, groups=groups) as running:
        yield running


async def violations(looker: Looker) -> list[Any]:
    """What axe-core objects to in the page as it is."""
    source = Path(installed(NPM / "axe-core" / "axe.min.js")).read_text()
    await looker.page.evaluate(f"() => {{ {source} }}")
    results: list[Any] = await looker.page.evaluate(RUN)
    return results


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [NARROWEST, 1280])
async def test_axe_finds_no_accessibility_violation_in_any_view(
    browser: Browser, hub: WatchedHub, scheme: str, width: int
) -> None:
    size = {"width": width, "height": 900}
    async with page_of(browser, hub, color_scheme=scheme, viewport=size) as looker:
        async with hub.visitor() as visitor:
            await looker.view("calls")
            await visitor.text("alpha__echo", {"text": "hello"})
            await looker.sees(looker.row("alpha__echo"))
            for name in VIEWS:
                await looker.view(name)
                await looker.sees(looker.page.locator(FILLED))
                assert await violations(looker) == [], name
            for name, row in (("servers", "gone"), ("tools", "alpha__add"), ("calls", "alpha__echo"), ("clients", "v")):
                await looker.view(name)
                await looker.sees(looker.row(row).first)
                panel = await looker.open(row)
                for details in await panel.locator("summary").all():
                    await details.click()
                assert await violations(looker) == [], (name, row)
        await looker.view("servers", "gone")
        await looker.press("Restart…")
        await looker.sees(looker.page.get_by_role("dialog"))
        assert await violations(looker) == []
        await looker.press("Cancel")
        await looker.press("Leave")
        await looker.sees("mcp-hub open")
        assert await violations(looker) == []


@pytest.mark.parametrize("width", [NARROWEST, 720, 1000, 1440, WIDEST])
async def test_no_view_is_wider_than_its_window(browser: Browser, hub: WatchedHub, width: int) -> None:
    async with page_of(browser, hub, viewport={"width": width, "height": 900}) as looker:
        for name, key in [*((name, None) for name in VIEWS), ("servers", "gone"), ("tools", "alpha__add")]:
            await looker.view(name, key)
            await looker.sees(looker.panel().get_by_role("heading", level=3) if key else looker.page.locator(FILLED))
            page_width = await looker.page.evaluate("document.documentElement.scrollWidth")
            assert page_width <= width, (name, key)
            overflowing = await looker.page.evaluate(OUTSIDE)
            assert overflowing == [], (name, key)


async def test_the_page_has_no_animation_under_reduced_motion(browser: Browser, hub: WatchedHub) -> None:
    async with page_of(browser, hub, reduced_motion="reduce") as looker:
        for name in VIEWS:
            await looker.view(name)
            assert await looker.page.evaluate("document.getAnimations().length") == 0


async def test_times_are_shown_in_the_viewers_zone_with_the_full_time_as_title(
    browser: Browser, hub: WatchedHub
) -> None:
    async with (
        page_of(browser, hub, timezone_id="Pacific/Kiritimati") as distant,
        looking(browser, hub.base, timezone_id="UTC") as utc,
    ):
        await utc.enter(await hub.link())
        times = []
        for looker in (distant, utc):
            await looker.has_text(looker.row("alpha"), "ready")
            await looker.view("servers", "alpha")
            time = looker.panel().locator("time")
            times.append(
                (await time.inner_text(), await time.get_attribute("title"), await time.get_attribute("datetime"))
            )
        assert times[0][0] != times[1][0]
        assert "GMT+14" in str(times[0][1])
        assert times[0][2] == times[1][2]
