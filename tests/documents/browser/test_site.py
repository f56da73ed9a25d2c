"""The site that `scripts/docs` builds: whole, and read without asking any other host."""

from __future__ import annotations

import functools
import re
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest
from playwright.async_api import Browser, Page, Request, Route, expect

from tests.documents.site import INDEX, ROOT, built, navigation, write_sources
from tests.downstream.page.browser.looking import WAIT, chromium
from tests.fakes.client import PATIENCE

LOADS: Final = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
"""Elements that load something, and the attribute that says what."""
RELATIONS: Final = {"stylesheet", "icon", "preload", "modulepreload", "prefetch", "preconnect", "manifest"}


class PageReader(HTMLParser):
    """Reads what a page loads, where it leads to, and the anchors it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: set[str] = set()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := attributes.get(name))}
        loaded = attributes.get(LOADS.get(tag, ""))
        if tag == "link" and RELATIONS & set((attributes.get("rel") or "").split()):
            loaded = attributes.get("href")
        if loaded:
            self.loads.add(loaded)
        if tag == "a" and attributes.get("href"):
            self.links.add(attributes["href"] or "")


def pages_of(site: Path) -> list[Path]:
    """The pages of a site, without the one for addresses that do not exist."""
    return sorted(path for path in site.rglob("*.html") if path.name != "404.html")


def loaded_from_elsewhere(site: Path) -> set[str]:
    return {url for page in pages_of(site) for url in PageReader(page).loads if urlsplit(url).netloc}


def dead_ends(site: Path) -> set[str]:
    """The links of a site that lead to no file of it, or to no anchor, as `page -> link`."""
    read = {page: PageReader(page) for page in pages_of(site)}
    wrong = set()
    for page, reader in read.items():
        base = f"/{page.parent.relative_to(site).as_posix()}/".replace("/./", "/")
        for link in reader.links | reader.loads:
            if urlsplit(link).scheme or urlsplit(link).netloc:
                continue
            path, anchor = urldefrag(urljoin(base, link))
            target = site / unquote(path).lstrip("/")
            target = target / "index.html" if target.is_dir() else target
            target_page = read.get(target)
            if not target.is_file() or (
                anchor and target_page is not None and unquote(anchor) not in target_page.anchors
            ):
                wrong.add(f"{base} -> {link}")
    return wrong


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as the command builds it."""
    target = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        [ROOT / "scripts" / "docs", target], capture_output=True, text=True, timeout=10 * PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A browser that goes on to the next page hangs up."""

    with Server(("127.0.0.1", 0), functools.partial(Handler, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(PATIENCE)


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


def test_every_document_is_a_page_and_appears_in_the_navigation_once(site: Path) -> None:
    tasks = navigation((ROOT / INDEX).read_text())
    listed = [path for pages in tasks.values() for path in pages.values()]
    assert len(listed) == len(set(listed))
    documents = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")} - {INDEX}
    assert not documents - set(listed)
    for path in listed:
        assert (site / path).with_suffix("").joinpath("index.html").exists() or path.endswith("README.md")


def test_no_link_of_a_page_is_broken(site: Path) -> None:
    assert not dead_ends(site)


def test_no_page_loads_a_resource_of_another_host(site: Path) -> None:
    assert not loaded_from_elsewhere(site)


def test_no_page_of_the_site_shows_an_unrendered_code_fence(site: Path) -> None:
    assert not [page for page in pages_of(site) if "```" in page.read_text()]


def test_a_broken_link_fails_the_build_and_names_its_page(tmp_path: Path) -> None:
    write_sources(tmp_path)
    with (tmp_path / "pages" / "docs" / "install.md").open("a") as page:
        page.write("\n[page](nowhere.md) [heading](commands.md#no-such-heading) [reference][never-defined]\n")
    directory, output = built(tmp_path)
    assert directory is None
    assert output.count("docs/install.md") == 3, output


def test_the_site_check_finds_an_external_picture_and_a_broken_link(tmp_path: Path) -> None:
    elsewhere = "https://elsewhere.example/picture.png"
    links = '<a href="nowhere/">no page</a> <a href="#nowhere">no anchor</a> <a href="#here" id="here">an anchor</a>'
    (tmp_path / "index.html").write_text(f'<img src="{elsewhere}"> {links}')
    assert loaded_from_elsewhere(tmp_path) == {elsewhere}
    assert dead_ends(tmp_path) == {"/ -> nowhere/", "/ -> #nowhere"}


async def watch_external_requests(page: Page, own: str) -> list[str]:
    """Notes the requests of a page that go to another host, and lets none of them out."""
    urls: list[str] = []

    async def stop(route: Route, request: Request) -> None:
        urls.append(request.url)
        await route.abort()

    await page.route(lambda url: not url.startswith((own, "data:", "blob:")), stop)
    return urls


@pytest.mark.anyio
async def test_pages_fit_a_phone_screen_and_request_no_other_host(site: Path, address: str, browser: Browser) -> None:
    page = await browser.new_page(viewport={"width": 360, "height": 740})
    page.set_default_timeout(WAIT)
    external_urls, wide_pages = await watch_external_requests(page, address), []
    # Each page would read the whole index in a worker, which takes half of the time.
    await page.route("**/search.json", lambda route: route.abort())
    for path in pages_of(site):
        await page.goto(f"{address}/{path.parent.relative_to(site).as_posix()}/", wait_until="load")
        if await page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            wide_pages.append(path.parent.name)
    await page.close()
    assert not external_urls
    assert not wide_pages


@pytest.mark.anyio
async def test_the_search_finds_headings_and_codes_and_requests_no_other_host(address: str, browser: Browser) -> None:
    page = await browser.new_page()
    page.set_default_timeout(WAIT)
    external_urls = await watch_external_requests(page, address)
    await page.goto(f"{address}/docs/install/")
    await page.get_by_role("button", name="Search").click()
    await page.get_by_role("combobox", name="Search").fill("breaker")
    await expect(page.get_by_text(re.compile(r"^\d+ results"))).to_be_visible(timeout=WAIT)
    await expect(page.locator("a").filter(has_text="Deadlines, retries and limits").first).to_be_visible(timeout=WAIT)
    await page.get_by_role("combobox", name="Search").fill("HUB-504")
    await expect(page.locator("a").filter(has_text="HUB-504").first).to_be_visible(timeout=WAIT)
    await page.close()
    assert not external_urls


@pytest.mark.anyio
async def test_the_browser_test_detects_a_request_to_another_host(address: str, browser: Browser) -> None:
    page = await browser.new_page()
    external_urls = await watch_external_requests(page, address)
    await page.goto(f"{address}/docs/install/")
    await page.evaluate("fetch('http://elsewhere.example/').catch(() => null)")
    await page.close()
    assert external_urls == ["http://elsewhere.example/"]


@pytest.mark.anyio
@pytest.mark.parametrize(("scheme", "shown"), [("light", "default"), ("dark", "slate")])
async def test_pages_follow_the_readers_colour_scheme(address: str, browser: Browser, scheme: Any, shown: str) -> None:
    page = await browser.new_page(color_scheme=scheme)
    await page.goto(address)
    await expect(page.locator("body")).to_have_attribute("data-md-color-scheme", shown, timeout=WAIT)
    await page.close()


@pytest.mark.anyio
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pictures_follow_the_readers_colour_scheme(address: str, browser: Browser, scheme: Any) -> None:
    page = await browser.new_page(color_scheme=scheme)
    await page.goto(f"{address}/docs/page/")
    pictures = page.locator("article img")
    await expect(pictures.first).to_be_attached(timeout=WAIT)
    names = [await picture.get_attribute("src") or "" for picture in await pictures.all() if await picture.is_visible()]
    assert len(names) == await pictures.count() // 2 > 0
    assert {"-dark.png" in name for name in names} == {scheme == "dark"}
    await page.close()
