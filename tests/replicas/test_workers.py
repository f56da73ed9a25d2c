"""`serve --workers N`: several processes that are one hub, on one port."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fakes.client import HUB, PATIENCE, StdioClient, fake, spawned, write_config
from tests.fakes.processes import below
from tests.fakes.redis_server import redis_server
from tests.replicas.raw_client import raw, text_of
from tests.replicas.test_sessions import again

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def workers(
    directory: Path, count: int, servers: dict[str, Any], **root: Any
) -> AsyncIterator[tuple[StdioClient, str]]:
    """Runs a hub of so many workers; yields it with its base URL."""
    config = write_config(directory, servers, **root)
    line = [*HUB, "serve", "--http", "--port", "0", "--workers", str(count), "--config", str(config)]
    async with spawned(line) as process:
        await process.until(lambda: b"Serving" in process.stderr)
        match = re.search(rb"(http://127\.0\.0\.1:\d+)/mcp", process.stderr)
        assert match is not None
        try:
            await all_workers_started(process, count)
            yield process, match[1].decode()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.process.terminate()


async def all_workers_started(process: StdioClient, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(hubs(process)) < count:
            await asyncio.sleep(0.05)


def children(process: StdioClient) -> list[psutil.Process]:
    processes = []
    for child in psutil.Process(process.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE:
                processes.append(child)
    return processes


def hubs(process: StdioClient) -> list[psutil.Process]:
    """Returns the workers that run, each of which has started a server."""
    processes = []
    for child in children(process):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just exited
            if "serve" in child.cmdline() and child.children():
                processes.append(child)
    return processes


async def pids(url: str, count: int) -> set[str]:
    """Returns the pids of the server's processes, as reported over `count` connections at once."""

    async def answering_pid() -> str:
        async with raw(url) as client:
            return text_of(await client.modern("tools/call", {"name": "up__pid", "arguments": {}}))

    return set(await asyncio.gather(*(answering_pid() for _ in range(count))))


async def test_workers_serve_one_port_as_one_hub_and_are_restarted(tmp_path: Path) -> None:
    async with workers(tmp_path, 2, {"up": fake()}) as (process, url), raw(url) as client:
        await client.begin()
        served: set[str] = set()
        async with asyncio.timeout(PATIENCE):
            while len(served) < 2:  # the operating system chooses the worker of a connection
                served |= await pids(url, 8)
        killed = hubs(process)[0]
        killed.send_signal(signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            while killed in hubs(process) or len(hubs(process)) < 2:
                assert text_of(await again(client, "up__echo", {"text": "a"})) == "a"
        assert b"is started again" in process.stderr


async def test_state_of_one_worker_is_reachable_through_the_others(tmp_path: Path) -> None:
    async with workers(tmp_path, 2, {"own": {**fake(), "session": "client"}}) as (_, url), raw(url) as client:
        await client.begin()
        own_pids = set()
        for _ in range(12):
            async with raw(url) as reconnected:
                reconnected.session = client.session
                own_pids.add(text_of(await reconnected.call("own__pid")))
    assert len(own_pids) == 1


async def test_workers_stop_with_their_parent_and_leave_no_process(tmp_path: Path) -> None:
    async with workers(tmp_path, 2, {"up": fake()}) as (process, _):
        descendants = below(process.process.pid)
        directory = next(Path(arg).parent for child in descendants for arg in child.cmdline() if arg.endswith("/store"))
        process.process.terminate()
        assert await process.exited() == 0
        exited, alive = await asyncio.to_thread(psutil.wait_procs, descendants, PATIENCE)
        assert (len(exited) > 4, alive) == (True, [])
        assert not directory.exists()


async def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    async with workers(tmp_path, 2, {"up": fake()}) as (process, _):
        descendants = below(process.process.pid)
        process.process.kill()
        _, alive = await asyncio.to_thread(psutil.wait_procs, descendants, PATIENCE)
        assert alive == []


async def test_a_warning_about_the_configuration_is_printed_once(tmp_path: Path) -> None:
    async with workers(tmp_path, 3, {"up": fake()}, no_such_key=1) as (process, url):
        assert await pids(url, 1)
        assert process.stderr.count(b"no_such_key is not known") == 1


async def test_a_reload_reaches_every_worker(tmp_path: Path) -> None:
    async with workers(tmp_path, 2, {"up": fake()}, watch=False) as (process, _):
        write_config(tmp_path, {"up": fake(), "new": fake()}, watch=False)
        os.kill(process.process.pid, signal.SIGHUP)
        await process.until(lambda: process.stderr.count(b"again: started new") == 2)


async def test_workers_can_use_a_configured_store(tmp_path: Path) -> None:
    async with redis_server() as store, workers(tmp_path, 2, {"up": fake()}, store=store.url) as (process, url):
        assert not any("redis-server" in " ".join(child.cmdline()) for child in children(process))
        assert await pids(url, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workers", "2"], "--workers need --sse or --http"),
        (["--http", "--workers", "0"], "a number from 1 to 64"),
        (["--http", "--workers", "2", "--host", "0.0.0.0"], "token"),
    ],
)
async def test_options_that_workers_do_not_support_are_refused(tmp_path: Path, words: list[str], said: str) -> None:
    config = write_config(tmp_path, {})
    async with spawned([*HUB, "serve", *words, "--config", str(config)]) as process:
        assert await process.exited() == 2
        assert said in process.stderr.decode()


async def test_workers_without_a_store_or_redis_program_say_what_to_install(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    program = (
        "import sys\n"
        "from mcp_hub.cli import main, workers\n"
        "workers._ELSEWHERE = ()\n"  # this stands for a machine without a store program in its system directories
        "sys.exit(main())"
    )
    line = [sys.executable, "-c", program, "serve", "--http", "--workers", "2", "--config", str(config)]
    async with spawned(line, env={**os.environ, "PATH": str(tmp_path)}) as process:
        assert await process.exited() == 2
        assert b"--workers needs valkey-server or redis-server" in process.stderr
        assert b"apt-get install redis-server" in process.stderr
