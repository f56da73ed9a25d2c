"""The live page: what a browser does with a busy hub, and what a call costs watched and unwatched."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import processes
from bench.cells import HTTP_STDIO
from bench.client.connection import Lost
from bench.client.conversation import Conversation
from bench.client.messages import Request, echo
from bench.plan import Actor, Cast
from bench.rows import HUB, Row
from bench.stage import ROOT, Stage
from bench.table import Table

RATE = 200
"""Calls a second."""
WATCHED, SMALL_WATCHED = 60.0, 3.0
"""Seconds."""
UNWATCHED = 20.0
SETTLE = 10.0
"""Seconds in which the hub does what it does once for new tools, such as screening them."""
SERVERS, TOOLS = 10, 500
LONG_TASK = 50.0
"""Milliseconds from which a browser calls a task long."""
PATIENCE = 60_000
VIEWS = ("calls", "tools", "servers", "rules", "calls", "clients", "configuration")
OBSERVE = (
    "window.tasks = []; new PerformanceObserver(list => {"
    " for (const one of list.getEntries()) tasks.push(one.duration); }).observe({type: 'longtask', buffered: true})"
)
BYTES = (
    "performance.getEntries().filter(one => one.encodedBodySize && !one.name.includes('/api/'))"
    ".reduce((sum, one) => sum + one.encodedBodySize, 0)"
)

TABLE = Table.named(
    title="The page",
    what=f"One client makes {RATE} calls a second over HTTP, of a hub with {SERVERS * TOOLS:,} tools. For {WATCHED:g} "
    "s Chromium shows the page: its views in turn, the tools filtered, the lists scrolled, rows opened. Tasks: "
    "the longest at the start of the page and after it; how many of the latter took more than "
    f"{LONG_TASK:g} ms; and the most processor time that one took, which other programs do not change. KB: all files "
    "of the page. A call: its median and the processor time that the hub took for it, before the page was ever opened "
    "and while it is.",
    columns=(
        ("first paint, ms", "paint", 0),
        ("KB", "bytes", 1),
        ("longest task at the start, ms", "start", 0),
        ("longest task after, ms", "task", 0),
        ("its CPU at most, ms", "task cpu", 0),
        (f"tasks over {LONG_TASK:g} ms after", "tasks", 0),
        ("calls/s", "rate", 0),
        ("p50 unwatched, ms", "p50 before", 2),
        ("p50 watched, ms", "p50", 2),
        ("CPU of a call unwatched, ms", "cpu before", 3),
        ("watched, ms", "cpu", 3),
    ),
    cell=HTTP_STDIO,
)


class Pace:
    """Calls at an even rate in a thread, until it is stopped."""

    def __init__(self, conversation: Conversation, request: Request) -> None:
        self._conversation = conversation
        self._request = request
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.latencies: list[float] = []
        self.failed: Exception | None = None
        self._began = time.perf_counter()
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                due = self._began + len(self.latencies) / RATE
                if (early := due - time.perf_counter()) > 0:
                    time.sleep(early)
                at = time.perf_counter()
                self._conversation.ask(self._request)
                self.latencies.append(time.perf_counter() - at)
        except (Lost, OSError, ValueError) as error:
            self.failed = error

    def stop(self) -> float:
        """Ends it, and returns for how many seconds it ran. Raises Lost."""
        self._stop.set()
        self._thread.join()
        if self.failed is not None:
            raise Lost(str(self.failed))
        return time.perf_counter() - self._began


def measure(cast: Cast) -> None:
    """All figures; only of the hub, as nothing else has a page."""
    if HUB not in [row.name for row in cast.plan.rows]:
        return
    row = next(row for row in cast.plan.rows if row.name == HUB)
    watched = SMALL_WATCHED if cast.plan.small else WATCHED
    tools = TOOLS // 10 if cast.plan.small else TOOLS
    with Stage(cast.scene.cell, cast.era, SERVERS, tools).opened() as stage, cast.noting(HUB):
        running = stage.start(row)
        try:
            actor = Actor(running, running.converse())
            request = echo(cast.era, actor.tool("echo"))
            time.sleep(min(SETTLE, watched))
            _paced(cast, actor, request, " before", min(UNWATCHED, watched))
            pace = Pace(actor.conversation, request)
            before = processes.processor_seconds(running.pids())
            try:
                figures = _watch(_link(stage, row), watched)
                used = processes.processor_seconds(running.pids()) - before
            finally:
                seconds = pace.stop()
            _add(cast, "", pace.latencies, used)
            cast.add(HUB, "rate", len(pace.latencies) / seconds)
            for figure, value in figures.items():
                cast.add(HUB, figure, value)
        finally:
            running.close()


def _paced(cast: Cast, actor: Actor, request: Request, when: str, seconds: float) -> None:
    before = processes.processor_seconds(actor.pids)
    pace = Pace(actor.conversation, request)
    time.sleep(seconds)
    pace.stop()
    _add(cast, when, pace.latencies, processes.processor_seconds(actor.pids) - before)


def _add(cast: Cast, when: str, latencies: list[float], used: float) -> None:
    cast.add(HUB, f"p50{when}", statistics.median(latencies) * 1e3)
    cast.add(HUB, f"cpu{when}", used / len(latencies) * 1e3)


def _link(stage: Stage, row: Row) -> str:
    """A link to the page, as `mcp-hub open` prints it. Raises Lost."""
    argv = [sys.executable, "-m", "mcp_hub", "open", "--print", "--config", str(stage.config)]
    completed = subprocess.run(
        argv, cwd=ROOT, env=stage.environ(row), capture_output=True, text=True, timeout=60, check=False
    )
    if completed.returncode:
        raise Lost(f"mcp-hub open: {completed.stderr[-200:]}")
    return completed.stdout.split()[0]


def _watch(link: str, seconds: float) -> dict[str, float]:
    """Shows the page for so many seconds, and uses it; returns what the browser measured."""
    from playwright.sync_api import sync_playwright

    from mcp_hub.servers.builtin.chromium import find

    with sync_playwright() as playwright:
        path = find(None, os.environ, Path.home())
        browser = playwright.chromium.launch(executable_path=path, chromium_sandbox=os.geteuid() != 0)
        try:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.set_default_timeout(PATIENCE)
            page.add_init_script(OBSERVE)
            page.goto(link)
            page.wait_for_selector(".grid-body [role=row]")
            page.wait_for_timeout(1000)
            starting: list[float] = page.evaluate("tasks.splice(0)")
            cpu = _traced(page.context.new_cdp_session(page), lambda: _use(page, seconds), page)
            later: list[float] = page.evaluate("tasks")
            paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
            return {
                "paint": paint,
                "bytes": page.evaluate(BYTES) / 1000,
                "start": max(starting, default=0.0),
                "task cpu": cpu,
                "task": max(later, default=0.0),
                "tasks": sum(task > LONG_TASK for task in later),
            }
        finally:
            browser.close()


def _traced(session: Any, use: Callable[[], None], page: Any) -> float:
    """Returns the most milliseconds of processor time that one task of the page took during `use`."""
    events: list[dict[str, Any]] = []
    done: list[Any] = []
    session.on("Tracing.dataCollected", lambda message: events.extend(message["value"]))
    session.on("Tracing.tracingComplete", lambda message: done.append(message))
    trace_config = {"includedCategories": ["toplevel"]}
    session.send("Tracing.start", {"traceConfig": trace_config, "transferMode": "ReportEvents"})
    use()
    session.send("Tracing.end")
    until = time.perf_counter() + PATIENCE / 1000
    while not done:
        if time.perf_counter() > until:
            raise Lost("the browser's trace did not end")
        page.wait_for_timeout(50)
    thread_names = [event for event in events if event.get("name") == "thread_name"]
    main = {(event["pid"], event["tid"]) for event in thread_names if event["args"]["name"] == "CrRendererMain"}
    durations = [event["tdur"] for event in events if "tdur" in event and (event["pid"], event["tid"]) in main]
    return max(durations, default=0) / 1000


def _use(page: Any, seconds: float) -> None:
    """Goes through the views as a person does: filters the tools, scrolls, opens a call."""
    end, turn = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        view = VIEWS[turn % len(VIEWS)]
        page.evaluate("hash => { location.hash = hash; }", view)
        page.wait_for_timeout(700)
        if view == "tools":
            page.get_by_placeholder("Filter tools").fill(f"t{turn}")
            page.wait_for_timeout(300)
            page.get_by_placeholder("Filter tools").fill("")
        if view in ("tools", "calls") and page.locator(".grid-body [role=row]").count():
            page.mouse.move(400, 500)
            page.mouse.wheel(0, 3000)
            page.wait_for_timeout(300)
            page.locator(".grid-body [role=row]:not([hidden])").nth(3).click()
            page.wait_for_timeout(500)
        turn += 1
