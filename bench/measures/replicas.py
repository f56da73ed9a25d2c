"""Several replicas: what a call costs in all processes together, what a forward adds, and uses of the store."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil
from redis.asyncio import Redis

from bench.plan import Cast
from bench.processes import processor_seconds
from bench.rows import HUB
from bench.table import Table
from tests.fakes.client import fake
from tests.fakes.network import network_hub
from tests.replicas.raw_client import RawClient, raw, text_of
from tests.replicas.served import Cluster, cluster

CALLS: Final = 2000
FORWARDS: Final = 400
IDLE: Final = 3.0
"""Seconds in which the store's own traffic of idle replicas is counted."""
BALANCED: Final = 3

TABLE = Table.named(
    title="Replicas",
    what=f"{CALLS} calls of revision 2026-07-28 to a server that all clients share, one after the other, each replica "
    "in turn. CPU: of one call, in all processes of hubs and store together, without servers. `forwarded`: a call of a "
    f"handshake session that lands at another replica than its owner, beside one at its owner, {FORWARDS} of each in "
    "turn: medians. Uses of the store: for one call, beyond those of idle replicas in the same time.",
    columns=(
        ("CPU, one process, ms", "cpu one", 3),
        ("CPU, one replica with a store, ms", "cpu replica", 3),
        ("CPU, three replicas, ms", "cpu three", 3),
        ("uses of the store", "uses", 3),
        ("a call at its owner, ms", "owner", 2),
        ("a call that is forwarded, ms", "forwarded", 2),
        ("CPU of a forward, ms", "cpu forward", 3),
    ),
)


def measure(cast: Cast) -> None:
    """The figures of a hub alone, of one replica, and of three."""
    share = 8 if cast.plan.small else 1
    with cast.noting(HUB):
        for column, value in asyncio.run(_figures(CALLS // share, FORWARDS // share)).items():
            cast.add(HUB, column, value)


async def _figures(calls: int, forwards: int) -> dict[str, float]:
    found: dict[str, float] = {}
    root: dict[str, Any] = {"call_log": "off"}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        async with network_hub(directory / "alone", {"up": fake()}, **root) as (process, url):
            found["cpu one"], _ = await _cost([url], [process.process.pid], calls)
        for count, column in ((1, "cpu replica"), (BALANCED, "cpu three")):
            place = directory / str(count)
            place.mkdir()
            async with cluster(place, {"up": fake()}, count, balanced=False, **root) as served:
                uses, idle = await _uses(served), IDLE
                await asyncio.sleep(idle)
                at_rest = (await _uses(served) - uses) / idle
                before = await _uses(served)
                found[column], took = await _cost(served.urls, _pids(served), calls)
                found["uses"] = max(0.0, await _uses(served) - before - at_rest * took) / calls
        place = directory / "own"
        place.mkdir()
        own = {"own": {**fake(), "session": "client"}}
        async with cluster(place, own, 2, balanced=False, **root) as served, raw(served.url) as client:
            found |= await _forwards(served, client, forwards)
    return found


async def _cost(urls: list[str], pids: list[int], calls: int) -> tuple[float, float]:
    """Milliseconds of processor time for one call, and the seconds that all calls took."""
    call = {"name": "up__echo", "arguments": {"text": "x"}}
    async with raw(urls[0]) as client:
        for url in urls * 20:
            text_of(await client.modern("tools/call", call, url))
        used, began = processor_seconds(pids), time.perf_counter()
        for number in range(calls):
            text_of(await client.modern("tools/call", call, urls[number % len(urls)]))
        took = time.perf_counter() - began
    return 1000 * (processor_seconds(pids) - used) / calls, took


async def _forwards(served: Cluster, client: RawClient, forwards: int) -> dict[str, float]:
    """A call at the owner of a session, and one that is forwarded there."""
    owner, other = served.urls
    await client.begin(owner)
    turns: dict[str, list[float]] = {"owner": [], "forwarded": []}
    used = {"owner": 0.0, "forwarded": 0.0}
    for url in (owner, other) * 20:
        text_of(await client.call("own__echo", {"text": "x"}, url))
    pids = _pids(served)
    for _ in range(forwards // 20):
        for where, url in (("owner", owner), ("forwarded", other)):
            before = processor_seconds(pids)
            for _ in range(20):
                began = time.perf_counter()
                text_of(await client.call("own__echo", {"text": "x"}, url))
                turns[where].append(1000 * (time.perf_counter() - began))
            used[where] += processor_seconds(pids) - before
    more = 1000 * (used["forwarded"] - used["owner"]) / len(turns["owner"])
    return {where: median(times) for where, times in turns.items()} | {"cpu forward": max(0.0, more)}


def _pids(served: Cluster) -> list[int]:
    """The processes of hubs and store."""
    stores = [one.pid for one in psutil.Process().children() if "redis-server" in " ".join(one.cmdline())]
    return [*(process.process.pid for process, _ in served.replicas), *stores]


async def _uses(served: Cluster) -> int:
    """How often the store was asked by replicas, which do all that matters by scripts."""
    store = Redis(unix_socket_path=str(served.store.socket))
    async with contextlib.aclosing(store):
        facts = await store.info("commandstats")
    return sum(int(one["calls"]) for name, one in facts.items() if name in ("cmdstat_eval", "cmdstat_evalsha"))
