"""Ten faulty servers of every transport and era behind one hub on a network, and the means to disturb them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.client import HUB, PATIENCE, StdioClient, spawned
from tests.faults.front import FAULTY

STDIO_FAULTS = (
    "crash", "half-line", "not-json", "invalid-utf8", "noise", "null-result", "odd-error", "duplicate", "stray",
    "deep-nesting", "storm", "asks", "stderr-flood", "hang", "exit-at-start", "slow-start",
)  # fmt: skip
HTTP_FAULTS = (
    "http-404", "http-429", "http-500", "http-html", "http-redirect", "http-type", "http-cut", "http-cut-json",
    "http-empty", "http-garbage", "hang",
)  # fmt: skip
ENTRY = {"deadlines": {"call": 5, "connect": 5}, "health": {"ping": 1, "relist": 5, "unlist_after": 20}}
READY = b"Serving"


@dataclass
class Target:
    """One server: its transport, its process, and the files that control its faults."""

    id: str
    transport: str
    era: str
    directory: Path
    url: str | None = None
    process: StdioClient | None = None
    """Of a server that the hub does not start itself."""
    reloads: int = 0

    @property
    def switch(self) -> Path:
        return self.directory / f"{self.id}.switch"

    @property
    def effects(self) -> Path:
        return self.directory / f"{self.id}.effects"

    @property
    def faults(self) -> tuple[str, ...]:
        return HTTP_FAULTS if self.transport == "http" else STDIO_FAULTS

    def argv(self) -> list[str]:
        files = ["--switch", str(self.switch), "--effects", str(self.effects)]
        return [sys.executable, FAULTY, *files, "--era", self.era]

    def entry(self) -> dict[str, Any]:
        if self.url is not None:
            return {"url": self.url, "transport": self.transport, **ENTRY}
        command, *args = self.argv()
        return {"command": command, "args": args, "env": {"RELOADS": str(self.reloads)}, **ENTRY}

    def executed(self) -> dict[str, int]:
        """Returns how often each nonce was executed."""
        counts: dict[str, int] = {}
        for nonce in self.effects.read_text().split() if self.effects.exists() else ():
            counts[nonce] = counts.get(nonce, 0) + 1
        return counts


@dataclass
class World:
    """The hub, its servers, and the file that says which there are."""

    hub: StdioClient
    base: str
    targets: list[Target]
    directory: Path
    config: Path
    run_dir: Path
    stopped: set[int] = field(default_factory=set)
    """The ids of processes that are stopped."""

    def write(self) -> None:
        """Writes the current configuration."""
        write(self.config, self.directory, self.targets)

    def reload(self) -> None:
        self.write()
        self.hub.process.send_signal(signal.SIGHUP)

    async def facts(self) -> dict[str, Any]:
        """Returns the status of the hub, its descriptors, children and memory."""
        path = self.run_dir / f"{self.hub.process.pid}.sock"
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_unix_connection(str(path))
            try:
                writer.write(b'{"ask": "status"}\n')
                facts: dict[str, Any] = json.loads(await reader.read())
            finally:
                writer.close()
        pid = self.hub.process.pid
        facts["descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - a count is all that is wanted
        facts["children"] = len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        rss = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        facts["rss"] = int(rss[1]) * 1024 if rss is not None else 0
        return facts

    async def pid_of(self, target: Target) -> int | None:
        if target.process is not None:
            return target.process.process.pid
        servers = (await self.facts())["servers"]
        pid: int | None = next(server["pid"] for server in servers if server["server"] == target.id)
        return pid

    def hold(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self.stopped.add(pid)

    def let_go(self, pid: int) -> None:
        self.stopped.discard(pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def calm(self) -> None:
        """Ends all faults: resumes stopped processes and empties the switches."""
        for pid in list(self.stopped):
            self.let_go(pid)
        for target in self.targets:
            target.switch.write_text("")


def write(config: Path, directory: Path, targets: list[Target]) -> None:
    """Writes the configuration of the hub, which is not watched, but loaded again on SIGHUP."""
    servers = {target.id: target.entry() for target in targets}
    tree = {"servers": servers, "cache_dir": str(directory / "cache"), "watch": False, "call_log": "off"}
    fresh = config.with_suffix(".new")
    fresh.write_text(json.dumps(tree))
    fresh.chmod(0o600)
    fresh.replace(config)


@contextlib.asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    """Six servers over stdio, three over HTTP, one over SSE; half of them of each era."""
    eras = ("handshake", "modern")
    targets = [Target(f"stdio{n}", "stdio", eras[n % 2], directory) for n in range(6)]
    targets += [Target(f"http{n}", "http", eras[n % 2], directory) for n in range(3)]
    run_dir, config = directory / "run", directory / "servers.json"
    env = {"MCP_HUB_RUNTIME_DIR": str(run_dir)}
    async with contextlib.AsyncExitStack() as stack:
        for target in targets:
            target.switch.write_text("")
            if target.transport == "http":
                target.process = await stack.enter_async_context(spawned([*target.argv(), "--http"]))
                stack.callback(_killed, target.process)
                target.url = (await target.process.notified("listening"))[0]["params"]["url"]
        targets.append(await _over_sse(stack, directory))
        write(config, directory, targets)
        serving = spawned([*HUB, "serve", "--sse", "--port", "0", "--config", str(config)], env=env)
        hub = await stack.enter_async_context(serving)
        stack.callback(_terminated, hub)
        system = World(hub, await _base(hub), targets, directory, config, run_dir)
        stack.callback(system.calm)
        yield system


async def _over_sse(stack: contextlib.AsyncExitStack, directory: Path) -> Target:
    """A server over SSE: a hub in front of one over stdio."""
    target = Target("sse0", "stdio", "handshake", directory)
    target.switch.write_text("")
    inner = directory / "inner"
    inner.mkdir()
    path = inner / "servers.json"
    command, *args = target.argv()
    entry = {"command": command, "args": args, "namespace": "", **ENTRY}
    tree = {"servers": {"x": entry}, "cache_dir": str(inner / "cache"), "watch": False, "call_log": "off"}
    path.write_text(json.dumps(tree))
    path.chmod(0o600)
    env = {"MCP_HUB_RUNTIME_DIR": str(inner / "run")}
    argv = [*HUB, "serve", "--sse", "--port", "0", "--config", str(path)]
    target.process = await stack.enter_async_context(spawned(argv, env=env))
    stack.callback(_terminated, target.process)
    target.url, target.transport = f"{await _base(target.process)}/sse", "sse"
    return target


async def _base(hub: StdioClient) -> str:
    await hub.until(lambda: READY in hub.stderr)
    match = re.search(rb"(http://127\.0\.0\.1:\d+)/mcp", hub.stderr)
    assert match is not None
    return match[1].decode()


def _terminated(client: StdioClient) -> None:
    with contextlib.suppress(ProcessLookupError):
        client.process.terminate()


def _killed(client: StdioClient) -> None:
    with contextlib.suppress(ProcessLookupError):
        client.process.kill()
