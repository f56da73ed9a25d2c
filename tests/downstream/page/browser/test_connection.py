"""Getting in, and what becomes of an open page when its hub restarts, dies, reloads or ends the session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.downstream.network.visitor import TOKENS, visiting
from tests.downstream.page.browser.looking import WAIT, WatchedHub, looking, page_of, watched_hub
from tests.fakes.client import fake

pytestmark = pytest.mark.anyio

CUT = """
const known = window.fetch;
window.fetch = (address, options) => {
    if (!address.endsWith("/events")) return known(address, options);
    const cutting = new AbortController();
    window.cut = () => cutting.abort();
    return known(address, { ...options, signal: AbortSignal.any([options.signal, cutting.signal]) });
};
"""
"""Lets a test cut the stream of events, as a network does."""
ALPHA = {"alpha": fake("--name", "alpha")}
ADMIN_AND_USER = {"ui": True, "principals": {
    "alice": {"token": TOKENS["alice"], "admin": True}, "bob": {"token": TOKENS["bob"], "profile": "few"},
}}  # fmt: skip
"""A `listen` with an admin, and a user of the profile `few`."""


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WatchedHub]:
    directory: Path = tmp_path_factory.mktemp("connection")
    async with watched_hub(directory, ALPHA) as running:
        yield running


async def test_the_page_without_a_link_says_how_to_sign_in(browser: Browser, hub: WatchedHub) -> None:
    async with looking(browser, hub.base) as looker:
        await looker.page.goto(f"{hub.base}/ui")
        await looker.sees("mcp-hub open")
        await looker.sees_not(looker.page.get_by_role("tab"))


async def test_a_link_works_once_vanishes_from_the_url_and_its_session_survives_a_reload(
    browser: Browser, hub: WatchedHub
) -> None:
    link = await hub.link()
    async with looking(browser, hub.base) as looker:
        await looker.enter(link)
        assert "s=" not in looker.page.url
        await looker.page.reload()
        await looker.sees(looker.row("alpha"))
    async with looking(browser, hub.base) as second_tab:
        await second_tab.page.goto(link)
        await second_tab.sees("already")
        await second_tab.sees_not(second_tab.page.get_by_role("tab"))


async def test_the_url_of_a_row_opens_that_row_on_load(browser: Browser, hub: WatchedHub) -> None:
    async with page_of(browser, hub) as looker, hub.visitor() as visitor:
        await looker.view("calls")
        await visitor.text("alpha__echo", {"text": "kept"})
        for view, row, text in (
            ("servers", "alpha", "tokens in a model's context"),
            ("tools", "alpha__echo", "Input schema"),
            ("calls", "alpha__echo", "What every rule did"),
            ("clients", "v", "What it declared"),
        ):
            await looker.view(view)
            await looker.open(row)
            await looker.page.reload()
            await looker.has_text(looker.panel(), text)


async def test_an_open_server_row_that_is_removed_and_added_again_is_shown_again(
    browser: Browser, tmp_path: Path
) -> None:
    both = {**ALPHA, "beta": fake("--name", "beta")}
    async with watched_hub(tmp_path, both) as hub, page_of(browser, hub) as looker:
        await looker.open("beta")
        hub.write(ALPHA)
        await looker.has_text(looker.panel(), "There is no server of this name now.")
        hub.write(both)
        await looker.has_text(looker.panel(), "tokens in a model's context")
        await looker.sees(looker.panel().get_by_role("button", name="Restart…"))


async def test_signing_out_ends_the_session_of_the_page(browser: Browser, hub: WatchedHub) -> None:
    async with page_of(browser, hub) as looker:
        await looker.press("Leave")
        await looker.sees("mcp-hub open")
        await looker.page.goto(f"{hub.base}/ui#servers")
        await looker.sees("mcp-hub open")


async def test_the_page_reports_a_dead_hub_and_stays_usable(browser: Browser, tmp_path: Path) -> None:
    async with watched_hub(tmp_path, ALPHA) as hub, page_of(browser, hub) as looker:
        await looker.sees(looker.row("alpha"))
        hub.process.process.kill()
        await looker.sees("Connection lost.")
        await looker.view("tools")
        await looker.view("servers")
        await looker.sees(looker.row("alpha"))


async def test_a_restarted_hub_on_the_same_port_asks_for_a_new_link(browser: Browser, tmp_path: Path) -> None:
    async with watched_hub(tmp_path, ALPHA) as first, page_of(browser, first) as looker:
        port = int(first.base.rsplit(":", 1)[1])
        first.process.process.kill()
        await looker.sees("Connection lost.")
        await first.process.process.wait()
        async with watched_hub(tmp_path, ALPHA, {"port": port}) as restarted:
            await looker.sees("This page is not signed in")
            await looker.page.goto(await restarted.link())
            await looker.sees(looker.row("alpha"))


async def test_a_server_that_is_added_while_the_page_is_open_appears(browser: Browser, tmp_path: Path) -> None:
    async with watched_hub(tmp_path, ALPHA) as hub, page_of(browser, hub) as looker:
        await looker.sees(looker.row("alpha"))
        await looker.view("tools")
        await looker.sees(looker.row("alpha__echo"))
        hub.write({**ALPHA, "beta": fake("--name", "beta")})
        await looker.sees(looker.row("beta__echo"))
        await looker.view("servers")
        await looker.sees(looker.row("beta"))


async def test_a_lost_stream_is_resumed_without_losing_or_repeating_a_call(browser: Browser, hub: WatchedHub) -> None:
    async with page_of(browser, hub) as looker, hub.visitor() as visitor:
        await looker.page.add_init_script(CUT)
        await looker.page.reload()
        await looker.view("calls")
        await visitor.text("alpha__pid")
        await expect(looker.row("alpha__pid")).to_have_count(1, timeout=WAIT)
        await looker.page.context.set_offline(True)  # it ends nothing that is open
        await looker.page.evaluate("cut()")
        await looker.sees("Connection lost.")
        await visitor.text("alpha__pid")
        await looker.page.context.set_offline(False)
        await expect(looker.row("alpha__pid")).to_have_count(2, timeout=WAIT)


async def test_on_a_network_a_token_opens_the_page_and_shows_what_its_profile_sees(
    browser: Browser, tmp_path: Path
) -> None:
    servers = {**ALPHA, "beta": fake("--name", "beta")}
    listen = {"ui": True, "principals": {"alice": {"token": TOKENS["alice"], "profile": "few"}}}
    profiles = {"few": {"tools": ["beta__echo"]}}
    async with watched_hub(tmp_path, servers, listen, profiles=profiles) as hub, looking(browser, hub.base) as looker:
        await looker.page.goto(f"{hub.base}/ui")
        await looker.page.get_by_text("With a token").click()
        await looker.page.get_by_label("Your token").fill("wrong")
        await looker.press("Enter")
        await looker.sees("This token is not known here")
        await looker.page.get_by_label("Your token").fill(TOKENS["alice"])
        await looker.press("Enter")
        await looker.sees(looker.row("beta"))
        await looker.sees_not(looker.row("alpha"))
        panel = await looker.open("beta")
        await looker.sees_not(panel.get_by_role("button", name="Restart…"))
        await looker.view("tools")
        await looker.sees(looker.row("beta__echo"))
        await expect(looker.row("")).to_have_count(1, timeout=WAIT)


async def test_an_admin_sees_and_runs_tools_as_another_principal(browser: Browser, tmp_path: Path) -> None:
    async with (
        watched_hub(tmp_path, ALPHA, ADMIN_AND_USER, profiles={"few": {"tools": ["alpha__echo"]}}) as hub,
        looking(browser, hub.base) as looker,
    ):
        await looker.sign_in(TOKENS["alice"])
        await looker.view("tools")
        await looker.sees(looker.row("alpha__add"))
        await looker.page.get_by_label("As whom").select_option(label="As bob")
        await looker.sees_not(looker.row("alpha__add"))
        panel = await looker.open("alpha__echo")
        await panel.get_by_label("text").fill("for bob")
        await looker.press("Run", panel)
        await looker.has_text(panel.locator(".outcome"), "for bob")
        await looker.page.get_by_label("Hidden ones too").check()
        panel = await looker.open("alpha__add")
        await looker.has_text(panel, "Hidden: not in profile 'few'")
        await looker.view("calls")
        await looker.has_text(looker.row("alpha__echo"), "bob")


async def test_the_next_user_of_a_tab_sees_no_data_of_the_previous_user(browser: Browser, tmp_path: Path) -> None:
    servers = {**ALPHA, "beta": fake("--name", "beta")}
    async with (
        watched_hub(tmp_path, servers, ADMIN_AND_USER, profiles={"few": {"tools": ["beta__echo"]}}) as hub,
        looking(browser, hub.base) as looker,
        visiting(hub.base, "handshake", TOKENS["alice"]) as alice,
        visiting(hub.base, "handshake", TOKENS["bob"]) as bob,
    ):
        await looker.sign_in(TOKENS["alice"])
        await looker.view("calls")
        await alice.text("alpha__echo", {"text": "of alice"})
        await looker.sees(looker.row("alpha__echo"))
        await looker.press("Leave")
        await looker.page.get_by_label("Your token").fill(TOKENS["bob"])
        await looker.press("Enter")
        await looker.sees("No call yet since somebody watches.")
        await bob.text("beta__echo", {"text": "of bob"})
        await looker.sees(looker.row("beta__echo"))
        await expect(looker.row("")).to_have_count(1, timeout=WAIT)
        assert "alpha" not in await looker.page.locator("body").inner_text()
