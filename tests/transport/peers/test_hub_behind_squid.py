"""A hub reaches another one through squid, over streamable HTTP and SSE, and says so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from mcp_hub import codes
from tests.diagnosis.looking import configured, said
from tests.downstream.network.visitor import network_hub
from tests.fakes.client import PATIENCE, fake
from tests.transport.peers.debian_proxies import PASSWORD, squid

pytestmark = pytest.mark.anyio

TOKEN = "a-token-of-thirty-two-bytes-or-more"


async def test_check_and_doctor_print_the_proxy_by_which_servers_are_reached(tmp_path: Path) -> None:
    async with network_hub(tmp_path / "far", {"up": fake()}, {"token": TOKEN}) as (_, base), squid() as proxy:
        route = f"through http://127.0.0.1:{proxy.port} (proxy)"
        # Squid adds X-Forwarded-For; the hub requires a token of every request that has it.
        signed = {"headers": {"Authorization": f"Bearer {TOKEN}"}}
        path = configured(
            tmp_path,
            {
                "http": {"url": f"{base}/mcp", "proxy": proxy.url(), **signed},
                "sse": {"url": f"{base}/sse", "proxy": proxy.url(), **signed},
                "near": {"url": f"{base}/mcp", **signed},
                "shut": {"url": "https://mcp.example/mcp", "proxy": proxy.url("me:wr0ng-w0rd@")},
            },
        )
        async with asyncio.timeout(PATIENCE):
            checked = await asyncio.to_thread(said, "check", "--config", str(path))
            facts = await asyncio.to_thread(said, "check", "--config", str(path), "--json")
            doctor = await asyncio.to_thread(said, "doctor", "--config", str(path))
        assert f"http: reached {route}" in checked.out
        assert f"sse: reached {route}" in checked.out
        assert codes.PROXY_CREDENTIALS in checked.codes
        assert "3 of 4 servers work" in checked.out, checked.out
        routes = {fact["server"]: fact["way"] for fact in json.loads(facts.out)["servers"]}
        assert routes == {"http": route, "sse": route, "near": "direct", "shut": route}
        assert f"connected {route}" in " ".join(doctor.out.split())  # wherever a line is wrapped
        for text in (checked, facts, doctor):
            assert PASSWORD not in text.out + text.err
            assert "wr0ng-w0rd" not in text.out + text.err
        await proxy.logged("/mcp")
        await proxy.logged("/sse")
