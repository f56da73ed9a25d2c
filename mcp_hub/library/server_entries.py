"""Servers and functions that a program adds, as configuration entries, and the configuration with them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mcp_hub.config.entry import with_defaults
from mcp_hub.config.field_types import SecretStr
from mcp_hub.config.models import Config, Server
from mcp_hub.errors import ConfigError
from mcp_hub.hub.composition import config_of
from mcp_hub.security.private_files import expand_home
from mcp_hub.security.redaction import MIN_SECRET

if TYPE_CHECKING:
    from mcp_hub.library import Hub

FUNCTIONS: Final = "local"
"""Id of the server of the program's functions. Underscores are appended if it is taken."""


def make_server(name: str, entry: Mapping[str, Any] | Server, literal: bool) -> Server:
    """Returns the server of a configuration entry. Raises ConfigError if the entry is invalid."""
    if isinstance(entry, Server):
        return entry.model_copy(update={"id": name})
    return config_of({"servers": {name: dict(entry)}}, literal=literal).servers[0]


def with_server(server: Server, config: Config) -> Config:
    """Returns the configuration with another server, to which its `defaults` apply too.

    Raises ConfigError if the server's id is taken.
    """
    if any(existing.id == server.id for existing in config.servers):
        raise ConfigError(f"there is a server {server.id!r} already; remove it first or choose another name")
    return config.model_copy(update={"servers": (*config.servers, with_defaults(server, config.defaults))})


def without_server(name: str, config: Config) -> Config:
    """Returns the configuration without a server. Raises ConfigError if there is none of this name."""
    remaining = tuple(server for server in config.servers if server.id != name)
    if len(remaining) == len(config.servers):
        ids = ", ".join(server.id for server in config.servers) or "none"
        raise ConfigError(f"there is no server {name!r}; there are: {ids}")
    return config.model_copy(update={"servers": remaining})


class DetachableServer:
    """A server of a hub that may be removed and added again as it was, at its place in the order."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub = hub
        """The hub that has the server, or gets it with `restore`."""
        self._name = name
        self._removed: tuple[int, Server] | None = None

    async def detach(self) -> None:
        """Removes the server, which ends after its last call. Idempotent."""
        if self._removed is None and not self.hub.closed:
            entries = enumerate(self.hub.config.servers)
            self._removed = next(((index, server) for index, server in entries if server.id == self._name), None)
            if self._removed is not None:
                await self.hub.remove_server(self._name)

    async def restore(self) -> None:
        """Adds the server again, without waiting until it is connected. Idempotent."""
        removed = self._removed
        if removed is not None:  # other calls may do the same meanwhile: none may go on before the server is back
            await self.hub.edit(partial(_with_server_at, *removed))
            if self._removed is removed:
                self._removed = None


def _with_server_at(index: int, server: Server, config: Config) -> Config:
    servers = [entry for entry in config.servers if entry.id != server.id]
    return config.model_copy(update={"servers": (*servers[:index], server, *servers[index:])})


def functions_of(config: Config) -> Server | None:
    """Returns the server of the program's functions, or None if there is none."""
    return next((server for server in config.servers if server.functions is not None), None)


def with_functions(secrets: tuple[SecretStr, ...] | None, config: Config, id: str = FUNCTIONS) -> Config:
    """Returns the configuration with a server of functions that has these secrets; None keeps the secrets it has.

    A new one gets the `id`, with underscores if it is taken.
    """
    existing = functions_of(config)
    if existing is not None:
        changed = secrets is not None and secrets != existing.secrets
        return with_changes(config, [existing.id], secrets=secrets) if changed else config
    while any(server.id == id for server in config.servers):
        id += "_"
    server = Server(
        id=id, transport="stdio", functions=id, namespace="", era="handshake", keep_catalog=False, session="shared"
    )
    return with_server(server.model_copy(update={"secrets": secrets or ()}), config)


def with_functions_of(former_config: Config, config: Config) -> Config:
    """Returns `config` with the server of functions that `former_config` has, if any."""
    former = functions_of(former_config)
    return config if former is None else with_functions(former.secrets, config, former.id)


def with_programs_servers(former: Config, loaded: Config, config: Config) -> Config:
    """Returns what was `loaded` from the files of `former`, with what the program has made of that in `config`.

    Servers that it has added or replaced come last, and those that it has removed stay removed.
    """
    of_files = {server.id: server.connection for server in former.servers}
    own = [s for s in config.servers if s.functions is None and s.connection != of_files.get(s.id)]
    gone = {*(of_files.keys() - {server.id for server in config.servers}), *(server.id for server in own)}
    servers = [server for server in loaded.servers if server.id not in gone]
    return loaded.model_copy(update={"servers": (*servers, *own)})


def secrets_among(texts: Iterable[str]) -> tuple[SecretStr, ...]:
    """Returns the texts that are long enough to be redacted, without duplicates."""
    return tuple(SecretStr(text) for text in dict.fromkeys(texts) if len(text) >= MIN_SECRET)


def with_changes(config: Config, ids: Collection[str], **changes: Any) -> Config:
    """Returns the configuration with these fields of some servers replaced."""
    servers = tuple(server.model_copy(update=changes) if server.id in ids else server for server in config.servers)
    return config.model_copy(update={"servers": servers})


def with_call_settings(timeout: float | None, checks: bool, config: Config, *, functions_only: bool = False) -> Config:
    """Returns the configuration with this deadline of a call, in seconds, and its checks or none, for every server.

    With `functions_only`, it changes only the server of the program's functions.
    """
    servers = tuple(
        server if functions_only and server.functions is None else with_settings(timeout, checks, server)
        for server in config.servers
    )
    return config.model_copy(update={"servers": servers})


def with_settings(timeout: float | None, checks: bool, server: Server) -> Server:
    """Returns the server with this deadline of a call, in seconds (None: its own), and its checks or none."""
    changes: dict[str, Any] = {} if checks else {"validate_arguments": "off"}
    if timeout is not None:
        changes["deadlines"] = server.deadlines.model_copy(update={"call": timeout})
    return server.model_copy(update=changes)


def with_servers(ids: Collection[str], servers: Iterable[Server], config: Config) -> Config:
    """Returns the configuration with other servers in place of those of these ids."""
    config = config.model_copy(update={"servers": tuple(entry for entry in config.servers if entry.id not in ids)})
    for server in servers:
        config = with_server(server, config)
    return config


def is_same_server(unnamed: Server, imported: Server) -> bool:
    """Returns whether an entry without a name describes the same process or address as an imported server."""
    return bool(unnamed.model_copy(update={"id": imported.id}).connection == imported.connection)


Json = dict[str, Any]

PLAYWRIGHT: Final = "playwright"
"""The name of the server by which MiroFlow drives a browser."""
_SCRIPTS: Final = {".py": sys.executable, ".js": "node", ".mjs": "node", ".cjs": "node"}
_TRANSPORTS_TEXT: Final = (
    "a URL, the path of a .py or .js script, {'mcpServers': {...}}, StdioServerParameters, or a client transport with "
    "a url or a command"
)


def entries_of(transport: Any, headers: Mapping[str, str] | None = None) -> dict[str, tuple[Json, bool]]:
    """Returns `{name: (entry, literal)}` of a transport; the name is "" if the transport has none.

    `literal` means that variables in the entry are not expanded. `headers` are added to every entry with a URL. Raises
    TypeError if it is not a transport, and ValueError if a script does not exist.
    """
    entries = _entries(transport)
    for entry, _ in entries.values():
        if headers and "url" in entry:
            entry["headers"] = {**(entry.get("headers") or {}), **headers}
    return entries


def _entries(transport: Any) -> dict[str, tuple[Json, bool]]:
    if isinstance(transport, Mapping):
        servers = transport.get("mcpServers", transport.get("servers"))
        if isinstance(servers, Mapping) and servers:
            return {str(name): (dict(entry), False) for name, entry in servers.items()}
        if "url" in transport or "command" in transport:
            return {"": (dict(transport), False)}
        raise TypeError(f"a configuration for use_mcp has 'mcpServers'; transports are: {_TRANSPORTS_TEXT}")
    if isinstance(servers := getattr(transport, "mcpServers", None), Mapping):  # fastmcp's MCPConfig
        return {str(name): (server.model_dump(exclude_unset=True), True) for name, server in servers.items()}
    if isinstance(transport, str | Path) and not str(transport).startswith(("http://", "https://")):
        path = expand_home(transport)
        if path.suffix not in _SCRIPTS:
            raise TypeError(f"{str(transport)!r} is not a transport; transports are: {_TRANSPORTS_TEXT}")
        if not path.is_file():
            raise ValueError(f"there is no script {path}")
        return {"": ({"command": _SCRIPTS[path.suffix], "args": [str(path.resolve())]}, True)}
    url = getattr(transport, "url", None)
    if url is not None and not isinstance(transport, str):
        kind = "sse" if "sse" in type(transport).__name__.lower() else "http"
        headers = {str(key): str(value) for key, value in (getattr(transport, "headers", None) or {}).items()}
        return {"": ({"url": str(url), "transport": kind, "headers": headers}, True)}
    try:
        return {"": entry_of("use_mcp", transport)}
    except TypeError:
        raise TypeError(f"{type(transport).__name__} is not a transport; transports are: {_TRANSPORTS_TEXT}") from None


def entry_of(name: str, params: Any) -> tuple[Json, bool]:
    """Returns (entry, literal) of `StdioServerParameters` of any SDK version, an http(s) URL, or a configuration entry.

    `literal` means that variables in the entry are not expanded. Raises TypeError for anything else.
    """
    if isinstance(params, str) and params.startswith(("http://", "https://")):
        return {"url": params}, True
    if isinstance(params, Mapping):
        return dict(params), False
    command = getattr(params, "command", None)
    if isinstance(command, str):
        entry: Json = {"command": command, "args": list(getattr(params, "args", None) or ())}
        entry["env"] = {key: str(value) for key, value in (getattr(params, "env", None) or {}).items()}
        if (cwd := getattr(params, "cwd", None)) is not None:
            entry["cwd"] = str(cwd)
        return entry, True
    raise TypeError(f"Unknown server params type for {name}: {type(params)}")
