"""Pages as a model uses them: moving about, filling in, tabs, dialogs, and references that never point elsewhere."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from tests.fakes.client import PATIENCE
from tests.servers.browser.browsing import Browsing, below, browsing, chromiums, ref_of
from tests.servers.scrape.site import Site, serving

pytestmark = pytest.mark.anyio

FORM = """<meta charset=utf-8><title>Order</title><form action=/ordered method=post>
<label>Name <input name=name></label>
<label>Colour <select name=colour><option>red</option><option>blue</option></select></label>
<label><input type=checkbox name=gift> As a gift</label>
<label><input type=radio name=speed value=slow> Slow</label><label><input type=radio name=speed value=fast> Fast</label>
<button>Send</button></form>"""


@pytest.fixture(scope="module")
async def site() -> AsyncIterator[Site]:
    async with serving() as running:
        running.put("/form", FORM, "text/html")
        running.put("/one", "<title>One</title><h1>First page</h1><a href=/two>Go on</a>", "text/html")
        running.put("/two", "<title>Two</title><h1>Second page</h1>", "text/html")

        async def ordered(request: web.Request) -> web.Response:
            sent = json.dumps(dict(await request.post()), sort_keys=True)
            answer = web.Response(text=f"<title>Ordered</title><pre>{sent}</pre>", content_type="text/html")
            answer.set_cookie("basket", "17")
            return answer

        async def cookies(request: web.Request) -> web.Response:
            return web.json_response(dict(request.cookies))

        running.answers["/ordered"] = ordered
        running.answers["/cookies"] = cookies
        yield running


@pytest.fixture(scope="module")
async def browser(site: Site) -> AsyncIterator[Browsing]:
    async with browsing() as running:
        yield running


async def test_tools_are_listed_before_any_browser_is_started() -> None:
    async with browsing(executable="/no/such/browser") as browser:
        names = await browser.client.tool_names()
        assert {"browser_navigate", "browser_click", "browser_snapshot", "browser_close"} <= set(names)
        assert all(name.startswith("browser_") for name in names)
        code, text = await browser.refused("navigate", url="http://127.0.0.1/")
        assert code == "server_unavailable"
        assert "/no/such/browser" in text
        assert "browser.executable" in text


async def test_the_browser_starts_no_process_for_its_address_bar(browser: Browsing, site: Site) -> None:
    await browser.call("navigate", url=site.url("/one"))
    assert chromiums(browser.client.process.pid)
    assert below(browser.client.process.pid, "--top-chrome-webui") == []


async def test_a_form_is_filled_in_and_sent(browser: Browsing, site: Site) -> None:
    page = await browser.text("navigate", url=site.url("/form"))
    assert "Title: Order" in page
    fields = [
        {"ref": ref_of(page, 'textbox "Name"'), "type": "textbox", "value": "Ada Löv"},
        {"ref": ref_of(page, 'combobox "Colour"'), "type": "combobox", "value": "blue"},
        {"ref": ref_of(page, 'checkbox "As a gift"'), "type": "checkbox", "value": "true"},
        {"ref": ref_of(page, 'radio "Fast"'), "type": "radio", "value": "true"},
    ]
    filled = await browser.text("fill_form", fields=fields)
    sent = await browser.text("click", ref=ref_of(filled, 'button "Send"'), element="Send")
    assert f"URL: {site.url('/ordered')}" in sent
    text = await browser.text("text")
    assert json.loads(text.splitlines()[-1]) == {
        "name": "Ada Löv", "colour": "blue", "gift": "on", "speed": "fast"
    }  # fmt: skip


async def test_typing_selecting_and_key_presses_work_as_user_input(browser: Browsing, site: Site) -> None:
    page = await browser.text("navigate", url=site.url("/form"))
    await browser.call("select_option", ref=ref_of(page, 'combobox "Colour"'), values=["blue"])
    name = ref_of(page, 'textbox "Name"')
    await browser.call("type", ref=name, text="Ada")
    await browser.call("type", ref=name, text=" L", slowly=True)
    await browser.call("press_key", key="!")
    await browser.call("press_key", key="Enter")
    assert json.loads((await browser.text("text")).splitlines()[-1]) == {"name": "Ada L!", "colour": "blue"}
    page = await browser.text("navigate", url=site.url("/form"))
    sent = await browser.text("type", ref=ref_of(page, 'textbox "Name"'), text="Eve", submit=True)
    assert "Eve" in sent


async def test_navigate_back_returns_to_the_previous_page(browser: Browsing, site: Site) -> None:
    page = await browser.text("navigate", url=site.url("/one"))
    assert "Second page" in await browser.text("click", ref=ref_of(page, 'link "Go on"'))
    assert "First page" in await browser.text("navigate_back")


async def test_cookies_last_from_call_to_call_and_can_be_set_and_cleared(browser: Browsing, site: Site) -> None:
    page = await browser.text("navigate", url=site.url("/form"))
    await browser.call("click", ref=ref_of(page, 'button "Send"'))
    await browser.call("cookies", action="set", name="mine", value="yes", url=site.url())
    await browser.call("navigate", url=site.url("/cookies"))
    assert await browser.evaluate("() => JSON.parse(document.body.innerText)") == {"basket": "17", "mine": "yes"}
    listed = json.loads(await browser.text("cookies", action="list", domain="127.0.0.1"))
    assert {cookie["name"]: cookie["value"] for cookie in listed} == {"basket": "17", "mine": "yes"}
    assert [c["name"] for c in json.loads(await browser.text("cookies", action="delete", name="mine"))] == ["basket"]
    assert json.loads(await browser.text("cookies", action="clear")) == []
    await browser.call("navigate", url=site.url("/cookies"))
    assert await browser.evaluate("() => document.body.innerText") == "{}"


async def test_an_element_reference_of_a_former_page_is_refused_with_advice(browser: Browsing, site: Site) -> None:
    first = await browser.text("navigate", url=site.url("/one"))
    link = ref_of(first, 'link "Go on"')
    await browser.call("navigate", url=site.url("/form"))
    code, text = await browser.refused("click", ref=link)
    assert code == "tool_error"
    assert "snapshot" in text
    await browser.call("navigate", url=site.url("/one"))
    assert (await browser.refused("click", ref=link))[0] == "tool_error"


async def test_a_reference_to_a_removed_element_is_refused(browser: Browsing, site: Site) -> None:
    page = await browser.text("navigate", url=site.url("/one"))
    link = ref_of(page, 'link "Go on"')
    await browser.call("evaluate", function="(element) => element.remove()", ref=link)
    assert (await browser.refused("click", ref=link))[0] == "tool_error"


async def test_element_references_stay_valid_while_the_page_does_not_change(browser: Browsing, site: Site) -> None:
    page = await browser.text("navigate", url=site.url("/one"))
    await browser.call("evaluate", function="() => { document.body.prepend(document.createElement('button')) }")
    assert ref_of(await browser.text("snapshot"), 'link "Go on"') == ref_of(page, 'link "Go on"')


async def test_an_invalid_element_reference_is_refused_as_an_argument(browser: Browsing) -> None:
    assert (await browser.refused("click", ref="#button"))[0] == "invalid_parameters"


async def test_a_long_snapshot_and_a_long_text_are_returned_in_complete_parts(browser: Browsing, site: Site) -> None:
    rows = "".join(f"<p>Row number {number} of a long page</p>" for number in range(4000))
    site.put("/long", f"<title>Long</title>{rows}", "text/html")
    page = await browser.text("navigate", url=site.url("/long"))
    assert len(page) < 25_000
    for tool in ("snapshot", "text"):
        full_text, offset = "", 0
        while offset is not None:
            part = (await browser.text(tool, offset=offset)).split("\n\n", 1)[1]
            body, _, note = part.rpartition("[")
            cut = re.fullmatch(r"[\d,]+ characters more: browser_\w+ with offset (\d+)\]", note)
            full_text += body if cut else part
            offset = int(cut[1]) if cut else None
        assert re.findall(r"Row number (\d+) of", full_text) == [str(number) for number in range(4000)]


async def test_a_link_may_open_a_tab_and_tabs_are_listed_selected_and_closed(browser: Browsing, site: Site) -> None:
    site.put("/opens", "<title>Opens</title><a href=/two target=_blank>New tab</a>", "text/html")
    page = await browser.text("navigate", url=site.url("/opens"))
    clicked = await browser.text("click", ref=ref_of(page, 'link "New tab"'))
    assert "tab 1" in clicked
    listed = await browser.text("tabs", action="list")
    assert f"- 0: (current) [Opens]({site.url('/opens')})\n- 1: [Two]({site.url('/two')})" in listed
    assert "Second page" in await browser.text("tabs", action="select", index=1)
    assert "First page" in await browser.text("tabs", action="new", url=site.url("/one"))
    assert "- 2: (current) [One]" in await browser.text("tabs", action="list")
    await browser.call("tabs", action="close", index=1)
    await browser.call("tabs", action="close")
    assert await browser.text("tabs", action="list") == f"- 0: (current) [Opens]({site.url('/opens')})"
    assert (await browser.refused("tabs", action="select", index=7))[0] == "invalid_parameters"


@pytest.mark.parametrize("act", ["click", "press_key", "evaluate"])
async def test_an_action_meant_for_a_tab_that_closed_itself_reaches_no_other_tab(
    browser: Browsing, site: Site, act: str
) -> None:
    leave, left = asyncio.Event(), asyncio.Event()

    async def until_it_leaves(request: web.Request) -> web.Response:
        await leave.wait()
        return web.Response()

    async def has_left(request: web.Request) -> web.Response:
        left.set()
        return web.Response()

    site.answers |= {"/leave": until_it_leaves, "/left": has_left}
    opener = "<script>const trap = open('/trap'); setInterval(() => trap.closed && fetch('/left'), 20)</script>"
    site.put("/opener", opener, "text/html")
    site.put("/trap", "<title>Trap</title><button>Go</button><script>fetch('/leave').then(close)</script>", "text/html")
    button = "<button autofocus onclick=\"document.title = 'Paid'\">Pay</button>"
    site.put("/bank", f"<title>Bank</title>{button}", "text/html")
    await browser.call("navigate", url=site.url("/opener"))
    bank = await browser.text("tabs", action="new", url=site.url("/bank"))
    index = re.search(r"- (\d+):[^\n]*/trap", bank)
    assert index is not None, bank
    ref = ref_of(await browser.text("tabs", action="select", index=int(index[1])), 'button "Go"')
    assert ref == ref_of(bank, 'button "Pay"')
    leave.set()
    async with asyncio.timeout(PATIENCE):
        await left.wait()
    await browser.call("cookies", action="list")  # the news has come by now
    acts = {
        "click": {"ref": ref}, "press_key": {"key": "Enter"}, "evaluate": {"function": "() => document.title = 'Paid'"},
    }  # fmt: skip
    code, text = await browser.refused(act, **acts[act])
    assert (code, site.url("/bank") in text) == ("tool_error", True)
    assert "(current) [Bank]" in await browser.text("tabs", action="list")
    await browser.call(act, **acts[act])  # now the caller knows on which page it acts
    await browser.call("close")


async def test_a_page_cannot_open_tabs_without_end(browser: Browsing, site: Site) -> None:
    site.put("/floods", "<title>Floods</title>", "text/html")
    await browser.call("navigate", url=site.url("/floods"))
    flood = "for (let n = 0; n < 40; n++) window.open('/two?' + n); document.title = 'Done'"
    await browser.evaluate(f"() => {{ setTimeout(() => {{ {flood} }}) }}")
    tabs: list[str] = []
    async with asyncio.timeout(PATIENCE):
        while len(tabs) < 20 or "[Done]" not in tabs[0]:
            listed = await browser.text("tabs", action="list")
            tabs = [line for line in listed.splitlines() if line.startswith("- ")]
            assert len(tabs) <= 20
    await browser.call("close")


async def test_dialogs_are_dismissed_and_reported(browser: Browsing, site: Site) -> None:
    script = "document.title = confirm('Delete it?') ? 'deleted' : 'kept'; alert('Done')"
    site.put("/asks", f'<title>Asks</title><button onclick="{script}">Delete</button>', "text/html")
    page = await browser.text("navigate", url=site.url("/asks"))
    clicked = await browser.text("click", ref=ref_of(page, 'button "Delete"'))
    assert "Title: kept" in clicked
    assert "(confirm)" in clicked
    assert "'Delete it?'" in clicked
    assert "'Done'" in clicked


async def test_wait_for_waits_for_texts_to_appear_and_disappear(browser: Browsing, site: Site) -> None:
    script = "setTimeout(() => { document.body.innerHTML = '<p>Ready now</p>' }, 300)"
    site.put("/later", f"<title>Later</title><p>Loading</p><script>{script}</script>", "text/html")
    await browser.call("navigate", url=site.url("/later"))
    assert "Ready now" in await browser.text("wait_for", text="Ready now")
    await browser.call("wait_for", textGone="Loading")
    assert (await browser.refused("wait_for", text="Never there", time=0.2))[0] == "timeout"
    assert (await browser.refused("wait_for"))[0] == "invalid_parameters"
    await browser.call("wait_for", time=0.01)


async def test_functions_run_in_the_page_and_their_errors_are_reported(browser: Browsing, site: Site) -> None:
    page = await browser.text("navigate", url=site.url("/one"))
    assert await browser.evaluate("() => ({a: [1, 'ä', null], b: document.title})") == {"a": [1, "ä", None], "b": "One"}
    assert await browser.evaluate("(e) => e.innerText", ref=ref_of(page, 'link "Go on"')) == "Go on"
    code, text = await browser.refused("evaluate", function="() => { throw new Error('broken by itself') }")
    assert code == "tool_error"
    assert "broken by itself" in text
    assert (await browser.refused("evaluate", function="() => 'x'.repeat(1 << 20)"))[0] == "result_too_large"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "chrome://version", "view-source:http://127.0.0.1/", "data:,x",
                                 "javascript:alert(1)", "", "about:settings", "ftp://127.0.0.1/"])  # fmt: skip
async def test_a_url_that_is_not_a_web_page_is_not_opened(browser: Browsing, url: str) -> None:
    assert (await browser.refused("navigate", url=url))[0] == "invalid_parameters"


async def test_navigating_to_an_unreachable_page_reports_the_reason(browser: Browsing, unused_port: int) -> None:
    for scheme in ("http", "https"):
        code, text = await browser.refused("navigate", url=f"{scheme}://127.0.0.1:{unused_port}/")
        assert code == "tool_error"
        assert f"127.0.0.1:{unused_port}" in text


@pytest.fixture
async def unused_port() -> int:
    async with serving() as closed_site:
        return closed_site.port


async def test_a_page_in_an_endless_loop_loses_only_its_tab(site: Site) -> None:
    async with browsing(timeout=5.0) as browser:
        await browser.call("navigate", url=site.url("/one"))
        await browser.call("cookies", action="set", name="kept", value="1", url=site.url())
        await browser.call("tabs", action="new")
        assert (await browser.refused("evaluate", function="() => { for (;;) {} }"))[0] == "timeout"
        assert (await browser.refused("press_key", key="Enter"))[0] == "tool_error"  # it was meant for the closed tab
        await browser.call("navigate", url=site.url("/cookies"))
        assert await browser.evaluate("() => document.cookie") == "kept=1"


async def test_a_cancelled_call_does_not_hold_up_the_next(browser: Browsing, site: Site) -> None:
    await browser.call("navigate", url=site.url("/one"))
    answer = browser.client.start("tools/call", {"name": "browser_wait_for", "arguments": {"time": 50}}, "slow")
    browser.client.notify("notifications/cancelled", {"requestId": "slow"})
    assert "First page" in await browser.text("snapshot")
    assert not answer.done()
    answer.cancel()


async def test_closing_drops_all_state_and_the_next_call_opens_a_new_browser(browser: Browsing, site: Site) -> None:
    await browser.call("navigate", url=site.url("/one"))
    await browser.call("cookies", action="set", name="old", value="1", url=site.url())
    await browser.call("close")
    opened = await browser.text("navigate", url=site.url("/one"))
    assert opened.startswith("URL: ")
    assert json.loads(await browser.text("cookies", action="list")) == []
