"""How many of the hub's tools each configured client is listed, and why; from kept catalogs, without a start."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp_hub.clients import Client, Machine
from mcp_hub.clients.detection import find_client_files
from mcp_hub.clients.table import CLIENTS
from mcp_hub.config.models import Config
from mcp_hub.errors import ConfigError
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import read_config
from mcp_hub.hub.exposure import rows_of
from mcp_hub.upstream.catalog_cache import CatalogCache

Json = dict[str, Any]


def clients_with_hub(machine: Machine) -> list[Client]:
    """Returns the clients of a machine whose files start a hub."""
    files = find_client_files(machine)
    return [file.client for file in files if file.client is not None and any(hub.on for hub in file.hubs)]


def clients_to_report() -> list[Client]:
    """Returns the clients of this machine that start a hub, or all known ones if none does."""
    return clients_with_hub(Machine.this()) or list(CLIENTS)


def config_in(path: Path) -> Config | None:
    """Returns the configuration in a file; None if there is none, or it is not valid."""
    try:
        return read_config(path, os.environ).config if path.exists() else None
    except (ConfigError, OSError):
        return None


def listed_by_client(path: Path) -> dict[str, Json]:
    """Returns {client: row of `rows_of`} for the clients of this machine that start a hub, if it serves a file.

    Servers whose lists were never kept are counted in `unseen` alone. {} if there is no such client, or the file cannot
    be used.
    """
    clients = clients_with_hub(Machine.this())
    config = config_in(path) if clients else None
    if config is None:
        return {}
    try:
        rows = asyncio.run(_rows(config, clients))
    except ConfigError:
        return {}
    return {client.name: row for row in rows for client in clients if client.name in row["clients"] or len(rows) == 1}


@asynccontextmanager
async def hub_of_kept_catalogs(config: Config) -> AsyncIterator[Engine]:
    """Runs a hub of the servers whose lists were kept. It starts none of them, if it ends within some seconds."""
    cache = CatalogCache.of(config)
    # A server with a kept catalog is started only after some seconds; any other would start at once.
    servers = tuple(server for server in config.servers if server.enabled and cache.size(server))
    async with Engine(config.model_copy(update={"servers": servers}), kept=cache) as hub:
        await hub.wait_for_cached()
        yield hub


async def _rows(config: Config, clients: list[Client]) -> list[Json]:
    async with hub_of_kept_catalogs(config) as hub:
        unseen = sum(server.enabled for server in config.servers) - len(hub.upstreams)
        return [{**row, "unseen": unseen} for row in rows_of(hub.catalogs, clients)]


def list_lines(before: Mapping[str, Json], after: Mapping[str, Json]) -> Iterator[str]:
    """Yields a line for each client on what it is listed, which says if that is complete or short only now."""
    for client, row in after.items():
        unseen = f"; servers that have not run yet, and do not count: {row['unseen']}" if row["unseen"] else ""
        now = " now" * (before.get(client, row)["short"] != row["short"])
        yield f"{client}{now} is listed {row['listed']} of {row['of']} tools: {row['why']}{unseen}"
