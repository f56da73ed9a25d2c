"""Reads the folders beside a configuration: tools and servers in separate files, tool sets, skills.

A broken file is reported and left out; the others are used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.config.builtin_servers import SKILL_FILE, Skill, no_directory, read_skill
from mcp_hub.config.config_files import ConfigDocument, folder_files, read_document
from mcp_hub.config.dialect import FILE_NAMES, HARMLESS_ROOTS, ROOT_KEYS, ROOTS, Dialect
from mcp_hub.config.entry import EntryContext, check_tools_dir, read_entry, with_defaults
from mcp_hub.config.entry_keys import read_defaults
from mcp_hub.config.entry_rules import ToolRules
from mcp_hub.config.field_types import SecretStr
from mcp_hub.config.fields import Fields
from mcp_hub.config.findings import Findings, KeyPath
from mcp_hub.config.models import Deadlines, Server
from mcp_hub.config.raw_entries import RawEntry, find_entries
from mcp_hub.config.root_rules import ToolSetSettings
from mcp_hub.config.settings import KeyTable, read_model
from mcp_hub.config.variables import VariableScope
from mcp_hub.errors import ConfigError
from mcp_hub.security.private_files import is_directory, is_file, refuse_foreign_directory
from mcp_hub.text import printable

TOOLS: Final = "tools"
"""The default directory of tools, beside a file with one of `FILE_NAMES`."""
NATIVE: Final = "native"
"""The name of a folder, and of the server that its tools become."""
BUILTIN: Final = "builtin"
MCP: Final = "mcp"
TOOL_SETS: Final = Path("configs", "tool_sets")
LOCAL: Final = "local"
"""The name of the server that the root key `tools_dir` defines."""
SKILLS: Final = "skills"
"""The name of a root key, and of the server that it defines."""
MAX_SKILLS: Final = 200
NATIVE_TIMEOUT: Final = 60.0
"""Default deadline of one call of a native tool, in seconds."""
MAX_NATIVE: Final = 512 * 1024
"""The maximum length of all native tools together, in characters. They are passed in a process's environment."""
_BARE: Final = frozenset({"command", "cmd", "url", "httpUrl", "serverUrl", "mcp_server_url"})
"""A mapping with one of these keys at its top is an entry itself."""


class Duplicate(msgspec.Struct, frozen=True):
    """A name that was found twice; the first is kept. `what` is `tool`, `server`, `tool set` or `skill`."""

    what: str
    name: str
    kept: str
    dropped: str
    """`kept` and `dropped` are the places of the two."""

    def __str__(self) -> str:
        return f"{self.dropped}: the {self.what} {printable(self.name, 100)!r} is left out: {self.kept} has it already"


class FolderContents(msgspec.Struct):
    """What was found in the folders."""

    servers: list[Server] = msgspec.field(default_factory=list)
    """The servers that have separate files."""
    native: Server | None = None
    tool_sets: list[ToolSetSettings] = msgspec.field(default_factory=list)
    left_out: list[str] = msgspec.field(default_factory=list)
    """The errors of files that were left out, a line each."""
    warnings: list[str] = msgspec.field(default_factory=list)
    advice: list[str] = msgspec.field(default_factory=list)
    duplicates: list[Duplicate] = msgspec.field(default_factory=list)
    folders: list[Path] = msgspec.field(default_factory=list)
    """The folders whose files belong to the configuration."""


class FolderReader:
    """Reads the folders beside the configuration at `path`. On equal names, entries of the configuration win."""

    def __init__(self, path: Path, scope: VariableScope, keys: KeyTable, defaults: Mapping[str, Any]) -> None:
        self._path = path
        self._scope = scope
        self._defaults = defaults
        self._keys = keys
        self.contents = FolderContents()

    def servers(self, fields: Fields, ids: set[str], findings: Findings) -> list[Server]:
        """Returns the servers of the folders: native and local tools, others, skills. `ids` are those of the file."""
        tools_dir = fields.path("tools_dir")
        local = None
        if tools_dir is not None and LOCAL in ids:
            findings.error(("tools_dir",), f"stands for an entry '{LOCAL}', but there is one of that name already")
            return []
        if tools_dir is not None:
            local = _local_tools_server(tools_dir, LOCAL)
            if local.disabled_reason is not None:
                findings.warning(("tools_dir",), f"is switched off: {local.disabled_reason}")
            else:
                check_tools_dir(tools_dir, ("tools_dir",), findings)
        elif "tools_dir" not in fields and self._path.name in FILE_NAMES and not self._scope.literal:
            # Python files in `tools` itself are not used, as a directory of this name often holds something else.
            tools_dir = self._path.parent / TOOLS
            if LOCAL not in ids and any((tools_dir / BUILTIN).glob("*.py")):
                try:
                    self.contents.warnings += refuse_foreign_directory(tools_dir / BUILTIN)
                    local = _local_tools_server(tools_dir / BUILTIN, LOCAL)
                except ConfigError as error:
                    self.contents.left_out.append(printable(str(error), 500))
        if tools_dir is not None:
            origins = {id: self._path.name for id in ids} | ({} if local is None else {LOCAL: "tools_dir"})
            self.contents.folders += [tools_dir / name for name in (NATIVE, BUILTIN, MCP)]
            if any(is_directory(tools_dir / name) for name in (NATIVE, MCP)):
                self._read_tools(tools_dir, origins)
        servers = [server for server in (self.contents.native, local, *self.contents.servers) if server is not None]
        skills = self._skills(fields, ids | {server.id for server in servers}, findings)
        return [with_defaults(server, self._defaults) for server in (servers if skills is None else [*servers, skills])]

    def _skills(self, fields: Fields, ids: set[str], findings: Findings) -> Server | None:
        """Returns the server of the skills below the root key `skills`; None without one."""
        if (field := fields.get(SKILLS)) is None:
            return None
        if SKILLS in ids:
            findings.error((SKILLS,), f"stands for an entry '{SKILLS}', but there is one of that name already")
            return None
        directories = field.value if isinstance(field.value, list) else [field.value]
        if not all(isinstance(directory, str) and directory for directory in directories):
            findings.error((SKILLS,), "must be a list of directories with a SKILL.md each")
            return None
        paths = [((SKILLS, index), self._scope.path(directory)) for index, directory in enumerate(directories)]
        return self._read_skills(paths, findings)

    def tool_sets(self, own: Mapping[str, ToolSetSettings]) -> Sequence[ToolSetSettings]:
        """Returns the tool sets in separate files. `own` are those of the configuration itself, by name."""
        if self._scope.literal:
            return ()  # a configuration made in code does not depend on the directory
        folder = self._path.parent / TOOL_SETS
        self.contents.folders.append(folder)
        if is_directory(folder):
            self._read_tool_sets(folder, {name: self._path.name for name in own})
        return self.contents.tool_sets

    def _read_tools(self, directory: Path, ids: Mapping[str, str]) -> None:
        """Reads `native` and `mcp` of a directory of tools. `ids` maps the existing servers to their places."""
        origins = dict(ids)
        self._native(directory / NATIVE, origins)
        self._mcp(directory / MCP, origins)

    def _read_tool_sets(self, directory: Path, names: Mapping[str, str]) -> None:
        """Reads every file as a tool set. `names` maps the tool sets of the configuration itself to their places."""
        origins = dict(names)
        for document, findings, _ in self._documents(directory):
            values = document.tree
            if isinstance(values, list):
                values = {"tools": values}
            if not isinstance(values, dict):
                findings.error((), "must be a mapping with name, description and tools")
            elif isinstance(name := values.get("name", document.path.stem), str) and name:
                tool_set = read_model(ToolSetSettings, {**values, "name": name}, (), findings)
                if (
                    tool_set is not None
                    and not findings.errors
                    and self._claim("tool set", name, origins, document.path)
                ):
                    self.contents.tool_sets.append(tool_set)
            else:
                findings.error(("name",), "must be a text")
            self._add_messages(findings)

    def _read_skills(self, directories: Sequence[tuple[KeyPath, Path]], findings: Findings) -> Server | None:
        """Returns the server of the skills in these directories. Each is a skill, or has skills in subdirectories."""
        origins: dict[str, str] = {}
        skills: list[Skill] = []
        for at, directory in directories:
            part = findings.part()
            inner = sorted(file.parent for file in directory.glob(f"*/{SKILL_FILE}")) if is_directory(directory) else []
            self._scope.read.update((directory, *inner))
            for path in [directory] if is_file(directory / SKILL_FILE) or not inner else inner:
                try:
                    if (path / SKILL_FILE).is_symlink():
                        raise ValueError(f"The {SKILL_FILE} file in '{path}' is a link; a skill has files of its own.")
                    skill = read_skill(path)
                except (OSError, ValueError) as error:
                    part.error(at, printable(str(error)))
                    continue
                self._scope.read.update(file for name in skill.files for file in (path / name, (path / name).parent))
                if self._claim("skill", skill.name, origins, path):
                    skills.append(skill)
            if len(skills) > MAX_SKILLS:
                part.error(at, f"has more than {MAX_SKILLS} skills; the others are left out")
            self.contents.left_out += part.error_lines()
        skills = skills[:MAX_SKILLS]
        if not skills:
            return None
        return Server(id=SKILLS, transport="stdio", builtin="skills", namespace=SKILLS, skills=tuple(skills))

    def _native(self, folder: Path, origins: dict[str, str]) -> None:
        names: dict[str, str] = {}
        tools, rules, secrets = [], dict[str, ToolRules](), list[str]()
        for document, findings, scope in self._documents(folder):
            from mcp_hub.config.native_reader import read_native

            entries = [
                read_native(values, at, stem, scope, document.written, findings)
                for at, stem, values in _native_tools(document, findings)
            ]
            # A file with an error is left out as a whole.
            for entry in () if findings.errors else entries:
                if entry is None or not self._claim("tool", entry.name, names, document.path) or entry.tool is None:
                    continue
                tools.append(entry.tool.to_json())
                rules[entry.name] = entry.rules
                secrets += entry.tool.secrets
            self._add_messages(findings)
        data = json.dumps(tools)
        if len(data) > MAX_NATIVE:
            self.contents.left_out.append(f"{self._name(folder)}: its tools are too large together; none is served")
        elif tools and NATIVE in origins:
            text = (
                f"{self._name(folder)}: its tools become the server {NATIVE!r}, "
                f"but {origins[NATIVE]} has one; rename it"
            )
            self.contents.left_out.append(text)
        elif tools:
            origins[NATIVE] = self._name(folder)
            self.contents.native = Server(
                id=NATIVE,
                transport="stdio",
                builtin="native",
                namespace=self._defaults.get("namespace", LOCAL),
                native=SecretStr(data),
                secrets=tuple(map(SecretStr, secrets)),
                tools=rules,
                deadlines=Deadlines(call=self._defaults.get("deadlines", {}).get("call", NATIVE_TIMEOUT)),
            )

    def _mcp(self, folder: Path, origins: dict[str, str]) -> None:
        for document, findings, scope in self._documents(folder):
            dialect, entries = find_file_entries(document, self._keys, findings)
            scope = dialect.scope(scope)
            root = document.tree if isinstance(document.tree, dict) else {}
            defaults = read_defaults(root, dialect, findings)
            reading = EntryContext(dialect, scope, document.written, findings, defaults)
            servers = [server for entry in entries if (server := read_entry(entry, reading)) is not None]
            if not findings.errors:
                self.contents.servers += [
                    server for server in servers if self._claim("server", server.id, origins, document.path)
                ]
            self._add_messages(findings)

    def _documents(self, folder: Path) -> Iterator[tuple[ConfigDocument, Findings, VariableScope]]:
        for path in folder_files(folder):
            self._scope.read.add(path)
            name = self._name(path)
            try:
                document = read_document(path)
            except ConfigError as error:
                prefix = f"{path.name}:"  # the beginning of its messages
                lines = str(error).splitlines()
                self.contents.left_out += [
                    f"{name}:{line.removeprefix(prefix)}" if line.startswith(prefix) else line for line in lines
                ]
                continue
            findings = document.findings(name)
            self.contents.warnings += document.warnings
            yield document, findings, msgspec.structs.replace(self._scope, directory=path.parent, literal=False)

    def _claim(self, kind: str, name: str, origins: dict[str, str], path: Path) -> bool:
        origin = self._name(path)
        if name in origins:
            self.contents.duplicates.append(Duplicate(kind, name, origins[name], origin))
            return False
        origins[name] = origin
        return True

    def _add_messages(self, findings: Findings) -> None:
        self.contents.left_out += findings.error_lines()
        self.contents.warnings += findings.warning_lines()
        self.contents.advice += findings.advice_lines()

    def _name(self, path: Path) -> str:
        """Returns a path as its user would write it: relative to the configuration if it is below its directory."""
        try:
            return printable(path.relative_to(self._path.parent).as_posix(), 300)
        except ValueError:
            return printable(str(path), 300)


def _native_tools(document: ConfigDocument, findings: Findings) -> Iterator[tuple[Any, str, Mapping[str, Any]]]:
    """Yields (place, default name, mapping) of each tool: a file is one tool, or has some below `tools`."""
    tree = document.tree
    definitions = tree.get("tools") if isinstance(tree, dict) else tree
    defaults = {key: value for key, value in tree.items() if key != "tools"} if isinstance(tree, dict) else {}
    if isinstance(tree, dict) and "tools" not in tree:
        yield (), document.path.stem, tree
    elif isinstance(definitions, list):
        at = ("tools",) if isinstance(tree, dict) else ()
        for index, definition in enumerate(definitions):
            if isinstance(definition, dict):
                yield (*at, index), "", {**defaults, **definition}
            else:
                findings.error((*at, index), "must be a mapping with name, description, api_url and parameters")
    elif isinstance(definitions, dict):
        for name, definition in definitions.items():
            if isinstance(definition, dict):
                yield ("tools", name), str(name), {**defaults, **definition}
            else:
                findings.error(("tools", name), "must be a mapping with description, api_url and parameters")
    else:
        findings.error((), "must be a mapping with name, description, api_url and parameters")


def find_file_entries(document: ConfigDocument, keys: KeyTable, findings: Findings) -> tuple[Dialect, list[RawEntry]]:
    """Returns the dialect and the entries of a file, which may also be one entry itself."""
    tree = document.tree
    roots = isinstance(tree, dict) and any(root in tree for root in ROOTS)
    if isinstance(tree, dict) and not roots and _BARE & tree.keys():
        name = tree.get("name", document.path.stem)
        if isinstance(name, str) and name.strip():
            return Dialect("servers", keys), [RawEntry(name, tree, ())]
        findings.error(("name",), "must be a text")
        return Dialect("servers", keys), []
    if isinstance(tree, dict):
        root_keys = ROOT_KEYS | keys.root_names
        for key in sorted(tree.keys() & (root_keys - {"defaults", "serverDefaults"} - HARMLESS_ROOTS)):
            # Ignoring the key could allow what its author meant to refuse.
            findings.error((key,), "is only allowed in the configuration itself; move it there")
    return find_entries(tree, document.path, keys, findings)


def _local_tools_server(directory: Path, id: str) -> Server:
    """Returns the Server that the root key `tools_dir` defines."""
    reason = None if is_directory(directory) else no_directory(directory)
    return Server(
        id=id, transport="stdio", tools_dir=directory, namespace=id, enabled=reason is None, disabled_reason=reason
    )
