"""Rules in files of other hosts: which entries are off, which tools are denied, which folder an entry is for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.config.field_types import boolean
from mcp_hub.config.findings import Findings
from mcp_hub.config.variables import VariableScope, expand_tree
from mcp_hub.text import printable

PROJECT_VARIABLE: Final = "CLAUDE_PROJECT_DIR"
"""The environment variable in which Claude Code passes the directory of its project to programs."""
AMP_ROOT: Final = "amp.mcpServers"
GOOSE_ROOT: Final = "extensions"
_PARTS_OF_GOOSE: Final = frozenset({"builtin", "platform", "frontend", "inline_python"})
"""Types of extensions that run inside of Goose."""
_GOOSE_TYPES: Final = _PARTS_OF_GOOSE | {"stdio", "sse", "streamable_http"}
MAX_NAMED: Final = 10
"""The maximum number of names in one message."""


def gemini_disabled(policy: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Returns the servers that Gemini's `mcp.excluded` and `mcp.allowed` disable: id -> reason."""
    allowed, excluded = policy.get("allowed"), policy.get("excluded")
    reasons = {name: "mcp.excluded names it" for name in names if isinstance(excluded, list) and name in excluded}
    if isinstance(allowed, list):
        reasons.update({name: "mcp.allowed does not name it" for name in names if name not in allowed})
    return reasons


def opencode_denied_tools(tree: Mapping[str, Any], names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns the tools that opencode's `tools: {"NAME_*": false}` and `permission: {"NAME_*": deny}` deny.

    A tool that a later rule allows again stays denied, unless the rule allows the whole server.
    """
    denied: dict[str, tuple[str, ...]] = {}
    for key in ("tools", "permission"):
        rules = tree.get(key)
        if not isinstance(rules, dict):
            continue
        for name in names:
            patterns: list[str] = []
            for pattern, rule in rules.items():
                own = pattern[len(name) + 1 :] if pattern.startswith(f"{name}_") else None
                if boolean(rule) is False or rule == "deny":
                    if own is not None:
                        patterns.append(own or "*")
                    elif pattern == name or fnmatchcase(f"{name}_", pattern):
                        patterns.append("*")
                elif own == "*":
                    patterns.clear()
            if patterns:
                denied[name] = (*denied.get(name, ()), *patterns)
    return denied


def amp_denied_tools(tree: Mapping[str, Any], names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns the tools that Amp's `amp.tools.disable` denies. `builtin:NAME` means a tool of Amp itself only."""
    disabled = tree.get("amp.tools.disable")
    patterns = [text for text in disabled if isinstance(text, str)] if isinstance(disabled, list) else []
    patterns = [text for text in patterns if not text.startswith("builtin:")]
    denied = {}
    for name in names:
        own = [text.removeprefix(f"mcp__{name}__") for text in patterns]
        # A pattern that stands for all tools of the server, such as `mcp__NAME*`.
        denies_all = any(fnmatchcase(f"mcp__{name}__", text) for text in patterns)
        if own:
            denied[name] = (*own, *(("*",) if denies_all else ()))
    return denied


def amp_rejected(tree: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Returns the entries that Amp's `amp.mcpPermissions` rejects: id -> reason. The first rule that matches counts."""
    permissions = tree.get("amp.mcpPermissions")
    rules = [rule for rule in permissions if isinstance(rule, dict)] if isinstance(permissions, list) else []
    reasons = {}
    for id, values in entries.items():
        matching_rule = next((rule for rule in rules if _amp_rule_matches(rule, values)), None)
        if matching_rule is not None and matching_rule.get("action") != "allow":
            reasons[id] = "amp.mcpPermissions rejects it"
    return reasons


def _amp_rule_matches(rule: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Returns whether a rule is about an entry. A rule to allow must match the whole command line."""
    matches = rule.get("matches")
    if not isinstance(matches, dict) or not matches:
        return rule.get("action") != "allow"
    argv = [values.get("command"), *(values.get("args") or () if isinstance(values.get("args"), list) else ())]
    line = " ".join(map(str, argv)) if values.get("command") is not None else None
    texts = {"command": [line], "url": [values.get("url")]}
    if rule.get("action") != "allow":
        texts["command"].append(values.get("command"))

    def fits(key: str, expected: Any) -> bool:
        patterns = expected if isinstance(expected, list) else [expected]
        candidates = [text for text in texts.get(key, ()) if isinstance(text, str)]
        return any(
            isinstance(pattern, str) and fnmatchcase(text, pattern) for pattern in patterns for text in candidates
        )

    return all(fits(key, expected) for key, expected in matches.items())


def is_goose(extensions: Any) -> bool:
    """Returns whether a mapping `extensions` is Goose's, as other programs have a key of this name too."""
    return isinstance(extensions, dict) and any(
        _type_of(extension) in _GOOSE_TYPES for extension in extensions.values()
    )


def _type_of(extension: Any) -> str | None:
    kind = extension.get("type") if isinstance(extension, dict) else None
    return kind if isinstance(kind, str) else None


def without_parts_of_goose(extensions: Mapping[str, Any], findings: Findings) -> dict[str, Any]:
    """Returns the extensions that are servers. One warning names those that are on and run inside of Goose."""
    internal = [name for name, extension in extensions.items() if _type_of(extension) in _PARTS_OF_GOOSE]
    if enabled := [name for name in internal if boolean(extensions[name].get("enabled")) is not False]:
        findings.warning((GOOSE_ROOT,), f"{_name_list(enabled)}: run inside of Goose and are not served")
    return {name: extension for name, extension in extensions.items() if name not in internal}


def goose_header_scope(env: Any, scope: VariableScope) -> VariableScope:
    """Returns the scope for headers in Goose, which may also use variables from the entry's own `env`."""
    values, unresolved = expand_tree(env if isinstance(env, dict) else {}, scope, ())
    own = {name: str(value) for name, value in values.items() if (name,) not in unresolved}
    return msgspec.structs.replace(scope, bare_names=True, environ={**scope.environ, **own})


class ClaudeProjects:
    """The servers in Claude Code's file that are for one directory each, as `claude mcp add` writes them."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        """`tree` is the file; its key `projects` maps directories to their settings."""
        projects = tree.get("projects")
        self._settings = {
            str(folder): settings
            for folder, settings in (projects.items() if isinstance(projects, dict) else ())
            if isinstance(settings, dict)
        }

    def __bool__(self) -> bool:
        return any(self._servers(folder) for folder in self._settings)

    def _servers(self, folder: str) -> Mapping[str, Any]:
        servers = self._settings[folder].get("mcpServers")
        return servers if isinstance(servers, dict) else {}

    def of(self, directory: Path | None) -> str | None:
        """Returns the project that a directory belongs to, as written: its own, else that of its git repository."""
        if directory is None:
            return None
        for path in _same_project(directory):
            if (project := next((folder for folder in self._settings if Path(folder) == path), None)) is not None:
                return project
        return None

    def servers(self, folder: str | None) -> Mapping[str, Any]:
        """Returns the entries of one project."""
        return {} if folder is None else self._servers(folder)

    def disabled(self, folder: str | None) -> dict[str, str]:
        """Returns the servers that are switched off in a project: id -> reason."""
        names = self._settings[folder].get("disabledMcpServers") if folder is not None else None
        disabled_names: Sequence[Any] = names if isinstance(names, list) else ()
        return {name: "disabledMcpServers names it" for name in disabled_names if isinstance(name, str)}

    def tell_others(self, folder: str | None, findings: Findings) -> None:
        """Warns, once, of the servers of all other projects."""
        servers = [
            f"{name} ({project})" for project in self._settings if project != folder for name in self._servers(project)
        ]
        if servers:
            hint = f"start the hub there, or set {PROJECT_VARIABLE}"
            findings.warning(("projects",), f"{_name_list(servers)}: for other directories and not served; {hint}")


def _same_project(directory: Path) -> Iterator[Path]:
    yield directory
    resolved = directory.resolve()
    yield resolved
    for parent in (resolved, *resolved.parents):
        if (parent / ".git").exists():
            yield parent
            return


def _name_list(names: Sequence[str]) -> str:
    suffix = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(printable(name, 120) for name in names[:MAX_NAMED]) + suffix
