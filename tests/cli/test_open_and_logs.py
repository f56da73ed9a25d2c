"""`mcp-hub open` and `mcp-hub logs`, next to hubs that run as processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcp_hub.hub.hub_status import MAX_COMMANDS
from tests.cli.test_while_it_runs import read_terminal
from tests.downstream.network.test_tls import certificate
from tests.downstream.network.visitor import network_hub, visiting
from tests.downstream.page.opened import OpenPage
from tests.fakes.client import HUB, PATIENCE, fake, hub, spawned, write_config

pytestmark = pytest.mark.anyio

TOKEN = "0123456789abcdef" * 3


@pytest.fixture(autouse=True)
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sockets of this test alone, and no browser."""
    path = tmp_path / "run"
    monkeypatch.setenv("MCP_HUB_RUNTIME_DIR", str(path))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    return path


async def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run, [*HUB, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[OpenPage]:
    """The page behind a link."""
    match = re.fullmatch(r"(http://[^/]+)/ui#s=([A-Za-z0-9_-]{22,})\n?", url)
    assert match is not None, url
    async with httpx2.AsyncClient(base_url=match[1], timeout=PATIENCE) as http:
        page = OpenPage(http, match[1])
        answer = await page.begin(secret=match[2])
        assert answer.status_code == 200, answer.text
        yield page


@contextlib.asynccontextmanager
async def following(*options: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, Callable[[], Awaitable[str]]]]:
    """`mcp-hub logs -f`, and what reads its next line."""
    argv = [*HUB, "logs", "-f", *options]
    logs = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out = logs.stdout
    assert out is not None

    async def line() -> str:
        async with asyncio.timeout(PATIENCE):
            return (await out.readline()).decode()

    try:
        yield logs, line
    finally:
        if logs.returncode is None:
            logs.kill()
        await logs.communicate()


async def test_open_prints_a_link_to_the_page_of_the_running_hub(tmp_path: Path) -> None:
    async with network_hub(tmp_path / "hub", {"up": fake()}, {}) as (_, base):
        done = await run("open")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"{base}/ui#s=")
        async with opened(done.stdout) as page:
            assert [row["server"] for row in (await page.found("state"))["servers"]] == ["up"]


async def test_open_makes_a_stdio_hub_listen_for_its_page_only(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake()}) as client:
        done = await run("open", "--json")
        assert done.returncode == 0, done.stderr
        async with opened(json.loads(done.stdout)["url"]) as page:
            await client.request("tools/call", {"name": "up__echo", "arguments": {"text": "x"}})
            assert [entry["transport"] for entry in (await page.found("clients"))["rows"]] == ["stdio"]
            for path in ("/mcp", "/sse", "/metrics", "/healthz"):
                answer = await page.http.post(path, json={}, headers={"origin": page.base})
                assert answer.status_code == 404
            assert (await page.http.get("/")).headers["location"] == "/ui"
            rebound = {**page.headers, "host": "evil.example"}
            assert (await page.http.get("/ui/api/state", headers=rebound)).status_code == 421
            token = await page.http.post("/ui/api/session", json={"token": TOKEN}, headers={"origin": page.base})
            assert token.status_code == 401
        base = page.base
    with pytest.raises(httpx2.ConnectError):
        await httpx2.AsyncClient().get(base)


@pytest.mark.parametrize(
    ("shown", "status"), [({}, 404), ({"ui": True}, 200), ({"ui": True, "public_host": "hub.example"}, 200)]
)
async def test_open_gives_a_network_hub_a_separate_listener_for_the_page(
    tmp_path: Path, shown: dict[str, Any], status: int
) -> None:
    listen = {"host": "0.0.0.0", "token": TOKEN, **shown}
    async with network_hub(tmp_path / "hub", {"up": fake()}, listen) as (_, base):
        public = base.replace("0.0.0.0", "127.0.0.1")
        async with httpx2.AsyncClient(base_url=public) as http:
            assert (await http.get("/ui", headers={"authorization": f"Bearer {TOKEN}"})).status_code == status
        done = await run("open")
        assert not done.stdout.startswith(public)
        async with opened(done.stdout) as page:
            assert (await page.get("state")).status_code == 200


async def test_open_prints_the_address_on_this_machine_of_a_hub_behind_a_proxy(tmp_path: Path) -> None:
    listen = {"token": TOKEN, "ui": True, "public_host": "hub.example"}
    async with network_hub(tmp_path / "hub", {"up": fake()}, listen) as (_, base):
        done = await run("open")
        assert done.stdout.startswith(f"{base}/ui#s=")
        async with opened(done.stdout) as page:
            assert (await page.get("state")).status_code == 200


async def test_open_needs_no_certificate_for_the_name_of_this_machine(tmp_path: Path) -> None:
    async with (
        network_hub(tmp_path / "hub", {"up": fake()}, {"tls": certificate(tmp_path)}),
        opened((await run("open")).stdout) as page,
    ):
        assert (await page.get("state")).status_code == 200


async def test_open_gives_advice_if_the_configuration_forbids_the_page(tmp_path: Path) -> None:
    async with network_hub(tmp_path / "hub", {}, {"ui": False}):
        done = await run("open")
        assert (done.returncode, done.stdout) == (1, "")
        assert "listen.ui" in done.stderr


@pytest.mark.parametrize("command", ["open", "logs"])
async def test_open_and_logs_without_a_running_hub_say_how_to_start_one(command: str) -> None:
    done = await run(command)
    assert done.returncode == 1
    assert "mcp-hub serve" in done.stderr


@pytest.mark.parametrize("command", ["open", "logs"])
async def test_open_and_logs_require_a_choice_between_several_running_hubs(tmp_path: Path, command: str) -> None:
    (tmp_path / "other").mkdir()
    async with hub(tmp_path, {"up": fake()}) as first, hub(tmp_path / "other", {"up": fake()}) as second:
        done = await run(command)
        assert done.returncode == 2
        for client in (first, second):
            assert f"--pid {client.process.pid}" in done.stderr
            assert (await run(command, "--pid", str(client.process.pid))).returncode == 0
        assert (await run(command, "--config", str(tmp_path / "servers.json"))).returncode == 0
        assert (await run(command, "--pid", "1")).returncode == 1


async def test_the_secret_of_a_link_is_in_no_log_or_file(tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    config = write_config(tmp_path, {"up": fake()}, call_log={"file": str(log)}, listen={"port": 0})
    async with spawned([*HUB, "serve", "-vv", "--http", "--config", str(config)]) as process:
        await process.until(lambda: b"Serving" in process.stderr)
        url = (await run("open")).stdout
        secret = url.strip().partition("#s=")[2]
        async with opened(url) as page:
            again = await page.http.post("/ui/api/session", json={"secret": secret}, headers={"origin": page.base})
            assert again.status_code == 401
            async with visiting(page.base, "modern") as client:
                await client.text("up__echo", {"text": "x"})
            token, cookie = page.headers["x-mcp-hub-page"], page.headers["cookie"].partition("=")[2]
        process.process.terminate()
        await process.exited()
        output = process.stderr.decode() + log.read_text()
        assert "up__echo" in output
        for value in (secret, token, cookie):
            assert value not in output


async def test_serve_at_a_terminal_prints_a_link(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": fake()})
    controller, terminal = pty.openpty()
    process = subprocess.Popen([*HUB, "serve", "--http", "--port", "0", "--config", str(config)], stderr=terminal)
    os.close(terminal)
    try:
        output = await asyncio.to_thread(read_terminal, controller, b"makes another one.")
        match = re.search(r"http://127\.0\.0\.1:\d+/ui#s=\S+", output.decode())
        assert match is not None
        async with opened(match[0]) as page:
            assert (await page.get("state")).status_code == 200
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, PATIENCE)
        os.close(controller)


async def test_serve_into_a_file_prints_no_link(tmp_path: Path) -> None:
    async with network_hub(tmp_path / "hub", {"up": fake()}, {}) as (process, _):
        process.process.terminate()
        await process.exited()
        assert b"Serving" in process.stderr
        assert b"#s=" not in process.stderr


async def test_logs_streams_calls_and_stderr_of_a_running_hub(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake(), "other": fake()}) as client:
        await client.request("tools/call", {"name": "up__stderr", "arguments": {"text": "early \x1b[31m"}})
        async with following() as (logs, line):
            assert await line() == "up | early \\x1b[31m\n"
            await client.request("tools/call", {"name": "up__echo", "arguments": {"text": "x"}})
            assert re.search(r"tools/call up__echo .*ok", await line())
            await client.request("tools/call", {"name": "other__stderr", "arguments": {"text": "late"}})
            assert {(await line()).partition(" | ")[0][:5] for _ in range(2)} >= {"other"}
            logs.send_signal(signal.SIGINT)
            async with asyncio.timeout(PATIENCE):
                assert await logs.wait() == 130
        again = await run("logs", "--json", "--server", "up")
        records: list[dict[str, Any]] = [json.loads(line) for line in again.stdout.splitlines()]
        assert {record.get("upstream", record.get("server")) for record in records} == {"up"}
        assert [record["name"] for record in records if record["event"] == "call"] == ["up__echo"]
        unknown = await run("logs", "--server", "nobody\x1b")
        assert unknown.returncode == 1
        assert "\x1b" not in unknown.stderr
        assert "up, other" in unknown.stderr


async def test_logs_reads_earlier_calls_from_the_call_log(tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    log.write_text('{"event":"call","id":"other-1","name":"of another run"}\nbroken\n')
    async with hub(tmp_path, {"up": fake()}, call_log={"file": str(log)}) as client:
        await client.request("tools/call", {"name": "up__echo", "arguments": {"text": "x"}})
        async with asyncio.timeout(PATIENCE):
            while "up__echo" not in log.read_text():
                await asyncio.sleep(0.01)
        done = await run("logs", "--json")
        assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == ["up__echo"]


async def test_logs_ends_when_the_hub_ends(tmp_path: Path) -> None:
    async with spawned([*HUB, "serve", "--config", str(write_config(tmp_path, {"up": fake()}))]) as client:
        await client.initialize()
        async with following("--json") as (logs, line):
            await client.request("tools/call", {"name": "up__stderr", "arguments": {"text": "x"}})
            assert json.loads(await line())
            client.process.kill()
            async with asyncio.timeout(PATIENCE):
                assert await logs.wait() in (0, 1)


async def test_following_log_readers_are_limited_and_leave_slots_for_other_commands(tmp_path: Path) -> None:
    async with hub(tmp_path, {"up": fake()}) as client, contextlib.AsyncExitStack() as stack:
        await client.request("tools/call", {"name": "up__stderr", "arguments": {"text": "x"}})
        for _ in range(MAX_COMMANDS):
            _, line = await stack.enter_async_context(following())
            assert await line() == "up | x\n"
        refused = await run("logs", "-f")
        assert refused.returncode == 1
        assert "commands read from it already" in refused.stderr
        assert (await run("status")).returncode == 0
