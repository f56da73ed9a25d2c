"""Reads a configuration file into a Config, and reports all of its errors at once."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.ancestry import ITSELF, is_this_hub
from mcp_hub.config.config_files import ConfigDocument, read_document
from mcp_hub.config.dialect import ROOT_KEYS, ROOTS, Dialect
from mcp_hub.config.discovery import NAMED, FoundConfig, default_path, require_trust, user_directory
from mcp_hub.config.egress_settings import EgressSettings, with_root_proxy
from mcp_hub.config.entry import EntryContext, default_fields, read_entry
from mcp_hub.config.entry_keys import read_defaults
from mcp_hub.config.extras import missing
from mcp_hub.config.field_types import SecretStr, ValidationError
from mcp_hub.config.fields import Fields, FieldValue
from mcp_hub.config.findings import FileFinding, Findings, KeyPath, Place, dotted
from mcp_hub.config.folders import Duplicate, FolderReader
from mcp_hub.config.host_rules import PROJECT_VARIABLE
from mcp_hub.config.listen import check_profiles, read_listen
from mcp_hub.config.models import Config, Server
from mcp_hub.config.own_files import writers_of
from mcp_hub.config.raw_entries import RawEntry, find_entries
from mcp_hub.config.root_rules import read_policy_keys, read_root_rules
from mcp_hub.config.secret_values import PLAIN_SECRET_ADVICE, is_plain_secret
from mcp_hub.config.settings import KeyReading, KeyTable
from mcp_hub.config.variables import VariableScope, expand_tree, explain_unresolved
from mcp_hub.errors import ConfigError

MAX_FILES: Final = 16
"""The maximum number of files of one configuration."""
_BY_NAME: Final = ("tool_sets", "profiles", "groups")
"""Root keys with named values, which are merged by name."""
_JOINED: Final = "blacklist"
"""A root key whose lists are joined, so that no file allows what another one refuses."""
_SPELLINGS: Final = (("web", "scrape"), ("defaults",), ("serverDefaults",))


class Layer(msgspec.Struct):
    """One file of a configuration: its entries, and the root keys that are taken from it."""

    document: ConfigDocument
    findings: Findings
    dialect: Dialect
    entries: list[RawEntry]
    scope: VariableScope
    root: dict[str, Any]

    def where(self, at: KeyPath) -> str:
        """Returns a place of the file as text: `servers.yaml:3: servers.github`."""
        file, line = self.findings.place(at)
        return f"{file}{'' if line is None else f':{line}'}: {dotted(at)}"

    def tell_replaced(self, at: KeyPath, value: Any, earlier: Layer, earlier_at: KeyPath, replaced: Any) -> None:
        """Warns that a value of this file replaces another one of an earlier file."""
        if value != replaced:
            self.findings.warning(at, f"replaces {earlier.where(earlier_at)}", codes.FILE_OVERLAID)


def merged_entries(layers: Iterable[Layer]) -> list[tuple[Layer, RawEntry]]:
    """Returns the entries of all files, in the order of their names' first occurrence. The last of equal names wins."""
    merged: dict[str, tuple[Layer, RawEntry]] = {}
    for layer in layers:
        for entry in layer.entries:
            if entry.id in merged:
                earlier, replaced = merged[entry.id]
                layer.tell_replaced(entry.at, entry.values, earlier, replaced.at, replaced.values)
            merged[entry.id] = layer, entry
    return list(merged.values())


def merge_root_keys(layers: Sequence[Layer], keys: KeyTable) -> Place:
    """Keeps every root key only in the last file that has it, and returns the function that finds a key's place.

    Named values are merged by name, and lists of `blacklist` are joined. A warning with both places reports each value
    that is replaced by a different one.
    """
    origins: dict[KeyPath, tuple[Layer, KeyPath]] = {}
    for spellings in _groups(keys, layers):
        occurrences = [(layer, name) for layer in layers for name in spellings if layer.root.get(name) is not None]
        if not occurrences:
            continue
        last_layer, name = occurrences[-1]
        value: Any = last_layer.root[name]
        if len({id(layer) for layer, _ in occurrences}) > 1:
            value = _merged(occurrences, spellings[0], origins)
            for layer, spelling in occurrences:
                if layer is not last_layer:
                    del layer.root[spelling]
            last_layer.root[name] = value
        origins.setdefault((name,), (last_layer, (name,)))

    def place(at: KeyPath) -> tuple[str, int | None]:
        for end in range(len(at), 0, -1):
            if at[:end] in origins:
                layer, origin_at = origins[at[:end]]
                return layer.findings.place((*origin_at, *at[end:]))
        return layers[0].findings.place(at)

    return place


def _groups(keys: KeyTable, layers: Sequence[Layer]) -> list[tuple[str, ...]]:
    """Returns the root keys that the files have, each with its other spellings."""
    groups = [key.names for key in keys.root] + list(_SPELLINGS[:1])
    grouped = {name for group in groups for name in group} | {name for group in _SPELLINGS[1:] for name in group}
    ungrouped = dict.fromkeys(name for layer in layers for name in layer.root if name not in grouped)
    return [*groups, *((name,) for name in ungrouped)]


def _merged(occurrences: Sequence[tuple[Layer, str]], kind: str, origins: dict[KeyPath, tuple[Layer, KeyPath]]) -> Any:
    """Returns the value of a root key that several files have, and adds the places of its parts to `origins`."""
    values = [layer.root[name] for layer, name in occurrences]
    key = occurrences[-1][1]
    if kind == _JOINED and all(isinstance(value, list) for value in values):
        joined: list[Any] = []
        for (layer, name), value in zip(occurrences, values, strict=True):
            for index, item in enumerate(value):
                origins[key, len(joined)] = layer, (name, index)
                joined.append(item)
        return joined
    mappings = [_by_name(value, (name,)) for (_, name), value in zip(occurrences, values, strict=True)]
    if kind in _BY_NAME and all(members is not None for members in mappings):
        merged: dict[str, Any] = {}
        for (layer, _), members in zip(occurrences, mappings, strict=True):
            for name, (value, at) in (members or {}).items():
                if name in merged:
                    earlier, earlier_at = origins[key, name]
                    layer.tell_replaced(at, value, earlier, earlier_at, merged[name])
                merged[name] = value
                origins[key, name] = layer, at
        return merged
    last_layer, name = occurrences[-1]
    for layer, spelling in occurrences[:-1]:
        if layer is not last_layer:
            last_layer.tell_replaced((name,), values[-1], layer, (spelling,), layer.root[spelling])
    return values[-1]


def _by_name(value: Any, at: KeyPath) -> dict[str, tuple[Any, KeyPath]] | None:
    """Returns {name: (value, place)} of a mapping, or of a list of mappings with names; None for anything else."""
    if isinstance(value, dict):
        return {name: (item, (*at, name)) for name, item in value.items()}
    if isinstance(value, list) and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in value):
        return {item["name"]: (item, (*at, index)) for index, item in enumerate(value)}
    return None


__all__ = ["ConfigReader", "LoadedConfig", "default_path", "user_directory"]

log = logging.getLogger("mcp_hub.config")

_BY_TYPE: Final = (
    "on_conflict", "list_wait", "cache_dir", "max_hub_depth", "watch", "token_store", "token_dir", "group_scope",
    "meta_tools", "state_file", "proxy",
)  # fmt: skip
"""Root keys that are read by the types of their fields alone."""


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
    found: FoundConfig = NAMED
    """How the file was found, if it was not named."""

    @property
    def messages(self) -> tuple[str, ...]:
        """All messages to show while the configuration is served, without the advice."""
        return (*self.warnings, *self.left_out, *map(str, self.duplicates))


class ConfigReader:
    """Reads files of any dialect. `keys` are the configuration keys of the policies."""

    def __init__(self, keys: KeyTable) -> None:
        self._keys = keys

    def load(
        self,
        source: Path | str | FoundConfig | Mapping[str, Any],
        *,
        environ: Mapping[str, str] = os.environ,
        home: Path | None = None,
        literal: bool = False,
    ) -> LoadedConfig:
        """Reads a file, or a mapping like a file in the working directory. Logs messages to `mcp_hub.config`.

        `literal`: variables of a mapping are not expanded. Raises ConfigError.
        """
        if isinstance(source, Mapping):
            root_tree = dict(source) if any(root in source for root in ROOTS) else {"servers": {}, **source}
            document = ConfigDocument(Path.cwd() / "configuration", root_tree, {}, (), (), lambda at: None)
            loaded = _read([document], self._keys, environ, home, literal=literal, strict=True)
            loaded = msgspec.structs.replace(loaded, config=loaded.config.model_copy(update={"path": None}))
        elif isinstance(source, FoundConfig):
            loaded = self.read_config(source.required(Path.cwd(), environ), environ, home, found=source)
        else:
            loaded = self.read_config(source, environ, home)
        for message in loaded.messages:
            log.warning("%s", message)
        return loaded

    def load_config(
        self, path: Path | str, *, environ: Mapping[str, str] = os.environ, home: Path | None = None
    ) -> Config:
        """Returns the configuration of the file at `path`, as `load` does. Raises ConfigError."""
        return self.load(path, environ=environ, home=home).config

    def config_of(
        self, tree: Mapping[str, Any], *, environ: Mapping[str, str] = os.environ, literal: bool = False
    ) -> Config:
        """Returns the configuration of a mapping, as `load` does; its `path` is None. Raises ConfigError."""
        return self.load(tree, environ=environ, literal=literal).config

    def read_config(
        self,
        path: Path | str,
        environ: Mapping[str, str] = os.environ,
        home: Path | None = None,
        overlays: Sequence[Path | str] = (),
        found: FoundConfig = NAMED,
    ) -> LoadedConfig:
        """Reads the file at `path`, and `overlays`, whose values win. No message quotes a value that may be a secret.

        `found` says how the file was found. If only trust lets it be used, it is refused once it executes other things.

        Raises:
            ConfigError: a file has errors. It has a line for each: `servers.yaml:12: servers.github.args: must be
                ...`.
        """
        paths = list(dict.fromkeys(Path.cwd() / file for file in (path, *overlays)))
        if len(paths) > MAX_FILES:
            raise ConfigError(
                f"a configuration has at most {MAX_FILES} files, but {len(paths)} are given", codes.VALUE_WRONG
            )
        loaded = _read([read_document(file) for file in paths], self._keys, environ, home)
        if not found.is_in_project:
            return msgspec.structs.replace(loaded, found=found)
        record = require_trust(paths[0], environ)  # after it was read, so that nothing else can be in force
        return msgspec.structs.replace(loaded, found=found, read=loaded.read | {record})


def _read(
    documents: Sequence[ConfigDocument],
    keys: KeyTable,
    environ: Mapping[str, str],
    home: Path | None,
    *,
    literal: bool = False,
    strict: bool = False,
) -> LoadedConfig:
    base_scope = VariableScope(
        environ=environ,
        home=Path.home() if home is None else home,
        directory=documents[0].path.parent,
        literal=literal,
    )
    layers = [
        _layer(document, keys, base_scope, label, len(documents) == 1)
        for document, label in zip(documents, _labels(documents), strict=True)
    ]
    findings = Findings(merge_root_keys(layers, keys))
    default_values, defaults = _defaults(layers, keys)
    paths = [document.path for document in documents]
    merged = merged_entries(layers)
    servers = []
    for layer, entry in merged:
        server = read_entry(entry, _entry_context(layer, default_values, strict))
        if server is not None and is_this_hub(server, paths, environ, default_path):
            layer.findings.warning(entry.at, ITSELF, ITSELF.code)
            server = server.model_copy(update={"enabled": False, "disabled_reason": ITSELF})
        if server is not None:
            servers.append(server)
    folders = FolderReader(paths[0], layers[0].scope, keys, defaults)
    config = _config(layers, keys, findings, servers, {entry.id for _, entry in merged}, folders)
    contents = folders.contents
    if not strict:
        _advise_on_writers(paths, merged, servers)
    for layer in layers:
        _advise_on_open_file(layer, [*layer.findings.advice, *findings.advice])
    merged_findings = Findings(findings.place)
    for part in (*(layer.findings for layer in layers), findings):
        merged_findings.add(part)
    merged_findings.raise_errors(contents.left_out)
    assert config is not None
    if config.proxy is not None:
        defaults = {"egress": EgressSettings(proxy=config.proxy), **defaults}
    return LoadedConfig(
        config.model_copy(update={"defaults": defaults}),
        (
            *(line for document in documents for line in document.warnings),
            *merged_findings.warning_lines(),
            *contents.warnings,
        ),
        frozenset(base_scope.read),
        (*merged_findings.advice_lines(), *contents.advice),
        tuple(contents.left_out),
        tuple(contents.duplicates),
        tuple(contents.folders),
    )


def _advise_on_writers(
    paths: Sequence[Path], merged: Sequence[tuple[Layer, RawEntry]], servers: Sequence[Server]
) -> None:
    """Adds advice about servers that can write a file of the configuration."""
    writers = writers_of(paths, servers)
    for layer, entry in merged:
        if entry.id in writers:
            text = "can write the file that this hub is started with; a changed file waits for `mcp-hub reload`"
            layer.findings.advise(entry.at, text, codes.OWN_FILE_WRITABLE)


def _labels(documents: Sequence[ConfigDocument]) -> list[str]:
    """Returns what findings call each file: its name, or its path if another file has the same name."""
    names = Counter(document.path.name for document in documents)
    paths = [document.path for document in documents]
    return [path.name if names[path.name] == 1 else str(path) for path in paths]


def _layer(document: ConfigDocument, keys: KeyTable, base_scope: VariableScope, name: str, alone: bool) -> Layer:
    """Reads one file of a configuration, whose relative paths are relative to itself."""
    findings = document.findings(name)
    project = Path(os.path.abspath(base_scope.environ.get(PROJECT_VARIABLE) or Path.cwd()))  # noqa: PTH100  # keeps links
    dialect, entries = find_entries(document.tree, document.path, keys, findings, project, alone=alone)
    scope = dialect.scope(msgspec.structs.replace(base_scope, directory=document.path.parent))
    known_keys = ROOT_KEYS | keys.root_names
    root = document.tree if isinstance(document.tree, dict) else {}
    root = {key: value for key, value in root.items() if key in known_keys}
    return Layer(document, findings, dialect, entries, scope, root)


def _entry_context(
    layer: Layer, default_values: Mapping[int | str, Mapping[str, FieldValue]], strict: bool
) -> EntryContext:
    """Returns the context of a file's entries, with the values of `defaults` that they may use."""
    defaults = {**default_values[""], **default_values.get(id(layer), {})}
    return EntryContext(layer.dialect, layer.scope, layer.document.written, layer.findings, defaults, strict)


def _defaults(layers: Sequence[Layer], keys: KeyTable) -> tuple[dict[int | str, dict[str, FieldValue]], dict[str, Any]]:
    """Returns the values of `defaults`, and the fields of a Server that they set.

    The values for all entries are under `""`. Values with errors are under the `id` of their layer: only the entries of
    that file use them, as their errors have places there.
    """
    values_by_layer: dict[int | str, dict[str, FieldValue]] = {"": {}}
    origins: dict[str, tuple[Layer, FieldValue]] = {}
    fields: dict[str, Any] = {}
    for layer in layers:
        own = read_defaults(layer.root, layer.dialect, layer.findings)
        if not own:
            continue
        for name, item in own.items():
            if name in origins:
                earlier, replaced = origins[name]
                layer.tell_replaced(item.at, item.value, earlier, replaced.at, replaced.value)
            origins[name] = layer, item
        part = layer.findings.part()
        expanded, unresolved = _expanded_defaults(own, layer.scope, layer.document, part)
        values = default_fields(expanded, part, keys.entry) | {"unresolved": unresolved}
        values_by_layer["" if not part.errors else id(layer)] = {**values_by_layer[""], **own}
        for name in ("deadlines", "settings", "unresolved"):
            values[name] = {**fields.get(name, {}), **values.get(name, {})}
        fields |= {name: value for name, value in values.items() if value != {}}
        layer.findings.add(part)
    return values_by_layer, fields


def _expanded_defaults(
    defaults: Mapping[str, FieldValue], scope: VariableScope, document: ConfigDocument, findings: Findings
) -> tuple[Fields, dict[str, CodedText | None]]:
    """Returns the values of `defaults`, and for each why it has none: entries that need it are switched off."""
    values: dict[str, FieldValue] = {}
    unresolved: list[KeyPath] = []
    explained: dict[str, CodedText | None] = {}
    for name, item in defaults.items():
        value, reasons = expand_tree(item.value, scope, item.at)
        values[name] = msgspec.structs.replace(item, value=value)
        unresolved += reasons
        explained[name] = explain_unresolved(reasons, ())
    return Fields(values, findings, scope, document.written, unresolved), explained


def _config(
    layers: Sequence[Layer],
    keys: KeyTable,
    findings: Findings,
    servers: list[Server],
    ids: set[str],
    folders: FolderReader,
) -> Config | None:
    roots = [_expanded_root(layer, findings) for layer in layers]
    merged_root: dict[str, FieldValue] = {key: item for root in roots for key, item in root.items()}
    fields = Fields(merged_root, findings, layers[0].scope, {})
    servers = [*servers, *folders.servers(fields, ids, findings)]
    all_ids = ids | {server.id for server in servers}
    values: dict[str, Any] = {}
    rules = read_root_rules(merged_root, all_ids, findings, folders.tool_sets)
    rules["settings"] = {}
    for layer, root_of_layer in zip(layers, roots, strict=True):
        own = Fields(root_of_layer, findings, layer.scope, layer.document.written)
        values |= {name: value for name, value in _root_fields(own, findings).items() if value is not None}
        rules["settings"] |= read_policy_keys(keys.root, root_of_layer, KeyReading(findings, layer.scope, all_ids))
        _advise_on_plain_tokens(layer.root, layer.scope, findings)
    if (listen := values.get("listen")) is not None:
        check_profiles(listen, {profile.name: profile for profile in rules.get("profiles", ())}, findings)
    paths = [layer.document.path for layer in layers]
    servers = [_apply_proxy(server, values.get("proxy")) for server in servers]
    try:
        return Config(path=paths[0], overlays=tuple(paths[1:]), servers=tuple(servers), **values, **rules)
    except ValidationError as error:
        for at, text in error.errors:
            findings.error(at, text)
        return None


def _apply_proxy(server: Server, proxy: SecretStr | None) -> Server:
    """Returns a server with the proxy of the root, if it is remote or makes connections itself."""
    if server.url is None and server.builtin not in ("web", "browser", "native"):
        return server
    egress = with_root_proxy(server.egress, proxy)
    return server if egress is server.egress else server.model_copy(update={"egress": egress})


def _expanded_root(layer: Layer, findings: Findings) -> dict[str, FieldValue]:
    """Returns the expanded root keys of one file, without `defaults`. Paths of tools and skills become absolute."""
    fields = {}
    for key, value in layer.root.items():
        if key in ("defaults", "serverDefaults"):
            continue
        expanded = _expand(value, layer.scope, (key,), findings)
        if key in ("tools_dir", "skills"):
            paths = [
                str(layer.scope.path(item)) if isinstance(item, str) and item else item for item in _as_list(expanded)
            ]
            expanded = paths if isinstance(expanded, list) else paths[0] if paths else expanded
        if key == "search" and isinstance(expanded, dict) and isinstance(model := expanded.get("model"), str) and model:
            expanded = {**expanded, "model": str(layer.scope.path(model))}
        fields[key] = FieldValue(expanded, (key,))
    return fields


def _as_list(value: Any) -> list[Any]:
    """Returns a list itself, anything else as a list of one."""
    return value if isinstance(value, list) else [value]


def _root_fields(fields: Fields, findings: Findings) -> dict[str, Any]:
    """Reads the root keys that no other part reads. Absent ones are None."""
    values = fields.typed(Config, _BY_TYPE)
    if values.get("token_store") == "keyring" and (reason := missing("keyring")) is not None:
        findings.warning(("token_store",), f"no sign-in can be read or kept: {reason}", reason.code)
    return {**values, "listen": read_listen(fields, findings)}


def _expand(value: Any, scope: VariableScope, at: KeyPath, findings: Findings) -> Any:
    """Expands a value of the root. A variable without a value is an error, as there is no entry to switch off."""
    expanded, reasons = expand_tree(value, scope, at)
    for key_path, reason in reasons.items():
        findings.error(key_path, reason, reason.code)
    return expanded


def _advise_on_open_file(layer: Layer, advice: Iterable[FileFinding]) -> None:
    """Adds advice on a file with a secret in it that other users of this machine can read."""
    path = layer.document.path
    holds_secret = any(
        found.code == codes.SECRET_IN_PLAIN and found.file == layer.findings.place(())[0] for found in advice
    )
    if holds_secret and os.name == "posix" and path.exists() and path.stat().st_mode & 0o044:
        text = f"other users of this machine can read the secrets of this file: chmod 600 {path.name}"
        layer.findings.advise((), text, codes.SECRET_IN_PLAIN)


def _advise_on_plain_tokens(root: Mapping[str, Any], scope: VariableScope, findings: Findings) -> None:
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
    sections: list[tuple[KeyPath, Any]] = [(("listen",), listen)]
    if isinstance(principals, dict):
        sections += [(("listen", "principals", name), principal) for name, principal in principals.items()]
    for at, section in sections:
        if isinstance(section, dict) and is_plain_secret("token", section.get("token"), scope):
            findings.advise((*at, "token"), PLAIN_SECRET_ADVICE, codes.SECRET_IN_PLAIN)
