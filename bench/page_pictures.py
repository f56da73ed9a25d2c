"""The pictures of the live page: a hub with real servers, some calls, and what Chromium shows of it."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, Final, Literal

ROOT: Final = Path(__file__).parents[1]
PEERS: Final = ROOT / ".peers"
PATIENCE: Final = 60.0
"""Seconds that one step may take."""
SIZE: Final = (1280, 760)


@dataclass(frozen=True)
class PageScene:
    """One picture of the page, light and dark: which view with what open, and what is done there first."""

    name: str
    view: str
    run: bool = False
    """Whether the form of the tool is sent before the picture is taken."""
    program: bool = False
    """Whether a program runs meanwhile, one call of which waits for the person."""
    size: tuple[int, int] = SIZE


SCENES: Final = (
    PageScene("page-servers", "servers/notes"),
    PageScene("page-tools", "tools/time__get_current_time", run=True),
    PageScene("page-calls", "calls"),
    PageScene("page-program", "calls", program=True),
    PageScene("page-narrow", "servers", size=(390, 480)),
)
SCHEMES: Final[tuple[tuple[Literal["light", "dark"], str], ...]] = (("light", ""), ("dark", "-dark"))
"""The colours that each picture is taken in, and what they add to its name."""
COLOURS: Final = 256
"""Colours of one picture: with so few it has a third of the bytes, and every colour is within 2 % of the original."""
READY: Final = "4 of 5"
"""The count in the head of the page once all servers but the missing one are connected."""
CONFIG: Final = """\
servers:
  time:
    command: {peers}/servers/bin/mcp-server-time
  files:
    command: {peers}/bin/node
    args: [{modules}/server-filesystem/dist/index.js, {home}]
    disable_tools: [move_file]
  memory:
    command: {peers}/bin/node
    args: [{modules}/server-memory/dist/index.js]
    env: {{MEMORY_FILE_PATH: {home}/memory.jsonl}}
  reference:
    command: {peers}/bin/node
    args: [{modules}/server-everything/dist/index.js]
  notes:
    command: notes-server
code_mode: true
confirm: [memory/delete_*]
groups:
  graph:
    description: Tools that change what is remembered
    tools: [memory__create_*, memory__delete_*]
    active: true
timeout: 30
listen: {{port: 0}}
cache_dir: {home}/cache
"""
PROGRAM: Final = """\
found = await memory__search_nodes(query="2019")
graph = await memory__read_graph()
old = [one["name"] for one in graph["entities"]]
await memory__delete_entities(entityNames=old)
f"deleted {len(old)}"
"""
CALLS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("time__get_current_time", {"timezone": "Europe/Berlin"}),
    ("files__list_directory", {"path": "{home}"}),
    ("files__read_text_file", {"path": "{home}/plan.md"}),
    ("files__read_text_file", {"path": "/etc/shadow"}),
    ("files__move_file", {"source": "{home}/plan.md", "destination": "{home}/old.md"}),
    ("memory__create_entities", {"entities": [{"name": "Ada", "entityType": "person", "observations": ["asks"]}]}),
    ("memory__search_nodes", {"query": "Ada"}),
    ("memory__read_graph", {}),
    ("reference__get-sum", {"a": 19, "b": 23}),
    ("reference__get-sum", {"a": "many", "b": []}),
    ("reference__get-structured-content", {"location": "New York"}),
    ("time__convert_time", {"source_timezone": "Europe/Berlin", "time": "09:30", "target_timezone": "Asia/Tokyo"}),
    ("time__get_current_time", {"timezone": "Asia/Tokyo"}),
)


class HubClient:
    """A client of the hub, which makes the calls that the pictures show."""

    def __init__(self, base: str) -> None:
        self._url = f"{base}/mcp"
        self._session: dict[str, str] = {}
        self._last = 0
        info = {"name": "claude-code", "version": "2.1.4"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": info}
        self._session = {"Mcp-Session-Id": self.ask("initialize", params), "MCP-Protocol-Version": "2025-11-25"}

    def ask(self, method: str, params: dict[str, Any]) -> str:
        """Sends a request, and returns the id of the session in the answer, if there is one."""
        self._last += 1
        body = json.dumps({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        request = urllib.request.Request(self._url, body, {**headers, **self._session})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            answer.read()
            return str(answer.headers.get("Mcp-Session-Id", ""))

    def call(self, name: str, arguments: dict[str, Any]) -> None:
        """Calls a tool."""
        self.ask("tools/call", {"name": name, "arguments": arguments})


@contextmanager
def hub_at_work(home: Path) -> Iterator[tuple[str, Path, dict[str, str]]]:
    """A hub with the servers of the pictures: its address, its configuration and its environment."""
    (home / "plan.md").write_text("# Plan\n\n1. Ask.\n2. Answer.\n")
    config, log = home / "servers.yaml", home / "hub.log"
    modules = PEERS / "node" / "node_modules" / "@modelcontextprotocol"
    config.write_text(CONFIG.format(peers=PEERS, modules=modules, home=home))
    config.chmod(0o600)
    argv = [sys.executable, "-m", "mcp_hub", "serve", "--http", "--config", str(config)]
    inherited = {
        name: value for name, value in os.environ.items() if name.startswith(("XDG_RUNTIME", "MCP_HUB_RUNTIME"))
    }
    environ = {**inherited, "HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=home, env=environ)
    try:
        until = time.monotonic() + PATIENCE
        while (match := re.search(r"(http://\S+?)/mcp", log.read_text())) is None or "Serving" not in log.read_text():
            if time.monotonic() > until or process.poll() is not None:
                raise TimeoutError(f"the hub did not start: {log.read_text()[-500:]}")
            time.sleep(0.1)
        yield match[1], config, environ
    finally:
        process.terminate()
        process.wait(PATIENCE)


def take(scenes: Sequence[PageScene], pictures: Path) -> None:
    """Takes the pictures of these scenes."""
    from playwright.sync_api import sync_playwright

    from mcp_hub.servers.builtin.chromium import find

    with tempfile.TemporaryDirectory(prefix="") as directory, sync_playwright() as playwright:
        home = Path(directory)
        path = find(None, os.environ, Path.home())
        browser = playwright.chromium.launch(executable_path=path, chromium_sandbox=os.geteuid() != 0)
        with hub_at_work(home) as (base, config, environ):
            client = HubClient(base)
            client.call("time__get_current_time", {"timezone": "Etc/UTC"})  # starts the server for clients of this era
            called = False
            for scene in scenes:
                for scheme, suffix in SCHEMES:
                    with _page(browser, scene, scheme, _link(config, environ)) as page:
                        if not called:
                            _make_calls(page, client, home)
                            called = True
                        with _program(client) if scene.program else nullcontext():
                            _show(page, scene)
                            picture = page.screenshot()
                            if scene.program:
                                page.get_by_role("button", name="No", exact=True).click()
                    _save(picture, pictures / f"{scene.name}{suffix}.png")
        browser.close()


def _link(config: Path, environ: Mapping[str, str]) -> str:
    argv = [sys.executable, "-m", "mcp_hub", "open", "--print", "--config", str(config)]
    completed = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=True, env=environ)
    return completed.stdout.split()[0]


@contextmanager
def _page(browser: Any, scene: PageScene, scheme: str, link: str) -> Iterator[Any]:
    """Opens the page in a browser of its own."""
    width, height = scene.size
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce",
        locale="en-GB", timezone_id="Europe/Berlin",
    )  # fmt: skip
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(link)
    page.wait_for_selector(".grid-body [role=row]")
    yield page
    context.close()


def _make_calls(page: Any, client: HubClient, home: Path) -> None:
    """Makes the calls that the pictures show, once all servers are there."""
    page.get_by_text(READY).wait_for()
    for name, arguments in CALLS:
        client.call(name, json.loads(json.dumps(arguments).replace("{home}", str(home))))


def _save(picture: bytes, path: Path) -> None:
    """Writes a picture with few colours."""
    from PIL import Image

    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
    print(path.relative_to(ROOT))


@contextmanager
def _program(client: HubClient) -> Iterator[None]:
    """Runs a program that waits for the person's consent."""
    thread = Thread(target=client.call, args=("hub_run", {"code": PROGRAM}))
    thread.start()
    try:
        yield
    finally:
        thread.join(PATIENCE)


def _show(page: Any, scene: PageScene) -> None:
    """Brings the page to what the picture shows."""
    page.evaluate("hash => { location.hash = hash; }", scene.view)
    if scene.run:
        page.get_by_label("timezone").fill("Europe/Berlin")
        page.get_by_role("button", name="Run", exact=True).click()
        page.locator(".outcome pre").first.wait_for()
        page.locator(".outcome pre").first.scroll_into_view_if_needed()
    if scene.program:
        page.get_by_role("link", name="a program").click()
        page.locator(".panel table.steps").wait_for()
    elif scene.view == "calls":
        page.locator(".grid-body [role=row]:not([hidden])").filter(has_text="invalid_parameters").first.click()
        page.locator("table.steps").wait_for()
    page.mouse.move(2, 2)
    page.evaluate("document.activeElement?.blur()")
    page.wait_for_timeout(1500)
