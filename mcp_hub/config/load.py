"""From a file to a Config: the whole way, with everything that is wrong with the file said at once."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import SecretStr, ValidationError

from mcp_hub.config.canonical import canonical, only_known
from mcp_hub.config.dialect import Dialect, find_entries
from mcp_hub.config.document import HOW_TO_CREATE, Document, read_document
from mcp_hub.config.entry import Reading, local_tools, read_entry
from mcp_hub.config.fields import Fields, Given, plain_errors
from mcp_hub.config.findings import Finding, Findings, KeyPath
from mcp_hub.config.keys import DEFAULTS, ROOT_KEYS
from mcp_hub.config.models import Config, Listen, OnConflict, Server
from mcp_hub.config.oauth import TokenStore
from mcp_hub.config.quantities import parse_size
from mcp_hub.config.root_rules import read_root_rules
from mcp_hub.config.variables import Scope, expand_tree
from mcp_hub.errors import ConfigError

log = logging.getLogger("mcp_hub.config")

PATH_VARIABLE: Final = "MCP_HUB_CONFIG"
FILE_NAMES: Final = ("servers.yaml", "servers.yml", "servers.json", "servers.toml")
LOCAL_TOOLS: Final = "local"
"""Id of the entry that the root key `tools_dir` stands for."""

_HOST_AND_PORT: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?")

_ON_CONFLICT: Final[Mapping[str, OnConflict]] = {
    "keep_first": "keep_first",
    "raise": "raise",
    "override": "override",
    "rename": "rename",
    "prefix": "prefix",
    "skip": "keep_first",
}


@dataclass(frozen=True)
class Loaded:
    """A configuration and what its user should hear about it, a line each."""

    config: Config
    warnings: tuple[str, ...]


def load_config(path: Path | str, *, environ: Mapping[str, str] = os.environ, home: Path | None = None) -> Config:
    """The configuration in the file at `path`; warnings go to the log `mcp_hub.config`. Raises ConfigError."""
    loaded = read_config(path, environ, home)
    for warning in loaded.warnings:
        log.warning("%s", warning)
    return loaded.config


def read_config(path: Path | str, environ: Mapping[str, str] = os.environ, home: Path | None = None) -> Loaded:
    """The configuration in the file at `path`, and the warnings about it.

    ConfigError has a line for every error of the file: `servers.yaml:12: servers.github.args: must be ...`. Neither
    it nor a warning quotes a value that may be a secret.
    """
    document = read_document(Path.cwd() / path)
    findings = Findings(document.path.name, document.line_of)
    findings.errors.extend(Finding(line, text) for line, text in document.faults)
    dialect, entries = find_entries(document.tree, document.path, findings)
    scope = Scope(
        environ=environ,
        home=Path.home() if home is None else home,
        directory=document.path.parent,
        file_braces=dialect.root == "mcp",
        os_environ=dialect.root == "mcp_servers",
    )
    root = document.tree if isinstance(document.tree, dict) else {}
    reading = Reading(dialect, scope, document.written, findings, _defaults(root, dialect, findings))
    servers = [server for entry in entries if (server := read_entry(entry, reading)) is not None]
    config = _config(root, document, scope, findings, servers, {entry.id for entry in entries})
    findings.raise_errors()
    assert config is not None
    return Loaded(config, document.warnings + findings.told())


def default_path(cwd: Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The file to use when none is named: `$MCP_HUB_CONFIG`, else the first of servers.yaml|yml|json|toml in `cwd`,
    else in the user's configuration directory. ConfigError, with all that were looked for, when there is none.
    """
    cwd = Path.cwd() if cwd is None else cwd
    if named := environ.get(PATH_VARIABLE):
        return cwd / named
    directories = (cwd, _user_directory(environ))
    for directory in directories:
        for name in FILE_NAMES:
            if (directory / name).is_file():
                return directory / name
    names = ", ".join(FILE_NAMES)
    places = "\n".join(f"  {directory}: {names}" for directory in directories)
    raise ConfigError(f"there is no configuration. Looked for\n  ${PATH_VARIABLE}: not set\n{places}\n{HOW_TO_CREATE}")


def _user_directory(environ: Mapping[str, str]) -> Path:
    if base := environ.get("XDG_CONFIG_HOME"):
        return Path(base) / "mcp-hub"
    import platformdirs

    return platformdirs.user_config_path("mcp-hub", appauthor=False)


def _defaults(root: Mapping[str, Any], dialect: Dialect, findings: Findings) -> dict[str, Given]:
    """`defaults` (1MCP: `serverDefaults`) under canonical names."""
    found: dict[str, Given] = {}
    for key in ("serverDefaults", "defaults"):
        values = root.get(key)
        if isinstance(values, dict):
            found |= canonical(only_known(values, DEFAULTS, (key,), findings), (key,), dialect, findings)
        elif values is not None:
            findings.error((key,), "must be a mapping of keys to values")
    return found


def _config(
    root: Mapping[str, Any],
    document: Document,
    scope: Scope,
    findings: Findings,
    servers: list[Server],
    ids: set[str],
) -> Config | None:
    given: dict[str, Given] = {}
    for key in ROOT_KEYS - {"defaults", "serverDefaults"}:
        if key in root:
            given[key] = Given(_expanded(root[key], scope, (key,), findings), (key,))
    fields = Fields(given, findings, scope, document.written)
    tools_dir = fields.path("tools_dir")
    if tools_dir is not None and LOCAL_TOOLS in ids:
        findings.error(("tools_dir",), f"stands for an entry '{LOCAL_TOOLS}', but there is one of that name already")
    elif tools_dir is not None:
        local = local_tools(tools_dir, LOCAL_TOOLS)
        if local.disabled_reason is not None:
            findings.warning(("tools_dir",), f"is switched off: {local.disabled_reason}")
        servers = [*servers, local]
    values: dict[str, Any] = {
        "on_conflict": fields.choice("on_conflict", _ON_CONFLICT),
        "list_wait": fields.seconds("list_wait"),
        "cache_dir": fields.path("cache_dir"),
        "token_store": fields.choice("token_store", {word: word for word in get_args(TokenStore)}),
        "token_dir": fields.path("token_dir"),
        "listen": _listen(fields, findings),
        **read_root_rules(given, ids | ({LOCAL_TOOLS} if tools_dir is not None else set()), scope, findings),
    }
    try:
        return Config(
            path=document.path,
            servers=tuple(servers),
            **{name: value for name, value in values.items() if value is not None},
        )
    except ValidationError as error:
        for at, text in plain_errors(error):
            findings.error(at, text)
        return None


def _expanded(value: Any, scope: Scope, at: KeyPath, findings: Findings) -> Any:
    """Outside of the entries there is nothing to switch off: a variable without a value is an error of the file."""
    expanded, reasons = expand_tree(value, scope, at)
    for place, reason in reasons.items():
        findings.error(place, reason)
    return expanded


def _listen(fields: Fields, findings: Findings) -> Listen | None:
    given = fields.given.get("listen")
    if given is None or given.value is None:
        return None
    value = given.value
    if isinstance(value, str):
        # `HOST:PORT`, as mcpproxy and many others have it.
        host, _, port = value.rpartition(":")
        value = {"port": port} | ({"host": host.strip("[]")} if host else {})
    if not isinstance(value, dict):
        fields.error(given.at, "must be a mapping with " + ", ".join(Listen.model_fields))
        return None
    known = only_known(value, Listen.model_fields, given.at, findings)
    inner = fields.inner({name: Given(item, (*given.at, name)) for name, item in known.items()})
    token = inner.text("token")
    if token is not None and not token.strip():
        fields.error((*given.at, "token"), "must not be empty")
    values: dict[str, Any] = {
        "host": inner.text("host"),
        "port": inner.parsed("port", _port),
        "token": None if token is None else SecretStr(token.strip()),
        "public_host": inner.parsed("public_host", _public_hosts),
        "allowed_hosts": inner.texts("allowed_hosts"),
        "allowed_origins": inner.texts("allowed_origins"),
        "max_body": inner.parsed("max_body", parse_size),
    }
    return Listen(**{name: item for name, item in values.items() if item is not None})


def _public_hosts(value: Any) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    return tuple(public_host(name) for name in names)


def public_host(value: Any) -> str:
    """The name in a `public_host`. Raises ValueError for anything but a host and perhaps a port."""
    if not isinstance(value, str) or not _HOST_AND_PORT.fullmatch(value):
        raise ValueError("must be the name a proxy makes it known by, as `hub.example` or `hub.example:8443`, no URL")
    return value.lower()


def _port(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 5:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65535:
        raise ValueError("must be a port, a whole number from 0 to 65535")
    return value
