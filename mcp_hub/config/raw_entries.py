"""Finds the entries of a file, its dialect, and the rules elsewhere in the file that apply to the entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.config.dialect import HARMLESS_ROOTS, ROOT_KEYS, ROOTS, Dialect
from mcp_hub.config.findings import REMOVED_ROOTS, Findings, KeyPath, dotted, is_remark, nearest
from mcp_hub.config.host_rules import (
    AMP_ROOT,
    GOOSE_ROOT,
    ClaudeProjects,
    amp_denied_tools,
    amp_rejected,
    gemini_disabled,
    is_goose,
    opencode_denied_tools,
    without_parts_of_goose,
)
from mcp_hub.config.settings import KeyTable, restricting
from mcp_hub.text import printable

_GEMINI_ENTRY: Final = frozenset({"httpUrl", "includeTools", "excludeTools", "trust"})
_GEMINI_FOLDERS: Final = frozenset({".gemini", ".qwen"})
_OPENCODE_ROOTS: Final = frozenset({"tools", "permission"})
_GEMINI_POLICY: Final = frozenset({"allowed", "excluded", "serverCommand"})
_ENTRY_MARKS: Final = frozenset({"command", "url", "httpUrl", "serverUrl", "type", "tools_dir"})


class RawEntry(msgspec.Struct, frozen=True):
    """One entry as it is written in the file."""

    id: str
    values: Mapping[str, Any]
    at: KeyPath
    fault: str | None = None
    """Why it is no entry, if it is none."""


def find_entries(
    tree: Any, path: Path, keys: KeyTable, findings: Findings, project: Path | None = None, *, alone: bool = True
) -> tuple[Dialect, list[RawEntry]]:
    """Returns the dialect and the entries of a document in their order. Errors go to the findings.

    Claude Code's file has servers for single directories; those for `project` are used, and none if it is None. A file
    that is not `alone` is one of several of a configuration, and may have rules without servers.
    """
    if isinstance(tree, list):
        return Dialect("servers", keys), _list_entries(tree, (), findings)
    if not isinstance(tree, dict):
        findings.error((), "the file must hold keys and values, with 'servers' at the top")
        return Dialect("servers", keys), []
    roots, policy = _roots(tree)
    if len(roots) > 1:
        names = " and ".join(f"'{root}'" for root in roots)
        findings.error((roots[1],), f"the servers of a file are below one key, but {names} are both there; keep one")
        return Dialect(roots[0], keys), []
    rules = (ROOT_KEYS | keys.root_names) & tree.keys()
    if not roots and "tools_dir" not in tree and (alone or not rules):
        findings.error((), _missing_root_text(tree))
        return Dialect("servers", keys), []
    _check_root_keys(tree, roots, keys, findings)
    if not roots:
        return Dialect("servers", keys), []
    root = roots[0]
    at: KeyPath = (root,)
    raw_entries: Any = tree.get(root)
    if root == "mcp" and _holds_servers(raw_entries):
        # The settings of VS Code itself.
        root, at, raw_entries = "servers", ("mcp", "servers"), raw_entries["servers"]
    if root == GOOSE_ROOT:
        raw_entries = without_parts_of_goose(raw_entries, findings)
    entries = _list_entries(raw_entries, at, findings)
    if raw_entries is None and "tools_dir" not in tree and root in tree:
        findings.warning(at, "holds no entry")
    gemini = root == "mcpServers" and (
        bool(policy)
        or bool(_GEMINI_FOLDERS & set(path.parts[-2:-1]))
        or any(_GEMINI_ENTRY & entry.values.keys() for entry in entries)
    )
    disabled, denied_tools = gemini_disabled(policy, [entry.id for entry in entries]), {}
    if root == "mcpServers":
        projects = ClaudeProjects(tree)
        own_project = projects.of(project)
        entries = _with_project_entries(entries, projects.servers(own_project), own_project, findings)
        disabled |= projects.disabled(own_project)
        projects.tell_others(own_project, findings)
    elif root == "mcp":
        denied_tools = opencode_denied_tools(tree, [entry.id for entry in entries])
    elif root == AMP_ROOT:
        disabled |= amp_rejected(tree, {entry.id: entry.values for entry in entries})
        denied_tools = amp_denied_tools(tree, [entry.id for entry in entries])
    return Dialect(root, keys, gemini, disabled, denied_tools), entries


def _roots(tree: Mapping[str, Any]) -> tuple[list[str], Mapping[str, Any]]:
    """Returns the keys of a file that have entries below them, and Gemini's policy on which servers may be used."""
    roots = [root for root in ROOTS if root in tree]
    if GOOSE_ROOT in roots and (len(roots) > 1 or not is_goose(tree[GOOSE_ROOT])):
        roots.remove(GOOSE_ROOT)
    if "mcp" in roots and len(roots) > 1 and isinstance(tree["mcp"], dict) and tree["mcp"].keys() <= _GEMINI_POLICY:
        # In Gemini's settings the servers are below mcpServers, and `mcp` says which of them may be used.
        roots.remove("mcp")
        return roots, tree["mcp"]
    if not roots and ClaudeProjects(tree):
        roots = ["mcpServers"]
    return roots, {}


def _with_project_entries(
    entries: Sequence[RawEntry], servers: Mapping[str, Any], folder: str | None, findings: Findings
) -> list[RawEntry]:
    """Returns the entries with those of a project of Claude Code, which win on equal names."""
    at: KeyPath = ("projects", folder or "", "mcpServers")
    project_entries = {entry.id: entry for entry in _list_entries(servers, at, findings)}
    return [project_entries.pop(entry.id, entry) for entry in entries] + list(project_entries.values())


def _holds_servers(value: Any) -> bool:
    inner = value.get("servers") if isinstance(value, dict) else None
    return isinstance(inner, dict) and not any(isinstance(inner.get(mark), str | list) for mark in _ENTRY_MARKS)


def _list_entries(raw_entries: Any, at: KeyPath, findings: Findings) -> list[RawEntry]:
    if raw_entries is None:
        return []
    if isinstance(raw_entries, dict):
        items: list[tuple[Any, Any, KeyPath]] = [
            (name, values, (*at, name)) for name, values in raw_entries.items() if not is_remark(name)
        ]
    elif isinstance(raw_entries, list):
        items = [
            (item.get("name") or item.get("id") if isinstance(item, dict) else None, item, (*at, index))
            for index, item in enumerate(raw_entries)
        ]
    else:
        findings.error(at, "must be a mapping of names to entries, or a list of entries with a 'name'")
        return []
    entries: dict[str, RawEntry] = {}
    for name, values, key_path in items:
        fault = None
        if not isinstance(values, dict):
            fault, values = "must be an entry: keys such as 'command' or 'url' with their values", {}
        if isinstance(raw_entries, list) and isinstance(values.get("uses"), str):
            findings.warning(key_path, "is a block of Continue's hub, which only Continue can read; it is not served")
        elif not isinstance(name, str) or not name.strip():
            need = "a name" if isinstance(raw_entries, dict) else "a 'name', a text"
            findings.warning(key_path, f"needs {need}; it is left out")
        elif name in entries:
            findings.error(key_path, f"the name is already taken by {dotted(entries[name].at)}")
        else:
            entries[name] = RawEntry(name, _unfolded(values), key_path, fault)
    return list(entries.values())


def _unfolded(values: dict[str, Any]) -> dict[str, Any]:
    """Moves the keys below `params` up: MiroFlow writes the keys of an entry, or a URL, there.

    The same is done with Cline's `transport`, which may hold the keys of an entry, and with the headers below
    Continue's `requestOptions`.
    """
    options = values.get("requestOptions")
    if isinstance(options, dict) and "headers" in options and "headers" not in values:
        values = {**values, "headers": options["headers"]}
    transport = values.get("transport")
    if isinstance(transport, dict) and _ENTRY_MARKS & transport.keys():
        values = {**{key: value for key, value in values.items() if key != "transport"}, **transport}
    params = values.get("params")
    if isinstance(params, str):
        return {**{key: value for key, value in values.items() if key != "params"}, "url": params}
    if isinstance(params, dict):
        return {**{key: value for key, value in values.items() if key != "params"}, **params}
    return values


_RULES: Final = frozenset({"listen", "profiles", "tool_sets", "defaults"})
"""Keys of the root that restrict what is allowed and that belong to no single policy."""


def _check_root_keys(tree: Mapping[str, Any], roots: list[str], keys: KeyTable, findings: Findings) -> None:
    """Warns about unknown root keys. In a file of another host, only those that resemble a key of the hub."""
    hub_keys = ROOT_KEYS | keys.root_names
    known_keys = hub_keys | HARMLESS_ROOTS | set(ROOTS) | (_OPENCODE_ROOTS if "mcp" in roots else set())
    is_own_file, resembled = roots in ([], ["servers"]), hub_keys | REMOVED_ROOTS.keys()
    for key in tree:
        if key not in known_keys and not is_remark(key) and (is_own_file or nearest(key, resembled)):
            rules = restricting(keys.root) | _RULES if is_own_file else ()
            findings.unknown((key,), hub_keys | set(roots or ROOTS), rules)


def _missing_root_text(tree: Mapping[str, Any]) -> str:
    text = "there are no servers in this file; it needs one of these keys at the top: " + ", ".join(ROOTS)
    for key, value in tree.items():
        if (suggestion := nearest(key, ROOTS)) and suggestion != key:
            return f"{text}; did you mean '{suggestion}' where '{printable(key, 80)}' is?"
        if isinstance(value, dict) and _ENTRY_MARKS & value.keys():
            return f"{text}; '{printable(key, 80)}' looks like an entry: put it below 'servers:'"
    return text
