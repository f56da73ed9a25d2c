"""Files as they are copied from other hosts work unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_hub.config.entry_rules import ToolRules
from tests.config.written import only, plain, read, servers


def test_the_file_of_claude_desktop_is_read(tmp_path: Path) -> None:
    text = """\
    {
      "mcpServers": {
        "filesystem": {
          "command": "npx",
          "args": ["-y", "@modelcontextprotocol/server-filesystem", "/Users/me/Desktop"]
        },
        "github": {
          "command": "docker",
          "args": ["run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN", "ghcr.io/github/github-mcp-server"],
          "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_x"}
        }
      },
      "globalShortcut": "Ctrl+Space"
    }
    """
    loaded = read(tmp_path, text, "claude_desktop_config.json")
    first, second = loaded.config.servers
    assert (first.id, first.transport, first.command, first.namespace) == ("filesystem", "stdio", "npx", "filesystem")
    assert first.args == ("-y", "@modelcontextprotocol/server-filesystem", "/Users/me/Desktop")
    assert first.deadlines.connect == second.deadlines.connect == 120
    assert plain(second.env) == {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_x"}
    assert loaded.warnings == ()


def test_the_file_of_claude_code_is_read(tmp_path: Path) -> None:
    text = """\
    {
      "mcpServers": {
        "api-server": {
          "type": "http",
          "url": "${API_BASE_URL:-https://api.example.com}/mcp",
          "headers": {"Authorization": "Bearer ${API_KEY}"}
        },
        "events": {"type": "sse", "url": "https://mcp.example.com/events"},
        "local": {"type": "stdio", "command": "./bin/server", "args": [], "env": {}}
      }
    }
    """
    entries = servers(tmp_path, text, ".mcp.json", {"API_KEY": "k"})
    assert (entries["api-server"].transport, entries["api-server"].url) == ("http", "https://api.example.com/mcp")
    assert plain(entries["api-server"].headers) == {"Authorization": "Bearer k"}
    assert [server.transport for server in entries.values()] == ["http", "sse", "stdio"]


def test_the_file_of_cursor_is_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("export TOKEN='from file'\nOTHER=1 # one\n")
    text = """\
    {
      "mcpServers": {
        "tool": {
          "command": "${workspaceFolder}${/}run",
          "args": ["--home", "${userHome}", "--name", "${workspaceFolderBasename}"],
          "envFile": "${workspaceFolder}/.env",
          "env": {"OTHER": "${env:OTHER}"}
        },
        "remote": {"url": "http://localhost:3000/sse", "headers": {"API_KEY": "value"}}
      }
    }
    """
    entries = servers(tmp_path, text, ".cursor/mcp.json", {"OTHER": "2"})
    assert entries["tool"].command == f"{tmp_path}/run"
    assert entries["tool"].args == ("--home", str(tmp_path / "home"), "--name", tmp_path.name)
    assert plain(entries["tool"].env) == {"TOKEN": "from file", "OTHER": "2"}
    assert entries["remote"].transport == "sse"


def test_the_file_of_vs_code_is_read(tmp_path: Path) -> None:
    text = """\
    {
      // asked for once
      "inputs": [{"type": "promptString", "id": "key", "description": "API key", "password": true}],
      "servers": {
        "github": {"type": "http", "url": "https://api.githubcopilot.com/mcp", "gallery": true, "version": "1.0"},
        "perplexity": {"type": "stdio", "command": "npx", "args": ["-y", "server"], "env": {"KEY": "${input:key}"}},
        "boxed": {"type": "stdio", "command": "x", "sandboxEnabled": true, "sandbox": {"network": {}}},
      },
    }
    """
    loaded = read(tmp_path, text, ".vscode/mcp.json")
    github, perplexity, boxed = loaded.config.servers
    assert (github.transport, github.enabled) == ("http", True)
    assert not perplexity.enabled
    assert "${input:...}" in (perplexity.disabled_reason or "")
    assert "(env.KEY)" in (perplexity.disabled_reason or "")
    assert "sandbox" in (boxed.disabled_reason or "")
    assert [line.split(": ")[0] for line in loaded.warnings] == ["mcp.json:6", "mcp.json:7"]


def test_the_settings_of_vs_code_are_read(tmp_path: Path) -> None:
    text = '{"editor.fontSize": 12, "mcp": {"inputs": [], "servers": {"time": {"command": "uvx", "args": ["t"]}}}}'
    loaded = read(tmp_path, text, "settings.json")
    assert [server.id for server in loaded.config.servers] == ["time"]
    assert loaded.warnings == ()


def test_the_file_of_codex_is_read(tmp_path: Path) -> None:
    text = """\
    model = "gpt-5"
    approval_policy = "on-request"

    [mcp_servers.context7]
    command = "npx"
    args = ["-y", "@upstash/context7-mcp"]
    env_vars = ["LOCAL_TOKEN", "NOT_THERE"]
    startup_timeout_sec = 20
    tool_timeout_sec = 45.5

    [mcp_servers.context7.env]
    MY_ENV_VAR = "MY_ENV_VALUE"

    [mcp_servers.figma]
    url = "https://mcp.figma.com/mcp"
    bearer_token_env_var = "FIGMA_OAUTH_TOKEN"
    http_headers = { "X-Figma-Region" = "us-east-1" }
    env_http_headers = { "X-Team" = "TEAM" }

    [mcp_servers.off]
    url = "http://localhost:3845/mcp"
    enabled = false

    [mcp_servers.unset]
    url = "https://example.com/mcp"
    bearer_token_env_var = "UNSET_TOKEN"

    [mcp_servers.asking]
    command = "asks"
    [mcp_servers.asking.tools.search]
    approval_mode = "approve"
    """
    environ = {"LOCAL_TOKEN": "l", "FIGMA_OAUTH_TOKEN": "f", "TEAM": "t"}
    loaded = read(tmp_path, text, "config.toml", environ)
    entries = {server.id: server for server in loaded.config.servers}
    assert plain(entries["context7"].env) == {"LOCAL_TOKEN": "l", "MY_ENV_VAR": "MY_ENV_VALUE"}
    assert (entries["context7"].deadlines.connect, entries["context7"].deadlines.call) == (20, 45.5)
    assert plain(entries["figma"].headers) == {
        "Authorization": "Bearer f",
        "X-Figma-Region": "us-east-1",
        "X-Team": "t",
    }
    assert (entries["off"].enabled, entries["off"].disabled_reason) == (False, None)
    assert "UNSET_TOKEN is not set (bearer_token_env_var)" in (entries["unset"].disabled_reason or "")
    assert entries["asking"].enabled
    assert loaded.warnings == (
        f"config.toml:24: mcp_servers.unset: is switched off: {entries['unset'].disabled_reason}",
    )


def test_the_file_of_gemini_is_read(tmp_path: Path) -> None:
    text = """\
    {
      "theme": "Default",
      "mcp": {"allowed": ["http", "sse", "typed", "python"], "excluded": ["python"]},
      "mcpServers": {
        "http": {"httpUrl": "https://example.com/api", "timeout": 5000, "trust": true},
        "sse": {"url": "https://example.com/events", "timeout": 500},
        "typed": {"url": "https://example.com/typed", "type": "http"},
        "python": {"command": "python", "args": ["-m", "server"], "cwd": "./dir"},
        "other": {"command": "other"}
      }
    }
    """
    entries = servers(tmp_path, text, "settings.json")
    assert [entries[name].transport for name in ("http", "sse", "typed")] == ["http", "sse", "http"]
    assert (entries["http"].deadlines.call, entries["sse"].deadlines.call) == (5, 0.5)
    assert entries["python"].disabled_reason == "mcp.excluded names it"
    assert entries["other"].disabled_reason == "mcp.allowed does not name it"
    assert entries["python"].cwd == tmp_path / "dir"


def test_a_dollar_names_a_variable_in_the_file_of_gemini(tmp_path: Path) -> None:
    text = """\
    {"mcpServers": {
      "a": {"httpUrl": "https://$HOST/mcp", "headers": {"Authorization": "Bearer $A_TOKEN", "X": "${A_TOKEN}$"}},
      "b": {"command": "b", "env": {"KEY": "$UNSET_KEY"}}
    }}
    """
    entries = servers(tmp_path, text, "settings.json", {"HOST": "example.com", "A_TOKEN": "t"})
    assert entries["a"].url == "https://example.com/mcp"
    assert plain(entries["a"].headers) == {"Authorization": "Bearer t", "X": "t$"}
    assert "UNSET_KEY is not set" in (entries["b"].disabled_reason or "")


def test_a_dollar_is_an_ordinary_character_in_files_of_other_clients(tmp_path: Path) -> None:
    text = '{"mcpServers": {"a": {"command": "a", "args": ["$HOME", "x$1"]}}}'
    assert only(tmp_path, text, "claude.json").args == ("$HOME", "x$1")


def test_gemini_is_recognised_by_its_folder(tmp_path: Path) -> None:
    text = '{"mcpServers": {"a": {"url": "https://example.com/events"}}}'
    assert only(tmp_path, text, ".gemini/settings.json").transport == "sse"
    assert only(tmp_path, text, "settings.json").transport == "auto"


def test_the_file_of_opencode_is_read(tmp_path: Path) -> None:
    text = """\
    {
      "$schema": "https://opencode.ai/config.json",
      "model": "anthropic/claude",
      "tools": {"held_*": false, "bash": false},
      "mcp": {
        "everything": {
          "type": "local",
          "command": ["npx", "-y", "@modelcontextprotocol/server-everything"],
          "environment": {"MY_ENV_VAR": "my_env_var_value"},
          "enabled": true,
          "timeout": 5000
        },
        "context7": {
          "type": "remote",
          "url": "https://mcp.context7.com/mcp",
          "headers": {"CONTEXT7_API_KEY": "{env:CONTEXT7_API_KEY}", "X-More": "{file:./more}"}
        },
        "held": {"type": "local", "command": ["held"]},
        "unset": {"type": "remote", "url": "https://example.com/mcp", "headers": {"K": "{env:UNSET}"}}
      }
    }
    """
    (tmp_path / "more").write_text("m\n")
    entries = servers(tmp_path, text, "opencode.json", {"CONTEXT7_API_KEY": "c"})
    assert not [line for line in read(tmp_path, text, "opencode.json").warnings if "tools" in line]
    everything = entries["everything"]
    assert (everything.command, everything.args[0], everything.deadlines.list) == ("npx", "-y", 5)
    assert everything.deadlines.call == 1200
    assert plain(everything.env) == {"MY_ENV_VAR": "my_env_var_value"}
    assert entries["context7"].transport == "auto"
    assert plain(entries["context7"].headers) == {"CONTEXT7_API_KEY": "c", "X-More": "m"}
    assert (entries["held"].enabled, entries["held"].filters["tools"].deny) == (True, ("*",))
    assert not entries["everything"].filters
    assert "UNSET is not set" in (entries["unset"].disabled_reason or "")


def test_the_file_of_windsurf_is_read(tmp_path: Path) -> None:
    text = (
        '{"mcpServers": {"remote": {"serverUrl": "https://x.example/mcp", "headers": {"A": "b"}, "disabledTools": []}}}'
    )
    server = only(tmp_path, text, "mcp_config.json")
    assert (server.transport, server.url, server.enabled) == ("auto", "https://x.example/mcp", True)


def test_the_files_of_cline_and_roo_are_read(tmp_path: Path) -> None:
    text = """\
    {"mcpServers": {
      "a": {"command": "node", "args": ["x.js"], "disabled": true, "autoApprove": ["t"], "timeout": 60},
      "b": {"type": "streamableHttp", "url": "https://b.example/mcp", "alwaysAllow": ["t"], "timeout": 3600},
      "c": {"url": "https://c.example/mcp", "timeout": 60000, "disabledTools": ["rm"]}
    }}
    """
    loaded = read(tmp_path, text, "cline_mcp_settings.json")
    a, b, c = loaded.config.servers
    assert (a.enabled, a.disabled_reason, a.deadlines.call) == (False, None, 60)
    assert (b.transport, b.deadlines.call) == ("http", 3600)
    assert c.deadlines.call == 60
    assert (c.enabled, c.filters["tools"].deny) == (True, ("rm",))
    assert any("is read as milliseconds" in warning for warning in loaded.warnings)


@pytest.mark.parametrize(
    "entry",
    [
        '{"source": "custom", "command": "uvx", "args": ["a", "b"], "env": {"K": "v"}}',
        '{"command": {"path": "uvx", "args": ["a", "b"], "env": {"K": "v"}}, "settings": {}}',
    ],
    ids=["now", "formerly"],
)
def test_the_settings_of_zed_are_read(tmp_path: Path, entry: str) -> None:
    text = '{"theme": "One Dark", "context_servers": {"mine": %s, "ext": {"source": "extension", "settings": {}}}}'
    loaded = read(tmp_path, text % entry, "settings.json")
    mine, extension = loaded.config.servers
    assert (mine.command, mine.args, plain(mine.env)) == ("uvx", ("a", "b"), {"K": "v"})
    assert "extension" in (extension.disabled_reason or "")
    assert len(loaded.warnings) == 1


def test_the_file_of_fastmcp_is_read(tmp_path: Path) -> None:
    text = """\
    {"mcpServers": {
      "weather": {"url": "https://weather.example/mcp", "transport": "streamable-http", "auth": "token"},
      "assistant": {"command": "python", "args": ["./a.py"], "transport": "stdio", "keep_alive": false, "icon": "i"},
      "old": {"url": "https://old.example/sse/"},
      "tagged": {"command": "x", "include_tags": ["a"]},
      "changed": {"command": "x", "tools": {
        "add": {"name": "plus", "arguments": {"key": {"hide": true, "default": "k"}}}, "sub": {"enabled": false}
      }}
    }}
    """
    entries = servers(tmp_path, text, "fastmcp.json")
    assert [entries[name].transport for name in ("weather", "assistant", "old")] == ["http", "stdio", "sse"]
    assert plain(entries["weather"].headers) == {"Authorization": "Bearer token"}
    assert entries["tagged"].filters["tools"].allow_tags == ("a",)
    assert entries["changed"].tools["add"] == ToolRules(name="plus", preset={"key": "k"})
    assert entries["changed"].filters["tools"].deny == ("sub",)


def test_the_file_of_one_mcp_is_read(tmp_path: Path) -> None:
    text = """\
    {
      "serverDefaults": {"connectionTimeout": 7000, "requestTimeout": 8000, "env": {"SHARED": "secret"}},
      "mcpServers": {
        "a": {"command": "a", "env": ["A=b=c", "E="], "tags": ["x"], "restartOnExit": true},
        "b": {"command": "b", "requestTimeout": 9000}
      }
    }
    """
    loaded = read(tmp_path, text, "mcp.json")
    a, b = loaded.config.servers
    assert plain(a.env) == {"A": "b=c", "E": ""}
    assert (a.deadlines.connect, a.deadlines.call) == (7, 8)
    assert (b.deadlines.connect, b.deadlines.call) == (7, 9)
    assert loaded.warnings == ("mcp.json:2: serverDefaults.env is not known and is ignored",)


def test_a_bare_name_in_one_mcps_env_list_is_taken_from_the_hubs_environment(tmp_path: Path) -> None:
    text = '{"mcpServers": {"a": {"command": "a", "env": ["MINE", "UNSET", "B=${MINE}"]}}}'
    assert plain(only(tmp_path, text, "mcp.json", {"MINE": "m"}).env) == {"MINE": "m", "B": "m"}


def test_the_export_of_metamcp_is_read(tmp_path: Path) -> None:
    text = """\
    {"mcpServers": {
      "news": {"type": "stdio", "command": "uvx", "args": ["news"], "description": "d"},
      "api": {"type": "streamable_http", "url": "https://x.example/mcp", "bearerToken": "${KEY}"}
    }}
    """
    loaded = read(tmp_path, text, "servers.json", {"KEY": "k"})
    news, api = loaded.config.servers
    assert (news.transport, api.transport) == ("stdio", "http")
    assert plain(api.headers) == {"Authorization": "Bearer k"}
    assert loaded.warnings == ()


def test_the_settings_of_mcphub_are_read(tmp_path: Path) -> None:
    text = """\
    {"mcpServers": {
      "own": {"command": "a", "perSessionClient": true, "owner": "admin", "tools": {"rm": {"enabled": false}}},
      "one": {"type": "streamable-http", "url": "https://x.example/mcp", "perSessionClient": false,
              "enableKeepAlive": true, "keepAliveInterval": 60000, "visibility": "group"},
      "api": {"type": "openapi", "openapi": {"url": "https://x.example/openapi.json"}}
    }, "users": [{"username": "admin", "password": "x", "isAdmin": true}]}
    """
    loaded = read(tmp_path, text, "mcp_settings.json")
    own, remote, api = loaded.config.servers
    assert (own.session, remote.session, own.filters["tools"].deny) == ("client", "shared", ("rm",))
    assert "'openapi' is not supported" in (api.disabled_reason or "")
    assert next(line for line in loaded.warnings if "visibility" in line).endswith("one of 'profiles'")


def test_the_list_of_named_servers_of_mcpproxy_is_read(tmp_path: Path) -> None:
    text = """\
    {
      "listen": "127.0.0.1:8090",
      "mcpServers": [
        {"name": "fs", "protocol": "stdio", "command": "fs", "working_dir": "/srv", "enabled": true},
        {"name": "gh", "protocol": "streamable-http", "url": "https://x.example/", "headers": {"A": "${keyring:gh}"}},
        {"name": "new", "protocol": "http", "url": "https://x.example/", "quarantined": true}
      ]
    }
    """
    loaded = read(tmp_path, text, "mcp_config.json")
    fs, gh, new = loaded.config.servers
    assert (fs.cwd, loaded.config.listen.port) == (Path("/srv"), 8090)
    assert "${keyring:SERVICE/USERNAME}" in (gh.disabled_reason or "")
    assert "quarantine" in (new.disabled_reason or "")


def test_a_server_below_params_is_read_as_in_miroflow(tmp_path: Path) -> None:
    text = """\
    - name: tool-code
      params: {command: python, args: [-m, code], env: {K: v}}
    - name: tool-search
      params: http://localhost:1/sse
    """
    code, search = read(tmp_path, text).config.servers
    assert (code.id, code.command, code.args) == ("tool-code", "python", ("-m", "code"))
    assert (search.transport, search.url) == ("sse", "http://localhost:1/sse")


def test_a_variable_reference_with_a_slash_is_read_as_in_litellm(tmp_path: Path) -> None:
    text = "mcp_servers: {a: {url: 'https://x.example/mcp', static_headers: {X-Key: os.environ/KEY}}}"
    assert plain(only(tmp_path, text, "config.yaml", {"KEY": "k"}).headers) == {"X-Key": "k"}
    assert only(tmp_path, text, "config.yaml").disabled_reason is not None
