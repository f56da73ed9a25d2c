"""What serves the app in a test: the hub's listener, or uvicorn with the hub mounted in it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Literal

import uvicorn

from mcp_hub.config.models import Listen
from mcp_hub.downstream.admission import check_listener
from mcp_hub.downstream.app import END_GRACE, App
from mcp_hub.errors import HubError
from mcp_hub.transport.asgi import AsgiFront
from mcp_hub.transport.http1 import listening_sockets

HANG_BOUND = 60.0
"""Seconds after which any wait of a test is a failure."""
FRONTS: dict[Literal["now"], str] = {"now": "listener"}
"""The server of the app now: `listener`, the hub's own, or `asgi`, uvicorn (conftest.py)."""


async def serve_by_uvicorn(
    app: App, listen: Listen, *, stop: asyncio.Event, grace: float, ready: Callable[[list[str]], None]
) -> None:
    """Does what `serve_network` does, with the server of an application that the app is mounted in."""
    if (problem := check_listener(listen)) is not None:
        raise HubError(problem)
    sockets = await listening_sockets.bind(listen)
    front = AsgiFront(app, app.refusals)
    config = uvicorn.Config(front, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[assignment, method-assign]
    server_task = asyncio.create_task(server.serve(sockets=sockets))
    try:
        ready([listening_sockets.base_url(sock, "http") for sock in sockets])
        await stop.wait()
        await app.drain(grace)
        await front.close(END_GRACE)
    finally:
        server.should_exit = True
        await asyncio.wait({server_task}, timeout=HANG_BOUND)
        app.refusals.close()
        for sock in sockets:
            sock.close()
