"""The table of clients. Another client is one more row."""

from __future__ import annotations

from typing import Final

from mcp_hub.clients import Client
from mcp_hub.config.findings import nearest
from mcp_hub.editing import EditRefused
from mcp_hub.text import printable

_CODE: Final = "{data}/Code/User"
_ALL: Final = ""
_UNSECRET: Final = (
    "(?i)(?!.*(?:token|secret|passw|key|auth|credential|creds|private|cert)"
    "|(?:client_id|db_uri|connection_string|database_url|aws_default_region|google_cloud_project)$)"
)
"""What Gemini CLI 0.61 does not pass on, by its `environmentSanitization.ts`."""
_CLINE: Final = "/settings/cline_mcp_settings.json"

CLIENTS: Final = (
    Client(
        "claude-desktop", "Claude Desktop",
        # On Windows the packaged application sees only its own copy of %APPDATA%.
        ("windows:{local}/Packages/Claude_*/LocalCache/Roaming/Claude/claude_desktop_config.json",
         "{data}/Claude/claude_desktop_config.json", "linux:{config}/claude/claude_desktop_config.json"),
        ("windows:{local}/Packages/Claude_*", "{data}/Claude", "linux:{config}/claude/claude_desktop_config.json"),
        start_limit=60, calls_itself=("claude-ai",), provider="anthropic",
    ),
    Client(
        "claude-code", "Claude Code", ("{CLAUDE_CONFIG_DIR}/.claude.json", "{home}/.claude.json"),
        ("{CLAUDE_CONFIG_DIR}", "{home}/.claude"), form="stdio", project_files=(".mcp.json",), program="claude",
        start_limit=30, instead="claude mcp add --scope user", calls_itself=("claude-code",), defers=True, passes=_ALL,
        provider="anthropic", first_list=1.2,
    ),
    Client(
        "vscode", "VS Code", (f"{_CODE}/mcp.json",), (_CODE,), ("servers",), form="stdio",
        project_files=(".vscode/mcp.json",), tool_limit=128, passes=_ALL,
        calls_itself=("visual studio code", "visual studio code - insiders", "visual-studio-code"),
    ),
    Client(
        "cursor", "Cursor", ("{home}/.cursor/mcp.json",), ("{home}/.cursor", "{data}/Cursor"),
        project_files=(".cursor/mcp.json",), calls_itself=("cursor-vscode", "cursor"), tool_limit=40,
    ),
    Client(
        "codex", "Codex", ("{CODEX_HOME}/config.toml", "{home}/.codex/config.toml"),
        ("{CODEX_HOME}", "{home}/.codex"), ("mcp_servers",), "toml", off=("enabled", False),
        project_files=(".codex/config.toml",), program="codex", start_limit=10,
        calls_itself=("codex-mcp-client", "codex"), defers=True, provider="openai", first_list=0.6,
    ),
    Client(
        "gemini", "Gemini CLI", ("{GEMINI_CLI_HOME}/.gemini/settings.json", "{home}/.gemini/settings.json"),
        ("{GEMINI_CLI_HOME}/.gemini", "{home}/.gemini"), project_files=(".gemini/settings.json",), program="gemini",
        start_limit=600, calls_itself=("gemini-cli-mcp-client",), passes=_UNSECRET,
        provider="gemini", reads_content_alone=True,
    ),
    Client(
        "windsurf", "Windsurf", ("{home}/.codeium/windsurf/mcp_config.json",), ("{home}/.codeium/windsurf",),
        off=("disabled", True), calls_itself=("windsurf-client", "windsurf"), tool_limit=100,
    ),
    Client(
        "zed", "Zed",
        ("windows:{data}/Zed/settings.json", "linux:{FLATPAK_XDG_CONFIG_HOME}/zed/settings.json",
         "linux:{config}/zed/settings.json", "macos:{home}/.config/zed/settings.json"),
        ("windows:{data}/Zed", "linux:{FLATPAK_XDG_CONFIG_HOME}/zed", "linux:{config}/zed", "macos:{home}/.config/zed"),
        ("context_servers",), off=("enabled", False), project_files=(".zed/settings.json",), start_limit=60,
        calls_itself=("zed",), passes=_ALL,
    ),
    Client(
        "lm-studio", "LM Studio", ("{home}/.lmstudio/mcp.json", "{home}/.cache/lm-studio/mcp.json"),
        ("{home}/.lmstudio", "{home}/.cache/lm-studio"),
    ),
    Client(
        "goose", "Goose",
        ("{GOOSE_PATH_ROOT}/config/config.yaml", "windows:{data}/Block/goose/config/config.yaml",
         "linux:{config}/goose/config.yaml", "macos:{config}/goose/config.yaml"),
        ("{GOOSE_PATH_ROOT}/config", "windows:{data}/Block/goose", "linux:{config}/goose", "macos:{config}/goose"),
        ("extensions",), "yaml", "goose", off=("enabled", False), program="goose", start_limit=300,
        calls_itself=("goose",),
    ),
    Client(
        # In 2026 Cline moved its servers from VS Code's storage into one file for its extension and its command.
        "cline", "Cline",
        ("{CLINE_MCP_SETTINGS_PATH}", f"{{CLINE_DATA_DIR}}{_CLINE}", f"{{CLINE_DIR}}/data{_CLINE}",
         f"{{home}}/.cline/data{_CLINE}", f"{_CODE}/globalStorage/saoudrizwan.claude-dev{_CLINE}"),
        ("{CLINE_DATA_DIR}", "{CLINE_DIR}", "{home}/.cline", f"{_CODE}/globalStorage/saoudrizwan.claude-dev"),
        off=("disabled", True), start_limit=3,
        calls_itself=("cline",),
    ),
    Client(
        "opencode", "opencode", ("{config}/opencode/opencode.jsonc", "{config}/opencode/opencode.json"),
        ("{config}/opencode",), ("mcp",), form="opencode", off=("enabled", False),
        project_files=("opencode.jsonc", "opencode.json"), program="opencode", start_limit=30,
        calls_itself=("opencode",), prefix="hub_", passes=_ALL,
    ),
    Client(
        "continue", "Continue", ("{CONTINUE_GLOBAL_DIR}/config.yaml", "{home}/.continue/config.yaml"),
        ("{CONTINUE_GLOBAL_DIR}", "{home}/.continue"), syntax="yaml", listed=True, start_limit=20,
        calls_itself=("continue-cli-client",),
    ),
    Client(
        "kiro", "Kiro", ("{home}/.kiro/settings/mcp.json",), ("{home}/.kiro",), off=("disabled", True),
        project_files=(".kiro/settings/mcp.json",),
    ),
    Client(
        "copilot", "Copilot CLI", ("{COPILOT_HOME}/mcp-config.json", "{home}/.copilot/mcp-config.json"),
        ("{COPILOT_HOME}", "{home}/.copilot"), form="local", program="copilot",
        calls_itself=("github-copilot-developer",),
    ),
    Client(
        "amp", "Amp", ("{config}/amp/settings.json",), ("{config}/amp",), ("amp.mcpServers",), program="amp",
        calls_itself=("amp-mcp-client",),
    ),
)  # fmt: skip
BY_ID: Final = {client.id: client for client in CLIENTS}
_BY_OWN_NAME: Final = {name: client for client in CLIENTS for name in client.calls_itself}


def client_calling_itself(name: str) -> Client | None:
    """Returns the client that gives this name in its `clientInfo`, also through a proxy; None if it is not known.

    A proxy such as mcp-remote appends itself: `claude-ai (via mcp-remote 0.1.37)`.
    """
    return _BY_OWN_NAME.get(name.partition(" (via ")[0].strip().casefold())


def client_named(name: str) -> Client:
    """Returns the client of that name. Raises EditRefused, with all known names, if there is none."""
    folded = name.lower().replace(" ", "-").replace("_", "-")
    client = BY_ID.get(folded) or next((client for client in CLIENTS if client.name.lower() == name.lower()), None)
    if client is not None:
        return client
    close_match = nearest(folded, BY_ID)
    hint = f"; did you mean '{close_match}'?" if close_match else "."
    raise EditRefused(f"there is no client {printable(name, 80)!r}{hint} Known: {', '.join(BY_ID)}")
