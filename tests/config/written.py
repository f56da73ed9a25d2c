"""Writing a configuration file and reading it, for all tests of the loader."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from mcp_hub.config import LoadedConfig, Server
from mcp_hub.config.field_types import SecretStr
from mcp_hub.errors import ConfigError
from mcp_hub.hub.composition import read_config


def write(directory: Path, text: str, name: str = "servers.yaml") -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text), encoding="utf-8")
    path.chmod(0o600)
    return path


def read(
    directory: Path, text: str, name: str = "servers.yaml", environ: Mapping[str, str] | None = None
) -> LoadedConfig:
    """What the loader makes of `text`; the user's home is `directory/home`."""
    return read_config(write(directory, text, name), environ or {}, directory / "home")


def servers(
    directory: Path, text: str, name: str = "servers.yaml", environ: Mapping[str, str] | None = None
) -> dict[str, Server]:
    return {server.id: server for server in read(directory, text, name, environ).config.servers}


def only(directory: Path, text: str, name: str = "servers.yaml", environ: Mapping[str, str] | None = None) -> Server:
    (server,) = servers(directory, text, name, environ).values()
    return server


def refused(
    directory: Path, text: str, name: str = "servers.yaml", environ: Mapping[str, str] | None = None
) -> list[str]:
    """The lines of the ConfigError."""
    with pytest.raises(ConfigError) as caught:
        read(directory, text, name, environ)
    return str(caught.value).split("\n")


def switched_off(
    directory: Path, text: str, name: str = "servers.yaml", environ: Mapping[str, str] | None = None
) -> list[str]:
    """The lines on the servers that a fault of their entry switches off, which are all that there are."""
    loaded = read(directory, text, name, environ)
    assert not any(server.enabled for server in loaded.config.servers)
    reasons = tuple(f": is switched off: {server.disabled_reason}" for server in loaded.config.servers)
    lines = [line for line in loaded.warnings if line.endswith(reasons)]
    assert len(lines) == len(reasons)
    return lines


def plain(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    """The values of `env` or `headers`."""
    return {name: value.get_secret_value() for name, value in secrets.items()}
