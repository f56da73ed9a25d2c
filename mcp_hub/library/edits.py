"""Changes of a configuration that a program makes while its hub runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcp_hub.config import config_of
from mcp_hub.config.models import Config, Server
from mcp_hub.config.secret_str import SecretStr
from mcp_hub.errors import ConfigError
from mcp_hub.security.redaction import MIN_SECRET

FUNCTIONS: Final = "local"
"""Id of the server whose tools are functions of the program; with underscores behind it where there is one already."""


def server_of(name: str, entry: Mapping[str, Any] | Server, literal: bool) -> Server:
    if isinstance(entry, Server):
        return entry
    return config_of({"servers": {name: dict(entry)}}, literal=literal).servers[0]


def with_server(server: Server, config: Config) -> Config:
    if any(known.id == server.id for known in config.servers):
        raise ConfigError(f"there is a server {server.id!r} already; remove it first or choose another name")
    return config.model_copy(update={"servers": (*config.servers, server)})


def without_server(name: str, config: Config) -> Config:
    left = tuple(server for server in config.servers if server.id != name)
    if len(left) == len(config.servers):
        known = ", ".join(server.id for server in config.servers) or "none"
        raise ConfigError(f"there is no server {name!r}; there are: {known}")
    return config.model_copy(update={"servers": left})


def with_functions(secrets: tuple[SecretStr, ...] | None, config: Config) -> Config:
    """With a server of functions that has these secrets; None: those it has."""
    known = next((server for server in config.servers if server.functions is not None), None)
    if known is not None:
        return config if secrets in (None, known.secrets) else with_secrets(config, known.id, secrets or ())
    id = FUNCTIONS
    while any(server.id == id for server in config.servers):
        id += "_"
    server = Server(id=id, transport="stdio", functions=id, namespace="", era="handshake", keep_catalog=False)
    return with_server(server.model_copy(update={"secrets": secrets or ()}), config)


def with_functions_of(before: Config, config: Config) -> Config:
    former = next((server for server in before.servers if server.functions), None)
    return config if former is None else with_functions(former.secrets, config)


def secrets_among(texts: Iterable[str]) -> tuple[SecretStr, ...]:
    """Those that are long enough to be looked for, each once."""
    return tuple(SecretStr(text) for text in dict.fromkeys(texts) if len(text) >= MIN_SECRET)


def with_secrets(config: Config, server: str, secrets: tuple[SecretStr, ...]) -> Config:
    """The configuration with these secrets of one of its servers in the place of those it had."""
    changed = [one.model_copy(update={"secrets": secrets}) if one.id == server else one for one in config.servers]
    return config.model_copy(update={"servers": tuple(changed)})
