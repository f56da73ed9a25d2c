"""Registries that are reached through a forward proxy: that of the environment, or of the configuration's root."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from mcp_hub.config.egress_settings import EgressSettings
from mcp_hub.config.field_types import SecretStr
from mcp_hub.registry.sources import HttpRegistry
from mcp_hub.transport.egress import Egress
from tests.diagnosis.looking import said
from tests.fakes.private_authority import PrivateAuthority
from tests.loops import anyio_backend  # noqa: F401
from tests.registry.loopback import answer, listing, npm
from tests.transport.forward_proxy import forwarding
from tests.transport.scripted_http import PATIENCE, Reply, Request, scripted

pytestmark = pytest.mark.anyio

NAME = "registry.example"


async def pages(request: Request, reply: Reply) -> None:
    await reply.json({"servers": [answer(listing("io.github.o/s", packages=[npm()]))], "metadata": {}})


async def test_a_registry_is_searched_through_the_proxy(tmp_path: Path) -> None:
    authority = PrivateAuthority(tmp_path)
    async with (
        scripted(pages, authority.server(NAME)) as server,
        forwarding(hosts={NAME: server.port}) as proxy,
        asyncio.timeout(PATIENCE),
    ):
        settings = EgressSettings(proxy=SecretStr(f"http://127.0.0.1:{proxy.port}"), ca=str(authority.ca))
        result = await HttpRegistry(f"https://{NAME}", Egress.of(settings, {})).search("s")
        assert [item.name for item in result.listings] == ["io.github.o/s"]
        assert proxy.asked == [f"CONNECT {NAME}:443"]


@pytest.mark.parametrize("place", ["root", "variable"])
async def test_a_search_uses_the_root_proxy_or_the_environments_proxy(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_HUB_REGISTRY", f"https://{NAME}")
    async with forwarding(user="me", password="word") as proxy, asyncio.timeout(PATIENCE):
        address = f"http://127.0.0.1:{proxy.port}"
        config = tmp_path / "servers.json"
        config.write_text(json.dumps({"servers": {}, **({"proxy": address} if place == "root" else {})}))
        config.chmod(0o600)
        monkeypatch.setenv("MCP_HUB_CONFIG", str(config))
        if place == "variable":
            monkeypatch.setenv("HTTPS_PROXY", address)
        done = await asyncio.to_thread(said, "search", "weather-of-nowhere", "--json")
        assert "wants a user and a password" in done.out
        assert proxy.asked
