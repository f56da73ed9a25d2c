"""Serves the hub of a program to MCP clients."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from mcp_hub.config.models import Listen
from mcp_hub.downstream.admission import check_listener
from mcp_hub.downstream.dispatcher import Dispatcher
from mcp_hub.errors import ConfigError
from mcp_hub.library.engine_host import EngineHost
from mcp_hub.library.portal import Portal
from mcp_hub.transport.background import BACKGROUND


def serve(portal: Portal, running: EngineHost, transport: str, host: str | None, port: int | None) -> None:
    """Serves until the client leaves, or SIGTERM or SIGINT. Raises HubError and ConfigError."""
    stop = asyncio.Event()
    with _signals(portal, stop):
        if transport == "stdio":
            from mcp_hub.transport.standard_streams import claim

            stdin, stdout = claim()  # before anything can print
            portal.run(lambda: _while_watching(running, _stdio(running, stdin, stdout, stop)))
        elif transport in ("http", "sse"):
            listen = running.config.listen.with_options(host=host, port=port)
            sse = transport == "sse"
            portal.run(lambda: _while_watching(running, _network(running, listen, stop, sse=sse)))
        else:
            raise ConfigError(f"there is no transport {transport!r}; there are: stdio, http, sse")


async def _while_watching(running: EngineHost, serving: Coroutine[Any, Any, None]) -> None:
    watching = BACKGROUND.keep("watching files", running.watch_files)
    try:
        await serving
    finally:
        watching.cancel()
        await asyncio.wait({watching}, timeout=1)


async def _stdio(running: EngineHost, stdin: int, stdout: int, stop: asyncio.Event) -> None:
    from mcp_hub.downstream.stdio import serve_stdio

    await serve_stdio(Dispatcher(await running.hub()), stdin, stdout, stop)


async def _network(running: EngineHost, listen: Listen, stop: asyncio.Event, *, sse: bool) -> None:
    from mcp_hub.downstream.app import App, serve_network
    from mcp_hub.policy.quotas import Quotas

    objection = check_listener(listen)
    if objection is not None:
        raise ConfigError(objection)
    if listen.verify is not None:
        raise ConfigError("listen.verify is for `mcp-hub serve`; a program serves with listen.token or principals")
    quotas = Quotas(listen)
    app = App(Dispatcher(await running.hub(), quotas), listen, sse=sse, verifier=None, quotas=quotas)

    def ready(bases: list[str]) -> None:
        path = "/sse" if sse else "/mcp"
        for base in bases:
            address = f"{base} with the path {path}" if listen.socket_path is not None else base + path
            print(f"mcp-hub: serving {address}", file=sys.stderr, flush=True)

    await serve_network(app, listen, stop=stop, ready=ready)


@contextmanager
def _signals(portal: Portal, stop: asyncio.Event) -> Iterator[None]:
    """Ends serving on SIGTERM and SIGINT. Outside of the main thread signals cannot be handled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    async def set_stop() -> None:
        stop.set()

    def end(number: int, frame: object) -> None:
        portal.begin(set_stop)

    former_handlers = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in former_handlers.items():
            signal.signal(number, handler)
