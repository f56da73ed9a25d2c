"""Reads a configuration file into a Config, and reports all of its errors at once."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.ancestry import ITSELF, is_this_hub
from mcp_hub.config.config_files import HOW_TO_CREATE, ConfigDocument, read_document
from mcp_hub.config.credentials import TokenStore
from mcp_hub.config.dialect import FILE_NAMES, ROOT_KEYS, ROOTS, find_entries
from mcp_hub.config.entry import EntryContext, default_fields, parse_count, read_entry
from mcp_hub.config.extras import missing
from mcp_hub.config.field_types import ValidationError
from mcp_hub.config.fields import Fields, FieldValue, read_defaults
from mcp_hub.config.findings import FileFinding, Findings, KeyPath
from mcp_hub.config.folders import Duplicate, FolderReader
from mcp_hub.config.listen import check_profiles, read_listen
from mcp_hub.config.models import Config, GroupScope, OnConflict, Server
from mcp_hub.config.root_rules import read_policy_keys, read_root_rules
from mcp_hub.config.secret_values import PLAIN_SECRET_ADVICE, is_plain_secret
from mcp_hub.config.settings import KeyReading, KeyTable
from mcp_hub.config.variables import VariableScope, expand_tree
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


class LoadedConfig(msgspec.Struct, frozen=True):
    """A configuration, and the messages about it, a line each."""

    config: Config
    warnings: tuple[str, ...]
    read: frozenset[Path] = frozenset()
    """The files that its values came from, besides the file itself."""
    advice: tuple[str, ...] = ()
    """What works and could be safer. Shown by `check`."""
    left_out: tuple[str, ...] = ()
    """The errors of files of tools and tool sets that were left out."""
    duplicates: tuple[Duplicate, ...] = ()
    """Names that were found twice. The first of each is kept."""
    folders: tuple[Path, ...] = ()
    """The folders whose files belong to the configuration."""

    @property
    def messages(self) -> tuple[str, ...]:
        """All messages for the user while it is served."""
        return (*self.warnings, *self.left_out, *map(str, self.duplicates))


class ConfigReader:
    """Reads files of any dialect. `keys` are those of the policies that the configuration is for."""

    def __init__(self, keys: KeyTable) -> None:
        self._keys = keys

    def load_config(
        self, path: Path | str, *, environ: Mapping[str, str] = os.environ, home: Path | None = None
    ) -> Config:
        """Reads the file at `path`, and logs warnings to `mcp_hub.config`. Raises ConfigError."""
        loaded = self.read_config(path, environ, home)
        for warning in loaded.messages:
            log.warning("%s", warning)
        return loaded.config

    def read_config(
        self, path: Path | str, environ: Mapping[str, str] = os.environ, home: Path | None = None
    ) -> LoadedConfig:
        """Reads the file at `path`. No message quotes a value that may be a secret.

        Raises:
            ConfigError: the file has errors. It has a line for each: `servers.yaml:12: servers.github.args: must be
                ...`.
        """
        return _read(read_document(Path.cwd() / path), self._keys, environ, home)

    def config_of(
        self, tree: Mapping[str, Any], *, environ: Mapping[str, str] = os.environ, literal: bool = False
    ) -> Config:
        """Reads a configuration of a program, as a file with this content in the working directory. It has no path.

        `literal`: variables are not expanded. Warnings are logged to `mcp_hub.config`. Raises ConfigError.
        """
        given = dict(tree) if any(root in tree for root in ROOTS) else {"servers": {}, **tree}
        document = ConfigDocument(Path.cwd() / "configuration", given, {}, (), (), lambda at: None)
        loaded = _read(document, self._keys, environ, None, literal=literal)
        for warning in loaded.warnings:
            log.warning("%s", warning)
        return loaded.config.model_copy(update={"path": None})


def _read(
    document: ConfigDocument,
    keys: KeyTable,
    environ: Mapping[str, str],
    home: Path | None,
    *,
    literal: bool = False,
) -> LoadedConfig:
    findings = Findings(document.path.name, document.line_of)
    findings.errors.extend(FileFinding(line, text) for line, text in document.faults)
    dialect, entries = find_entries(document.tree, document.path, keys, findings)
    scope = VariableScope(
        environ=environ,
        home=Path.home() if home is None else home,
        directory=document.path.parent,
        file_braces=dialect.root == "mcp",
        os_environ=dialect.root == "mcp_servers",
        bare_names=dialect.gemini,
        literal=literal,
    )
    root = document.tree if isinstance(document.tree, dict) else {}
    given = read_defaults(root, dialect, findings)
    reading = EntryContext(dialect, scope, document.written, findings, given)
    defaults = {}
    if given:
        defaults = default_fields(_expanded_defaults(given, scope, document, findings), findings, keys.entry)
    servers = []
    for entry in entries:
        server = read_entry(entry, reading)
        if server is not None and is_this_hub(server, document.path, environ, default_path):
            findings.warning(entry.at, ITSELF, ITSELF.code)
            server = server.model_copy(update={"enabled": False, "disabled_reason": ITSELF})
        if server is not None:
            servers.append(server)
    folders = FolderReader(document.path, scope, keys, defaults)
    config = _config(root, document, keys, scope, findings, servers, {entry.id for entry in entries}, folders)
    found = folders.found
    findings.raise_errors(found.left_out)
    assert config is not None
    return LoadedConfig(
        config.model_copy(update={"defaults": defaults}),
        (*document.warnings, *findings.warning_lines(), *found.warnings),
        frozenset(scope.read),
        (*findings.advice_lines(), *found.advice),
        tuple(found.left_out),
        tuple(found.duplicates),
        tuple(found.folders),
    )


def _expanded_defaults(
    given: Mapping[str, FieldValue], scope: VariableScope, document: ConfigDocument, findings: Findings
) -> Fields:
    """Returns the values of `defaults`. A variable without a value switches off the entries that need it."""
    values: dict[str, FieldValue] = {}
    unresolved: dict[KeyPath, CodedText] = {}
    for name, item in given.items():
        value, missing = expand_tree(item.value, scope, item.at)
        values[name] = msgspec.structs.replace(item, value=value)
        unresolved |= missing
    return Fields(values, findings, scope, document.written, unresolved)


def default_path(cwd: Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the configuration file to use if none is named.

    That is `$MCP_HUB_CONFIG`, else the first of servers.yaml, .yml, .json and .toml in `cwd`, else in the user's
    configuration directory.

    Raises:
        ConfigError: There is none. The message lists all files that were looked for.
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
    text = f"there is no configuration. Looked for\n  ${PATH_VARIABLE}: not set\n{places}\n{HOW_TO_CREATE}"
    raise ConfigError(text, codes.NO_CONFIGURATION)


def _user_directory(environ: Mapping[str, str]) -> Path:
    if base := environ.get("XDG_CONFIG_HOME"):
        return Path(base) / "mcp-hub"
    import platformdirs

    return platformdirs.user_config_path("mcp-hub", appauthor=False)


def _config(
    root: Mapping[str, Any],
    document: ConfigDocument,
    keys: KeyTable,
    scope: VariableScope,
    findings: Findings,
    servers: list[Server],
    ids: set[str],
    folders: FolderReader,
) -> Config | None:
    given: dict[str, FieldValue] = {}
    for key in (ROOT_KEYS | keys.root_names) - {"defaults", "serverDefaults"}:
        if key in root:
            given[key] = FieldValue(_expand(root[key], scope, (key,), findings), (key,))
    fields = Fields(given, findings, scope, document.written)
    servers = [*servers, *folders.servers(fields, ids, findings)]
    all_ids = ids | {server.id for server in servers}
    rules = read_root_rules(given, all_ids, findings, folders.tool_sets)
    rules["settings"] = read_policy_keys(keys.root, given, KeyReading(findings, scope, all_ids))
    listen = read_listen(fields, findings)
    token_store = fields.choice("token_store", {word: word for word in get_args(TokenStore)})
    if token_store == "keyring" and (lacking := missing("keyring")) is not None:
        findings.warning(("token_store",), f"no sign-in can be read or kept: {lacking}", lacking.code)
    _advise_of_tokens(root, scope, findings)
    if listen is not None:
        check_profiles(listen, {profile.name: profile for profile in rules.get("profiles", ())}, findings)
    values: dict[str, Any] = {
        "on_conflict": fields.choice("on_conflict", _ON_CONFLICT),
        "list_wait": fields.seconds("list_wait"),
        "cache_dir": fields.path("cache_dir"),
        "max_hub_depth": fields.parsed("max_hub_depth", parse_count),
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


def _expand(value: Any, scope: VariableScope, at: KeyPath, findings: Findings) -> Any:
    """Expands a value of the root, where a variable without a value is an error, as no entry can be switched off."""
    expanded, reasons = expand_tree(value, scope, at)
    for place, reason in reasons.items():
        findings.error(place, reason, reason.code)
    return expanded


def _advise_of_tokens(root: Mapping[str, Any], scope: VariableScope, findings: Findings) -> None:
    """Advises against tokens of clients and of the collector in plain text."""
    tracing = root.get("tracing")
    headers = tracing.get("headers") if isinstance(tracing, dict) else None
    for name, value in headers.items() if isinstance(headers, dict) else ():
        if is_plain_secret(str(name), value, scope):
            findings.advise(("tracing", "headers", name), PLAIN_SECRET_ADVICE, codes.SECRET_IN_PLAIN)
    listen = root.get("listen")
    if not isinstance(listen, dict):
        return
    principals = listen.get("principals")
    places: list[tuple[KeyPath, Any]] = [(("listen",), listen)]
    if isinstance(principals, dict):
        places += [(("listen", "principals", name), one) for name, one in principals.items()]
    for at, one in places:
        if isinstance(one, dict) and is_plain_secret("token", one.get("token"), scope):
            findings.advise((*at, "token"), PLAIN_SECRET_ADVICE, codes.SECRET_IN_PLAIN)
