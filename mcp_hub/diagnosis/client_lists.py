"""How many of the hub's tools each configured client is listed, and why; from kept catalogs, without a start."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp_hub.catalog import Route
from mcp_hub.clients import Client, Machine
from mcp_hub.clients.detection import find_client_files
from mcp_hub.clients.table import CLIENTS
from mcp_hub.config import default_path
from mcp_hub.config.ancestry import option_values, options_of_serve
from mcp_hub.config.models import Config, Server
from mcp_hub.errors import ConfigError
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import read_config
from mcp_hub.hub.exposure import rows_of
from mcp_hub.policy.selection import select
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.private_files import expand_home
from mcp_hub.text import printable
from mcp_hub.upstream.catalog_cache import CatalogCache

Json = dict[str, Any]


def config_of_hub(server: Server, environ: Mapping[str, str]) -> Path | str:
    """Returns the configuration of the hub that an entry of a client starts, or a text on what is wrong with it."""
    options = options_of_serve((server.command or "", *server.args), environ) or ()
    directory = server.cwd or Path(Path.cwd().anchor)  # which directory a client starts it in is not known
    config_option = next(filter(None, option_values(options, "--config")), None)
    if config_option is not None:
        path = directory / expand_home(config_option)
        return path if path.is_file() else f"starts the hub with {printable(str(path), 300)}, which does not exist"
    try:
        return default_path(directory, environ)
    except ConfigError:
        return "starts the hub without --config, and your own configuration directory has none"


def is_same_file(path: Path, second: Path) -> bool:
    """Returns whether two paths lead to one file."""
    try:
        return path.samefile(second)
    except OSError:
        return False


def clients_with_hub(config: Config) -> dict[Client, str | None]:
    """Returns the clients of this machine that start a hub with a configuration, and the profile that each has."""
    machine, profiles = Machine.this(), {profile.name for profile in config.profiles}
    clients: dict[Client, str | None] = {}
    for file in find_client_files(machine):
        for hub in file.hubs:
            if file.client is None or hub.server is None or not hub.on or config.path is None:
                continue
            path = config_of_hub(hub.server, machine.environ)
            options = options_of_serve((hub.server.command or "", *hub.server.args), machine.environ) or ()
            profile = next(iter(option_values(options, "--profile")), None)
            if isinstance(path, Path) and is_same_file(path, config.path) and profile in (None, *profiles):
                clients.setdefault(file.client, profile)
    return clients


def clients_to_report(config: Config) -> dict[Client, str | None]:
    """Returns what `clients_with_hub` returns, or all known clients if none starts the hub."""
    return clients_with_hub(config) or dict.fromkeys(CLIENTS)


def config_in(path: Path) -> Config | None:
    """Returns the configuration in a file; None if there is none, or it is not valid."""
    try:
        return read_config(path, os.environ).config if path.exists() else None
    except (ConfigError, OSError):
        return None


def listed_by_client(path: Path) -> dict[str, Json]:
    """Returns {client: row of `rows_of`} for the clients of this machine that start a hub with a file.

    Servers whose lists were never kept are counted in `unseen` alone. {} if there is no such client, or the file cannot
    be used.
    """
    config = config_in(path)
    clients = clients_with_hub(config) if config is not None else {}
    if config is None or not clients:
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


async def _rows(config: Config, clients: Mapping[Client, str | None]) -> list[Json]:
    async with hub_of_kept_catalogs(config) as hub:
        unseen = sum(server.enabled for server in config.servers) - len(hub.upstreams)
        return [{**row, "unseen": unseen} for row in await rows_of(hub.catalogs, clients)]


def left_out_lines(path: Path, id: str) -> Iterator[str]:
    """Yields a line for each client that gets not all tools of a server, as its profile does not have them."""
    config = config_in(path)
    server = next((server for server in config.servers if server.id == id), None) if config is not None else None
    if config is None or server is None:
        return
    for client, profile in clients_with_hub(config).items():
        if profile is not None and not select(config, profile).has(server, Route(id, TOOLS, "*"), server.tags):
            name, own = printable(id, 100), printable(profile, 100)
            text = f"{client.name} has the profile {own}, which does not have all of {name}"
            yield f"{text}: write {name}/* into profiles.{own}.tools if it should"


def list_lines(before: Mapping[str, Json], after: Mapping[str, Json]) -> Iterator[str]:
    """Yields a line for each client on what it is listed, which says if that is complete or short only now."""
    for client, row in after.items():
        unseen = f"; servers that have not run yet, and do not count: {row['unseen']}" if row["unseen"] else ""
        now = " now" * (before.get(client, row)["short"] != row["short"])
        yield f"{client}{now} is listed {row['listed']} of {row['of']} tools: {row['why']}{unseen}"
