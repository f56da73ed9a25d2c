"""What servers and clients say is text: markup, scripts, addresses, hidden characters and ten megabytes of it."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, expect

from tests.downstream.page.browser.looking import FILLED, VIEWS, WAIT, Looker, WatchedHub, page_of, watched_hub
from tests.fakes.client import fake

pytestmark = pytest.mark.anyio

SCRIPT = "<script>alert('script')</script>"
IMAGE = "<img src=x onerror=\"alert('image')\">"
MARKUP = (
    f"</p>{SCRIPT}{IMAGE}<svg onload=alert(1)><a href='javascript:alert(2)'>click</a><style>*{{display:none}}</style>"
)
BIDI = "\u202egnp.exe\u202c \u200b\u2066hidden\u2069"
CONTROL = "\x1b[31mred\x1b[0m\x07\x00"
ADDRESS = "javascript:alert('address')"
LARGE = 10_000_000
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = base64.b64encode(f"<svg xmlns='http://www.w3.org/2000/svg'>{SCRIPT}</svg>".encode()).decode()
NO_TEXT: dict[str, Any] = {"toString": 1, "valueOf": {}}
"""An object that no script can turn into a text."""
NO_TEXTS: dict[str, Any] = {key: NO_TEXT for key in ("title", "description", "format", "pattern", "maxLength", "$ref")}
TWISTED = {
    "texts": {"type": "string", "default": NO_TEXT, **NO_TEXTS},
    "number": {"type": "number", "default": NO_TEXT},
    "lines": {"type": "array", "items": {"type": "string"}, "default": [NO_TEXT]},
    "type": {"type": NO_TEXT},
    "types": {"type": [NO_TEXT, "null"]},
    "lists": {"enum": NO_TEXT, "oneOf": NO_TEXT, "anyOf": "x", "required": NO_TEXT, "items": "y"},
    "choices": {"enum": [NO_TEXT, [NO_TEXT]], "enumNames": [NO_TEXT]},
    "titled": {"oneOf": [{"const": NO_TEXT, "title": NO_TEXT}, {"const": 1}]},
    "const": {"const": NO_TEXT},
    "nested": {"type": "object", "title": NO_TEXT, "properties": {"inner": NO_TEXTS, "bare": True, "none": None}},
    "text": {"type": "object", "properties": MARKUP},
    "far": {"$ref": "#" + "/x" * 400_000},
    "letters": {"$ref": "#/properties/text/properties"},
}
"""Keywords of schemas with values that they must not have."""
SCHEMA = {
    "type": "object",
    "properties": {
        IMAGE: {"type": "string", "title": MARKUP, "description": MARKUP + BIDI, "default": MARKUP},
        "__proto__": {"type": "string", "enum": [MARKUP, ADDRESS], "enumNames": [SCRIPT, BIDI]},
        "constructor": {"$ref": "#/properties/__proto__"},
        "loop": {"$ref": "#/properties/loop"},
        "deep": {"type": "object", "properties": {SCRIPT: {"type": "object", "properties": {IMAGE: {}}}}},
    },
}
HARM = """
[
    ...[...document.scripts].map(one => one.src).filter(one => !one.startsWith(`${location.origin}/ui/static/`)),
    ...[...document.querySelectorAll('style, iframe, object, embed, base, svg:not(.spark), [onerror], [onload]')]
        .map(one => one.outerHTML),
    ...[...document.querySelectorAll('[href], [src], [action], [formaction]')]
        .flatMap(one => [one.href, one.src, one.action, one.formAction])
        .filter(one => typeof one === 'string' && one !== '')
        .filter(one => !/^(https?:|data:image\\/png;base64,|data:,$|#)/.test(one)),
]
"""
"""What an attack may have become that is more than text."""
RESULT = {
    "content": [
        {"type": "text", "text": MARKUP + BIDI + CONTROL},
        {"type": "image", "mimeType": "image/svg+xml", "data": PICTURE},
        {"type": "image", "mimeType": 'image/png" onerror="alert(3)', "data": PIXEL},
        {"type": "image", "mimeType": "image/png", "data": '" onerror="alert(4)'},
        {"type": "resource_link", "uri": ADDRESS, "name": MARKUP, "title": SCRIPT, "description": BIDI},
        {"type": "resource_link", "uri": "data:text/html," + SCRIPT, "name": "data"},
        {"type": "resource_link", "uri": "https://user:pw@example.invalid/" + BIDI, "name": "web"},
        {"type": "resource", "resource": {"uri": ADDRESS, "mimeType": "text/html", "text": MARKUP}},
        {"type": "resource", "resource": {"uri": ADDRESS, "mimeType": "image/svg+xml", "blob": PICTURE}},
        {"type": "image", "mimeType": "image/png", "data": "A" + " " * 99_000 + "!"},
        {"type": "audio", "mimeType": NO_TEXT, "data": "A" + " " * 2_000_000 + "!"},
        {"type": "resource", "resource": {"uri": NO_TEXT, "mimeType": NO_TEXT, "blob": "=" * 300_000 + " "}},
        {"type": NO_TEXT, "title": NO_TEXT},
        {"type": MARKUP, MARKUP: {"__proto__": MARKUP}},
        {"type": "text", "text": "x" * LARGE},
    ],
    "structuredContent": {MARKUP: [BIDI, CONTROL], "large": "y" * 200_000, "many": list(range(5000))},
}


def hostile(directory: Path) -> dict[str, Any]:
    """A server everything of which is an attack."""
    lists = directory / "lists.json"
    tool = {
        "description": MARKUP + BIDI + CONTROL,
        "title": MARKUP,
        "inputSchema": SCHEMA,
        "annotations": {"title": IMAGE},
    }
    tools = [
        {"name": "attack", **tool},
        {"name": "twisted", "inputSchema": {"type": "object", "properties": TWISTED}},
        {"name": "long", "description": "z" * 900_000, "inputSchema": {"type": "object"}},
        {"name": "stderr", "inputSchema": {"type": "object"}},
    ]
    lists.write_text(json.dumps({"tools": tools, "result": RESULT}))
    return fake("--name", MARKUP, "--lists", str(lists))


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WatchedHub]:
    directory: Path = tmp_path_factory.mktemp("hostile")
    servers = {
        "bad": hostile(directory),
        "dead": fake("--die", MARKUP + BIDI + CONTROL.replace("\x00", "")),
        "talks": fake("--name", "talks"),
    }
    groups = {"all": {"description": MARKUP + BIDI, "tools": ["talks__echo"], "active": True}}
    async with watched_hub(directory, servers, groups=groups, screen="flag") as running:
        yield running


@pytest.fixture
async def looker(browser: Browser, hub: WatchedHub) -> AsyncIterator[Looker]:
    async with page_of(browser, hub) as opened:
        yield opened


async def unharmed(looker: Looker, element: Locator | None = None) -> str:
    """Fails if anything of an attack became more than text; returns what is shown."""
    harm = await looker.page.evaluate(HARM)
    assert harm == []
    assert await looker.broken() == []
    text = await (element or looker.page.locator("body")).inner_text()
    assert not any(char in text for char in BIDI + CONTROL if char not in "gnp.exe hidden[31mred0")
    return text


async def test_views_show_markup_and_hidden_characters_as_text(looker: Looker, hub: WatchedHub) -> None:
    async with hub.visitor() as visitor:
        await visitor.call("bad__attack", {IMAGE: MARKUP})
        await visitor.call(MARKUP, {"a": MARKUP})
        await visitor.call("talks__stderr", {"text": MARKUP + BIDI + CONTROL})
        for name in VIEWS:
            await looker.view(name)
            await looker.sees(looker.page.locator(FILLED))
            await unharmed(looker)
    await looker.view("servers", "dead")
    await looker.has_text(looker.panel(), "<script>alert(")
    await unharmed(looker)
    await looker.view("servers", "talks")
    await looker.has_text(looker.panel().locator(".stderr"), "\\x1b[31mred")
    await looker.has_text(looker.panel().locator(".stderr"), "\\u202egnp.exe")
    await unharmed(looker)


async def test_records_of_hostile_calls_are_shown_as_text(looker: Looker, hub: WatchedHub) -> None:
    await looker.view("calls")
    async with hub.visitor() as visitor:
        await visitor.call("bad__attack", {IMAGE: MARKUP + BIDI, "__proto__": ADDRESS})
        await visitor.call(MARKUP + BIDI)
        await looker.sees(looker.row("gnp.exe").first)
    panel = await looker.open("bad__attack")
    await looker.has_text(panel, "What every rule did")
    await looker.has_text(panel, "onerror")
    await unharmed(looker)
    panel = await looker.open("gnp.exe")
    await looker.has_text(panel, "refused")
    await unharmed(looker)


async def test_a_hostile_definition_is_text_and_its_form_still_runs(looker: Looker) -> None:
    await looker.view("tools")
    await looker.sees(looker.row("bad__attack"))
    panel = await looker.open("bad__attack")
    await looker.sees(panel.get_by_role("button", name="Run", exact=True))
    for summary in await panel.locator("summary").all():
        await summary.click()
    text = await unharmed(looker, panel)
    assert SCRIPT in text
    assert "\\u202e" in text
    await looker.press("Run", panel)
    outcome = panel.locator(".outcome")
    await looker.has_text(outcome, "After")
    text = await unharmed(looker, outcome)
    assert SCRIPT in text
    assert "\\x1b[31mred" in text
    assert "\\u202egnp.exe" in text
    assert await outcome.locator("img").count() == 0
    links = await outcome.locator("a").evaluate_all(
        "links => links.map(link => [link.protocol, link.rel, link.target])"
    )
    assert all(link == ["https:", "noopener noreferrer", "_blank"] for link in links)
    await outcome.get_by_text(ADDRESS).first.click()
    await unharmed(looker)


async def test_a_schema_whose_keywords_have_values_of_any_type_has_a_form(looker: Looker) -> None:
    await looker.view("tools")
    await looker.sees(looker.row("bad__twisted"))
    panel = await looker.open("bad__twisted")
    form = panel.get_by_role("group", name="Arguments")
    for name in TWISTED:
        await looker.sees(form.get_by_text(name, exact=True))
    await form.get_by_label("number").fill("12")
    await looker.press("Write JSON", form)
    assert json.loads(await form.get_by_label("Arguments as JSON").input_value())["number"] == 12
    await looker.press("Use the form", form)
    await looker.press("Run", panel)
    await looker.has_text(panel.locator(".outcome"), "After")
    await unharmed(looker)


async def test_a_result_of_ten_megabytes_is_shown_cut_with_its_length(looker: Looker) -> None:
    await looker.view("tools")
    await looker.sees(looker.row("bad__attack"))
    panel = await looker.open("bad__attack")
    await looker.press("Run", panel)
    outcome = panel.locator(".outcome")
    await looker.has_text(outcome, "20,000 of 100,0")
    assert len(await outcome.inner_text()) < 100_000
    await looker.press("Show the rest", outcome)
    await looker.has_text(outcome.locator("pre.text").last, "… (10,000,000 characters)")
    await unharmed(looker)


async def test_a_description_of_a_megabyte_is_cut(looker: Looker) -> None:
    await looker.view("tools")
    await looker.sees(looker.row("bad__long"))
    panel = await looker.open("bad__long")
    await looker.sees(panel.get_by_role("button", name="Run", exact=True))
    assert len(await panel.inner_text()) < 50_000
    await looker.has_text(panel.locator(".description"), "characters)")


async def test_a_url_with_a_hostile_row_name_opens_a_panel_and_runs_no_markup(looker: Looker) -> None:
    for name, key in (("servers", MARKUP), ("tools", "<script>"), ("calls", "../state"), ("clients", "%E0%A4%A")):
        await looker.view(name, key.replace("%", "%25") if name == "clients" else key.replace("/", "%2F"))
        await unharmed(looker)
        await expect(looker.panel()).to_be_visible(timeout=WAIT)
