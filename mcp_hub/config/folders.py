"""What lies in the folders beside a configuration: `native`, `builtin` and `mcp` of `tools_dir`, `configs/tool_sets`.

A file that is broken is told of and left out; the others count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.config.beside import MCP, NATIVE, SKILLS, Duplicate, Found
from mcp_hub.config.canonical import read_defaults
from mcp_hub.config.dialect import Dialect, RawEntry, find_entries
from mcp_hub.config.document import Document, read_document
from mcp_hub.config.entry import Reading, read_entry
from mcp_hub.config.extras import OF_BUILTINS, missing
from mcp_hub.config.file_stamps import folder_files
from mcp_hub.config.findings import Finding, Findings, KeyPath
from mcp_hub.config.keys import HARMLESS_ROOTS, ROOT_KEYS, ROOTS
from mcp_hub.config.models import Server
from mcp_hub.config.rule_fields import read_model
from mcp_hub.config.rules import ToolRules, ToolSet
from mcp_hub.config.secret_str import SecretStr
from mcp_hub.config.skill import SKILL_FILE, Skill, read_skill
from mcp_hub.config.variables import Scope
from mcp_hub.errors import ConfigError
from mcp_hub.text import printable

MAX_SKILLS: Final = 200
MAX_NATIVE: Final = 512 * 1024
"""Characters of all native tools together: they travel in the environment of a process, which is bounded."""
_BARE: Final = frozenset({"command", "cmd", "url", "httpUrl", "serverUrl", "mcp_server_url"})
"""A mapping with one of these at its top is an entry itself."""


class FolderReading:
    """Reads them for the configuration at `path`; what comes of it is put into `found`."""

    def __init__(self, path: Path, scope: Scope, found: Found) -> None:
        self._path = path
        self._scope = scope
        self.found = found

    def tools(self, directory: Path, ids: Mapping[str, str], namespace: str) -> None:
        """`native` and `mcp` of a directory of tools. `ids` are the servers there are, each with where it stands."""
        taken = dict(ids)
        self._native(directory / NATIVE, taken, namespace)
        self._mcp(directory / MCP, taken)

    def tool_sets(self, directory: Path, names: Mapping[str, str]) -> None:
        """Every file a tool set: name, description, tools. `names` are those of the configuration itself."""
        taken = dict(names)
        for document, findings, _ in self._documents(directory):
            values = document.tree
            if isinstance(values, list):
                values = {"tools": values}
            if not isinstance(values, dict):
                findings.error((), "must be a mapping with name, description and tools")
            elif isinstance(name := values.get("name", document.path.stem), str) and name:
                one = read_model(ToolSet, {**values, "name": name}, (), findings)
                if one is not None and not findings.errors and self._free("tool set", name, taken, document.path):
                    self.found.tool_sets.append(one)
            else:
                findings.error(("name",), "must be a text")
            self._tell(findings)

    def skills(self, given: Sequence[tuple[KeyPath, Path]], findings: Findings) -> Server | None:
        """The server of the skills in these directories, each one or a directory of some."""
        taken: dict[str, str] = {}
        skills: list[Skill] = []
        for at, directory in given:
            part = findings.part()
            inner = sorted(one.parent for one in directory.glob(f"*/{SKILL_FILE}")) if directory.is_dir() else []
            self._scope.read.update((directory, *inner))
            for path in [directory] if (directory / SKILL_FILE).exists() or not inner else inner:
                try:
                    if (path / SKILL_FILE).is_symlink():
                        raise ValueError(f"The {SKILL_FILE} file in '{path}' is a link; a skill has files of its own.")
                    skill = read_skill(path)
                except ValueError as error:
                    part.error(at, printable(str(error)))
                    continue
                self._scope.read.update(file for name in skill.files for file in (path / name, (path / name).parent))
                if self._free("skill", skill.name, taken, path):
                    skills.append(skill)
            if len(skills) > MAX_SKILLS:
                part.error(at, f"makes more than {MAX_SKILLS} skills; the others are left out")
            self.found.left_out += part.wrong()
        skills = skills[:MAX_SKILLS]
        if not skills:
            return None
        return Server(id=SKILLS, transport="stdio", builtin="skills", namespace=SKILLS, skills=tuple(skills))

    def _native(self, folder: Path, taken: dict[str, str], namespace: str) -> None:
        names: dict[str, str] = {}
        tools, rules, secrets = [], dict[str, ToolRules](), list[str]()
        for document, findings, scope in self._documents(folder):
            from mcp_hub.config.native import read_native  # only where there are any

            read = [
                read_native(values, at, stem, scope, document.written, findings)
                for at, stem, values in _native_tools(document, findings)
            ]
            # A file counts as a whole: half of what it says may not be what was meant.
            for one in () if findings.errors else read:
                if one is None or not self._free("tool", one.name, names, document.path) or one.tool is None:
                    continue
                tools.append(one.tool.to_json())
                rules[one.name] = one.rules
                secrets += one.tool.secrets
            self._tell(findings)
        data = json.dumps(tools)
        if len(data) > MAX_NATIVE:
            self.found.left_out.append(f"{self._name(folder)}: its tools are too large together; none is served")
        elif tools and NATIVE in taken:
            text = (
                f"{self._name(folder)}: its tools become the server {NATIVE!r}, but {taken[NATIVE]} has one; rename it"
            )
            self.found.left_out.append(text)
        elif tools:
            taken[NATIVE] = self._name(folder)
            lacking = missing(OF_BUILTINS[NATIVE])
            if lacking is not None:
                self.found.warnings.append(f"{self._name(folder)}: its tools are switched off: {lacking}")
            self.found.native = Server(
                id=NATIVE,
                transport="stdio",
                builtin="native",
                namespace=namespace,
                native=SecretStr(data),
                secrets=tuple(map(SecretStr, secrets)),
                tools=rules,
                enabled=lacking is None,
                disabled_reason=lacking,
            )

    def _mcp(self, folder: Path, taken: dict[str, str]) -> None:
        for document, findings, scope in self._documents(folder):
            dialect, entries = _entries(document, findings)
            scope = msgspec.structs.replace(
                scope, file_braces=dialect.root == "mcp", os_environ=dialect.root == "mcp_servers"
            )
            root = document.tree if isinstance(document.tree, dict) else {}
            defaults = read_defaults(root, dialect, findings)
            reading = Reading(dialect, scope, document.written, findings, defaults)
            servers = [server for entry in entries if (server := read_entry(entry, reading)) is not None]
            if not findings.errors:
                self.found.servers += [one for one in servers if self._free("server", one.id, taken, document.path)]
            self._tell(findings)

    def _documents(self, folder: Path) -> Iterator[tuple[Document, Findings, Scope]]:
        for path in folder_files(folder):
            self._scope.read.add(path)
            name = self._name(path)
            try:
                document = read_document(path)
            except ConfigError as error:
                own = f"{path.name}:"  # which its messages begin with
                lines = str(error).splitlines()
                self.found.left_out += [
                    f"{name}:{line.removeprefix(own)}" if line.startswith(own) else line for line in lines
                ]
                continue
            findings = Findings(name, document.line_of)
            findings.errors.extend(Finding(line, text) for line, text in document.faults)
            self.found.warnings += document.warnings
            yield document, findings, msgspec.structs.replace(self._scope, directory=path.parent, literal=False)

    def _free(self, what: str, name: str, taken: dict[str, str], path: Path) -> bool:
        where = self._name(path)
        if name in taken:
            self.found.duplicates.append(Duplicate(what, name, taken[name], where))
            return False
        taken[name] = where
        return True

    def _tell(self, findings: Findings) -> None:
        self.found.left_out += findings.wrong()
        self.found.warnings += findings.told()
        self.found.advice += findings.advised()

    def _name(self, path: Path) -> str:
        """As its user would write it: relative to the configuration where it lies below."""
        try:
            return printable(path.relative_to(self._path.parent).as_posix(), 300)
        except ValueError:
            return printable(str(path), 300)


def _native_tools(document: Document, findings: Findings) -> Iterator[tuple[Any, str, Mapping[str, Any]]]:
    """(place, name unless it says one, mapping) of each: a file is one tool, or has some below `tools`."""
    tree = document.tree
    listed = tree.get("tools") if isinstance(tree, dict) else tree
    shared = {key: value for key, value in tree.items() if key != "tools"} if isinstance(tree, dict) else {}
    if isinstance(tree, dict) and "tools" not in tree:
        yield (), document.path.stem, tree
    elif isinstance(listed, list):
        at = ("tools",) if isinstance(tree, dict) else ()
        for index, one in enumerate(listed):
            if isinstance(one, dict):
                yield (*at, index), "", {**shared, **one}
            else:
                findings.error((*at, index), "must be a mapping with name, description, api_url and parameters")
    elif isinstance(listed, dict):
        for name, one in listed.items():
            if isinstance(one, dict):
                yield ("tools", name), str(name), {**shared, **one}
            else:
                findings.error(("tools", name), "must be a mapping with description, api_url and parameters")
    else:
        findings.error((), "must be a mapping with name, description, api_url and parameters")


def _entries(document: Document, findings: Findings) -> tuple[Dialect, list[RawEntry]]:
    """The entries of a file of any dialect; a file may also be one entry."""
    tree = document.tree
    roots = isinstance(tree, dict) and any(root in tree for root in ROOTS)
    if isinstance(tree, dict) and not roots and _BARE & tree.keys():
        name = tree.get("name", document.path.stem)
        if isinstance(name, str) and name.strip():
            return Dialect("servers"), [RawEntry(name, tree, ())]
        findings.error(("name",), "must be a text")
        return Dialect("servers"), []
    if isinstance(tree, dict):
        for key in sorted(tree.keys() & (ROOT_KEYS - {"defaults", "serverDefaults"} - HARMLESS_ROOTS)):
            # Unheard, it would let through what its author meant to refuse.
            findings.error((key,), "counts in the configuration itself only; move it there")
    return find_entries(tree, document.path, findings)
