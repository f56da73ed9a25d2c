"""The fixture server on a network, and hubs in front of it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.fakes.client import HUB as MCP_HUB
from tests.fakes.client import free_port
from tests.fakes.forks import python_with_sdk
from tests.peers.programs import network_server

ROOT: Final = Path(__file__).resolve().parents[2]
FIXTURE: Final = [sys.executable, "-m", "tests.conformance.fixture"]
HUB: Final = [*MCP_HUB, "serve", "--http"]

Json = dict[str, Any]


@contextlib.asynccontextmanager
async def fixture(tmp: Path, transport: str = "http", env: Mapping[str, str] | None = None) -> AsyncIterator[str]:
    """The address of the fixture server over `http` or `sse`."""
    port = free_port()
    async with network_server([*FIXTURE, transport, str(port)], port, env, log=tmp / f"fixture-{port}.log"):
        yield f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"


@contextlib.asynccontextmanager
async def hub(tmp: Path, servers: dict[str, Json], **settings: Any) -> AsyncIterator[str]:
    """The address of a hub with these servers behind it."""
    port = free_port()
    config = tmp / f"servers-{port}.yaml"
    config.write_text(yaml.safe_dump({"servers": servers, **settings}))
    command = [*HUB, "--port", str(port), "--config", str(config)]
    async with network_server(command, port, log=tmp / f"hub-{port}.log"):
        yield f"http://127.0.0.1:{port}/mcp"


@contextlib.asynccontextmanager
async def entry(tmp: Path, transport: str, **keys: Any) -> AsyncIterator[Json]:
    """The fixture server as an entry of a configuration, running where it is not started by the hub."""
    if transport == "stdio":
        yield {"command": python_with_sdk(), "args": [*FIXTURE[1:], "stdio"], "cwd": str(ROOT), **keys}
        return
    async with fixture(tmp, transport) as url:
        yield {"url": url, "transport": transport, **keys}
