"""The dialects of configuration files: the keys of each, where the entries are, and in what unit a timeout is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from mcp_hub.config.findings import Findings, KeyPath, dotted, is_remark, nearest
from mcp_hub.config.settings import KeyTable
from mcp_hub.text import printable

FILE_NAMES: Final = ("servers.yaml", "servers.yml", "servers.json", "servers.toml")
"""Names of configuration files that are found without `--config`."""
ROOTS: Final = ("servers", "mcpServers", "mcp_servers", "mcp", "context_servers")

ALIASES: Final = {
    "command": "command", "cmd": "command",
    "args": "args",
    "env": "env", "environment": "env",
    "env_file": "env_file", "envFile": "env_file",
    "env_vars": "env_vars",
    "cwd": "cwd", "working_dir": "cwd", "working_directory": "cwd", "workingDirectory": "cwd",
    "url": "url", "httpUrl": "url", "serverUrl": "url", "mcp_server_url": "url",
    "headers": "headers", "http_headers": "headers", "static_headers": "headers",
    "env_http_headers": "env_http_headers",
    "api_key": "api_key", "mcp_api_key": "api_key", "apiKey": "api_key",
    "api_key_header": "api_key_header", "mcp_api_key_header": "api_key_header",
    "bearer_token_env_var": "bearer_token_env_var",
    "auth": "auth",
    "transport": "transport", "type": "transport", "transportType": "transport", "protocol": "transport",
    "namespace": "namespace",
    "enabled": "enabled", "isActive": "enabled",
    "disabled": "disabled",
    "required": "required",
    "lazy": "lazy",
    "session": "session",
    "max_sessions": "max_sessions",
    "allow": "allow",
    "max_questions": "max_questions",
    "era": "era",
    "keep_catalog": "keep_catalog",
    "max_frame": "max_frame",
    "tools_dir": "tools_dir",
    "builtin": "builtin",
    "profile": "profile", "headless": "headless", "executable": "executable", "idle": "idle",
    "policy": "policy", "roots": "roots", "allow_over_network": "allow_over_network",
    "tags": "tags",
    "preset": "preset", "presets": "preset", "preset_kwargs": "preset", "preset_kwargs_mapping": "preset",
    "toolDescriptionOverrides": "descriptions",
    "validate_arguments": "validate_arguments",
    "max_result_bytes": "max_result_bytes",
    "postprocess": "postprocess", "postprocess_func": "postprocess",
    "health": "health",
}  # fmt: skip
"""Key as written -> key as the hub reads it."""

KEYS_OF_WEB: Final = {
    name: f"web.{name} at the top of the file" for name in ("allow_addresses", "docintel_endpoint", "max_memory")
}
"""Keys of `web` that people write into an entry, or beside `web`."""
DEADLINES: Final = ("connect", "list", "write", "call", "idle")
TIMEOUTS: Final = {
    "timeout": ("call", None),
    "tool_timeout_sec": ("call", 1.0),
    "requestTimeout": ("call", 0.001),
    "startup_timeout_sec": ("connect", 1.0),
    "startup_timeout_ms": ("connect", 0.001),
    "connectionTimeout": ("connect", 0.001),
    "idle_timeout": ("idle", 1.0),
}
"""Key as written -> (deadline, seconds in its unit; None if the unit depends on the dialect)."""

DEFAULTS: Final = frozenset({
    "required", "lazy", "session", "max_sessions", "allow", "max_questions", "era", "keep_catalog", "max_frame",
    "deadlines", *TIMEOUTS, "validate_arguments", "max_result_bytes", "postprocess", "idle", "health",
})  # fmt: skip
"""Keys that `defaults` may set for all entries. Not env and headers, as a secret belongs to one entry."""

_WEB: Final = ("http", "https")


class TransportKind(msgspec.Struct, frozen=True):
    """A transport: the class of its links, and how entries ask for it."""

    link: str
    """`module:Class`. It is imported with the first link, as each costs the start some milliseconds."""
    schemes: tuple[str, ...] = ()
    """The schemes of its URLs; none: it needs a command."""
    spellings: tuple[str, ...] = ()
    """Further names, in lower case."""


TRANSPORTS: Final[Mapping[str, TransportKind]] = {
    "stdio": TransportKind("mcp_hub.transport.stdio_link:StdioLink", spellings=("local",)),
    "http": TransportKind(
        "mcp_hub.transport.http_link:HttpLink", _WEB, ("streamable-http", "streamable_http", "streamablehttp")
    ),
    "sse": TransportKind("mcp_hub.transport.sse_link:SseLink", _WEB),
}
TRANSPORT_NAMES: Final[Mapping[str, str]] = {
    **{spelling: name for name, kind in TRANSPORTS.items() for spelling in (name, *kind.spellings)},
    **dict.fromkeys(("auto", "remote"), "auto"),
}
"""Name in lower case -> transport. `remote` (opencode) only means that there is a URL."""
FOREIGN_TRANSPORTS: Final = frozenset({"ws", "wss", "websocket", "sdk", "builtin", "inmemory", "platform", "openapi"})

SESSIONS: Final[Mapping[str, Literal["shared", "client", "call"]]] = {
    "shared": "shared", "persistent": "shared",
    "client": "client",
    "call": "call", "per_call": "call",
}  # fmt: skip

FILTERS: Final = {
    **dict.fromkeys((
        "enable_tools", "enable_funcs", "includeTools", "include_tools", "enabledTools", "enabled_tools",
        "allowedTools", "allowed_tools",
    ), "tools.allow"),
    **dict.fromkeys((
        "disable_tools", "disable_funcs", "excludeTools", "exclude_tools", "disabledTools", "disabled_tools",
        "disallowedTools", "disallowed_tools", "tool_blacklist", "blacklist",
    ), "tools.deny"),
    **dict.fromkeys(("enable_resources", "enabledResources"), "resources.allow"),
    **dict.fromkeys(("disable_resources", "disabledResources"), "resources.deny"),
    **dict.fromkeys(("enable_prompts", "enabledPrompts"), "prompts.allow"),
    **dict.fromkeys(("disable_prompts", "disabledPrompts"), "prompts.deny"),
    **dict.fromkeys(("include_tags", "includeTags"), "tools.allow_tags"),
    **dict.fromkeys(("exclude_tags", "excludeTags"), "tools.deny_tags"),
}  # fmt: skip
"""Key as written -> what it filters and how. A list under `tools` is a filter too, a mapping has rules for tools."""

RESTRICTIONS: Final = {
    "sandboxEnabled": "the sandbox of VS Code",
    "quarantined": "the quarantine of mcpproxy",
    "isolation": "the isolation of mcpproxy",
}
"""Restrictions of other hosts (true, or a mapping with `enabled: true`) that the hub cannot keep."""

WITHOUT_EFFECT: Final = {
    "oauth": "write 'auth: oauth', or 'auth' with client_id, scopes and so on, and run: mcp-hub login SERVER",
    "authProviderType": "write 'auth: oauth' and run: mcp-hub login SERVER",
    "headersHelper": "nothing is executed to make headers; use headers with ${VAR} or ${keyring:SERVICE/USERNAME}",
    "inheritParentEnv": "a server gets a small environment only; name what it needs under env",
    "extra_headers": "headers of a caller are never passed on",
}
"""Known keys that have no effect here but that users rely on: each is a warning."""

HARMLESS: Final = frozenset({
    "$schema", "name", "id", "title", "displayName", "description", "icon", "icons", "iconUrl", "version", "gallery",
    "dev", "inputs", "source", "settings", "metadata", "group", "category", "notes", "comment", "registry",
    "trust", "autoApprove", "alwaysAllow", "auto_approve", "approval_mode", "default_tools_approval_mode", "alwaysLoad",
    "keep_alive", "keepAlive", "sse_read_timeout", "restartOnExit", "maxRestarts", "restartDelay", "watchPaths",
    "envFilter", "sandbox", "created", "updated", "targetAudience", "targetServiceAccount", "scopes",
    "oauth_resource", "oauth_scopes", "supports_parallel_tool_calls", "authentication", "mcp_info", "instructions",
    "start_on_launch", "remote_configuration", "chatEnabled", "isBuiltin", "discovery",
})  # fmt: skip
"""Known keys of other hosts for their windows, their questions to the user or their bookkeeping."""

ENTRY_KEYS: Final = frozenset(
    {"deadlines", "tools", *TIMEOUTS, *ALIASES, *FILTERS, *RESTRICTIONS, *WITHOUT_EFFECT, *HARMLESS}
)

ROOT_KEYS: Final = frozenset({
    "tools_dir", "on_conflict", "list_wait", "cache_dir", "watch", "token_store", "token_dir", "listen", "unread",
    "defaults", "serverDefaults",
    "web", "scrape", "tool_sets", "profiles", "skills", "groups", "group_scope", "meta_tools", "state_file",
    "tracing", "output_strategy", "max_hub_depth",
})  # fmt: skip
"""Keys of the root that belong to no policy."""
HARMLESS_ROOTS: Final = frozenset({"$schema", "inputs", "version", "name", "description"})


_GEMINI_ENTRY: Final = frozenset({"httpUrl", "includeTools", "excludeTools", "trust"})
_GEMINI_FOLDERS: Final = frozenset({".gemini", ".qwen"})
_OPENCODE_ROOTS: Final = frozenset({"tools", "permission"})
_GEMINI_POLICY: Final = frozenset({"allowed", "excluded", "serverCommand"})
_ENTRY_MARKS: Final = frozenset({"command", "url", "httpUrl", "serverUrl", "type", "tools_dir"})

_SECONDS_AT_MOST: Final = 3600
"""Clients that count seconds allow at most an hour; a larger plain number in such a file is milliseconds."""


def schemes_of(transport: str) -> tuple[str, ...]:
    """Returns the schemes of URLs of a transport, or of `auto`; none if it needs a command."""
    return _WEB if transport == "auto" else TRANSPORTS[transport].schemes


class RawEntry(msgspec.Struct, frozen=True):
    """One entry as it is written in the file."""

    id: str
    values: Mapping[str, Any]
    at: KeyPath


class Dialect(msgspec.Struct, frozen=True):
    """The properties of a file that the meaning of its entries depends on."""

    root: str
    keys: KeyTable
    """The keys of policies."""
    gemini: bool = False
    """Whether the file is Gemini's: `url` without a type is SSE, `timeout` is milliseconds."""
    off: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Entries that a rule elsewhere in the file disables: id -> reason."""
    refused: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Tools that a rule elsewhere in the file denies: id -> patterns."""

    @property
    def timeout_of_list(self) -> bool:
        """Whether `timeout` is the one for listing tools, as in opencode."""
        return self.root == "mcp"

    @property
    def counts_milliseconds(self) -> bool:
        """Whether plain timeouts are always milliseconds, as in Gemini and opencode."""
        return self.gemini or self.root == "mcp"

    def timeout_unit(self, value: object) -> float:
        """Returns the seconds in one unit of a plain `timeout`.

        Gemini and opencode count milliseconds. Below `mcpServers` and `context_servers` clients disagree: Cline, Roo
        and this hub count seconds, Claude Code, Amazon Q and 1MCP milliseconds. Only the size tells them apart.
        """
        if isinstance(value, bool) or not isinstance(value, int | float):
            return 1.0
        if self.counts_milliseconds:
            return 0.001
        if self.root in ("mcpServers", "context_servers") and value > _SECONDS_AT_MOST:
            return 0.001
        return 1.0


def find_entries(tree: Any, path: Path, keys: KeyTable, findings: Findings) -> tuple[Dialect, list[RawEntry]]:
    """Returns the dialect and the entries of a document in their order. Errors go to the findings."""
    if isinstance(tree, list):
        return Dialect("servers", keys), _list_entries(tree, (), findings)
    if not isinstance(tree, dict):
        findings.error((), "the file must hold keys and values, with 'servers' at the top")
        return Dialect("servers", keys), []
    roots = [root for root in ROOTS if root in tree]
    policy: Mapping[str, Any] = {}
    if "mcp" in roots and len(roots) > 1 and isinstance(tree["mcp"], dict) and tree["mcp"].keys() <= _GEMINI_POLICY:
        # In Gemini's settings the servers are below mcpServers, and `mcp` says which of them may be used.
        roots.remove("mcp")
        policy = tree["mcp"]
    if len(roots) > 1:
        named = " and ".join(f"'{root}'" for root in roots)
        findings.error((roots[1],), f"the servers of a file are below one key, but {named} are both there; keep one")
        return Dialect(roots[0], keys), []
    if not roots and "tools_dir" not in tree:
        findings.error((), _missing_root_text(tree))
        return Dialect("servers", keys), []
    _check_root_keys(tree, roots, keys, findings)
    _tell_projects(tree, findings)
    if not roots:
        return Dialect("servers", keys), []
    root = roots[0]
    at: KeyPath = (root,)
    listed = tree[root]
    if root == "mcp" and _holds_servers(listed):
        # The settings of VS Code itself.
        root, at, listed = "servers", ("mcp", "servers"), listed["servers"]
    entries = _list_entries(listed, at, findings)
    if listed is None and "tools_dir" not in tree:
        findings.warning(at, "holds no entry")
    gemini = root == "mcpServers" and (
        bool(policy)
        or bool(_GEMINI_FOLDERS & set(path.parts[-2:-1]))
        or any(_GEMINI_ENTRY & entry.values.keys() for entry in entries)
    )
    names = [entry.id for entry in entries]
    refused = _opencode_denied_tools(tree, names) if root == "mcp" else {}
    return Dialect(root, keys, gemini, _gemini_disabled(policy, names), refused), entries


def _holds_servers(value: Any) -> bool:
    inner = value.get("servers") if isinstance(value, dict) else None
    return isinstance(inner, dict) and not any(isinstance(inner.get(mark), str | list) for mark in _ENTRY_MARKS)


def _list_entries(listed: Any, at: KeyPath, findings: Findings) -> list[RawEntry]:
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
            entries[name] = RawEntry(name, _unfold_params(values), place)
    return list(entries.values())


def _unfold_params(values: dict[str, Any]) -> dict[str, Any]:
    """Moves the keys below `params` up. MiroFlow writes the keys of an entry, or a URL, there."""
    params = values.get("params")
    if isinstance(params, str):
        return {**{key: value for key, value in values.items() if key != "params"}, "url": params}
    if isinstance(params, dict):
        return {**{key: value for key, value in values.items() if key != "params"}, **params}
    return values


def _check_root_keys(tree: Mapping[str, Any], roots: list[str], keys: KeyTable, findings: Findings) -> None:
    """Warns about unknown root keys. In a file of another host only those count that resemble a key of the hub."""
    own = ROOT_KEYS | keys.root_names
    known = own | HARMLESS_ROOTS | set(ROOTS) | (_OPENCODE_ROOTS if "mcp" in roots else set())
    ours = roots in ([], ["servers"])
    for key in tree:
        if key not in known and not is_remark(key) and (ours or nearest(key, own)):
            findings.unknown((key,), own | set(roots or ROOTS), KEYS_OF_WEB)


def _tell_projects(tree: Mapping[str, Any], findings: Findings) -> None:
    """Warns of servers that Claude Code has for one folder each, where `claude mcp add` writes them."""
    projects = tree.get("projects")
    for folder, settings in projects.items() if isinstance(projects, dict) else ():
        own = settings.get("mcpServers") if isinstance(settings, dict) else None
        if isinstance(own, dict) and own:
            named = ", ".join(printable(str(name), 60) for name in own)
            text = f"is for this folder alone and not read ({named}); move what you want to 'mcpServers' at the top"
            findings.warning(("projects", folder, "mcpServers"), text)


def _missing_root_text(tree: Mapping[str, Any]) -> str:
    wanted = "there are no servers in this file; it needs one of these keys at the top: " + ", ".join(ROOTS)
    for key, value in tree.items():
        if near := nearest(key, ROOTS):
            return f"{wanted}; did you mean '{near}' where '{dotted((key,))}' is?"
        if isinstance(value, dict) and _ENTRY_MARKS & value.keys():
            return f"{wanted}; '{dotted((key,))}' looks like an entry: put it below 'servers:'"
    return wanted


def _gemini_disabled(policy: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Returns the servers that Gemini's `mcp.excluded` and `mcp.allowed` disable: id -> reason."""
    allowed, excluded = policy.get("allowed"), policy.get("excluded")
    off = {name: "mcp.excluded names it" for name in names if isinstance(excluded, list) and name in excluded}
    if isinstance(allowed, list):
        off.update({name: "mcp.allowed does not name it" for name in names if name not in allowed})
    return off


def _opencode_denied_tools(tree: Mapping[str, Any], names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns the tools that opencode's `tools: {"NAME_*": false}` and `permission: {"NAME_*": deny}` deny.

    What a later rule allows again stays denied, unless that is the whole server: never more tools than meant.
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
