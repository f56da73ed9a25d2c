"""A session that cannot be given to the other replicas is refused, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcp_hub.config.models import Listen
from mcp_hub.config.store import StoreSettings
from mcp_hub.downstream import Caller
from mcp_hub.downstream.app import App, serve_network
from mcp_hub.downstream.dispatcher import Dispatcher
from mcp_hub.downstream.replicas import Replicas
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import load_config
from tests.fakes.client import PATIENCE, write_config

pytestmark = pytest.mark.anyio
HEADERS = {"accept": "application/json, text/event-stream"}


def initialize(number: int) -> dict[str, Any]:
    info = {"name": "raw", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    return {"jsonrpc": "2.0", "id": number, "method": "initialize", "params": params}


def callers() -> set[int]:
    gc.collect()
    return {id(caller) for caller in gc.get_objects() if isinstance(caller, Caller)}


async def test_an_initialize_that_is_refused_without_the_store_leaves_no_caller_behind(tmp_path: Path) -> None:
    async with Engine(load_config(write_config(tmp_path, {}))) as hub:
        dispatcher = Dispatcher(hub)
        app = App(dispatcher, Listen(port=0), sse=False)
        replicas = Replicas(StoreSettings.model_validate({"url": f"unix://{tmp_path}/nowhere"}), dispatcher)
        app.join(replicas)
        stop = asyncio.Event()
        bases: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve_network(app, Listen(port=0), stop=stop, grace=1.0, ready=bases.set_result))
        try:
            async with asyncio.timeout(PATIENCE), httpx2.AsyncClient(base_url=(await bases)[0]) as http:
                before = callers()  # others in this process may have left some
                for number in range(20):
                    answer = await http.post("/mcp", json=initialize(number), headers=HEADERS)
                    assert answer.status_code == 503
                    assert answer.json()["error"]["data"]["code"] == "store_unavailable"
                assert callers() <= before
        finally:
            stop.set()
            await asyncio.wait({serving}, timeout=PATIENCE)
            serving.result()
            await replicas.close()
