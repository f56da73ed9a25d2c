"""Several replicas: what a call costs in all processes together, what a forward adds, and uses of the store."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bench.plan import Cast
from bench.processes import processor_seconds
from bench.rows import HUB
from bench.table import Table

if TYPE_CHECKING:
    from tests.replicas.raw_client import RawClient
    from tests.replicas.served import Cluster

CALLS: Final = 2000
FORWARDS: Final = 400
ROUNDS: Final = 40
COUNT: Final = 3
WARM: Final = 100
IDLE: Final = 5.0
"""Seconds in which the processor time of idle processes is taken."""
CALL: Final = {"name": "up__echo", "arguments": {"text": "x"}}

TABLE = Table.named(
    title="Replicas",
    what=f"{CALLS} calls of revision 2026-07-28 to a server that all clients share, one after the other, each process "
    f"in turn. All four run at once and are called in {ROUNDS} turns. CPU: of one call, in all processes of hubs and "
    "store together, without servers and without what these processes take when they are idle, which is beside it. "
    "`apart`: three processes that know nothing of each other. Uses of the store: by calls of three replicas, as the "
    "store itself counts them, without what idle replicas ask. `forwarded`: a call of a handshake "
    f"session that lands at another replica than its owner, beside one at its owner, {FORWARDS} of each in turn: "
    "medians.",
    columns=(
        ("CPU, one process, ms", "cpu one", 3),
        ("CPU, one replica with a store, ms", "cpu replica", 3),
        ("CPU, three processes apart, ms", "cpu apart", 3),
        ("CPU, three replicas, ms", "cpu three", 3),
        ("uses of the store", "uses", 3),
        ("idle: CPU of a process, ms a second", "idle apart", 1),
        ("of a replica with its part of the store", "idle three", 1),
        ("a call at its owner, ms", "owner", 2),
        ("a call that is forwarded, ms", "forwarded", 2),
        ("CPU of a forward, ms", "cpu forward", 3),
    ),
)


class Way(NamedTuple):
    """The URLs that calls go to, in turn, and the processes whose time is counted."""

    urls: list[str]
    pids: list[int]


def measure(cast: Cast) -> None:
    """The figures of a hub alone, of one replica, and of three."""
    share = 8 if cast.plan.small else 1
    with cast.noting(HUB):
        for column, value in asyncio.run(_figures(CALLS // share, FORWARDS // share)).items():
            cast.add(HUB, column, value)


async def _figures(calls: int, forwards: int) -> dict[str, float]:
    # Imported here: they take most of a second, which every start of the benchmark would wait for.
    from tests.fakes.client import fake
    from tests.fakes.network import network_hub
    from tests.replicas.raw_client import raw
    from tests.replicas.served import cluster

    root: dict[str, Any] = {"call_log": "off"}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        async with contextlib.AsyncExitStack() as stack:
            apart = []
            for number in range(COUNT):
                hub = network_hub(directory / f"apart{number}", {"up": fake()}, **root)
                apart.append(await stack.enter_async_context(hub))
            served = []
            for count in (1, COUNT):
                path = directory / str(count)
                path.mkdir()
                context = cluster(path, {"up": fake()}, count, balanced=False, **root)
                served.append(await stack.enter_async_context(context))
            client = await stack.enter_async_context(raw(served[-1].url))
            setups = {
                "cpu one": Way([apart[0][1]], [apart[0][0].process.pid]),
                "cpu replica": Way(served[0].urls, _pids(served[0])),
                "cpu apart": Way([url for _, url in apart], [process.process.pid for process, _ in apart]),
                "cpu three": Way(served[1].urls, _pids(served[1])),
            }
            figures = await _costs(client, setups, calls)
            async with served[1].store.watched() as commands:
                await _calls(client, served[1].urls, WARM)
            figures["uses"] = len(commands) / WARM
        path = directory / "own"
        path.mkdir()
        own = {"own": {**fake(), "session": "client"}}
        async with cluster(path, own, 2, balanced=False, **root) as two, raw(two.url) as client:
            figures |= await _forwards(two, client, forwards)
    return figures


async def _costs(client: RawClient, setups: dict[str, Way], calls: int) -> dict[str, float]:
    """Milliseconds of processor time of one call in each setup, and of a second without calls."""
    for setup in setups.values():
        await _calls(client, setup.urls, WARM * len(setup.urls))
    before = {name: processor_seconds(setup.pids) for name, setup in setups.items()}
    await asyncio.sleep(IDLE)
    idle = {name: (processor_seconds(setup.pids) - before[name]) / IDLE for name, setup in setups.items()}
    used = dict.fromkeys(setups, 0.0)
    for number in range(ROUNDS):
        order = list(setups.items())
        for name, setup in order[number % len(order) :] + order[: number % len(order)]:
            began, already = time.perf_counter(), processor_seconds(setup.pids)
            await _calls(client, setup.urls, calls // ROUNDS)
            used[name] += processor_seconds(setup.pids) - already - idle[name] * (time.perf_counter() - began)
    figures = {name: 1000 * seconds / (calls // ROUNDS * ROUNDS) for name, seconds in used.items()}
    return figures | {f"idle {name}": 1000 * idle[f"cpu {name}"] / COUNT for name in ("apart", "three")}


async def _calls(client: RawClient, urls: list[str], calls: int) -> None:
    from tests.replicas.raw_client import text_of

    for number in range(calls):
        text_of(await client.modern("tools/call", CALL, urls[number % len(urls)]))


async def _forwards(served: Cluster, client: RawClient, forwards: int) -> dict[str, float]:
    """A call at the owner of a session, and one that is forwarded there."""
    from tests.replicas.raw_client import text_of

    owner, peer = served.urls
    await client.begin(owner)
    turns: dict[str, list[float]] = {"owner": [], "forwarded": []}
    used = {"owner": 0.0, "forwarded": 0.0}
    for url in (owner, peer) * 20:
        text_of(await client.call("own__echo", {"text": "x"}, url))
    pids = _pids(served)
    for _ in range(forwards // 20):
        for kind, url in (("owner", owner), ("forwarded", peer)):
            before = processor_seconds(pids)
            for _ in range(20):
                began = time.perf_counter()
                text_of(await client.call("own__echo", {"text": "x"}, url))
                turns[kind].append(1000 * (time.perf_counter() - began))
            used[kind] += processor_seconds(pids) - before
    extra = 1000 * (used["forwarded"] - used["owner"]) / len(turns["owner"])
    return {kind: median(times) for kind, times in turns.items()} | {"cpu forward": max(0.0, extra)}


def _pids(served: Cluster) -> list[int]:
    """The processes of hubs and store."""
    return [*(process.process.pid for process, _ in served.replicas), served.store.pid]
