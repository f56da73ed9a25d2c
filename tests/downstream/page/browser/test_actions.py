"""Every action of the page: asked once, done by the hub, seen in the page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.downstream.page.browser.looking import WAIT, Looker, WatchedHub, page_of, watched_hub
from tests.fakes.client import fake
from tests.oauth.authority import authority

pytestmark = pytest.mark.anyio

SERVERS = {"alpha": fake("--name", "alpha"), "beta": fake("--name", "beta")}
GROUPS = {"numbers": {"description": "Tools that count", "tools": ["alpha__add", "alpha__count"], "active": True}}


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WatchedHub]:
    directory: Path = tmp_path_factory.mktemp("actions")
    async with watched_hub(directory, SERVERS, groups=GROUPS) as running:
        yield running


@pytest.fixture
async def looker(browser: Browser, hub: WatchedHub) -> AsyncIterator[Looker]:
    async with page_of(browser, hub) as opened:
        yield opened


async def test_a_server_is_restarted_only_after_confirmation(looker: Looker) -> None:
    panel = await looker.open("alpha")
    process = panel.locator("dt:text-is('Process') + dd")
    before = await process.inner_text()
    await looker.press("Restart…", panel)
    await looker.press("Cancel", looker.page.get_by_role("dialog"))
    await expect(process).to_have_text(before, timeout=WAIT)
    await looker.press("Restart…", panel)
    await looker.confirm("Restart")
    await expect(process).not_to_have_text(before, timeout=WAIT)
    await looker.has_text(looker.row("alpha"), "ready")


async def test_the_buttons_beside_a_list_act_on_the_row_that_is_open(looker: Looker) -> None:
    for name in ("alpha", "beta", "alpha"):
        await looker.has_text(looker.row(name), "ready")
        panel = await looker.open(name)
        await looker.press("Restart…", panel)
        dialog = looker.page.get_by_role("dialog")
        await looker.has_text(dialog, f"Restart {name}?")
        await looker.press("Cancel", dialog)


async def test_the_second_click_of_two_confirms_nothing(looker: Looker) -> None:
    await looker.has_text(looker.row("alpha"), "ready")
    panel = await looker.open("alpha")
    process = panel.locator("dt:text-is('Process') + dd")
    before = await process.inner_text()
    await looker.press("Restart…", panel)
    dialog = looker.page.get_by_role("dialog")
    confirming = dialog.get_by_role("button", name="Restart")
    await confirming.click(force=True)
    await expect(confirming).to_be_enabled(timeout=WAIT)
    await looker.press("Cancel", dialog)
    await looker.sees_not(dialog)
    assert await process.inner_text() == before


async def test_a_server_is_disabled_and_enabled_again(looker: Looker) -> None:
    panel = await looker.open("beta")
    await looker.press("Disable…", panel)
    await looker.confirm("Disable")
    await looker.has_text(looker.row("beta"), "disabled")
    await looker.sees_not(looker.row("beta").locator(".trouble"))
    await looker.sees_not(panel.locator(".problem"))
    await looker.view("tools")
    await looker.sees(looker.row("alpha__echo"))
    await looker.sees_not(looker.row("beta__echo"))
    await looker.view("servers", "beta")
    await looker.press("Enable…", panel)
    await looker.confirm("Enable")
    await looker.has_text(looker.row("beta"), "ready")
    await looker.view("tools")
    await looker.sees(looker.row("beta__echo"))


async def test_a_group_is_switched_off_and_on(looker: Looker) -> None:
    view = await looker.view("rules")
    group = view.locator(".group-table tr").filter(has_text="numbers")
    await looker.press("Switch off numbers", group)
    await looker.confirm("Switch off")
    await looker.sees(group.get_by_role("button", name="Switch on numbers"))
    await looker.view("tools")
    await looker.sees(looker.row("alpha__echo"))
    await looker.sees_not(looker.row("alpha__add"))
    await looker.view("rules")
    await looker.press("Switch on numbers", group)
    await looker.confirm("Switch on")
    await looker.view("tools")
    await looker.sees(looker.row("alpha__add"))


async def test_the_page_ends_the_session_of_a_client(looker: Looker, hub: WatchedHub) -> None:
    await looker.view("clients")
    async with hub.visitor() as visitor:
        panel = await looker.open("v")
        await looker.press("End its session…", panel)
        await looker.confirm("End it")
        response = await visitor.post({"jsonrpc": "2.0", "id": 3, "method": "tools/list"})
        assert response.status_code == 404


async def test_an_action_of_the_page_is_recorded_like_a_call(looker: Looker, hub: WatchedHub) -> None:
    def recorded() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in hub.process.stderr.splitlines() if line.startswith(b"{")]
        return [line for line in lines if line.get("event") == "action" and line["name"] == "restart"]

    before = len(recorded())
    panel = await looker.open("alpha")
    await looker.press("Restart…", panel)
    await looker.confirm("Restart")
    await hub.process.until(lambda: len(recorded()) > before)
    facts = recorded()[-1]
    assert (facts["upstream"], facts["client"], facts["verdict"]) == ("alpha", "mcp-hub page", "ok")
    await looker.view("calls")
    panel = await looker.open("restart")
    await looker.has_text(panel, "mcp-hub page")


async def test_a_failed_action_shows_its_reason_in_the_dialog_and_can_be_retried(looker: Looker) -> None:
    panel = await looker.open("alpha")
    process = panel.locator("dt:text-is('Process') + dd")
    before = await process.inner_text()
    await looker.press("Restart…", panel)
    await looker.page.context.set_offline(True)
    dialog = looker.page.get_by_role("dialog")
    await looker.press("Restart", dialog)
    await looker.has_text(dialog, "The hub does not answer.")
    await looker.page.context.set_offline(False)
    await looker.confirm("Restart")
    await expect(process).not_to_have_text(before, timeout=WAIT)
    await looker.has_text(looker.row("alpha"), "ready")


async def test_the_page_pins_the_current_definitions_of_a_server(browser: Browser, tmp_path: Path) -> None:
    lists = tmp_path / "lists.json"
    tool = {"name": "echo", "description": "Says it again", "inputSchema": {"type": "object"}}
    lists.write_text(json.dumps({"tools": [tool]}))
    servers = {"alpha": fake("--name", "alpha", "--lists", str(lists), pins="warn")}
    pins = {"file": str(tmp_path / "pins.json")}
    async with watched_hub(tmp_path / "hub", servers, pins=pins) as hub, page_of(browser, hub) as looker:
        await looker.has_text(looker.row("alpha"), "ready")
        lists.write_text(json.dumps({"tools": [{**tool, "description": "Says something else"}]}))
        panel = await looker.open("alpha")
        await looker.press("Restart…", panel)
        await looker.confirm("Restart")
        await looker.has_text(looker.row("alpha"), "pins differ")
        await looker.press("Pin as it is…", panel)
        await looker.confirm("Pin")
        await expect(looker.row("alpha")).not_to_contain_text("pins differ", timeout=WAIT)


async def test_signing_in_shows_the_url_and_opens_it_only_on_a_click(browser: Browser, tmp_path: Path) -> None:
    async with authority() as server:
        servers = {"locked": {"url": server.url, "auth": "oauth"}}
        async with watched_hub(tmp_path, servers) as hub, page_of(browser, hub) as looker:
            await looker.has_text(looker.row("locked"), "sign in")
            panel = await looker.open("locked")
            await looker.press("Sign in…", panel)
            await looker.press("Get the address", looker.page.get_by_role("dialog"))
            link = looker.page.get_by_role("dialog").get_by_role("link")
            await looker.sees(link)
            assert str(await link.get_attribute("href")).startswith(server.url.rsplit("/", 1)[0])
            assert await link.get_attribute("rel") == "noopener noreferrer"
            assert len(looker.page.context.pages) == 1
            async with looker.page.context.expect_page(timeout=WAIT) as opened:
                await link.click()
            await (await opened.value).wait_for_load_state(timeout=WAIT)
            await looker.press("Close", looker.page.get_by_role("dialog"))
            await looker.has_text(looker.row("locked"), "ready")
