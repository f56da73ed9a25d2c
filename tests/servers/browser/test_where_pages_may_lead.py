"""Nothing a page does reaches what the rules refuse: by no request, no redirect, in no frame, worker or tab."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from unittest import mock

import pytest

from mcp_hub.security.address_rules import AddressRules
from mcp_hub.security.url_rules import UrlRules
from mcp_hub.servers.builtin import Settings
from mcp_hub.servers.builtin.browser_session import open_browser
from tests.fakes.client import PATIENCE
from tests.servers.browser.browsing import Browsing, browsing, ref_of
from tests.servers.scrape.site import Site, serving

pytestmark = pytest.mark.anyio

MESSAGE = "Not this one, please."

ASK_FOR_ALL = """async (to) => {
  const done = [];
  const ask = (work) => done.push(new Promise((resolve) => { try { work(resolve) } catch { resolve() } }));
  const element = (name, attribute, kind, more = {}) => ask((resolve) => {
    const made = Object.assign(document.createElement(name), more);
    made.onload = made.onerror = resolve;
    made[attribute] = to + kind;
    document.body.append(made);
  });
  const socket = (kind, resolve) => {
    const made = new WebSocket(to.replace('http', 'ws') + kind);
    made.onopen = made.onerror = resolve;
  };
  ask((resolve) => fetch(to + 'fetch', {mode: 'no-cors'}).then(resolve, resolve));
  ask((resolve) => fetch('hop', {mode: 'no-cors'}).then(resolve, resolve));
  ask((resolve) => fetch(to + 'keepalive', {mode: 'no-cors', keepalive: true, method: 'POST'}).then(resolve, resolve));
  ask((resolve) => {
    const made = new XMLHttpRequest();
    made.onloadend = resolve; made.open('GET', to + 'xhr'); made.send();
  });
  ask((resolve) => { const made = new EventSource(to + 'events'); made.onopen = made.onerror = resolve });
  ask((resolve) => socket('socket', resolve));
  ask((resolve) => import(to + 'module').then(resolve, resolve));
  ask((resolve) => { navigator.sendBeacon(to + 'beacon', 'x'); resolve() });
  element('img', 'src', 'image');
  element('script', 'src', 'script');
  element('link', 'href', 'style', {rel: 'stylesheet'});
  element('link', 'href', 'prefetch', {rel: 'prefetch'});
  element('video', 'src', 'video', {onloadeddata: () => {}});
  ask((resolve) => {
    const worker = new Worker('worker.js');
    worker.onmessage = worker.onerror = resolve;
  });
  ask((resolve) => {
    const worker = new SharedWorker('shared.js');
    worker.port.onmessage = worker.onerror = resolve;
  });
  await Promise.race([Promise.all(done), new Promise((resolve) => setTimeout(resolve, 3000))]);
}"""
WORKER = """const to = 'TO';
const socket = new WebSocket(to.replace('http', 'ws') + 'worker-socket');
const opened = new Promise((resolve) => { socket.onopen = socket.onerror = resolve });
const fetched = fetch(to + 'worker-fetch', {mode: 'no-cors'}).catch(() => {});
try { importScripts(to + 'worker-script') } catch {}
Promise.all([opened, fetched]).then(() => postMessage('done'));"""
SHARED = """const to = 'TO';
onconnect = (event) => fetch(to + 'shared-fetch', {mode: 'no-cors'})
  .catch(() => {}).then(() => event.ports[0].postMessage('done'));"""
SOCKETS = {"socket", "worker-socket"}
KINDS = SOCKETS | {
    "fetch", "redirected", "keepalive", "xhr", "events", "module", "beacon", "image", "script", "style", "prefetch",
    "video", "worker-fetch", "worker-script", "shared-fetch",
}  # fmt: skip


@dataclass
class Places:
    """The site of the page, one it may request, one whose URLs are refused, and one whose address is refused."""

    page: Site
    allowed: Site
    guarded: Site
    private: Site


@pytest.fixture(scope="module")
async def places() -> AsyncIterator[Places]:
    async with serving() as page, serving() as allowed, serving() as guarded, serving() as private:
        page.put("/", "<title>Start</title>", "text/html")
        for target in (allowed, guarded, private):
            # Named by the port alone: a URL that is carried within another one is refused before it is followed.
            page.put(f"/{target.port}/", "<title>Start</title><link rel=icon href=data:,>", "text/html")
            page.put(f"/{target.port}/worker.js", WORKER.replace("TO", target.url()), "text/javascript")
            page.put(f"/{target.port}/shared.js", SHARED.replace("TO", target.url()), "text/javascript")
            page.redirect(f"/{target.port}/hop", target.url("/redirected"))
            page.redirect(f"/{target.port}/second", target.url("/page"))
            page.redirect(f"/{target.port}/first", f"/{target.port}/second")
            target.put("/page", "<title>Reached</title>Reached", "text/html")
        yield Places(page, allowed, guarded, private)


@pytest.fixture(scope="module")
async def browser(places: Places) -> AsyncIterator[Browsing]:
    ports = (places.page.port, places.allowed.port, places.guarded.port)
    rules = UrlRules(deny=(f"127.0.0.1:{places.guarded.port}",), message=MESSAGE)
    addresses = AddressRules(allow=tuple(f"127.0.0.1:{port}" for port in ports))
    async with browsing(url_rules=rules, address_rules=addresses) as running:
        yield running


async def until_refused(browser: Browsing, urls: set[str]) -> None:
    """Waits until the browser has reported the refusal of each of these URLs."""
    missing = set(urls)
    async with asyncio.timeout(PATIENCE):
        while missing:
            lines = [line for line in (await browser.text("tabs", action="list")).splitlines() if "Refused: " in line]
            missing -= {url for url in missing if any(url in line for line in lines)}


async def ask_for_all(browser: Browsing, places: Places, target: Site) -> str:
    await browser.call("navigate", url=places.page.url(f"/{target.port}/"))
    function = f"() => ({ASK_FOR_ALL})('{target.url('/')}')"
    return str((await browser.call("evaluate", function=function))["content"][-1]["text"])


async def test_a_page_loads_all_allowed_subresources(browser: Browsing, places: Places) -> None:
    await ask_for_all(browser, places, places.allowed)
    async with asyncio.timeout(PATIENCE):
        while {f"/{kind}" for kind in KINDS} - set(places.allowed.asked):
            await browser.text("tabs", action="list")


async def test_no_request_of_a_page_reaches_a_guarded_url(browser: Browsing, places: Places) -> None:
    first = await ask_for_all(browser, places, places.guarded)
    at = f"127.0.0.1:{places.guarded.port}"
    refused = {f"http://{at}/{kind}" for kind in KINDS - SOCKETS} | {at}
    await until_refused(browser, {url for url in refused if f"Refused: {url}" not in first})
    assert places.guarded.requests == []


async def test_no_request_of_a_page_reaches_a_private_address(browser: Browsing, places: Places) -> None:
    first = await ask_for_all(browser, places, places.private)
    at = f"127.0.0.1:{places.private.port}"
    refused = {f"http://{at}/{kind}" for kind in KINDS - SOCKETS} | {at}
    await until_refused(browser, {url for url in refused if f"Refused: {url}" not in first})
    assert places.private.requests == []


def document_ways(url: str) -> dict[str, str]:
    """Pages that lead a tab elsewhere by themselves."""
    return {
        "meta refresh": f'<meta http-equiv=refresh content="0; url={url}">',
        "location": f"<script>location.href = '{url}'</script>",
        "replace": f"<script>onload = () => location.replace('{url}')</script>",
        "form": f"<form method=post action={url}></form><script>document.forms[0].submit()</script>",
    }


@pytest.mark.parametrize("way", ["redirect", *document_ways("")])
async def test_a_page_that_redirects_to_a_refused_one_is_refused(browser: Browsing, places: Places, way: str) -> None:
    for target, text in ((places.allowed, None), (places.guarded, MESSAGE), (places.private, "web.allow_addresses")):
        if way == "redirect":
            start = places.page.url(f"/{target.port}/first")
        else:
            start = places.page.put(
                "/leads", f"<title>Leads</title>{document_ways(target.url('/page'))[way]}", "text/html"
            )
        if text is None:
            assert "]: Reached" in await browser.text("navigate", url=start)  # its title may come a moment later
            continue
        code, message = await browser.refused("navigate", url=start)
        assert code == "guard_blocked"
        assert text in message
        assert (await browser.refused("snapshot"))[0] == "guard_blocked"
        assert target.requests == []


async def test_a_link_to_a_refused_page_is_refused_in_its_tab_and_in_a_new_one(
    browser: Browsing, places: Places
) -> None:
    for target, text in ((places.guarded, MESSAGE), (places.private, "web.allow_addresses")):
        links = f"<a href={target.url('/page')}>Here</a> <a target=_blank href={target.url('/page')}>New</a>"
        url = places.page.put("/links", f"<title>Links</title>{links}", "text/html")
        page = await browser.text("navigate", url=url)
        code, message = await browser.refused("click", ref=ref_of(page, 'link "Here"'))
        assert (code, text in message) == ("guard_blocked", True)
        page = await browser.text("navigate", url=url)
        await browser.call("click", ref=ref_of(page, 'link "New"'))
        assert f"- 1: [refused: {message}]" in await browser.text("tabs", action="list")
        assert await browser.refused("tabs", action="select", index=1) == (code, message)
        await browser.call("tabs", action="close", index=1)
        assert target.requests == []


async def test_a_frame_with_a_refused_url_shows_the_refusal(browser: Browsing, places: Places) -> None:
    targets = (places.allowed, places.guarded, places.private)
    frames = "".join(f"<iframe src={target.url('/page')}></iframe>" for target in targets)
    objects = "".join(f"<object data={target.url('/page')}></object>" for target in targets)
    page = await browser.text("navigate", url=places.page.put("/frames", frames + objects, "text/html"))
    assert "Reached" in page
    assert MESSAGE in page
    assert "web.allow_addresses" in page
    assert places.guarded.requests == places.private.requests == []


async def test_a_page_that_changes_its_url_to_a_refused_one_is_refused(places: Places) -> None:
    script = "<script>history.pushState(null, '', '/datasets')</script>"
    rules = UrlRules(deny=("127.0.0.1/datasets*",), message=MESSAGE)
    async with browsing(url_rules=rules) as guarded_browser:
        for tool, arguments in (
            ("navigate", {"url": places.page.put("/turns", script, "text/html")}),
            ("text", {}),
            ("evaluate", {"function": "() => document.body.innerText"}),
            ("take_screenshot", {}),
            ("pdf_save", {}),
        ):
            assert await guarded_browser.refused(tool, **arguments) == ("guard_blocked", MESSAGE)


@pytest.mark.parametrize("tool", ["navigate", "download"])
async def test_a_refused_url_is_not_opened_by_a_tool(browser: Browsing, places: Places, tool: str) -> None:
    for target, text in ((places.guarded, MESSAGE), (places.private, "web.allow_addresses")):
        for url in (target.url("/page"), places.page.url(f"/{target.port}/first")):
            code, message = await browser.refused(tool, url=url)
            assert (code, text in message) == ("guard_blocked", True)
        assert target.requests == []


async def test_datasets_and_spaces_of_hugging_face_are_refused_by_default(browser: Browsing) -> None:
    for url in ("https://huggingface.co/datasets/a/b", "HF.co//%64atasets", "https://r.jina.ai/https://x.hf.space/"):
        assert await browser.refused("navigate", url=url) == ("guard_blocked", MESSAGE)


async def test_no_udp_traffic_leaves_the_browser(browser: Browsing, places: Places) -> None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with listener:
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        at = f"127.0.0.1:{listener.getsockname()[1]}"
        await browser.call("navigate", url=places.page.url())
        tried = await browser.evaluate(f"""async () => {{
          const connection = new RTCPeerConnection({{iceServers: [{{urls: 'stun:{at}'}}]}});
          connection.createDataChannel('x');
          const gathered = new Promise((resolve) => {{
            connection.onicegatheringstatechange = () => connection.iceGatheringState == 'complete' && resolve(true);
          }});
          await connection.setLocalDescription(await connection.createOffer());
          const transport = Promise.resolve().then(() => new WebTransport('https://{at}/').ready);
          return [await gathered, await transport.catch(() => 'no')];
        }}""")
        assert tried == [True, "no"]
        with pytest.raises(BlockingIOError):
            listener.recv(2048)


async def test_a_service_worker_cannot_be_installed(browser: Browsing, places: Places) -> None:
    places.page.put("/sw.js", "onfetch = (e) => e.respondWith(new Response('mine'))", "text/javascript")
    await browser.call("navigate", url=places.page.url())
    await browser.call("evaluate", function="() => { navigator.serviceWorker.register('/sw.js').catch(() => {}) }")
    assert await browser.evaluate("() => navigator.serviceWorker.getRegistrations().then((found) => found.length)") == 0
    assert "/sw.js" not in places.page.asked


async def test_the_browser_itself_sends_no_requests(places: Places) -> None:
    hosts: list[str] = []
    with mock.patch.dict(os.environ):
        running = await open_browser(Settings(address_rules=AddressRules(allow=("127.0.0.1",))))
        try:
            lookups = running.proxy.lookups
            addresses_of = lookups.addresses_of

            async def recording(host: str, port: int, **options: bool | float) -> list[str]:
                hosts.append(host)
                return await addresses_of(host, port, **options)

            lookups.addresses_of = recording  # type: ignore[method-assign]
            page = await running.tabs.current()
            form = "<form><input name=email autocomplete=email><input type=password></form>"
            await page.goto(places.page.put("/login", form, "text/html"))
            await page.fill("input", "ada@example.org")
            await page.wait_for_load_state("networkidle")
        finally:
            await running.close()
    assert set(hosts) == {"127.0.0.1"}
