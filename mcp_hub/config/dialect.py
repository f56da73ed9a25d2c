"""Where the entries are in a file, and whose dialect the file speaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.config.findings import Findings, KeyPath, dotted, nearest
from mcp_hub.config.keys import HARMLESS_ROOTS, ROOT_KEYS, ROOTS, is_remark

_GEMINI_ENTRY: Final = frozenset({"httpUrl", "includeTools", "excludeTools", "trust"})
_GEMINI_FOLDERS: Final = frozenset({".gemini", ".qwen"})
_GEMINI_POLICY: Final = frozenset({"allowed", "excluded", "serverCommand"})
_ENTRY_MARKS: Final = frozenset({"command", "url", "httpUrl", "serverUrl", "type", "tools_dir"})

_SECONDS_AT_MOST: Final = 3600
"""Clients that count seconds end at an hour; a larger plain number in their shape of file is milliseconds."""


class RawEntry(msgspec.Struct, frozen=True):
    """One entry as it stands in the file."""

    id: str
    values: Mapping[str, Any]
    at: KeyPath


class Dialect(msgspec.Struct, frozen=True):
    """What the meaning of an entry depends on beside itself."""

    root: str
    gemini: bool = False
    """`url` without a type is SSE, `timeout` is milliseconds."""
    off: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Entries that a rule elsewhere in the file holds back: id -> reason."""
    refused: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Tools that a rule elsewhere in the file refuses: id -> patterns."""

    @property
    def timeout_of_list(self) -> bool:
        """opencode's `timeout` is the one for fetching the tools."""
        return self.root == "mcp"

    @property
    def counts_milliseconds(self) -> bool:
        """Gemini and opencode do, always."""
        return self.gemini or self.root == "mcp"

    def timeout_unit(self, value: object) -> float:
        """Seconds in one unit of a plain `timeout`.

        Gemini and opencode count milliseconds. Below `mcpServers` and `context_servers` clients disagree: Cline, Roo
        and this hub count seconds, Claude Code, Amazon Q and 1MCP milliseconds, and only the size tells them apart.
        """
        if isinstance(value, bool) or not isinstance(value, int | float):
            return 1.0
        if self.counts_milliseconds:
            return 0.001
        if self.root in ("mcpServers", "context_servers") and value > _SECONDS_AT_MOST:
            return 0.001
        return 1.0


def find_entries(tree: Any, path: Path, findings: Findings) -> tuple[Dialect, list[RawEntry]]:
    """The dialect and the entries of a document, in their order. What is in the way becomes an error."""
    if isinstance(tree, list):
        return Dialect("servers"), _entries(tree, (), findings)
    if not isinstance(tree, dict):
        findings.error((), "the file must hold keys and values, with 'servers' at the top")
        return Dialect("servers"), []
    roots = [root for root in ROOTS if root in tree]
    policy: Mapping[str, Any] = {}
    if "mcp" in roots and len(roots) > 1 and isinstance(tree["mcp"], dict) and tree["mcp"].keys() <= _GEMINI_POLICY:
        # Gemini's settings: the servers are below mcpServers, and `mcp` says which of them may be used.
        roots.remove("mcp")
        policy = tree["mcp"]
    if len(roots) > 1:
        named = " and ".join(f"'{root}'" for root in roots)
        findings.error((roots[1],), f"the servers of a file are below one key, but {named} are both there; keep one")
        return Dialect(roots[0]), []
    if not roots and "tools_dir" not in tree:
        findings.error((), _no_root(tree))
        return Dialect("servers"), []
    _check_root_keys(tree, roots, findings)
    if not roots:
        return Dialect("servers"), []
    root = roots[0]
    at: KeyPath = (root,)
    listed = tree[root]
    if root == "mcp" and _holds_servers(listed):
        # The settings of VS Code itself.
        root, at, listed = "servers", ("mcp", "servers"), listed["servers"]
    entries = _entries(listed, at, findings)
    if listed is None and "tools_dir" not in tree:
        findings.warning(at, "holds no entry")
    gemini = root == "mcpServers" and (
        bool(policy)
        or bool(_GEMINI_FOLDERS & set(path.parts[-2:-1]))
        or any(_GEMINI_ENTRY & entry.values.keys() for entry in entries)
    )
    names = [entry.id for entry in entries]
    refused = _refused_tools(tree, names) if root == "mcp" else {}
    return Dialect(root, gemini, _held_back(policy, names), refused), entries


def _holds_servers(value: Any) -> bool:
    inner = value.get("servers") if isinstance(value, dict) else None
    return isinstance(inner, dict) and not any(isinstance(inner.get(mark), str | list) for mark in _ENTRY_MARKS)


def _entries(listed: Any, at: KeyPath, findings: Findings) -> list[RawEntry]:
    if listed is None:
        return []
    if isinstance(listed, dict):
        named: list[tuple[Any, Any, KeyPath]] = [
            (name, values, (*at, name)) for name, values in listed.items() if not is_remark(name)
        ]
    elif isinstance(listed, list):
        named = [
            (item.get("name") or item.get("id") if isinstance(item, dict) else None, item, (*at, index))
            for index, item in enumerate(listed)
        ]
    else:
        findings.error(at, "must be a mapping of names to entries, or a list of entries with a 'name'")
        return []
    entries: dict[str, RawEntry] = {}
    for name, values, place in named:
        if not isinstance(values, dict):
            findings.error(place, "must be an entry: keys such as 'command' or 'url' with their values")
        elif not isinstance(name, str) or not name.strip():
            findings.error(place, "needs a name" if isinstance(listed, dict) else "needs a 'name', a text")
        elif name in entries:
            findings.error(place, f"the name is already taken by {dotted(entries[name].at)}")
        else:
            entries[name] = RawEntry(name, _unfolded(values), place)
    return list(entries.values())


def _unfolded(values: dict[str, Any]) -> dict[str, Any]:
    """MiroFlow keeps a server below `params`: the keys of an entry, or a URL."""
    params = values.get("params")
    if isinstance(params, str):
        return {**{key: value for key, value in values.items() if key != "params"}, "url": params}
    if isinstance(params, dict):
        return {**{key: value for key, value in values.items() if key != "params"}, **params}
    return values


def _check_root_keys(tree: Mapping[str, Any], roots: list[str], findings: Findings) -> None:
    """Warns about what looks like ours. A file of another host is full of keys that are not the hub's business."""
    known = ROOT_KEYS | HARMLESS_ROOTS | set(ROOTS)
    ours = roots in ([], ["servers"])
    for key in tree:
        if key not in known and not is_remark(key) and (ours or nearest(key, ROOT_KEYS)):
            findings.unknown((key,), ROOT_KEYS | set(roots or ROOTS))


def _no_root(tree: Mapping[str, Any]) -> str:
    wanted = "there are no servers in this file; it needs one of these keys at the top: " + ", ".join(ROOTS)
    for key, value in tree.items():
        if near := nearest(key, ROOTS):
            return f"{wanted}; did you mean '{near}' where '{dotted((key,))}' is?"
        if isinstance(value, dict) and _ENTRY_MARKS & value.keys():
            return f"{wanted}; '{dotted((key,))}' looks like an entry: put it below 'servers:'"
    return wanted


def _held_back(policy: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Gemini: `mcp.excluded` and `mcp.allowed` name servers."""
    allowed, excluded = policy.get("allowed"), policy.get("excluded")
    off = {name: "mcp.excluded names it" for name in names if isinstance(excluded, list) and name in excluded}
    if isinstance(allowed, list):
        off.update({name: "mcp.allowed does not name it" for name in names if name not in allowed})
    return off


def _refused_tools(tree: Mapping[str, Any], names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """opencode: `tools: {"NAME_*": false}` and `permission: {"NAME_*": deny}` refuse tools of servers.

    What a later rule allows again stays refused, unless it is the whole server: fewer tools than meant, never more.
    """
    refused: dict[str, tuple[str, ...]] = {}
    for key in ("tools", "permission"):
        rules = tree.get(key)
        if not isinstance(rules, dict):
            continue
        for name in names:
            patterns: list[str] = []
            for pattern, rule in rules.items():
                own = pattern[len(name) + 1 :] if pattern.startswith(f"{name}_") else None
                if rule is False or rule == "deny":
                    if own is not None:
                        patterns.append(own or "*")
                    elif pattern == name or fnmatchcase(f"{name}_", pattern):
                        patterns.append("*")
                elif own == "*":
                    patterns.clear()
            if patterns:
                refused[name] = (*refused.get(name, ()), *patterns)
    return refused
