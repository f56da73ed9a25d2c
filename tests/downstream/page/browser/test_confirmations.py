"""Programs of `hub_run` and calls that wait for a person, as somebody sees and answers them in the page."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, expect

from tests.downstream.network.visitor import TOKENS, Visitor, visiting
from tests.downstream.page.browser.looking import WAIT, Looker, WatchedHub, looking, page_of, watched_hub
from tests.downstream.page.browser.test_accessible import violations
from tests.downstream.page.browser.test_hostile_texts import BIDI, MARKUP, unharmed
from tests.fakes.client import PATIENCE
from tests.policy.access.test_a_person_is_asked_first import did
from tests.policy.tries.counted import counting

pytestmark = pytest.mark.anyio

PROGRAM = "first = await files__read()\nsecond = await files__effect(path='/tmp/report')\nprint(first)\nsecond"


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[WatchedHub]:
    servers = {"files": counting(tmp_path)}
    async with watched_hub(tmp_path / "hub", servers, code_mode=True, confirm=["destructive"]) as running:
        yield running


@pytest.fixture
async def looker(browser: Browser, hub: WatchedHub) -> AsyncIterator[Looker]:
    async with page_of(browser, hub) as opened:
        await opened.has_text(opened.row("files"), "ready")
        yield opened


def waiting(looker: Looker) -> Locator:
    """The calls that wait."""
    return looker.page.get_by_role("region", name="Waiting for your answer").get_by_role("article")


def calling(visitor: Visitor, name: str, **arguments: Any) -> asyncio.Task[dict[str, Any]]:
    return asyncio.create_task(visitor.call(name, arguments))


async def result(task: asyncio.Task[dict[str, Any]]) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        outcome: dict[str, Any] = (await task)["result"]
        return outcome


async def test_a_code_mode_program_is_shown_with_its_calls_and_waits_for_the_pages_answer(
    looker: Looker, hub: WatchedHub, tmp_path: Path
) -> None:
    view = await looker.view("calls")
    async with hub.visitor() as visitor:
        program = calling(visitor, "hub_run", code=PROGRAM)
        await looker.has_text(waiting(looker), "May files__effect be called?")
        await looker.has_text(waiting(looker), "/tmp/report")
        await looker.has_text(looker.row("hub_run"), "running")
        await looker.has_text(looker.row("files__read"), "ok")
        assert did(tmp_path) == ["read"]
        await waiting(looker).get_by_role("link", name="a program").click()
        await looker.has_text(looker.panel(), "A program that runs")
        await looker.has_text(looker.panel().locator("table"), "files__read")
        await looker.press("Allow once", waiting(looker))
        assert not (await result(program)).get("isError")
    assert did(tmp_path) == ["read", "effect"]
    await looker.sees_not(waiting(looker))
    await looker.has_text(looker.row("hub_run"), "ok")
    await looker.has_text(looker.panel().get_by_label("Program"), "await files__read()\n")
    inner = looker.panel().locator("table.steps").first.get_by_role("link")
    await expect(inner).to_have_text(["files__read", "files__effect"], timeout=WAIT)
    await looker.sees(looker.row("confirm"))
    names = [await cell.inner_text() for cell in await view.locator(".grid-body .cell.name:visible").all()]
    assert sorted(names) == ["confirm", "files__effect", "files__read", "hub_run"]
    grouped = [name for name in await in_order(view) if name != "confirm"]
    assert grouped == ["hub_run", "files__read", "files__effect"]
    await inner.last.click()
    await looker.has_text(looker.panel(), "confirm: once, on the live page")
    await looker.panel().get_by_role("link", name="a program").click()
    await looker.has_text(looker.panel().locator("h2"), "hub_run")


async def in_order(view: Locator) -> list[str]:
    """The names in the list, from above."""
    rows = await view.locator(".grid-body [role=row]:visible").evaluate_all(
        "rows => rows.map(row => [Number(row.getAttribute('aria-rowindex')), row.querySelector('.name').textContent])"
    )
    return [name for _, name in sorted(rows)]


async def test_answering_no_refuses_the_call_and_it_is_not_executed(
    looker: Looker, hub: WatchedHub, tmp_path: Path
) -> None:
    async with hub.visitor() as visitor:
        call = calling(visitor, "files__effect", path="/etc")
        await looker.press("No", waiting(looker))
        assert (await result(call))["isError"]
    assert did(tmp_path) == []
    await looker.sees_not(waiting(looker))
    await looker.view("calls")
    await looker.has_text(looker.row("refused"), "files__effect")


async def test_the_call_list_updates_under_the_pointer_after_a_confirmation_closes(
    browser: Browser, hub: WatchedHub
) -> None:
    """The list moves below the pointer when the question is gone, which is no reason to hold its rows back."""
    async with page_of(browser, hub, viewport={"width": 390, "height": 800}) as looker, hub.visitor() as visitor:
        await looker.has_text(looker.row("files"), "ready")
        await looker.view("calls")
        for _ in range(2):
            program = calling(visitor, "hub_run", code=PROGRAM)
            await looker.press("No", waiting(looker))
            await result(program)
            await looker.has_text(looker.page.locator(".grid-body [aria-rowindex='2']:visible"), "hub_run")
            await looker.has_text(looker.page.locator(".grid-body [aria-rowindex='2']:visible"), "tool error")


async def test_a_tool_allowed_for_this_session_needs_no_second_confirmation(
    looker: Looker, hub: WatchedHub, tmp_path: Path
) -> None:
    async with hub.visitor() as visitor:
        call = calling(visitor, "files__effect")
        await looker.press("Allow for this session", waiting(looker))
        assert not (await result(call)).get("isError")
        assert not (await result(calling(visitor, "files__effect"))).get("isError")
    async with hub.visitor() as another:
        call = calling(another, "files__effect")
        await looker.press("No", waiting(looker))
        assert (await result(call))["isError"]
    assert did(tmp_path) == ["effect", "effect"]


async def test_a_confirmation_survives_a_page_reload_and_is_answered_with_the_keyboard(
    looker: Looker, hub: WatchedHub
) -> None:
    async with hub.visitor() as visitor:
        call = calling(visitor, "files__effect")
        await looker.sees(waiting(looker))
        await looker.page.reload()
        allow = waiting(looker).get_by_role("button", name="Allow once")
        await looker.sees(allow)
        await allow.focus()
        await looker.page.keyboard.press("Enter")
        assert not (await result(call)).get("isError")
        await looker.sees_not(waiting(looker))
        await expect(looker.page.locator("[role=tab][aria-selected=true]")).to_be_focused(timeout=WAIT)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_confirmation_shows_arguments_as_text_and_is_accessible(
    browser: Browser, hub: WatchedHub, scheme: str
) -> None:
    async with (
        page_of(browser, hub, color_scheme=scheme, viewport={"width": 360, "height": 800}) as looker,
        hub.visitor() as visitor,
    ):
        await looker.has_text(looker.row("files"), "ready")
        call = calling(visitor, "files__effect", path=MARKUP + BIDI, more=["x" * 500] * 20)
        await looker.sees(waiting(looker))
        text = await unharmed(looker, waiting(looker))
        assert "<script>alert(" in text
        assert "\\u202egnp.exe" in text
        assert re.search(r"characters\)|…", text)
        assert await violations(looker) == []
        await looker.press("No", waiting(looker))
        await result(call)


async def test_a_principal_can_answer_only_confirmations_of_its_own_clients(browser: Browser, tmp_path: Path) -> None:
    principals = {name: {"token": TOKENS[name]} for name in ("alice", "bob")}
    listen = {"ui": True, "principals": principals}
    servers = {"files": counting(tmp_path)}
    async with (
        watched_hub(tmp_path / "hub", servers, listen, confirm=["files/effect"]) as hub,
        looking(browser, hub.base) as alice,
        looking(browser, hub.base) as bob,
        visiting(hub.base, "handshake", TOKENS["alice"]) as client,
    ):
        for looker, name in ((alice, "alice"), (bob, "bob")):
            await looker.sign_in(TOKENS[name])
            await looker.has_text(looker.row("files"), "ready")
        call = calling(client, "files__effect")
        await looker.sees(looker.row("files"))
        await alice.sees(waiting(alice))
        await bob.page.reload()
        await bob.sees(bob.row("files"))
        await bob.sees_not(waiting(bob))
        await alice.press("Allow once", waiting(alice))
        assert not (await result(call)).get("isError")
    assert did(tmp_path) == ["effect"]
