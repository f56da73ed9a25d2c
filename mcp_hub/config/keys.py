"""The keys of an entry in every dialect: what they mean here, and those that mean nothing to the hub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcp_hub.config.models import SessionMode, Transport

FILE_NAMES: Final = ("servers.yaml", "servers.yml", "servers.json", "servers.toml")
"""What a configuration is called that nobody names."""
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
    "retry": "retry",
    "breaker": "breaker",
    "limits": "limits",
    "health": "health",
    "labels": "labels",
    "pins": "pins",
    "screen": "screen",
}  # fmt: skip
"""Key as written -> key as read by `entry.py`."""

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
"""Key as written -> (the deadline it means, seconds in its unit; None: that depends on the dialect)."""

DEFAULTS: Final = frozenset({
    "required", "lazy", "session", "max_sessions", "era", "keep_catalog", "max_frame", "deadlines", *TIMEOUTS,
    "validate_arguments", "max_result_bytes", "postprocess", "retry", "breaker", "limits", "idle", "health",
})  # fmt: skip
"""What `defaults` may say for all entries. Not env and headers: a secret belongs to one entry."""

TRANSPORTS: Final[Mapping[str, Transport]] = {
    "stdio": "stdio", "local": "stdio",
    "http": "http", "streamable-http": "http", "streamable_http": "http", "streamablehttp": "http",
    "sse": "sse",
    "auto": "auto", "remote": "auto",
}  # fmt: skip
"""By lower case. `remote` (opencode) says no more than that there is a URL."""
FOREIGN_TRANSPORTS: Final = frozenset({"ws", "wss", "websocket", "sdk", "builtin", "inmemory", "platform", "openapi"})

SESSIONS: Final[Mapping[str, SessionMode]] = {
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
"""Key as written -> what it filters and how. A list under `tools` allows, a mapping there has rules for tools."""

RESTRICTIONS: Final = {
    "sandboxEnabled": "the sandbox of VS Code",
    "quarantined": "the quarantine of mcpproxy",
    "isolation": "the isolation of mcpproxy",
}
"""Switches (true, or a mapping with `enabled: true`) by which its own host holds an entry back and the hub cannot."""

WITHOUT_EFFECT: Final = {
    "oauth": "write 'auth: oauth', or 'auth' with client_id, scopes and so on, and run: mcp-hub login SERVER",
    "authProviderType": "write 'auth: oauth' and run: mcp-hub login SERVER",
    "headersHelper": "nothing is executed to make headers; use headers with ${VAR} or ${keyring:SERVICE/USERNAME}",
    "inheritParentEnv": "a server gets a small environment only; name what it needs under env",
    "extra_headers": "headers of a caller are never passed on",
}
"""Known keys whose absence the user may notice: a warning each."""

HARMLESS: Final = frozenset({
    "$schema", "name", "id", "title", "displayName", "description", "icon", "icons", "iconUrl", "version", "gallery",
    "dev", "inputs", "source", "settings", "metadata", "group", "category", "notes", "comment", "registry",
    "trust", "autoApprove", "alwaysAllow", "auto_approve", "approval_mode", "default_tools_approval_mode", "alwaysLoad",
    "keep_alive", "keepAlive", "sse_read_timeout", "restartOnExit", "maxRestarts", "restartDelay", "watchPaths",
    "envFilter", "sandbox", "created", "updated", "targetAudience", "targetServiceAccount", "scopes",
    "oauth_resource", "oauth_scopes", "supports_parallel_tool_calls", "authentication", "mcp_info", "instructions",
    "start_on_launch", "remote_configuration", "chatEnabled", "isBuiltin", "discovery",
})  # fmt: skip
"""Known keys of other hosts that concern their windows, their questions to the user or their bookkeeping."""

ENTRY_KEYS: Final = frozenset(
    {"deadlines", "tools", *TIMEOUTS, *ALIASES, *FILTERS, *RESTRICTIONS, *WITHOUT_EFFECT, *HARMLESS}
)

ROOT_KEYS: Final = frozenset({
    "tools_dir", "on_conflict", "list_wait", "cache_dir", "watch", "token_store", "token_dir", "listen", "unread",
    "defaults", "serverDefaults",
    "blacklist", "tool_blacklist", "guard", "web", "scrape", "fallback", "scrape_fallback", "call_log", "tool_sets",
    "profiles", "skills", "pins", "screen", "flows", "groups", "group_scope", "meta_tools", "state_file",
    "tracing", "output_strategy", "max_hub_depth",
})  # fmt: skip
HARMLESS_ROOTS: Final = frozenset({"$schema", "inputs", "version", "name", "description"})


def is_remark(key: str) -> bool:
    """Keys by which people write comments into JSON, and keep anchors in YAML."""
    return key.startswith(("_", "//", "#", "x-", "$comment"))
