"""What a replica reports of itself, its peers and the store: in health checks, in its status and in metrics."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fakes.client import HUB, PATIENCE, fake, spawned, write_config
from tests.replicas.raw_client import raw, text_of
from tests.replicas.served import cluster
from tests.replicas.test_leaving import state

pytestmark = pytest.mark.anyio


async def test_status_metrics_and_health_report_the_state_of_replicas_and_store(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, {"up": fake()}, 2, balanced=False) as served,
        raw(served.url) as client,
        aiohttp.ClientSession() as http,
    ):
        await client.begin()
        assert text_of(await client.call("up__echo", {"text": "a"}, served.urls[1])) == "a"
        async with asyncio.timeout(PATIENCE):
            while (facts := await facts_of(served.replicas[0][0].process.pid))["others"][0]["address"] == "":
                pass  # the other replica announces its address within half a second
        assert [replica["address"] for replica in facts["others"]] == [served.urls[1]]
        assert facts["replicas"] == 2
        assert facts["store"] == "ok"
        assert facts["owned"] == 1
        assert {"mcp_hub_replicas 2", "mcp_hub_store_away 0"} <= set((await page(http, served.url)).splitlines())
        served.store.pause()
        async with asyncio.timeout(PATIENCE):
            while await state(http, f"{served.url}/healthz/ready") != (200, {"status": "ok", "store": "away"}):
                await asyncio.sleep(0.05)
        assert "mcp_hub_store_away 1" in await page(http, served.url)
        assert (await facts_of(served.replicas[0][0].process.pid))["store"] == "away"
        served.store.resume()
        async with asyncio.timeout(PATIENCE):
            while await state(http, f"{served.url}/healthz") != (200, {"status": "ok", "store": "ok"}):
                await asyncio.sleep(0.05)


async def test_modern_requests_for_shared_servers_send_no_command_to_the_store(tmp_path: Path) -> None:
    requests: list[tuple[str, dict[str, Any]]] = [
        ("tools/call", {"name": "up__echo", "arguments": {"text": "a"}}),
        ("tools/list", {}),
        ("resources/read", {"uri": "fake://fake/one"}),
        ("prompts/get", {"name": "up__greet", "arguments": {"who": "a"}}),
        ("server/discover", {}),
    ]
    async with (
        cluster(tmp_path, {"up": fake()}, 2, balanced=False) as served,
        raw(served.url) as client,
        served.store.watched() as commands,
    ):
        for number in range(60):
            for method, params in requests:
                answer = await client.modern(method, params, served.urls[number % 2])
                assert "result" in answer, answer
    assert commands == []


async def test_calls_of_a_known_session_for_shared_servers_send_no_command_to_the_store(tmp_path: Path) -> None:
    async with cluster(tmp_path, {"up": fake()}, 2, balanced=False) as served, raw(served.url) as client:
        await client.begin()
        for url in served.urls:
            assert text_of(await client.call("up__echo", {"text": "a"}, url)) == "a"
        async with served.store.watched() as commands:
            for number in range(60):
                assert text_of(await client.call("up__echo", {"text": "a"}, served.urls[number % 2])) == "a"
    assert commands == []


@pytest.mark.parametrize(("host", "why"), [("0.0.0.0", "all addresses"), ("unix:hub.sock", "a Unix socket")])
async def test_a_replica_with_an_unreachable_address_is_refused_at_startup(tmp_path: Path, host: str, why: str) -> None:
    listen = {"host": host.replace("unix:", f"unix:{tmp_path}/"), "token": "t" * 40}
    config = write_config(tmp_path, {}, store="redis://store.invalid:6379", listen=listen)
    async with spawned([*HUB, "serve", "--http", "--port", "0", "--config", str(config)]) as process:
        assert await process.exited() == 2
        stderr = process.stderr.decode()
    assert f"store.address: the other replicas cannot tell how to reach this one, as listen.host is {why}" in stderr
    assert "give its URL, such as http://10.0.0.7:8808" in stderr


async def page(http: aiohttp.ClientSession, url: str) -> str:
    async with http.get(f"{url}/metrics") as response:
        return await response.text()


async def facts_of(pid: int) -> dict[str, Any]:
    """Returns the facts of a replica in `mcp-hub status --json`."""
    process = await asyncio.create_subprocess_exec(*HUB, "status", "--json", stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    hubs = json.loads(out)
    own_hub = next(hub for hub in (hubs if isinstance(hubs, list) else hubs["hubs"]) if hub["pid"] == pid)
    facts: dict[str, Any] = own_hub["replicas"]
    return facts
