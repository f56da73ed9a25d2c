"""Finds the configuration that is used if none is named, and records which directories a user trusts.

A file in the working directory, such as in a checkout, decides what is executed. So its user is asked once per
directory, and again when the commands change. Trust holds for the directory and its owner, and for what the file
starts, connects to and writes. It does not cover the content of scripts that a trusted command runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.config_files import HOW_TO_CREATE, ConfigDocument, folder_files, read_document
from mcp_hub.config.dialect import FILE_NAMES, FILTERS, HARMLESS, HARMLESS_ROOTS, ROOTS, TIMEOUTS
from mcp_hub.config.entry_keys import NAMES, OFFERS
from mcp_hub.config.findings import REMOVED_ROOTS
from mcp_hub.config.folders import BUILTIN, MCP, NATIVE, TOOLS, find_file_entries
from mcp_hub.config.raw_entries import RawEntry, find_entries
from mcp_hub.config.settings import KeyTable
from mcp_hub.config.variables import ANY_VARIABLE, UnresolvedVariable, VariableScope, expand
from mcp_hub.errors import ConfigError
from mcp_hub.security.private_files import PrivateDirectory, is_file, state_directory
from mcp_hub.text import printable

PATH_VARIABLE: Final = "MCP_HUB_CONFIG"
MAX_RECORD: Final = 64 * 1024
_FORMAT: Final = 1

_READS_MORE: Final = re.compile(r"\{\s*(file|keyring)\s*:|secrets\.")
"""Matches variables that stand for more than the environment."""

_RULES_OF_ENTRIES: Final = frozenset({
    *FILTERS, *TIMEOUTS, *HARMLESS, *OFFERS, "confirm", "labels", "limits", "retry", "breaker", "screen",
})  # fmt: skip
"""Keys of an entry that only decide what is offered. All others belong to what is trusted, also unknown ones."""
_RULES_OF_TOOLS: Final = frozenset({
    "name", "title", "description", "tags", "extend_schema", "strip_titles", "descriptions", "schemas", "timeout",
    "idle_timeout", "validate_arguments", "max_result_bytes", "max_result_tokens", "retry",
})  # fmt: skip
"""The same for keys of a tool. `preset` is no rule: it decides what a server is sent."""
_TARGETS: Final = ("url", "tools_dir", "builtin", "executable", "env_file")
_WHOLE: Final = frozenset({"command", "args", *_TARGETS})
"""Keys of an entry that its line shows with their values."""
_SHOWN: Final = frozenset({"name", "id", "transport", "env", *_WHOLE})
"""Keys of an entry that its line shows, or that add nothing to it."""
_RULES_OF_ROOT: Final = frozenset({
    *HARMLESS_ROOTS, *REMOVED_ROOTS, "on_conflict", "list_wait", "watch", "unread", "tool_sets", "profiles", "groups",
    "group_scope", "meta_tools", "output_strategy", "max_hub_depth", "expose", "expose_budget", "expose_always",
    "always", "blacklist", "tool_blacklist", "confirm", "flows", "schemas", "screen",
})  # fmt: skip
"""The same for keys of the root."""


class Executed(msgspec.Struct, frozen=True):
    """What a found configuration would start and connect to."""

    path: Path
    """The file; its directory is absolute and has no links."""
    owner: int
    """The uid of the directory's owner."""
    digest: str
    """The SHA-256 of all that is trusted with the directory."""
    lines: tuple[str, ...]
    """What is started and connected to, as it is written in the file; the names of further settings."""


def read_executed(path: Path, environ: Mapping[str, str] = os.environ) -> Executed:
    """Reads a configuration without expanding values of variables, files and the keyring. Raises ConfigError."""
    path = path.parent.resolve() / path.name
    document = read_document(path)
    tree = document.tree if isinstance(document.tree, dict) else {"servers": document.tree}
    entries = find_entries(tree, path, KeyTable(), document.findings(), Path.cwd())[1]
    root = _without_rules(tree)
    trusted: list[Any] = [root]
    lines = [_line(entry) for entry in entries]
    if tree.get("tools_dir") is not None:
        lines.append(f"functions in {tree['tools_dir']}")
    if others := {str(key): value for key, value in root.items() if key not in {*ROOTS, "tools_dir"}}:
        lines.append("; ".join((f"further settings: {', '.join(sorted(others))}", *_reads(others))))
    for folder in _tool_folders(tree, path, environ):
        if folder.name == BUILTIN:
            trusted.append(str(folder))
            lines.append(f"functions in {folder}")
            continue
        for file in folder_files(folder):
            with contextlib.suppress(ConfigError):  # such a file is left out
                inner = read_document(file)
                trusted.append([folder.name, file.name, inner.tree])
                lines += _lines_of_folder(folder, inner)
    digest = hashlib.sha256(repr(_canonical(trusted)).encode("utf-8", "surrogatepass")).hexdigest()
    return Executed(path, path.parent.stat().st_uid, digest, tuple(lines))


def _lines_of_folder(folder: Path, document: ConfigDocument) -> Iterator[str]:
    if folder.name == NATIVE:
        yield "; ".join((f"tools of {folder.name}/{document.path.name}", *_reads(document.tree)))
        return
    for entry in find_file_entries(document, KeyTable(), document.findings())[1]:
        yield _line(entry)


def _tool_folders(tree: Mapping[str, Any], path: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yields the folders of tools that belong to a configuration; `builtin` only if functions in it are used."""
    written = tree.get("tools_dir")
    directories = {path.parent / TOOLS} if written is None else set()
    if _READS_MORE.search(str(written)):
        text = f"{path.name}: tools_dir takes its value from a file or the keyring; name the configuration by --config"
        raise ConfigError(text, codes.NOT_TRUSTED)
    for bare_names in (False, True):  # which forms of variables are expanded depends on the dialect
        scope = VariableScope(environ, Path.home(), path.parent, bare_names=bare_names)
        if isinstance(written, str):
            with contextlib.suppress(UnresolvedVariable):  # then nothing of the file is used
                directories.add(scope.path(expand(written, scope)))
    for directory in sorted(directories):
        yield from (directory / NATIVE, directory / MCP)
        if written is None and any((directory / BUILTIN).glob("*.py")):
            yield directory / BUILTIN


def _without_rules(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _entries_without_rules(value) if key in ROOTS else value
        for key, value in tree.items()
        if key not in _RULES_OF_ROOT or _has_variables(value)
    }


def _entries_without_rules(entries: Any) -> Any:
    if isinstance(entries, dict):
        return {id: _entry_without_rules(entry) for id, entry in entries.items()}
    return [_entry_without_rules(entry) for entry in entries] if isinstance(entries, list) else entries


def _entry_without_rules(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    # Lists of entries have their ids in `name` or `id`.
    kept = {key: value for key, value in entry.items() if key in ("name", "id") or not _is_rule(key, value)}
    tools = entry.get("tools")
    if isinstance(tools, dict):
        kept["tools"] = {name: _tool_without_rules(rules) for name, rules in tools.items()}
    if not isinstance(tools, dict) or not any(kept["tools"].values()):
        kept.pop("tools", None)  # a list only says which tools are offered
    return kept


def _tool_without_rules(rules: Any) -> Any:
    if not isinstance(rules, dict):
        return rules if _has_variables(rules) else None
    return {key: value for key, value in rules.items() if key not in _RULES_OF_TOOLS or _has_variables(value)}


def _is_rule(key: Any, value: Any) -> bool:
    return key in _RULES_OF_ENTRIES and not _has_variables(value)


def _has_variables(value: Any) -> bool:
    """Returns whether a value may contain what the environment, a file or the keyring has."""
    return ANY_VARIABLE.search(repr(value)) is not None


def _canonical(value: Any) -> Any:
    """Returns a value whose `repr` does not depend on the order of keys."""
    if isinstance(value, dict):
        return sorted(((repr(key), _canonical(item)) for key, item in value.items()), key=lambda pair: pair[0])
    return [_canonical(item) for item in value] if isinstance(value, list) else value


def _line(entry: RawEntry) -> str:
    """Returns `NAME: COMMAND ARGUMENTS`, with the names of what it sets, and the variables that it reads for that.

    Nothing is chosen: of several commands or addresses in one entry, all are shown, whichever the hub would use.
    """
    values: dict[str, list[Any]] = {}
    for key, value in entry.values.items():
        if value is not None:
            values.setdefault(NAMES.get(key, str(key)), []).extend(value if isinstance(value, list) else [value])
    words = [str(word) for key in ("command", "args") for word in values.get(key, ())]
    targets = [shlex.join(words)] if words else []
    targets += [f"{key} {value}" for key in _TARGETS for value in values.get(key, ())]
    sets = [str(name) for env in values.get("env", ()) for name in (env if isinstance(env, dict) else [env])]
    kept = _entry_without_rules(entry.values)
    others = sorted({NAMES.get(key, str(key)) for key in kept} - _SHOWN)
    notes = [f"sets {', '.join(sets)}"] if sets else []
    notes += [f"further settings: {', '.join(others)}"] if others else []
    notes += _reads({key: value for key, value in kept.items() if NAMES.get(key, key) not in _WHOLE})
    return f"{entry.id}: {', '.join(targets) or 'nothing'}" + (f" ({'; '.join(notes)})" if notes else "")


def _reads(values: Any) -> list[str]:
    """Returns a note about the variables that values have; [] for none."""
    variables = dict.fromkeys(found[0] for found in ANY_VARIABLE.finditer(str(values)))
    return [f"reads {', '.join(variables)}"] if variables else []


class TrustedDirectories:
    """The directories whose configuration this user trusts: one private file each, outside of the directory itself."""

    def __init__(self, directory: Path) -> None:
        self._files = PrivateDirectory(directory)

    @classmethod
    def of_user(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Returns those of this user."""
        return cls(state_directory(environ) / "trust")

    def add(self, executed: Executed) -> None:
        """Trusts a directory with what its configuration executes now. Raises OSError, ValueError."""
        directory = executed.path.parent
        record = {"format": _FORMAT, "directory": str(directory), "owner": executed.owner, "digest": executed.digest}
        self._files.make()
        self._files.write(self.record(directory).name, json.dumps(record).encode())

    def remove(self, directory: Path) -> bool:
        """Trusts a directory no longer. Returns whether it was trusted. Raises OSError."""
        record = self.record(directory)
        was_trusted = record.exists()
        self._files.delete(record.name)
        return was_trusted

    def paths(self) -> list[Path]:
        """Returns all trusted directories, sorted."""
        records = map(self._read, self._files.directory.glob("*.json"))
        return sorted(Path(record["directory"]) for record in records if record is not None)

    def is_known(self, directory: Path) -> bool:
        """Returns whether a directory of this owner is trusted, with whatever its configuration executed then."""
        record = self._read(self.record(directory))
        return record is not None and record["owner"] == directory.stat().st_uid

    def trusts(self, executed: Executed) -> bool:
        """Returns whether the directory is trusted with what its configuration executes."""
        record = self._read(self.record(executed.path.parent))
        return record is not None and (record["owner"], record["digest"]) == (executed.owner, executed.digest)

    @contextlib.contextmanager
    def kept(self, paths: Iterable[Path]) -> Iterator[None]:
        """Keeps the trust in directories whose configuration the hub's own commands edit while the block runs."""
        before = [path for path in paths if self._trusts_file(path)]
        yield
        for path in before:
            with contextlib.suppress(ConfigError, OSError, ValueError):  # then the user is asked again
                self.add(read_executed(path))

    def _trusts_file(self, path: Path) -> bool:
        try:
            return path.name in FILE_NAMES and self.trusts(read_executed(path))
        except (ConfigError, OSError):
            return False

    def record(self, directory: Path) -> Path:
        """Returns the file that says that a directory is trusted."""
        digest = hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()
        return self._files.directory / f"{digest}.json"

    def _read(self, file: Path) -> dict[str, Any] | None:
        try:
            record = json.loads(self._files.read(file.name, MAX_RECORD))
        except (OSError, ValueError):
            return None
        is_record = isinstance(record, dict) and record.get("format") == _FORMAT
        return record if is_record and {"directory", "owner", "digest"} <= record.keys() else None


class FoundConfig(msgspec.Struct, frozen=True):
    """Which configuration is used if none is named."""

    path: Path | None = None
    """The file; None: there is none, or it was named."""
    untrusted: Path | None = None
    """A file of the working directory that is not used, as its user does not trust it."""
    is_in_project: bool = False
    """Whether `path` is used because its directory is trusted."""

    def required(self, cwd: Path, environ: Mapping[str, str]) -> Path:
        """Returns the path. Raises ConfigError if there is none, with all files that were looked for."""
        if self.path is not None:
            return self.path
        if self.untrusted is not None:
            refusal = not_trusted(self.untrusted, environ)
            raise ConfigError(refusal, refusal.code)
        names = ", ".join(FILE_NAMES)
        locations = "\n".join(f"  {directory}: {names}" for directory in (cwd, user_directory(environ)))
        text = f"there is no configuration. Looked for\n  ${PATH_VARIABLE}: not set\n{locations}\n{HOW_TO_CREATE}"
        raise ConfigError(text, codes.NO_CONFIGURATION)


NAMED: Final = FoundConfig()
"""Of a configuration that was named, which needs no trust."""


def not_trusted(path: Path, environ: Mapping[str, str] = os.environ) -> CodedText:
    """Returns the sentence that a file is not used, and what to do."""
    directory = shlex.quote(printable(str(path.parent), 500))
    is_known = TrustedDirectories.of_user(environ).is_known(path.parent)
    reason = (
        "it starts other things than when you trusted its directory" if is_known else "its directory is not trusted"
    )
    todo = f"to see what it starts, and to trust that, run: mcp-hub trust {directory}"
    return CodedText(f"{printable(str(path), 500)} is not used: {reason}; {todo}", codes.NOT_TRUSTED)


def require_trust(path: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the record of the trust in a found file's directory. Raises ConfigError if it does not cover the file."""
    trusted = TrustedDirectories.of_user(environ)
    if not trusted.trusts(read_executed(path, environ)):
        refusal = not_trusted(path, environ)
        raise ConfigError(refusal, refusal.code)
    return trusted.record(path.parent)


def find_config(cwd: Path, environ: Mapping[str, str]) -> FoundConfig:
    """Returns the file to use if none is named: every command asks here.

    That is `$MCP_HUB_CONFIG`, else the first of servers.yaml, .yml, .json and .toml in `cwd` if that directory is
    trusted, else in the user's configuration directory. That and the home directory itself need no trust.
    """
    if configured := environ.get(PATH_VARIABLE):
        return FoundConfig(cwd / configured)
    own_directory = user_directory(environ)
    own, found = first_file(own_directory), first_file(cwd)
    if found is None or cwd.resolve() in (own_directory.resolve(), Path.home().resolve()):
        return FoundConfig(found or own)
    trusted = TrustedDirectories.of_user(environ)
    try:
        is_trusted = trusted.trusts(read_executed(found, environ))
    except ConfigError:  # nothing of it is executed: of a trusted directory, reading it says why
        is_trusted = trusted.is_known(cwd)
    return FoundConfig(found, is_in_project=True) if is_trusted else FoundConfig(own, untrusted=found)


def first_file(directory: Path) -> Path | None:
    """Returns the configuration of a directory; None if it has none."""
    return next((directory / name for name in FILE_NAMES if is_file(directory / name)), None)


def default_config() -> FoundConfig:
    """Returns what `find_config` finds for the working directory, with a path. Raises ConfigError."""
    found = find_config(Path.cwd(), os.environ)
    found.required(Path.cwd(), os.environ)
    return found


def default_path(cwd: Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the path that `find_config` finds, by default for the working directory. Raises ConfigError."""
    cwd = Path.cwd() if cwd is None else cwd
    return find_config(cwd, environ).required(cwd, environ)


def user_directory(environ: Mapping[str, str]) -> Path:
    """Returns the directory of the user's own configuration."""
    if base := environ.get("XDG_CONFIG_HOME"):
        return Path(base) / "mcp-hub"
    import platformdirs

    return platformdirs.user_config_path("mcp-hub", appauthor=False)
