"""`@playwright/mcp` behind the hub: one browser for all calls of a caller, pings answered, a crash told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest

from tests.fakes.client import PATIENCE, StdioClient, hub
from tests.peers.programs import NODE, NPM, installed

pytestmark = pytest.mark.anyio

CLI = NPM / "@playwright" / "mcp" / "cli.js"
PAGE = b"<!doctype html><title>counter</title><h1>Counter</h1><script>document.cookie='seen=1'</script>"


def command(*options: str) -> list[str]:
    chromium = shutil.which("chromium")
    assert chromium is not None, "Chromium is not installed: run scripts/peers"
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    return [installed(CLI), "--headless", "--isolated", "--executable-path", chromium, *sandbox, *options]


@pytest.fixture
def page() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(PAGE)))
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def playwright(directory: Path) -> dict[str, Any]:
    entry = {"command": installed(NODE), "args": command("--output-dir", str(directory / "output"))}
    return {"playwright": {**entry, "timeout": 60, "namespace": ""}}


def servers_below(client: StdioClient) -> list[psutil.Process]:
    """The processes of the server itself, not those of its browser."""
    processes = []
    for process in psutil.Process(client.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if str(CLI) in process.cmdline():
                processes.append(process)
    return processes


async def navigate(client: StdioClient, url: str) -> dict[str, Any]:
    result = await client.call("browser_navigate", {"url": url})
    assert not result.get("isError"), result
    return result


async def evaluate(client: StdioClient, function: str) -> str:
    return await client.text("browser_evaluate", {"function": function})


async def test_the_second_call_sees_the_page_of_the_first(tmp_path: Path, page: str) -> None:
    """Check 12."""
    async with hub(tmp_path, playwright(tmp_path)) as client:
        await navigate(client, page)
        await evaluate(client, "() => { window.counter = 41 }")
        assert "42" in await evaluate(client, "() => window.counter + 1")
        assert "seen=1" in await evaluate(client, "() => document.cookie")
        assert len(servers_below(client)) == 1


async def test_a_browser_crash_between_calls_is_reported_once_and_a_new_browser_serves(
    tmp_path: Path, page: str
) -> None:
    async with hub(tmp_path, playwright(tmp_path)) as client:
        await navigate(client, page)
        for process in servers_below(client):
            process.send_signal(signal.SIGKILL)
        await client.until(lambda: b"playwright was lost" in client.stderr)
        lost = await client.call("browser_snapshot")
        assert lost["isError"] is True
        assert lost["_meta"]["mcp-hub/error"]["code"] == "server_unavailable"
        assert "pages, tabs and logins of before are gone" in lost["content"][0]["text"]
        await navigate(client, page)
        assert "counter" in await evaluate(client, "() => document.title")


async def test_the_guard_applies_to_navigation_of_playwright_mcp(tmp_path: Path) -> None:
    async with hub(tmp_path, playwright(tmp_path)) as client:
        refused = await client.call("browser_navigate", {"url": "https://huggingface.co/datasets/x"})
        assert refused["_meta"]["mcp-hub/error"]["code"] == "guard_blocked"


@contextlib.asynccontextmanager
async def playwright_over_http(directory: Path) -> AsyncIterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [
        installed(NODE),
        *command("--port", str(port), "--host", "127.0.0.1", "--output-dir", str(directory / "out")),
    ]
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            while (line := await process.stdout.readline()) and not re.search(rb"Listening on", line):
                pass
        yield f"http://localhost:{port}/mcp"  # the only name it answers to
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]


async def test_over_http_playwright_mcps_pings_are_answered_and_its_page_stays_open(tmp_path: Path, page: str) -> None:
    async with playwright_over_http(tmp_path) as url:
        servers = {"playwright": {"url": url, "transport": "http", "namespace": "", "timeout": 60}}
        async with hub(tmp_path, servers) as client:
            await navigate(client, page)
            await evaluate(client, "() => { window.kept = 'still here' }")
            # Longer than the server waits for the answers to two of its pings.
            await client.call("browser_wait_for", {"time": 12})
            assert "still here" in await evaluate(client, "() => window.kept")
