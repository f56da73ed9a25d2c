"""The hub under many clients, measured on this machine: `scripts/load [--clients 1000] [--calls 5]`.

The hub is a process, its servers are processes, and all clients together are this one. Counts are exact; times are
ratios of rounds that take turns, because machines are noisy. The exit code is 1 when a call was lost or foreign.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import psutil

from mcp_hub.transport.http1.listening_sockets import connections_possible
from tests.fakes.client import fake
from tests.fakes.network import network_hub
from tests.load.clients import Client, Era, Tally, calling, closed, opened
from tests.load.slow import slow_clients

NORMAL = 20
"""Clients whose answers are timed while others are slow."""
WAITING = 50
"""Clients that wait for a server that hangs."""
WARM = 100
"""Clients before the first figure, so that what a process takes once is taken."""


class Run:
    """One hub, and whether every call was answered."""

    def __init__(self, port: int, hub: psutil.Process, directory: Path, options: argparse.Namespace) -> None:
        self.port = port
        self.record = directory / "record"
        """The file in which the server that is to be full records its requests."""
        self.hang = directory / "hang"
        """While this file exists, the slow server answers nothing."""
        self.hub = hub
        self.options = options
        self.sound = True

    def row(self, label: str, figure: str, note: str = "") -> None:
        print(f"| {label} | {figure} | {note} |", flush=True)

    def count(self, tally: Tally, expected: int, *coded: str) -> str:
        """The outcomes in words; anything but the expected ones makes the run unsound."""
        self.sound &= tally.outcomes.total() == expected and set(tally.outcomes) <= {"own", *coded}
        outcomes = {"lost": 0, "foreign": 0, **tally.outcomes}
        return ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items()))

    def rss(self) -> int:
        return int(self.hub.memory_info().rss)

    async def many(self, era: Era) -> None:
        clients, calls = self.options.clients, self.options.calls
        everybody = await opened(self.port, era, clients)
        began = asyncio.get_running_loop().time()
        tally = await calling(everybody, calls, "up__echo")
        took = asyncio.get_running_loop().time() - began
        counts = self.count(tally, clients * calls)
        times = f"p50 {tally.quantile(0.5) * 1000:,.0f} ms, p99 {tally.quantile(0.99) * 1000:,.0f} ms"
        ratio = f"p99 {tally.quantile(0.99) / tally.quantile(0.5):.1f} x p50"
        self.row(
            f"{clients:,} clients at once, {era} era, {calls} calls each",
            counts,
            f"{times}, {ratio}, {clients * calls / took:,.0f} a second",
        )
        await closed(everybody)

    async def idle(self) -> None:
        """Measures the memory of an idle session: with its connection, without it, with its standing stream."""
        count = self.options.clients
        before = self.rss()
        everybody = await opened(self.port, "handshake", count)
        with_connection = (self.rss() - before) / count / 1024
        self.count(await calling(everybody, self.options.calls, "up__echo"), count * self.options.calls)
        after_calls = (self.rss() - before) / count / 1024
        for client in everybody:
            client.writer.write(client._head.replace("POST", "GET").encode() + client.session.encode() + b"\r\n")
            await client.reader.readuntil(b"\r\n\r\n")
        standing = (self.rss() - before) / count / 1024
        await closed(everybody)
        alone = (self.rss() - before) / count / 1024
        self.row("memory of an idle session with its connection", f"{with_connection:.1f} KiB", "bound: 60 KiB")
        self.row(f"the same after {self.options.calls} calls", f"{after_calls:.1f} KiB", "bound: 60 KiB")
        self.row("the same with its standing stream open", f"{standing:.1f} KiB", "")
        self.row("after the connections have closed", f"{alone:.1f} KiB", "sessions stay for 30 min; memory is reused")

    async def beside(self, label: str, scene: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        """p99 of normal clients, alone and beside a scene, in rounds that take turns."""
        alone, disturbed = Tally(), Tally()
        ratios = []
        for turn in range(self.options.rounds):
            tallies: dict[bool, Tally] = {}
            for quiet in (True, False) if turn % 2 else (False, True):  # neither is always the first
                async with contextlib.nullcontext() if quiet else scene():
                    tallies[quiet] = await self.timed()
            alone.seconds += tallies[True].seconds
            disturbed.seconds += tallies[False].seconds
            ratios.append(tallies[False].quantile(0.99) / tallies[True].quantile(0.99))
        ratio = disturbed.quantile(0.99) / alone.quantile(0.99)
        times = f"{alone.quantile(0.99) * 1000:.1f} ms alone, {disturbed.quantile(0.99) * 1000:.1f} ms beside"
        rounds = f"{len(ratios)} rounds: {min(ratios):.2f} to {max(ratios):.2f}, median {statistics.median(ratios):.2f}"
        middle = disturbed.quantile(0.5) / alone.quantile(0.5)
        self.row(f"p99 of {NORMAL} clients beside {label}", f"{ratio:.2f} x", f"p50 {middle:.2f} x; {times}; {rounds}")

    async def timed(self) -> Tally:
        clients = await opened(self.port, "handshake", NORMAL)
        tally = await calling(clients, self.options.calls * 10, "up__echo")
        self.count(tally, NORMAL * self.options.calls * 10)
        await closed(clients)
        return tally

    @contextlib.asynccontextmanager
    async def nothing(self) -> AsyncIterator[None]:
        """Changes nothing: shows the noise of the machine in a ratio."""
        yield

    @contextlib.asynccontextmanager
    async def slow_server(self) -> AsyncIterator[None]:
        """Runs beside clients that wait for a server which does not answer."""
        clients = await opened(self.port, "modern", WAITING)
        self.hang.touch()
        waiting = asyncio.create_task(calling(clients, 1, "slow__echo"))
        try:
            yield
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            for client in clients:
                client.writer.transport.abort()
            self.hang.unlink()

    async def overload(self) -> None:
        clients = await opened(self.port, "handshake", min(400, self.options.clients))
        hanging = asyncio.create_task(calling(clients[:2], 1, "tight__sleep", seconds=600))
        while self.record.read_bytes().count(b'"sleep"') < 2:
            await clients[2].post("ping", None, 1)
        tally = await calling(clients[2:], self.options.calls, "tight__echo")
        counts = self.count(tally, len(clients[2:]) * self.options.calls, "overloaded")
        p99 = tally.quantile(0.99, tally.refused) * 1000
        self.row(f"{len(clients[2:])} clients of a server that is full", counts, f"told within {p99:,.0f} ms (p99)")
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        for client in clients:
            client.writer.transport.abort()


async def main(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as directory:
        tight = fake("--record", str(Path(directory, "record")), limits={"at_once": 2, "waiting": 0})
        servers = {"up": fake(), "slow": fake("--hang-if", str(Path(directory, "hang"))), "tight": tight}
        listen = {"limits": {"sessions": 10_000, "calls": 8192}}  # all of them are the one anonymous principal
        async with network_hub(Path(directory), servers, listen=listen) as (process, base):
            run = Run(int(base.rpartition(":")[2]), psutil.Process(process.process.pid), Path(directory), options)
            print("| what | figure | |\n|---|---|---|")
            warm: list[Client] = [*await opened(run.port, "handshake", WARM), *await opened(run.port, "modern", WARM)]
            await calling(warm, options.calls, "up__echo")
            await closed(warm)
            await run.idle()
            await run.many("handshake")
            await run.many("modern")
            await run.overload()
            await run.beside("nothing: the noise of the machine", run.nothing)
            await run.beside(f"{WAITING} that wait for a server that hangs", run.slow_server)
            await run.beside(
                f"{options.slow} that trickle or never read", lambda: slow_clients(run.port, options.slow, "up__big")
            )
            run.row("memory of the hub at the end", f"{run.rss() / 2**20:.0f} MiB", "")
            return 0 if run.sound else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="scripts/load", description=__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--slow", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args()
    connections_possible()  # this process has as many sockets as the hub
    sys.exit(asyncio.run(main(chosen)))
