"""Rules in files of other hosts: which entries are off, which tools are denied, which folder an entry is for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import msgspec

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
    off = {name: "mcp.excluded names it" for name in names if isinstance(excluded, list) and name in excluded}
    if isinstance(allowed, list):
        off.update({name: "mcp.allowed does not name it" for name in names if name not in allowed})
    return off


def opencode_denied_tools(tree: Mapping[str, Any], names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns the tools that opencode's `tools: {"NAME_*": false}` and `permission: {"NAME_*": deny}` deny.

    A tool that a later rule allows again stays denied, unless the rule allows the whole server.
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


def amp_denied_tools(tree: Mapping[str, Any], names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns the tools that Amp's `amp.tools.disable` denies. `builtin:NAME` means a tool of Amp itself only."""
    given = tree.get("amp.tools.disable")
    patterns = [text for text in given if isinstance(text, str)] if isinstance(given, list) else []
    patterns = [text for text in patterns if not text.startswith("builtin:")]
    refused = {}
    for name in names:
        own = [text.removeprefix(f"mcp__{name}__") for text in patterns]
        # A pattern that stands for all tools of the server, such as `mcp__NAME*`.
        whole = any(fnmatchcase(f"mcp__{name}__", text) for text in patterns)
        if own:
            refused[name] = (*own, *(("*",) if whole else ()))
    return refused


def amp_rejected(tree: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Returns the entries that Amp's `amp.mcpPermissions` rejects: id -> reason. The first rule that matches counts."""
    given = tree.get("amp.mcpPermissions")
    rules = [rule for rule in given if isinstance(rule, dict)] if isinstance(given, list) else []
    off = {}
    for id, values in entries.items():
        first = next((rule for rule in rules if _amp_rule_matches(rule, values)), None)
        if first is not None and first.get("action") != "allow":
            off[id] = "amp.mcpPermissions rejects it"
    return off


def _amp_rule_matches(rule: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Returns whether a rule is about an entry. A rule to allow must match the whole command line."""
    matches = rule.get("matches")
    if not isinstance(matches, dict) or not matches:
        return rule.get("action") != "allow"
    words = [values.get("command"), *(values.get("args") or () if isinstance(values.get("args"), list) else ())]
    line = " ".join(map(str, words)) if values.get("command") is not None else None
    texts = {"command": [line], "url": [values.get("url")]}
    if rule.get("action") != "allow":
        texts["command"].append(values.get("command"))

    def fits(key: str, wanted: Any) -> bool:
        patterns = wanted if isinstance(wanted, list) else [wanted]
        found = [text for text in texts.get(key, ()) if isinstance(text, str)]
        return any(isinstance(one, str) and fnmatchcase(text, one) for one in patterns for text in found)

    return all(fits(key, wanted) for key, wanted in matches.items())


def is_goose(extensions: Any) -> bool:
    """Returns whether a mapping `extensions` is Goose's, as other programs have a key of this name too."""
    return isinstance(extensions, dict) and any(_type_of(one) in _GOOSE_TYPES for one in extensions.values())


def _type_of(extension: Any) -> str | None:
    kind = extension.get("type") if isinstance(extension, dict) else None
    return kind if isinstance(kind, str) else None


def without_parts_of_goose(extensions: Mapping[str, Any], findings: Findings) -> dict[str, Any]:
    """Returns the extensions that are servers. One warning names those that are on and run inside of Goose."""
    inside = [name for name, one in extensions.items() if _type_of(one) in _PARTS_OF_GOOSE]
    if on := [name for name in inside if extensions[name].get("enabled", True) is not False]:
        findings.warning((GOOSE_ROOT,), f"{_named(on)}: run inside of Goose and are not served")
    return {name: one for name, one in extensions.items() if name not in inside}


def goose_header_scope(env: Any, scope: VariableScope) -> VariableScope:
    """Returns the scope for headers in Goose, which may also use variables from the entry's own `env`."""
    values, unresolved = expand_tree(env if isinstance(env, dict) else {}, scope, ())
    own = {name: str(value) for name, value in values.items() if (name,) not in unresolved}
    return msgspec.structs.replace(scope, bare_names=True, environ={**scope.environ, **own})


class ClaudeProjects:
    """The servers in Claude Code's file that are for one directory each, as `claude mcp add` writes them."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        """`tree` is the file; its key `projects` maps directories to their settings."""
        given = tree.get("projects")
        self._settings = {
            str(folder): settings
            for folder, settings in (given.items() if isinstance(given, dict) else ())
            if isinstance(settings, dict)
        }

    def __bool__(self) -> bool:
        return any(self._servers(folder) for folder in self._settings)

    def _servers(self, folder: str) -> Mapping[str, Any]:
        own = self._settings[folder].get("mcpServers")
        return own if isinstance(own, dict) else {}

    def of(self, directory: Path | None) -> str | None:
        """Returns the project that a directory belongs to, as written: its own, else that of its git repository."""
        if directory is None:
            return None
        for one in _same_project(directory):
            if (found := next((folder for folder in self._settings if Path(folder) == one), None)) is not None:
                return found
        return None

    def servers(self, folder: str | None) -> Mapping[str, Any]:
        """Returns the entries of one project."""
        return {} if folder is None else self._servers(folder)

    def disabled(self, folder: str | None) -> dict[str, str]:
        """Returns the servers that are switched off in a project: id -> reason."""
        names = self._settings[folder].get("disabledMcpServers") if folder is not None else None
        listed: Sequence[Any] = names if isinstance(names, list) else ()
        return {name: "disabledMcpServers names it" for name in listed if isinstance(name, str)}

    def tell_others(self, folder: str | None, findings: Findings) -> None:
        """Warns, once, of the servers of all other projects."""
        others = [f"{name} ({one})" for one in self._settings if one != folder for name in self._servers(one)]
        if others:
            how = f"start the hub there, or set {PROJECT_VARIABLE}"
            findings.warning(("projects",), f"{_named(others)}: for other directories and not served; {how}")


def _same_project(directory: Path) -> Iterator[Path]:
    yield directory
    real = directory.resolve()
    yield real
    for above in (real, *real.parents):
        if (above / ".git").exists():
            yield above
            return


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(printable(name, 120) for name in names[:MAX_NAMED]) + more
