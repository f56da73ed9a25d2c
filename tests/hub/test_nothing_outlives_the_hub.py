"""However the hub ends, none of its processes, its children or theirs is left."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.client import HUB_BY_EXEC, PATIENCE, StdioClient, fake, spawned, write_config

pytestmark = pytest.mark.anyio

SERVERS = {
    "good": fake(),
    "stubborn": fake("--stubborn", "--grandchild"),
    "modern": fake("--era", "modern", "--grandchild"),
    "starting": fake("--start-delay", "30"),
}
BOUND = 5.0
"""The promise, in seconds. Asserted with a tenfold bound: machines that run tests are slow."""


def of_hub(config: Path) -> list[int]:
    """Every process that belongs to the hub of this configuration: by its command line, or by its environment."""
    pids = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        is_member = str(config).encode() in command or f"HUB_TEST={config}".encode() in environ
        if is_member and state != "Z":
            pids.append(int(entry.name))
    return pids


async def left(config: Path, bound: float = 10 * BOUND) -> list[int]:
    """Returns the processes of the hub that are left when none is, or after the bound (seconds)."""
    try:
        async with asyncio.timeout(bound):
            while of_hub(config):
                await asyncio.sleep(0.02)
    except TimeoutError:
        pass
    return of_hub(config)


def close_stdin(client: StdioClient) -> None:
    assert client.process.stdin is not None
    client.process.stdin.close()


def terminate(client: StdioClient) -> None:
    client.process.send_signal(signal.SIGTERM)


def interrupt_twice(client: StdioClient) -> None:
    client.process.send_signal(signal.SIGINT)
    client.process.send_signal(signal.SIGINT)


def kill(client: StdioClient) -> None:
    client.process.send_signal(signal.SIGKILL)


ENDS: list[tuple[Callable[[StdioClient], None], set[int]]] = [
    (close_stdin, {0}),
    (terminate, {0}),
    (interrupt_twice, {0, 130}),
    (kill, {-signal.SIGKILL}),
]


def marked(config: Path) -> dict[str, object]:
    return {name: {**entry, "env": {"HUB_TEST": str(config)}} for name, entry in SERVERS.items()}


@pytest.mark.parametrize(("end", "codes"), ENDS)
async def test_a_stdio_hub_leaves_no_process_when_it_ends(
    tmp_path: Path, end: Callable[[StdioClient], None], codes: set[int]
) -> None:
    """Check 29."""
    config = write_config(tmp_path, marked(tmp_path / "servers.json"), list_wait=1)
    async with spawned([*HUB_BY_EXEC, "serve", "--config", str(config)]) as client:
        await client.initialize()
        for name in ("good", "stubborn", "modern"):
            await client.text(f"{name}__echo", {"text": "x"})
        client.start("tools/call", {"name": "good__sleep", "arguments": {}})
        assert len(of_hub(config)) >= 7
        end(client)
        assert await client.exited() in codes
        assert await left(config) == []


@pytest.mark.parametrize(("end", "codes"), ENDS[1:])
async def test_a_network_hub_leaves_no_process_when_it_ends(
    tmp_path: Path, end: Callable[[StdioClient], None], codes: set[int]
) -> None:
    config = write_config(tmp_path, marked(tmp_path / "servers.json"), list_wait=1)
    async with spawned([*HUB_BY_EXEC, "serve", "--sse", "--port", "0", "--config", str(config)]) as client:
        await client.until(lambda: b"Serving" in client.stderr)
        end(client)
        assert await client.exited() in codes
        assert await left(config) == []


async def test_a_hub_ends_when_its_client_is_killed(tmp_path: Path) -> None:
    config = write_config(tmp_path, marked(tmp_path / "servers.json"), list_wait=1)
    program = (
        "import subprocess, sys\n"
        "pipe, null = subprocess.PIPE, subprocess.DEVNULL\n"
        "hub = subprocess.Popen(sys.argv[1:], stdin=pipe, stdout=pipe, stderr=null)\n"
        'hub.stdin.write(b\'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\\n\'); hub.stdin.flush()\n'
        "sys.stdout.buffer.write(hub.stdout.readline()); sys.stdout.flush()\n"
        "hub.wait()\n"
    )
    async with spawned([HUB_BY_EXEC[0], "-c", program, *HUB_BY_EXEC, "serve", "--config", str(config)]) as client:
        await client.until(lambda: client.unmatched)
        os.kill(client.process.pid, signal.SIGKILL)
        await client.exited()
        assert await left(config) == []


async def test_stopping_the_hub_while_servers_start_leaves_no_process(tmp_path: Path) -> None:
    config = write_config(tmp_path, marked(tmp_path / "servers.json"))
    async with spawned([*HUB_BY_EXEC, "serve", "--config", str(config)]) as client:
        client.start("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}})
        close_stdin(client)
        async with asyncio.timeout(PATIENCE):
            assert await client.exited() == 0
        assert await left(config) == []


async def test_a_killed_reaper_is_replaced_and_its_successor_ends_leftover_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_HUB_RUNTIME_DIR", str(tmp_path / "run"))
    config = write_config(tmp_path, marked(tmp_path / "servers.json"), list_wait=1)
    async with spawned([*HUB_BY_EXEC, "serve", "--config", str(config)]) as client:
        await client.initialize()
        for name in ("good", "stubborn"):
            await client.text(f"{name}__echo", {"text": "x"})
        first = await reaper_of(client, not_this=None)
        os.kill(first, signal.SIGKILL)
        second = await reaper_of(client, not_this=first)
        assert second != first
        assert await client.text("good__echo", {"text": "x"}) == "x"
        kill(client)
        await client.exited()
        assert await left(config) == []
    assert b"the reaper has ended" in client.stderr


async def reaper_of(client: StdioClient, *, not_this: int | None) -> int:
    """The process id of the hub's reaper, as its status says it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            process = await asyncio.create_subprocess_exec(
                *HUB_BY_EXEC, "status", "--json", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
            )
            output, _ = await process.communicate()
            for hub in json.loads(output):
                pid = hub.get("reaper", {}).get("pid")
                if hub["pid"] == client.process.pid and pid not in (None, not_this):
                    return int(pid)
