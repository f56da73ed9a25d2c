"""The dialects of configuration files: the keys of each, where the entries are, and in what unit a timeout is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from mcp_hub.config.host_rules import AMP_ROOT, GOOSE_ROOT
from mcp_hub.config.settings import KeyTable
from mcp_hub.config.variables import VariableScope

FILE_NAMES: Final = ("servers.yaml", "servers.yml", "servers.json", "servers.toml")
"""Names of configuration files that are found without `--config`."""
ROOTS: Final = ("servers", "mcpServers", "mcp_servers", "mcp", "context_servers", AMP_ROOT, GOOSE_ROOT)
"""Keys that have the entries of a file below them."""

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

_WEB: Final = ("http", "https")


class TransportKind(msgspec.Struct, frozen=True):
    """A transport: the class of its links, and how entries ask for it."""

    link: str
    """`module:Class`. It is imported for the first link, as each import takes some milliseconds."""
    schemes: tuple[str, ...] = ()
    """The schemes of its URLs; empty if it needs a command."""
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

FILTERS: Final = {
    **dict.fromkeys((
        "enable_tools", "enable_funcs", "includeTools", "include_tools", "enabledTools", "enabled_tools",
        "allowedTools", "allowed_tools", "available_tools",
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
"""Key as written -> `KIND.HALF` of a filter. A list under `tools` is a filter too, a mapping has rules for tools."""

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
    "inheritParentEnv": "a server inherits locations only; name what else it needs under env",
    "extra_headers": "headers of a caller are never passed on",
    "passthroughHeaders": "headers of a caller are never passed on",
    "visibility": "the hub has no users of MCPHub; bind each principal to one of 'profiles'",
    "sharedWithUsers": "the hub has no users of MCPHub; bind each principal to one of 'profiles'",
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
    "bundled", "display_name", "faviconUrl", "serverName", "sourceFile", "requestOptions", "oauthScopes",
    "oauthClient", "remoteConfigured", "owner", "enableKeepAlive", "keepAliveInterval",
})  # fmt: skip
"""Keys of other hosts that are ignored without a warning: for display, confirmations and bookkeeping."""

ROOT_KEYS: Final = frozenset({
    "tools_dir", "on_conflict", "list_wait", "cache_dir", "watch", "token_store", "token_dir", "listen", "unread",
    "defaults", "serverDefaults",
    "web", "scrape", "tool_sets", "profiles", "skills", "groups", "group_scope", "meta_tools", "state_file",
    "tracing", "output_strategy", "search", "store", "max_hub_depth",
    "expose", "expose_budget", "expose_always", "always", "proxy",
})  # fmt: skip
"""Keys of the root that belong to no policy."""
HARMLESS_ROOTS: Final = frozenset({"$schema", "schema", "inputs", "version", "name", "description"})


_SECONDS_AT_MOST: Final = 3600
"""Clients that count seconds allow at most an hour; a larger plain number in such a file is milliseconds."""


def schemes_of(transport: str) -> tuple[str, ...]:
    """Returns the schemes of URLs of a transport, or of `auto`; none if it needs a command."""
    return _WEB if transport == "auto" else TRANSPORTS[transport].schemes


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

    @property
    def is_goose(self) -> bool:
        """Whether the file is Goose's: headers have `$NAME`, and an empty `available_tools` means all."""
        return self.root == GOOSE_ROOT

    def scope(self, scope: VariableScope) -> VariableScope:
        """Returns the scope with the forms of variables that files of this dialect have."""
        return msgspec.structs.replace(
            scope,
            file_braces=self.root == "mcp",
            os_environ=self.root == "mcp_servers",
            bare_names=self.gemini,
        )

    def timeout_unit(self, value: object) -> float:
        """Returns the seconds in one unit of a plain `timeout`.

        Gemini and opencode count milliseconds. Below `mcpServers` and `context_servers` clients disagree: Cline, Roo
        and this hub count seconds, Claude Code, Amazon Q and 1MCP milliseconds. Only the size tells them apart.
        """
        if isinstance(value, bool) or not isinstance(value, int | float):
            return 1.0
        if self.counts_milliseconds:
            return 0.001
        if self.root in ("mcpServers", "context_servers", AMP_ROOT) and value > _SECONDS_AT_MOST:
            return 0.001
        return 1.0
