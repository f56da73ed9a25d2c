"""AgentScope of both generations and Agently list and call through a real `mcp-hub serve`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.doors.packages import PACKAGES
from tests.fakes.client import HUB as MCP_HUB
from tests.fakes.client import free_port
from tests.peers.catalogue import Transport, hub_config, real_servers
from tests.peers.programs import network_server
from tests.peers.real_clients import run_client

pytestmark = pytest.mark.anyio

HUB = [*MCP_HUB, "serve"]
UPSTREAMS = ("handshake_only_stdio", "modern_only_stdio")
"""One of each era."""


@dataclass(frozen=True)
class Served:
    """One hub on a network, and the configuration for those who start one of their own."""

    config: Path
    urls: dict[Transport, str]

    async def to(self, package: str, transport: Transport, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
        command = [*HUB, "--config", str(self.config)] if transport == "stdio" else None
        return await run_client(PACKAGES[package], transport, self.urls.get(transport), command, calls=calls)


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    tmp = tmp_path_factory.mktemp("doors")
    async with real_servers(tmp, UPSTREAMS) as place:
        config, port = hub_config(place, UPSTREAMS), free_port()
        command = [*HUB, "--sse", "--port", str(port), "--config", str(config)]
        async with network_server(command, port, log=tmp / "hub.log"):
            base = f"http://127.0.0.1:{port}"
            yield Served(config, {"http": f"{base}/mcp", "sse": f"{base}/sse"})


def returned_text(result: dict[str, Any]) -> str:
    """What a tool has said, whichever package says so."""
    if "returned" in result:
        return str(result["returned"]["result"])
    return "\n".join(block["text"] for block in result["content"])


def refused(result: dict[str, Any]) -> bool:
    """Does the package tell its user that the hub has refused a call because of its arguments?"""
    if "returned" in result:
        return set(result["returned"]) == {"error"}
    if "state" in result:
        return bool(result["state"] == "error")
    return bool(result["_meta"]["mcp-hub/error"]["code"] == "invalid_parameters")


@pytest.mark.parametrize(
    ("package", "transport"),
    [(client.name, transport) for client in PACKAGES.values() for transport in client.versions],
)
async def test_a_package_lists_and_calls_servers_of_both_eras(
    served: Served, package: str, transport: Transport
) -> None:
    names = [f"{upstream}__{tool}" for upstream in UPSTREAMS for tool in ("add", "countdown", "echo")]
    calls: list[tuple[str, dict[str, Any]]] = [(f"{upstream}__echo", {"text": "grüße"}) for upstream in UPSTREAMS]
    answer = await served.to(package, transport, [*calls, (f"{UPSTREAMS[0]}__add", {"a": "no number"})])
    assert sorted(answer["tools"]) == names
    first, second, third = answer["results"]
    assert returned_text(first).endswith("heard grüße")
    assert returned_text(second).endswith("heard grüße")
    assert returned_text(first) != returned_text(second)
    assert refused(third), third
