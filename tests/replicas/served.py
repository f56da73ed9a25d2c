"""Several replicas of one hub behind Debian's haproxy, which sends each request to the next one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.fakes.client import PATIENCE, StdioClient, free_port
from tests.fakes.network import network_hub
from tests.fakes.redis_server import RedisServer, redis_server

_HAPROXY = """
defaults
    mode http
    timeout connect 2s
    timeout check 1s
    timeout client 60s
    timeout server 60s
    retries 2
    option redispatch 1
    option http-server-close
frontend all
    bind 127.0.0.1:{port}
    default_backend replicas
backend replicas
    balance roundrobin
    option httpchk
    http-check send meth GET uri /healthz ver HTTP/1.1 hdr Host localhost
    default-server check inter 100ms fall 2 rise 1
{servers}
"""


Start = Callable[[int], Awaitable[tuple[StdioClient, str]]]
"""Starts the replica with a number, and returns it with its URL."""


class Cluster(msgspec.Struct):
    """A running cluster: the replicas with their URLs, the store, and the URL of the balancer in front."""

    store: RedisServer
    replicas: list[tuple[StdioClient, str]]
    url: str
    start: Start

    @property
    def urls(self) -> list[str]:
        """The URLs of the replicas, past the balancer."""
        return [url for _, url in self.replicas]

    def kill(self, number: int) -> None:
        """Kills a replica with SIGKILL."""
        self.signal(number, signal.SIGKILL)

    async def end(self, number: int) -> None:
        """Kills a replica, and waits for its exit: from then on it accepts no connection."""
        self.kill(number)
        await self.replicas[number][0].process.wait()

    async def restart(self, number: int) -> None:
        """Starts an ended replica again at its previous address."""
        await self.replicas[number][0].process.wait()
        self.replicas[number] = await self.start(number)

    def signal(self, number: int, signal_number: signal.Signals) -> None:
        """Sends a signal to a replica."""
        self.replicas[number][0].process.send_signal(signal_number)


@contextlib.asynccontextmanager
async def cluster(
    directory: Path,
    servers: dict[str, Any],
    count: int = 3,
    *,
    balanced: bool = True,
    keys: Sequence[str] = (),
    **root: Any,
) -> AsyncIterator[Cluster]:
    """Runs so many replicas for the block, with a store and, where `balanced`, a balancer.

    `keys`: those of the configuration; without them, the replicas keep keys in the store.
    """
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(redis_server())
        ports = [free_port() for _ in range(count)]

        async def start(number: int) -> tuple[StdioClient, str]:
            settings = {"url": store.url, "keys": [*keys]}
            hub = network_hub(directory / f"replica{number}", servers, ports[number], store=settings, **root)
            return await stack.enter_async_context(hub)

        replicas = list(await asyncio.gather(*map(start, range(count))))
        if not balanced:
            yield Cluster(store, replicas, replicas[0][1], start)
            return
        port = free_port()
        await stack.enter_async_context(_balancer(directory, port, [url for _, url in replicas]))
        yield Cluster(store, replicas, f"http://127.0.0.1:{port}", start)


@contextlib.asynccontextmanager
async def _balancer(directory: Path, port: int, urls: list[str]) -> AsyncIterator[None]:
    lines = [f"    server r{n} {url.removeprefix('http://')}" for n, url in enumerate(urls)]
    config = directory / "haproxy.cfg"
    config.write_text(_HAPROXY.format(port=port, servers="\n".join(lines)))
    program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None
    process = await asyncio.create_subprocess_exec(program, "-db", "-f", str(config))
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.01)
        yield
    finally:
        process.kill()
        await process.wait()
