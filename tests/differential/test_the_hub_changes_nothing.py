"""The same random traffic, directly and through the hub: the answers are the same, members nobody knows included.

`MCP_HUB_DIFFERENTIAL=N` sends N requests for each seed instead of the usual ones, and tries ten times as many seeds.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.fronts import ROOT
from tests.differential.clients import Talk, over_http, over_stdio
from tests.differential.traffic import LISTS, requests
from tests.fakes.client import HUB as MCP_HUB
from tests.fakes.client import free_port, write_config
from tests.peers.programs import network_server

pytestmark = pytest.mark.anyio

EXTRA_COUNT = int(os.environ.get("MCP_HUB_DIFFERENTIAL", "0"))
COUNT = EXTRA_COUNT or 150
SEEDS = range(30 if EXTRA_COUNT else 3)
OFF: dict[str, Any] = {
    "guard": False,
    "defaults": {"validate_arguments": "off", "retry": "off", "breaker": "off"},
    "call_log": "off",
}
"""All rules that can be switched off."""
HUB = [*MCP_HUB, "serve"]
HOPS_OWN = ("io.modelcontextprotocol/serverInfo",)


def mirror(seed: int) -> list[str]:
    return [sys.executable, "-m", "tests.differential.mirror", str(seed)]


@contextlib.asynccontextmanager
async def direct_and_through_hub(
    tmp: Path, seed: int, transport: str, modern: bool, rules: dict[str, Any]
) -> AsyncIterator[tuple[Talk, Talk]]:
    """A client of the server itself, and one of a hub with nothing else behind it; both over `transport`."""
    async with contextlib.AsyncExitStack() as stack:
        if transport == "stdio":
            entry: dict[str, Any] = {"command": sys.executable, "args": [*mirror(seed)[1:], "stdio"], "cwd": str(ROOT)}
        else:
            port = free_port()
            command = [*mirror(seed), "http", str(port)]
            await stack.enter_async_context(network_server(command, port, log=tmp / "mirror.log"))
            entry = {"url": f"http://127.0.0.1:{port}/mcp", "transport": "http"}
        entry |= {"namespace": "", "era": "modern" if modern else "handshake"}
        config = write_config(tmp, {"mirror": entry}, list_wait=20, expose="all", **rules)
        if transport == "stdio":
            direct = await stack.enter_async_context(over_stdio([*mirror(seed), "stdio"], modern))
            hub = await stack.enter_async_context(over_stdio([*HUB, "--config", str(config)], modern))
        else:
            port = free_port()
            command = [*HUB, "--http", "--port", str(port), "--config", str(config)]
            await stack.enter_async_context(network_server(command, port, log=tmp / "hub.log"))
            direct = await stack.enter_async_context(over_http(entry["url"], modern))
            hub = await stack.enter_async_context(over_http(f"http://127.0.0.1:{port}/mcp", modern))
        yield direct, hub


def json_text(value: Any) -> str:
    """Equal exactly for values that are equal in every member, its order, and the type and value of every number."""
    return json.dumps(value)


@pytest.mark.parametrize("rules", [OFF, {}], ids=["rules off", "default rules"])
@pytest.mark.parametrize("modern", [False, True], ids=["handshake", "modern"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("seed", SEEDS)
async def test_responses_and_the_messages_before_them_equal_those_of_a_direct_connection(
    tmp_path: Path, seed: int, transport: str, modern: bool, rules: dict[str, Any]
) -> None:
    async with direct_and_through_hub(tmp_path, seed, transport, modern, rules) as (direct, hub):
        for method, key, _ in LISTS:
            _, expected = await direct.ask(method, {})
            _, actual = await hub.ask(method, {})
            assert json_text(actual["result"][key]) == json_text(expected["result"][key])
        for number, (method, params) in enumerate(requests(seed, COUNT)):
            token = (None, number, f"token-{number}")[number % 3]
            expected_all = await direct.ask(method, params, token)
            actual_all = await hub.ask(method, params, token)
            assert json_text(actual_all) == json_text(expected_all), method
