"""A tool that is run from the page: its form, its progress, its questions, and every kind of result."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, expect

from tests.downstream.network.visitor import TOKENS
from tests.downstream.page.browser.looking import (
    EVERYTHING,
    WAIT,
    Looker,
    WatchedHub,
    looking,
    page_of,
    watched_hub,
)
from tests.fakes.client import fake, write_config

pytestmark = pytest.mark.anyio

NESTED = {
    "type": "object",
    "required": ["owner", "kind"],
    "$defs": {"kind": {"enum": ["open", "closed"]}},
    "properties": {
        "owner": {"type": "string", "title": "Owner", "description": "Whose it is"},
        "kind": {"$ref": "#/$defs/kind"},
        "number": {"type": "integer"},
        "sure": {"type": "boolean"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "colours": {"type": "array", "items": {"enum": ["red", "green"]}},
        "page": {"type": "object", "properties": {"size": {"type": "integer"}}},
        "free": {"type": ["object", "array"]},
    },
}


REMEMBER = """
(one) => {
    window.shown = [];
    new MutationObserver(() => shown.push(one.textContent)).observe(one, { childList: true, subtree: true });
}
"""
"""Keeps every text that an element has had."""


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WatchedHub]:
    directory: Path = tmp_path_factory.mktemp("running")
    lists = directory / "lists.json"
    tools = [
        {"name": "meta", "inputSchema": NESTED},
        {"name": "wipe", "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": True}},
        {"name": "sleep", "inputSchema": {"type": "object"}},
        {"name": "count", "inputSchema": {"type": "object", "properties": {"steps": {"type": "integer"}}}},
        {"name": "fail", "inputSchema": {"type": "object"}},
        {"name": "crash", "inputSchema": {"type": "object"}},
    ]
    lists.write_text(json.dumps({"tools": tools}))
    record = directory / "record"
    servers = {
        "every": EVERYTHING,
        "alpha": fake("--name", "alpha", "--lists", str(lists), "--record", str(record), retry={"attempts": 1}),
    }
    async with watched_hub(directory, servers) as running:
        yield running


@pytest.fixture
async def looker(browser: Browser, hub: WatchedHub) -> AsyncIterator[Looker]:
    async with page_of(browser, hub) as opened:
        yield opened


async def tool(looker: Looker, name: str) -> Locator:
    """The panel of a tool."""
    await looker.view("tools")
    await looker.sees(looker.row(name))
    panel = await looker.open(name)
    await looker.sees(panel.get_by_role("button", name="Run", exact=True))
    return panel


async def outcome(looker: Looker, panel: Locator) -> Locator:
    """Runs the tool, and waits for what comes of it."""
    await looker.press("Run", panel)
    element = panel.locator(".outcome")
    await looker.has_text(element, "After")
    return element


def sent_arguments(hub: WatchedHub, name: str) -> dict[str, object]:
    """The arguments of the newest call of a tool, as its server got them."""
    lines = map(json.loads, hub.config.with_name("record").read_text().splitlines())
    calls = [line["params"] for line in lines if line.get("method") == "tools/call" and line["params"]["name"] == name]
    arguments: dict[str, object] = calls[-1]["arguments"]
    return arguments


async def test_a_form_sends_its_values_in_the_types_of_the_schema(looker: Looker, hub: WatchedHub) -> None:
    panel = await tool(looker, "alpha__meta")
    await panel.get_by_label("Owner").fill("ada")
    await panel.get_by_label("kind").select_option(label="closed")
    await panel.get_by_label("number").fill("12")
    await panel.get_by_label("sure").select_option(label="false")
    await panel.get_by_label("labels").fill("bug\nhelp wanted")
    await panel.get_by_label("green").check()
    await panel.get_by_label("size").fill("3")
    await panel.get_by_label("free").fill('[1, {"a": null}]')
    await outcome(looker, panel)
    assert sent_arguments(hub, "meta") == {
        "owner": "ada", "kind": "closed", "number": 12, "sure": False, "labels": ["bug", "help wanted"],
        "colours": ["green"], "page": {"size": 3}, "free": [1, {"a": None}],
    }  # fmt: skip


async def test_empty_fields_are_not_sent_and_invalid_fields_are_marked(looker: Looker, hub: WatchedHub) -> None:
    panel = await tool(looker, "alpha__meta")
    await panel.get_by_label("Owner").fill("ada")
    await panel.get_by_label("kind").select_option(label="open")
    await panel.get_by_label("number").fill("twelve")
    await looker.press("Run", panel)
    await looker.has_text(panel.get_by_role("alert").first, "Write a whole number")
    await expect(panel.get_by_label("number")).to_be_focused(timeout=WAIT)
    await panel.get_by_label("number").fill("")
    await outcome(looker, panel)
    assert sent_arguments(hub, "meta") == {"owner": "ada", "kind": "open"}


async def test_raw_json_mode_takes_over_the_forms_values_and_returns_them(looker: Looker, hub: WatchedHub) -> None:
    panel = await tool(looker, "alpha__meta")
    await panel.get_by_label("Owner").fill("ada")
    await looker.press("Write JSON", panel)
    raw = panel.get_by_label("Arguments as JSON")
    assert json.loads(await raw.input_value())["owner"] == "ada"
    await raw.fill("not JSON")
    await looker.press("Run", panel)
    await looker.has_text(panel.get_by_role("alert").first, "This is not an object in JSON")
    await raw.fill('{"owner": "bea", "kind": "open", "extra": [1]}')
    await outcome(looker, panel)
    assert sent_arguments(hub, "meta") == {"owner": "bea", "kind": "open", "extra": [1]}
    await looker.press("Use the form", panel)
    assert await panel.get_by_label("Owner").input_value() == "bea"


async def test_arguments_refused_by_the_hub_are_shown_with_the_error_code(looker: Looker) -> None:
    panel = await tool(looker, "alpha__meta")
    element = await outcome(looker, panel)
    await looker.has_text(element, "invalid_parameters")


async def test_progress_is_shown_while_the_tool_runs(looker: Looker) -> None:
    panel = await tool(looker, "every__trigger-long-running-operation")
    await panel.get_by_label("duration").fill("2")
    await panel.get_by_label("steps").fill("4")
    await panel.locator(".progress").evaluate(REMEMBER)
    await looker.press("Run", panel)
    await looker.has_text(panel.locator(".outcome"), "Long running operation completed")
    assert any("of 4" in text for text in await looker.page.evaluate("shown"))


async def test_the_page_cancels_a_running_call(looker: Looker) -> None:
    panel = await tool(looker, "alpha__sleep")
    await looker.press("Run", panel)
    await looker.press("Cancel the call", panel)
    await looker.has_text(panel.locator(".outcome"), "The call was cancelled")
    await looker.view("calls")
    await looker.has_text(looker.row("alpha__sleep").first, "cancelled")


async def test_errors_are_shown_with_their_codes(looker: Looker) -> None:
    panel = await tool(looker, "alpha__crash")
    element = await outcome(looker, panel)
    await looker.has_text(element, "server_unavailable")
    panel = await tool(looker, "alpha__fail")
    element = await outcome(looker, panel)
    await looker.has_text(element, "-32050")


async def test_a_destructive_tool_needs_confirmation(looker: Looker, hub: WatchedHub) -> None:
    panel = await tool(looker, "alpha__wipe")
    await looker.press("Run", panel)
    await looker.press("Cancel", looker.page.get_by_role("dialog"))
    assert b'"wipe"' not in hub.config.with_name("record").read_bytes()
    await looker.press("Run", panel)
    await looker.confirm("Run it")
    await looker.has_text(panel.locator(".outcome"), "called wipe")


async def test_images_links_and_structured_content_are_shown(looker: Looker) -> None:
    panel = await tool(looker, "every__get-tiny-image")
    element = await outcome(looker, panel)
    image = element.locator("img")
    await looker.sees(image)
    assert await image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    panel = await tool(looker, "every__get-resource-links")
    element = await outcome(looker, panel)
    await looker.sees(element.locator(".resource").first)
    panel = await tool(looker, "every__get-structured-content")
    await panel.get_by_label("location").select_option(index=1)
    element = await outcome(looker, panel)
    await looker.has_text(element.get_by_label("Structured content"), "temperature")


async def test_an_elicitation_of_the_server_is_answered_in_the_page(looker: Looker) -> None:
    panel = await tool(looker, "every__trigger-elicitation-request")
    await looker.press("Run", panel)
    question = panel.get_by_role("region", name="A question")
    await looker.sees(question)
    await question.get_by_label("String", exact=False).first.fill("Ada Lovelace")
    await question.get_by_label("Piano").check()
    await looker.press("Answer", question)
    await looker.has_text(panel.locator(".outcome"), "Ada Lovelace")
    await looker.has_text(panel.locator(".outcome"), "Piano")


async def test_an_elicitation_of_the_server_is_declined_in_the_page(looker: Looker) -> None:
    panel = await tool(looker, "every__trigger-elicitation-request")
    await looker.press("Run", panel)
    await looker.press("Decline", panel.get_by_role("region", name="A question"))
    await looker.has_text(panel.locator(".outcome"), "declined")


async def test_a_result_stays_visible_when_the_tool_list_changes(browser: Browser, tmp_path: Path) -> None:
    servers = {"alpha": fake("--name", "alpha")}
    listen = {"ui": True, "principals": {"alice": {"token": TOKENS["alice"]}}}
    async with watched_hub(tmp_path, servers, listen) as hub, looking(browser, hub.base) as looker:
        await looker.sign_in(TOKENS["alice"])
        panel = await tool(looker, "alpha__echo")
        await panel.get_by_label("text").fill("still here")
        element = await outcome(looker, panel)
        await looker.has_text(element, "still here")
        changed_servers = {**servers, "beta": fake("--name", "beta")}
        write_config(tmp_path, changed_servers, listen={"port": 0, **listen})
        await looker.sees(looker.row("beta__echo"))
        await looker.has_text(element, "still here")
        assert await panel.get_by_role("textbox", name="text").input_value() == "still here"


async def test_an_open_tool_form_works_again_once_its_server_is_enabled(browser: Browser, tmp_path: Path) -> None:
    servers = {"alpha": fake("--name", "alpha")}
    async with watched_hub(tmp_path, servers) as hub, page_of(browser, hub) as looker:
        panel = await looker.open("alpha")
        await looker.press("Disable…", panel)
        await looker.confirm("Disable")
        await looker.has_text(looker.row("alpha"), "disabled")
        await looker.view("tools", "alpha__echo")
        await looker.has_text(looker.panel(), "There is no such tool")
        async with page_of(browser, hub) as second_tab:
            second_panel = await second_tab.open("alpha")
            await second_tab.press("Enable…", second_panel)
            await second_tab.confirm("Enable")
        panel = looker.panel()
        await panel.get_by_label("text").fill("again")
        await looker.has_text(await outcome(looker, panel), "again")
