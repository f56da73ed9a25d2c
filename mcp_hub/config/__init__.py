"""Reads a configuration file into a Config, and reports all of its errors at once."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.ancestry import ITSELF, is_this_hub
from mcp_hub.config.config_files import HOW_TO_CREATE, ConfigDocument, read_document
from mcp_hub.config.credentials import TokenStore
from mcp_hub.config.dialect import FILE_NAMES, ROOT_KEYS, ROOTS
from mcp_hub.config.egress_settings import EgressSettings, read_proxy, with_root_proxy
from mcp_hub.config.entry import EntryContext, default_fields, parse_count, read_entry
from mcp_hub.config.extras import missing
from mcp_hub.config.field_types import SecretStr, ValidationError
from mcp_hub.config.fields import Fields, FieldValue, read_defaults
from mcp_hub.config.findings import Findings, KeyPath
from mcp_hub.config.folders import Duplicate, FolderReader
from mcp_hub.config.host_rules import PROJECT_VARIABLE
from mcp_hub.config.layers import MAX_FILES, Layer, merge_root_keys, merged_entries
from mcp_hub.config.listen import check_profiles, read_listen
from mcp_hub.config.models import Config, GroupScope, OnConflict, Server
from mcp_hub.config.raw_entries import find_entries
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
    """Advice on settings that work but could be safer. `check` shows it."""
    left_out: tuple[str, ...] = ()
    """The errors of files of tools and tool sets that were left out."""
    duplicates: tuple[Duplicate, ...] = ()
    """Duplicate names. The first of each is kept."""
    folders: tuple[Path, ...] = ()
    """The folders whose files belong to the configuration."""

    @property
    def messages(self) -> tuple[str, ...]:
        """All messages to show while the configuration is served, without the advice."""
        return (*self.warnings, *self.left_out, *map(str, self.duplicates))


class ConfigReader:
    """Reads files of any dialect. `keys` are the configuration keys of the policies."""

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
        self,
        path: Path | str,
        environ: Mapping[str, str] = os.environ,
        home: Path | None = None,
        overlays: Sequence[Path | str] = (),
    ) -> LoadedConfig:
        """Reads the file at `path`, and `overlays`, whose values win. No message quotes a value that may be a secret.

        Raises:
            ConfigError: a file has errors. It has a line for each: `servers.yaml:12: servers.github.args: must be
                ...`.
        """
        paths = list(dict.fromkeys(Path.cwd() / one for one in (path, *overlays)))
        if len(paths) > MAX_FILES:
            raise ConfigError(
                f"a configuration has at most {MAX_FILES} files, but {len(paths)} are given", codes.VALUE_WRONG
            )
        return _read([read_document(one) for one in paths], self._keys, environ, home)

    def config_of(
        self, tree: Mapping[str, Any], *, environ: Mapping[str, str] = os.environ, literal: bool = False
    ) -> Config:
        """Reads a configuration from a mapping, like a file in the working directory. Its `path` is None.

        `literal`: variables are not expanded. Warnings are logged to `mcp_hub.config`. Raises ConfigError.
        """
        given = dict(tree) if any(root in tree for root in ROOTS) else {"servers": {}, **tree}
        document = ConfigDocument(Path.cwd() / "configuration", given, {}, (), (), lambda at: None)
        loaded = _read([document], self._keys, environ, None, literal=literal)
        for warning in loaded.warnings:
            log.warning("%s", warning)
        return loaded.config.model_copy(update={"path": None})


def _read(
    documents: Sequence[ConfigDocument],
    keys: KeyTable,
    environ: Mapping[str, str],
    home: Path | None,
    *,
    literal: bool = False,
) -> LoadedConfig:
    shared = VariableScope(
        environ=environ,
        home=Path.home() if home is None else home,
        directory=documents[0].path.parent,
        literal=literal,
    )
    names = Counter(document.path.name for document in documents)
    layers = [
        _layer(one, keys, shared, one.path.name if names[one.path.name] == 1 else str(one.path), len(documents) == 1)
        for one in documents
    ]
    findings = Findings(merge_root_keys(layers, keys))
    given, defaults = _defaults(layers, keys)
    paths = [document.path for document in documents]
    merged = merged_entries(layers)
    servers = []
    for layer, entry in merged:
        usable = {name: item for of, items in given.items() if of in ("", id(layer)) for name, item in items.items()}
        reading = EntryContext(layer.dialect, layer.scope, layer.document.written, layer.findings, usable)
        server = read_entry(entry, reading)
        if server is not None and is_this_hub(server, paths, environ, default_path):
            layer.findings.warning(entry.at, ITSELF, ITSELF.code)
            server = server.model_copy(update={"enabled": False, "disabled_reason": ITSELF})
        if server is not None:
            servers.append(server)
    folders = FolderReader(paths[0], layers[0].scope, keys, defaults)
    config = _config(layers, keys, findings, servers, {entry.id for _, entry in merged}, folders)
    found = folders.found
    told = Findings(findings.place)
    for part in (*(layer.findings for layer in layers), findings):
        told.add(part)
    told.raise_errors(found.left_out)
    assert config is not None
    if config.proxy is not None:
        defaults = {"egress": EgressSettings(proxy=config.proxy), **defaults}
    return LoadedConfig(
        config.model_copy(update={"defaults": defaults}),
        (*(line for one in documents for line in one.warnings), *told.warning_lines(), *found.warnings),
        frozenset(shared.read),
        (*told.advice_lines(), *found.advice),
        tuple(found.left_out),
        tuple(found.duplicates),
        tuple(found.folders),
    )


def _layer(document: ConfigDocument, keys: KeyTable, shared: VariableScope, name: str, alone: bool) -> Layer:
    """Reads one file of a configuration, whose relative paths are relative to itself."""
    findings = document.findings(name)
    project = Path(os.path.abspath(shared.environ.get(PROJECT_VARIABLE) or Path.cwd()))  # noqa: PTH100  # keeps links
    dialect, entries = find_entries(document.tree, document.path, keys, findings, project, alone=alone)
    scope = dialect.scope(msgspec.structs.replace(shared, directory=document.path.parent))
    known = ROOT_KEYS | keys.root_names
    root = document.tree if isinstance(document.tree, dict) else {}
    root = {key: value for key, value in root.items() if key in known}
    return Layer(document, findings, dialect, entries, scope, root)


def _defaults(layers: Sequence[Layer], keys: KeyTable) -> tuple[dict[int | str, dict[str, FieldValue]], dict[str, Any]]:
    """Returns the values of `defaults`, and the fields of a Server that they set.

    The values for all entries are under `""`. Values with errors are under the `id` of their layer: only the entries of
    that file use them, as their errors have places there.
    """
    given: dict[int | str, dict[str, FieldValue]] = {"": {}}
    places: dict[str, tuple[Layer, FieldValue]] = {}
    fields: dict[str, Any] = {}
    for layer in layers:
        own = read_defaults(layer.root, layer.dialect, layer.findings)
        if not own:
            continue
        for name, item in own.items():
            if name in places:
                before, former = places[name]
                layer.tell_replaced(item.at, item.value, before, former.at, former.value)
            places[name] = layer, item
        part = layer.findings.part()
        values = default_fields(_expanded_defaults(own, layer.scope, layer.document, part), part, keys.entry)
        given["" if not part.errors else id(layer)] = {**given[""], **own}
        for name in ("deadlines", "settings"):
            values[name] = {**fields.get(name, {}), **values.get(name, {})}
        fields |= {name: value for name, value in values.items() if value != {}}
        layer.findings.add(part)
    return given, fields


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
    directories = (cwd, user_directory(environ))
    for directory in directories:
        for name in FILE_NAMES:
            if (directory / name).is_file():
                return directory / name
    names = ", ".join(FILE_NAMES)
    places = "\n".join(f"  {directory}: {names}" for directory in directories)
    text = f"there is no configuration. Looked for\n  ${PATH_VARIABLE}: not set\n{places}\n{HOW_TO_CREATE}"
    raise ConfigError(text, codes.NO_CONFIGURATION)


def user_directory(environ: Mapping[str, str]) -> Path:
    """Returns the directory of the user's own configuration."""
    if base := environ.get("XDG_CONFIG_HOME"):
        return Path(base) / "mcp-hub"
    import platformdirs

    return platformdirs.user_config_path("mcp-hub", appauthor=False)


def _config(
    layers: Sequence[Layer],
    keys: KeyTable,
    findings: Findings,
    servers: list[Server],
    ids: set[str],
    folders: FolderReader,
) -> Config | None:
    given = [_expanded_root(layer, findings) for layer in layers]
    together: dict[str, FieldValue] = {key: item for one in given for key, item in one.items()}
    fields = Fields(together, findings, layers[0].scope, {})
    servers = [*servers, *folders.servers(fields, ids, findings)]
    all_ids = ids | {server.id for server in servers}
    values: dict[str, Any] = {}
    rules = read_root_rules(together, all_ids, findings, folders.tool_sets)
    rules["settings"] = {}
    for layer, one in zip(layers, given, strict=True):
        own = Fields(one, findings, layer.scope, layer.document.written)
        values |= {name: value for name, value in _root_fields(own, findings).items() if value is not None}
        rules["settings"] |= read_policy_keys(keys.root, one, KeyReading(findings, layer.scope, all_ids))
        _advise_of_tokens(layer.root, layer.scope, findings)
    if (listen := values.get("listen")) is not None:
        check_profiles(listen, {profile.name: profile for profile in rules.get("profiles", ())}, findings)
    paths = [layer.document.path for layer in layers]
    servers = [_through(server, values.get("proxy")) for server in servers]
    try:
        return Config(path=paths[0], overlays=tuple(paths[1:]), servers=tuple(servers), **values, **rules)
    except ValidationError as error:
        for at, text in error.errors:
            findings.error(at, text)
        return None


def _through(server: Server, proxy: SecretStr | None) -> Server:
    """Returns a server with the proxy of the root, if it is remote or makes connections itself."""
    if server.url is None and server.builtin not in ("web", "browser", "native"):
        return server
    egress = with_root_proxy(server.egress, proxy)
    return server if egress is server.egress else server.model_copy(update={"egress": egress})


def _expanded_root(layer: Layer, findings: Findings) -> dict[str, FieldValue]:
    """Returns the expanded root keys of one file, without `defaults`. Paths of tools and skills become absolute."""
    given = {}
    for key, value in layer.root.items():
        if key in ("defaults", "serverDefaults"):
            continue
        expanded = _expand(value, layer.scope, (key,), findings)
        if key in ("tools_dir", "skills"):
            listed = [str(layer.scope.path(one)) if isinstance(one, str) and one else one for one in _as_list(expanded)]
            expanded = listed if isinstance(expanded, list) else listed[0] if listed else expanded
        if key == "search" and isinstance(expanded, dict) and isinstance(model := expanded.get("model"), str) and model:
            expanded = {**expanded, "model": str(layer.scope.path(model))}
        given[key] = FieldValue(expanded, (key,))
    return given


def _as_list(value: Any) -> list[Any]:
    """Returns a list itself, anything else as a list of one."""
    return value if isinstance(value, list) else [value]


def _root_fields(fields: Fields, findings: Findings) -> dict[str, Any]:
    """Reads the root keys that no other part reads. Absent ones are None."""
    token_store = fields.choice("token_store", {word: word for word in get_args(TokenStore)})
    if token_store == "keyring" and (lacking := missing("keyring")) is not None:
        findings.warning(("token_store",), f"no sign-in can be read or kept: {lacking}", lacking.code)
    return {
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
        "proxy": read_proxy(fields),
        "listen": read_listen(fields, findings),
    }


def _expand(value: Any, scope: VariableScope, at: KeyPath, findings: Findings) -> Any:
    """Expands a value of the root. A variable without a value is an error, as there is no entry to switch off."""
    expanded, reasons = expand_tree(value, scope, at)
    for place, reason in reasons.items():
        findings.error(place, reason, reason.code)
    return expanded


def _advise_of_tokens(root: Mapping[str, Any], scope: VariableScope, findings: Findings) -> None:
    """Adds advice about plain-text tokens of clients and of the trace collector."""
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
