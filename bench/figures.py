"""The figures the README and ARCHITECTURE.md speak of, measured on this machine: `scripts/figures`.

Every row is a median; ratios are of runs side by side, because machines are noisy. Upstreams are the scripted server of
the tests, the client is a raw one, so that neither is the bottleneck.
"""

from __future__ import annotations

import asyncio
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.fakes.client import FAKE, HUB, StdioClient, fake, hub, spawned, write_config
from tests.hub.test_nothing_outlives_the_hub import left, marked

REPEATS = 5
BAD = {"slow": fake("--start-delay", "12"), "silent": fake("--silent"), "dead": {"command": "/nonexistent/server"}}


async def median(measure: Callable[[Path], Awaitable[float]], repeats: int = REPEATS) -> float:
    seconds = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as directory:
            seconds.append(await measure(Path(directory)))
    return statistics.median(seconds)


def start_to(answer: Callable[[StdioClient], Awaitable[Any]], servers: dict[str, Any], kept: bool = False) -> Any:
    """Seconds from the spawn of a hub to an answer; with `kept`, of its second start."""

    async def measure(directory: Path) -> float:
        if kept:
            async with hub(directory, servers, list_wait=60) as first:
                await first.tool_names()
        config = write_config(directory, servers, list_wait=60)
        began = time.perf_counter()
        async with spawned([*HUB, "serve", "--config", str(config)]) as client:
            await client.initialize()
            await answer(client)
            return time.perf_counter() - began

    return measure


async def nothing(client: StdioClient) -> None:
    pass


def end_by(number: int | None) -> Any:
    async def measure(directory: Path) -> float:
        servers = marked(directory / "servers.json")
        config = write_config(directory, servers, list_wait=1)
        async with spawned([*HUB, "serve", "--config", str(config)]) as client:
            await client.initialize()
            for name in ("good", "stubborn", "modern"):
                await client.text(f"{name}__echo", {"text": "x"})
            client.start("tools/call", {"name": "good__sleep", "arguments": {}})
            began = time.perf_counter()
            if number is None:
                assert client.process.stdin is not None
                client.process.stdin.close()
            else:
                client.process.send_signal(number)
            assert await left(config) == []
            return time.perf_counter() - began

    return measure


async def sequential(client: StdioClient, name: str, calls: int = 300) -> float:
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        await client.call(name, {"text": "x"})
        times.append(time.perf_counter() - began)
    return statistics.median(times)


async def against_direct(directory: Path, big: int = 32 * 2**20) -> tuple[float, float, float, float]:
    """(p50 direct, p50 through the hub, large result direct, large result through the hub), seconds."""
    config = write_config(directory, {"up": fake()})
    direct_argv = [sys.executable, FAKE]
    async with spawned(direct_argv) as direct, spawned([*HUB, "serve", "--config", str(config)]) as through:
        await direct.initialize()
        await through.initialize()
        await through.tool_names()
        rows = [(await sequential(direct, "echo"), await sequential(through, "up__echo")) for _ in range(REPEATS)]
        began = time.perf_counter()
        await direct.text("big", {"bytes": big})
        middle = time.perf_counter()
        await through.text("up__big", {"bytes": big})
        end = time.perf_counter()
    return (*(statistics.median(column) for column in zip(*rows, strict=True)), middle - began, end - middle)


def row(text: str, seconds: float, note: str = "") -> None:
    print(f"| {text} | {seconds * 1000:,.1f} ms | {note} |", flush=True)


async def main() -> None:
    one = {"good": fake()}
    ten = {f"s{n}": fake("--tools", "5") for n in range(10)}
    fifty = {f"s{n}": fake("--tools", "5") for n in range(50)}
    print("| what | median | |\n|---|---|---|")
    base = await median(start_to(nothing, one))
    row("start to `initialize`, one good upstream", base)
    beside = await median(start_to(nothing, {**BAD, **one}))
    row("the same beside a slow, a silent and a dead one", beside, f"{beside / base:.2f} x")
    row("start to the complete list, 10 upstreams, nothing kept", await median(start_to(StdioClient.tool_names, ten)))
    row("the same from the kept catalog", await median(start_to(StdioClient.tool_names, ten, kept=True)))
    row("start to 1,000 tools of 50 upstreams, nothing kept", await median(start_to(StdioClient.tool_names, fifty), 3))
    row("the same from the kept catalog", await median(start_to(StdioClient.tool_names, fifty, kept=True), 3))
    with tempfile.TemporaryDirectory() as directory:
        direct, through, big_direct, big_through = await against_direct(Path(directory))
    row("one call, direct over stdio", direct)
    row("one call, stdio to stdio through the hub", through, f"{through / direct:.2f} x direct")
    row("a 32 MiB result, direct", big_direct)
    row("a 32 MiB result through the hub", big_through, f"{big_through / big_direct:.2f} x direct")
    for text, number in (("stdin closes", None), ("SIGTERM", signal.SIGTERM), ("SIGKILL of the hub", signal.SIGKILL)):
        row(
            f"{text} to no process left (stubborn children and grandchildren)",
            await median(end_by(number), 3),
            "promise: 5 s",
        )


if __name__ == "__main__":
    asyncio.run(main())
