"""From a file to a Config: the whole way, with everything that is wrong with the file said at once."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from mcp_hub.config.ancestry import ITSELF
from mcp_hub.config.beside import Beside, Duplicate
from mcp_hub.config.canonical import read_defaults
from mcp_hub.config.checks import ValidationError
from mcp_hub.config.dialect import find_entries
from mcp_hub.config.document import HOW_TO_CREATE, Document, read_document
from mcp_hub.config.entry import Reading, count, read_entry
from mcp_hub.config.extras import missing
from mcp_hub.config.fields import Fields, Given
from mcp_hub.config.findings import Finding, Findings, KeyPath
from mcp_hub.config.keys import FILE_NAMES, ROOT_KEYS, ROOTS
from mcp_hub.config.listen_fields import check_profiles, read_listen
from mcp_hub.config.models import Config, GroupScope, OnConflict, Server
from mcp_hub.config.oauth import TokenStore
from mcp_hub.config.plain_secrets import ADVICE, is_plain_secret
from mcp_hub.config.root_rules import read_root_rules
from mcp_hub.config.this_hub import is_this_hub
from mcp_hub.config.variables import Scope, expand_tree
from mcp_hub.errors import ConfigError

log = logging.getLogger("mcp_hub.config")

PATH_VARIABLE: Final = "MCP_HUB_CONFIG"

_ON_CONFLICT: Final[Mapping[str, OnConflict]] = {
    "keep_first": "keep_first",
    "raise": "raise",
    "override": "override",
    "rename": "rename",
    "prefix": "prefix",
    "skip": "keep_first",
}


class Loaded(msgspec.Struct, frozen=True):
    """A configuration and what its user should hear about it, a line each."""

    config: Config
    warnings: tuple[str, ...]
    read: frozenset[Path] = frozenset()
    """The files that its values came from, besides the file itself."""
    advice: tuple[str, ...] = ()
    """What works and could be safer."""
    left_out: tuple[str, ...] = ()
    """What is wrong with files of tools and tool sets that count for nothing because of it."""
    duplicates: tuple[Duplicate, ...] = ()
    """Names that were found twice, the first of which are kept."""
    folders: tuple[Path, ...] = ()
    """Where files belong to the configuration as they come."""

    @property
    def told(self) -> tuple[str, ...]:
        """All its user should hear about it while it is served."""
        return (*self.warnings, *self.left_out, *map(str, self.duplicates))


def load_config(path: Path | str, *, environ: Mapping[str, str] = os.environ, home: Path | None = None) -> Config:
    """The configuration in the file at `path`; warnings go to the log `mcp_hub.config`. Raises ConfigError."""
    loaded = read_config(path, environ, home)
    for warning in loaded.told:
        log.warning("%s", warning)
    return loaded.config


def read_config(path: Path | str, environ: Mapping[str, str] = os.environ, home: Path | None = None) -> Loaded:
    """The configuration in the file at `path`, and the warnings about it.

    ConfigError has a line for every error of the file: `servers.yaml:12: servers.github.args: must be ...`. Neither
    it nor a warning quotes a value that may be a secret.
    """
    return _read(read_document(Path.cwd() / path), environ, home)


def config_of(tree: Mapping[str, Any], *, environ: Mapping[str, str] = os.environ, literal: bool = False) -> Config:
    """What a file with this content would mean, relative to the working directory; it has no path.

    `literal`: no variables are looked for. Warnings go to the log `mcp_hub.config`. Raises ConfigError.
    """
    given = dict(tree) if any(root in tree for root in ROOTS) else {"servers": {}, **tree}
    document = Document(Path.cwd() / "configuration", given, {}, (), (), lambda at: None)
    loaded = _read(document, environ, None, literal=literal)
    for warning in loaded.warnings:
        log.warning("%s", warning)
    return loaded.config.model_copy(update={"path": None})


def _read(document: Document, environ: Mapping[str, str], home: Path | None, *, literal: bool = False) -> Loaded:
    findings = Findings(document.path.name, document.line_of)
    findings.errors.extend(Finding(line, text) for line, text in document.faults)
    dialect, entries = find_entries(document.tree, document.path, findings)
    scope = Scope(
        environ=environ,
        home=Path.home() if home is None else home,
        directory=document.path.parent,
        file_braces=dialect.root == "mcp",
        os_environ=dialect.root == "mcp_servers",
        literal=literal,
    )
    root = document.tree if isinstance(document.tree, dict) else {}
    reading = Reading(dialect, scope, document.written, findings, read_defaults(root, dialect, findings))
    servers = []
    for entry in entries:
        server = read_entry(entry, reading)
        if server is not None and is_this_hub(server, document.path, environ, default_path):
            findings.warning(entry.at, ITSELF)
            server = server.model_copy(update={"enabled": False, "disabled_reason": ITSELF})
        if server is not None:
            servers.append(server)
    beside = Beside(document.path, scope)
    config = _config(root, document, scope, findings, servers, {entry.id for entry in entries}, beside)
    found = beside.found
    findings.raise_errors(found.left_out)
    assert config is not None
    return Loaded(
        config,
        (*document.warnings, *findings.told(), *found.warnings),
        frozenset(scope.read),
        (*findings.advised(), *found.advice),
        tuple(found.left_out),
        tuple(found.duplicates),
        tuple(found.folders),
    )


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


def _config(
    root: Mapping[str, Any],
    document: Document,
    scope: Scope,
    findings: Findings,
    servers: list[Server],
    ids: set[str],
    beside: Beside,
) -> Config | None:
    given: dict[str, Given] = {}
    for key in ROOT_KEYS - {"defaults", "serverDefaults"}:
        if key in root:
            given[key] = Given(_expanded(root[key], scope, (key,), findings), (key,))
    fields = Fields(given, findings, scope, document.written)
    servers = [*servers, *beside.servers(fields, ids, findings)]
    rules = read_root_rules(given, ids | {server.id for server in servers}, scope, findings, beside.tool_sets)
    listen = read_listen(fields, findings)
    token_store = fields.choice("token_store", {word: word for word in get_args(TokenStore)})
    if token_store == "keyring" and (lacking := missing("keyring")) is not None:
        findings.warning(("token_store",), f"no sign-in can be read or kept: {lacking}")
    _advise_of_tokens(root, scope, findings)
    if listen is not None:
        check_profiles(listen, {profile.name: profile for profile in rules.get("profiles", ())}, findings)
    values: dict[str, Any] = {
        "on_conflict": fields.choice("on_conflict", _ON_CONFLICT),
        "list_wait": fields.seconds("list_wait"),
        "cache_dir": fields.path("cache_dir"),
        "max_hub_depth": fields.parsed("max_hub_depth", count),
        "watch": fields.flag("watch"),
        "token_store": token_store,
        "token_dir": fields.path("token_dir"),
        "group_scope": fields.choice("group_scope", {word: word for word in get_args(GroupScope)}),
        "meta_tools": fields.flag("meta_tools"),
        "state_file": fields.path("state_file"),
        "listen": listen,
        **rules,
    }
    try:
        return Config(
            path=document.path,
            servers=tuple(servers),
            **{name: value for name, value in values.items() if value is not None},
        )
    except ValidationError as error:
        for at, text in error.errors:
            findings.error(at, text)
        return None


def _expanded(value: Any, scope: Scope, at: KeyPath, findings: Findings) -> Any:
    """Outside of the entries there is nothing to switch off: a variable without a value is an error of the file."""
    expanded, reasons = expand_tree(value, scope, at)
    for place, reason in reasons.items():
        findings.error(place, reason)
    return expanded


def _advise_of_tokens(root: Mapping[str, Any], scope: Scope, findings: Findings) -> None:
    """Tokens of clients, and of a collector, that stand in the file itself."""
    tracing = root.get("tracing")
    headers = tracing.get("headers") if isinstance(tracing, dict) else None
    for name, value in headers.items() if isinstance(headers, dict) else ():
        if is_plain_secret(str(name), value, scope):
            findings.advise(("tracing", "headers", name), ADVICE)
    listen = root.get("listen")
    if not isinstance(listen, dict):
        return
    principals = listen.get("principals")
    places: list[tuple[KeyPath, Any]] = [(("listen",), listen)]
    if isinstance(principals, dict):
        places += [(("listen", "principals", name), one) for name, one in principals.items()]
    for at, one in places:
        if isinstance(one, dict) and is_plain_secret("token", one.get("token"), scope):
            findings.advise((*at, "token"), ADVICE)
