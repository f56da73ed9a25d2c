"""Files of Goose, Amp, Claude Code, Continue, Copilot CLI and Kiro, with what they say beside their entries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.config import LoadedConfig
from tests.config.written import only, plain, read, refused, servers

GOOSE = """\
GOOSE_PROVIDER: anthropic
extensions:
  developer: {type: builtin, enabled: true, name: developer, bundled: true, display_name: Developer, timeout: 300}
  todo: {type: platform, enabled: true, name: todo, description: A todo list, bundled: true}
  memory: {type: builtin, enabled: false, name: memory, timeout: 300}
  fetch:
    type: stdio
    enabled: true
    name: fetch
    description: Pages
    cmd: uvx
    args: [mcp-server-fetch]
    envs: {LEVEL: '1'}
    env_keys: [FETCH_KEY, LEVEL]
    timeout: 300
    bundled: null
    available_tools: []
  remote:
    type: streamable_http
    enabled: true
    name: remote
    uri: https://remote.example/mcp
    envs: {TEAM: blue}
    env_keys: [REMOTE_TOKEN]
    headers: {Authorization: Bearer $REMOTE_TOKEN, X-Team: "${ TEAM }"}
    timeout: 60
    available_tools: [search]
  old: {type: sse, enabled: false, name: old, uri: https://old.example/sse}
"""


def test_the_file_of_goose_is_read(tmp_path: Path) -> None:
    loaded = read(tmp_path, GOOSE, "config.yaml", {"FETCH_KEY": "k", "REMOTE_TOKEN": "t"})
    fetch, remote, old = loaded.config.servers
    assert (fetch.id, fetch.transport, fetch.command, fetch.args) == ("fetch", "stdio", "uvx", ("mcp-server-fetch",))
    assert plain(fetch.env) == {"LEVEL": "1", "FETCH_KEY": "k"}
    assert (fetch.deadlines.call, fetch.filters) == (300, {})
    assert (remote.transport, remote.url, remote.deadlines.call) == ("http", "https://remote.example/mcp", 60)
    assert plain(remote.headers) == {"Authorization": "Bearer t", "X-Team": "blue"}
    assert remote.filters["tools"].allow == ("search",)
    assert (old.transport, old.enabled, old.disabled_reason) == ("sse", False, None)
    assert loaded.warnings == ("config.yaml:2: extensions: developer, todo: run inside of Goose and are not served",)


def test_a_goose_entry_whose_secret_is_not_in_the_environment_is_disabled(tmp_path: Path) -> None:
    entries = servers(tmp_path, GOOSE, "config.yaml")
    assert entries["fetch"].disabled_reason == "the environment variable FETCH_KEY is not set (env_keys)"
    assert "REMOTE_TOKEN is not set" in (entries["remote"].disabled_reason or "")


def test_an_extensions_key_of_another_program_is_not_read_as_servers(tmp_path: Path) -> None:
    text = '{"extensions": {"disabled": ["x"]}, "mcpServers": {"a": {"command": "a"}}}'
    assert only(tmp_path, text, "settings.json").id == "a"
    assert "no servers in this file" in refused(tmp_path, '{"extensions": {"disabled": ["x"]}}', "settings.json")[0]


AMP: dict[str, Any] = {
    "amp.notifications.enabled": True,
    "amp.mcpServers": {
        "playwright": {"command": "npx", "args": ["-y", "@playwright/mcp@1.0.0"], "env": {"A": "b"}},
        "graph": {"url": "${SRC_ENDPOINT}/mcp", "headers": {"Authorization": "token ${SRC_TOKEN}"}},
        "chosen": {"command": "chosen", "includeTools": ["list_*"], "disabled": True},
    },
}


def amp(directory: Path, **settings: Any) -> LoadedConfig:
    environ = {"SRC_ENDPOINT": "https://src.example", "SRC_TOKEN": "t"}
    return read(directory, json.dumps({**AMP, **settings}, indent=1), ".config/amp/settings.json", environ)


def test_the_settings_of_amp_are_read(tmp_path: Path) -> None:
    loaded = amp(tmp_path)
    playwright, graph, chosen = loaded.config.servers
    assert (playwright.command, plain(playwright.env), playwright.enabled) == ("npx", {"A": "b"}, True)
    assert (graph.url, plain(graph.headers)) == ("https://src.example/mcp", {"Authorization": "token t"})
    assert (chosen.filters["tools"].allow, chosen.enabled) == (("list_*",), False)
    assert loaded.warnings == ()


def test_tools_that_amp_disables_are_refused(tmp_path: Path) -> None:
    disabled = ["browser_navigate", "builtin:edit_file", "mcp__graph__write_*", "mcp__graph__*"]
    entries = {server.id: server for server in amp(tmp_path, **{"amp.tools.disable": disabled}).config.servers}
    assert "browser_navigate" in entries["playwright"].filters["tools"].deny
    assert "edit_file" not in entries["playwright"].filters["tools"].deny
    assert "*" not in entries["playwright"].filters["tools"].deny
    assert {"write_*", "*"} <= set(entries["graph"].filters["tools"].deny)


@pytest.mark.parametrize(
    ("rules", "off"),
    [
        ([{"matches": {"command": "npx"}, "action": "reject"}], {"playwright"}),
        ([{"matches": {"command": "npx -y @playwright/*"}, "action": "allow"},
          {"matches": {"command": "*"}, "action": "reject"}], {"chosen"}),
        ([{"matches": {"url": "https://src.example/*"}, "action": "reject"}], set()),  # looks at what is written
        ([{"matches": {"url": "*"}, "action": "reject"}], {"graph"}),
        ([{"matches": {"command": "npx"}, "action": "allow"}, {"matches": {"command": "*"}, "action": "reject"}],
         {"playwright", "chosen"}),
        ([{"action": "reject"}], {"playwright", "graph", "chosen"}),
    ],
)  # fmt: skip
def test_servers_that_amp_rejects_are_disabled(tmp_path: Path, rules: list[Any], off: set[str]) -> None:
    disabled = {
        server.id for server in amp(tmp_path, **{"amp.mcpPermissions": rules}).config.servers if server.disabled_reason
    }
    assert disabled == off - {"chosen"}  # which its user has switched off, so that there is nothing to tell


def test_a_misspelled_root_key_is_quoted_once(tmp_path: Path) -> None:
    assert "where 'amp.mcpServer' is?" in refused(tmp_path, '{"amp.mcpServer": {}}', "amp.json")[0]


def claude(directory: Path, **projects: Any) -> str:
    own = {str(directory / name): settings for name, settings in projects.items()}
    for name in projects:
        (directory / name).mkdir(exist_ok=True)
    return json.dumps({"mcpServers": {"a": {"command": "a"}, "b": {"command": "everywhere"}}, "projects": own})


ONE = {"mcpServers": {"b": {"command": "mine"}, "c": {"command": "c"}}, "disabledMcpServers": ["a"]}
TWO = {"mcpServers": {"d": {"command": "d"}}}


def test_claude_code_servers_of_the_working_directory_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = claude(tmp_path, one=ONE, two=TWO, three={"mcpServers": {}})
    monkeypatch.chdir(tmp_path / "one")
    loaded = read(tmp_path, text, ".claude.json")
    assert [(server.id, server.command) for server in loaded.config.servers] == [("a", "a"), ("b", "mine"), ("c", "c")]
    assert loaded.config.servers[0].disabled_reason == "disabledMcpServers names it"
    lines = [line for line in loaded.warnings if ": projects: " in line]
    assert len(lines) == 1
    assert f"d ({tmp_path / 'two'}): for other directories and not served" in lines[0]


def test_claude_code_servers_of_a_git_repository_are_loaded_in_its_subdirectories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = claude(tmp_path, one=ONE)
    inner = tmp_path / "one" / "src" / "deep"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert set(servers(tmp_path, text, ".claude.json")) == {"a", "b"}
    (tmp_path / "one" / ".git").mkdir()
    assert set(servers(tmp_path, text, ".claude.json")) == {"a", "b", "c"}


def test_claude_project_dir_sets_the_project_directory(tmp_path: Path) -> None:
    text = claude(tmp_path, one=ONE, two=TWO)
    entries = servers(tmp_path, text, ".claude.json", {"CLAUDE_PROJECT_DIR": str(tmp_path / "two")})
    assert set(entries) == {"a", "b", "d"}


def test_servers_of_all_other_directories_are_reported_once(tmp_path: Path) -> None:
    text = claude(tmp_path, **{f"p{n}": {"mcpServers": {f"s{n}": {"command": "s"}}} for n in range(30)})
    loaded = read(tmp_path, text, ".claude.json")
    assert [server.id for server in loaded.config.servers] == ["a", "b"]
    assert len(loaded.warnings) == 1
    assert "and 20 more: for other directories and not served; start the hub there" in loaded.warnings[0]


def test_a_file_with_only_project_servers_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = json.loads(claude(tmp_path, two=TWO))
    del tree["mcpServers"]
    assert servers(tmp_path, json.dumps(tree), ".claude.json") == {}
    monkeypatch.chdir(tmp_path / "two")
    assert set(servers(tmp_path, json.dumps(tree), ".claude.json")) == {"d"}


def test_an_error_in_a_project_server_is_reported_with_its_key_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = json.loads(claude(tmp_path, two={"mcpServers": {"d": {"command": ["x", 1, {}]}}}))
    monkeypatch.chdir(tmp_path / "two")
    (line,) = [line for line in read(tmp_path, json.dumps(tree, indent=1), ".claude.json").warnings if "d:" in line]
    assert ".mcpServers.d: is switched off: command[2]: must be a text" in line


CONTINUE = """\
name: Mine
version: 0.0.1
schema: v1
models: []
mcpServers:
  - name: SQLite MCP
    command: npx
    args: [-y, mcp-sqlite@1.0.0, "${{ inputs.DATABASE }}"]
  - name: Search
    type: streamable-http
    url: https://search.example/mcp
    connectionTimeout: 20000
    requestOptions:
      headers: {Authorization: "Bearer ${{ secrets.SEARCH_TOKEN }}"}
  - name: Local
    command: local
    env: {KEY: "${{secrets.LOCAL_KEY}}"}
  - uses: continuedev/browser-mcp
"""


def test_the_file_of_continue_is_read_with_its_secrets(tmp_path: Path) -> None:
    folder = tmp_path / ".continue"
    folder.mkdir()
    (folder / ".env").write_text("LOCAL_KEY='from file'\n")
    (folder / ".env").chmod(0o600)
    loaded = read(tmp_path, CONTINUE, ".continue/config.yaml", {"SEARCH_TOKEN": "t"})
    sqlite, search, local = loaded.config.servers
    assert "'${{ secrets.NAME }}'" in (sqlite.disabled_reason or "")
    assert (search.transport, search.deadlines.connect) == ("http", 20)
    assert plain(search.headers) == {"Authorization": "Bearer t"}
    assert plain(local.env) == {"KEY": "from file"}
    assert folder / ".env" in loaded.read
    assert [line.split(": ")[1] for line in loaded.warnings] == ["mcpServers[0]", "mcpServers[3]"]
    unset = servers(tmp_path, CONTINUE, ".continue/config.yaml")["Search"]
    assert "the secret SEARCH_TOKEN is neither a variable nor in" in (unset.disabled_reason or "")


def test_the_file_of_copilot_cli_is_read(tmp_path: Path) -> None:
    text = """\
    {"mcpServers": {
      "local": {"type": "local", "command": "uvx", "args": ["x==1.0"], "tools": ["*"], "env": {"K": "${K}"}},
      "some": {"type": "http", "url": "https://x.example/mcp", "tools": ["get_me"], "timeout": 30000,
               "headers": {"Authorization": "Bearer ${T:-anonymous}"}},
      "none": {"type": "stdio", "command": "x", "tools": []}
    }}
    """
    entries = servers(tmp_path, text, ".copilot/mcp-config.json", {"K": "k"})
    assert (entries["local"].transport, entries["local"].filters) == ("stdio", {})
    assert plain(entries["local"].env) == {"K": "k"}
    assert (entries["some"].transport, entries["some"].filters["tools"].allow) == ("http", ("get_me",))
    assert (entries["some"].deadlines.call, plain(entries["some"].headers)) == (
        30,
        {"Authorization": "Bearer anonymous"},
    )
    assert entries["none"].filters["tools"].allow == ()


def test_the_file_of_kiro_is_read(tmp_path: Path) -> None:
    text = """\
    {"mcpServers": {
      "local": {"command": "npx", "args": ["x@1.0.0"], "env": {"KEY": "${KEY}"}, "disabled": false,
                "autoApprove": ["a"], "disabledTools": ["rm"]},
      "remote": {"url": "https://x.example/mcp", "headers": {"A": "Bearer ${UNSET}"}, "disabledTools": []}
    }}
    """
    loaded = read(tmp_path, text, ".kiro/settings/mcp.json", {"KEY": "k"})
    local, remote = loaded.config.servers
    assert (plain(local.env), local.filters["tools"].deny) == ({"KEY": "k"}, ("rm",))
    assert "UNSET is not set" in (remote.disabled_reason or "")
    assert len(loaded.warnings) == 1
