"""`mcp-hub import`: servers of clients into the hub's own file, each once and without its secrets."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp_hub.cli import BAD_INPUT, FAILED, OK, STALE, UNCONFIRMED, main
from mcp_hub.hub.composition import load_config

TOKEN = "ghp_abcdefghijabcdefghijabcdefghij123456"
TIME = {"command": "uvx", "args": ["mcp-server-time==2026.10.19"]}
GITHUB = {"command": "npx", "args": ["-y", "server-github"], "env": {"GITHUB_TOKEN": TOKEN}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of nobody's, in a place with spaces, and the working directory of a project."""
    home = tmp_path / "höme dir"
    for name in (".cursor", ".config", "work"):
        (home / name).mkdir(parents=True)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "MCP_HUB_CONFIG", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.chdir(home / "work")
    return home


def put(path: Path, servers: dict[str, Any], root: str = "mcpServers") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({root: servers}, indent=2))
    path.chmod(0o600)
    return path


def desktop(home: Path, servers: dict[str, Any]) -> Path:
    return put(home / ".config/Claude/claude_desktop_config.json", servers)


def cursor(home: Path, servers: dict[str, Any]) -> Path:
    return put(home / ".cursor/mcp.json", servers)


def own(home: Path) -> Path:
    return home / ".config/mcp-hub/servers.yaml"


def test_import_writes_nothing_before_its_preview_is_confirmed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desktop(home, {"time": TIME})
    before = sorted(home.rglob("*"))
    assert main(["import"]) == UNCONFIRMED
    out, err = capsys.readouterr()
    assert "+  time:" in out
    token = err.split("--confirm ")[1].split()[0]
    assert sorted(home.rglob("*")) == before
    cursor(home, {"github": GITHUB})
    assert main(["import", "--confirm", token]) == STALE
    assert main(["import", "claude-desktop", "--confirm", token]) == OK
    assert yaml.safe_load(own(home).read_text()) == {"servers": {"time": TIME}}
    assert own(home).stat().st_mode & 0o777 == 0o600


def test_a_secret_is_stored_in_a_private_file_and_never_shown(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desktop(home, {"github": GITHUB, "web": {"url": "https://x.example/mcp", "headers": {"X-Api-Key": TOKEN}}})
    assert main(["import", "--yes", "--json"]) == OK
    assert main(["undo", "--list"]) == OK
    assert TOKEN not in "".join(capsys.readouterr())
    assert TOKEN not in own(home).read_text()
    secrets = sorted((home / ".local/share/mcp-hub/secrets").iterdir())
    assert [path.name for path in secrets] == ["github.GITHUB_TOKEN", "web.X-Api-Key"]
    assert {path.stat().st_mode & 0o777 for path in secrets} == {0o600}
    config = load_config(own(home))
    github, web = config.servers
    assert github.env["GITHUB_TOKEN"].get_secret_value() == TOKEN
    assert web.headers["X-Api-Key"].get_secret_value() == TOKEN


@contextlib.contextmanager
def keyring_of(home: Path, monkeypatch: pytest.MonkeyPatch, lookups: int = 1000) -> Iterator[None]:
    """Gives the user a keyring that is locked after `lookups` lookups."""
    import keyring
    from keyring.errors import KeyringLocked

    from tests.oauth.file_keyring import FileKeyring

    class LockedLater(FileKeyring):
        remaining = lookups

        def get_password(self, service: str, username: str) -> str | None:
            self.remaining -= 1
            if self.remaining < 0:
                raise KeyringLocked
            return super().get_password(service, username)

    monkeypatch.setenv("TEST_KEYRING", str(home / "ring.json"))
    before = keyring.get_keyring()
    keyring.set_keyring(LockedLater())
    try:
        yield
    finally:
        keyring.set_keyring(before)


def test_a_secret_is_stored_in_the_keyring_if_available_and_undo_removes_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desktop(home, {"github": GITHUB})
    with keyring_of(home, monkeypatch):
        assert main(["import", "--yes"]) == OK
        assert "${keyring:mcp-hub/github.GITHUB_TOKEN}" in own(home).read_text()
        assert load_config(own(home)).servers[0].env["GITHUB_TOKEN"].get_secret_value() == TOKEN
        assert main(["undo", "--yes"]) == OK
        assert json.loads((home / "ring.json").read_text()) == {}


def test_a_secret_in_the_keyring_goes_when_the_broken_file_that_names_it_is_mended_and_undone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desktop(home, {"github": GITHUB})
    with keyring_of(home, monkeypatch):
        main(["import", "--yes"])
        written = own(home).read_bytes()
        for broken in (written + b"\n[", b" " * 2_000_000):
            own(home).write_bytes(broken)
            assert main(["undo", "--yes"]) == FAILED
            assert TOKEN in (home / "ring.json").read_text()
        own(home).write_bytes(written)
        assert main(["undo", "--yes"]) == OK
        assert json.loads((home / "ring.json").read_text()) == {}


def test_a_keyring_that_is_locked_during_an_import_changes_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    desktop(home, {"github": GITHUB})
    with keyring_of(home, monkeypatch, lookups=1):  # the first question is whether there is one
        assert main(["import", "--yes"]) == BAD_INPUT
    assert "the keyring cannot be read: the keyring is locked; unlock it" in capsys.readouterr().err
    assert not own(home).exists()


def test_a_second_import_changes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desktop(home, {"time": TIME, "github": GITHUB})
    assert main(["import", "--yes"]) == OK
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main(["import", "--yes"]) == OK
    assert "same as github" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


def test_equal_servers_of_two_clients_are_imported_once_and_equal_names_get_a_client_suffix(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desktop(home, {"time": TIME, "github": GITHUB})
    second_github = {"command": "npx", "args": ["-y", "server-github"], "env": {"GITHUB_TOKEN": TOKEN[:-1] + "9"}}
    cursor(home, {"clock": {**TIME, "command": "/opt/homebrew/bin/uvx"}, "github": second_github})
    assert main(["import", "--yes", "--json"]) == OK
    facts = {server["name"]: server["from"] for server in json.loads(capsys.readouterr().out)["servers"]}
    assert facts == {
        "time": ["Claude Desktop", "Cursor (clock)"],
        "github": ["Claude Desktop"],
        "github-cursor": ["Cursor (github)"],
    }
    assert [server.id for server in load_config(own(home)).servers] == ["time", "github", "github-cursor"]


def test_servers_of_a_project_are_listed_and_imported_only_if_named(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(home / "work/.mcp.json", {"local": {"command": "node", "args": ["x.js"]}})
    desktop(home, {"time": TIME})
    assert main(["import", "--yes"]) == OK
    assert "mcp-hub import .mcp.json" in capsys.readouterr().err
    assert "local" not in own(home).read_text()
    assert main(["import", ".", "--yes"]) == OK
    assert [server.id for server in load_config(own(home)).servers] == ["time", "local"]


def test_servers_of_claude_code_for_one_directory_are_imported_with_that_directory(home: Path) -> None:
    (home / ".claude.json").write_text(
        json.dumps({"mcpServers": {"time": TIME}, "projects": {str(home / "work"): {"mcpServers": {"mine": GITHUB}}}})
    )
    (home / ".claude.json").chmod(0o600)
    assert main(["import", "claude-code", "--yes"]) == OK
    assert "mine" not in own(home).read_text()
    assert main(["import", str(home / "work"), "--yes"]) == OK
    assert [server.id for server in load_config(own(home)).servers] == ["time", "mine"]


def test_a_hub_is_never_imported(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desktop(home, {"hub": {"command": "/x/mcp-hub", "args": ["serve"]}, "time": TIME})
    assert main(["import", "--yes"]) == OK
    assert [server.id for server in load_config(own(home)).servers] == ["time"]
    assert "starts a hub" in capsys.readouterr().err


def test_a_server_that_is_disabled_in_its_client_is_imported_disabled(home: Path) -> None:
    put(home / ".codeium/windsurf/mcp_config.json", {"time": {**TIME, "disabled": True}})
    assert main(["import", "--yes"]) == OK
    assert yaml.safe_load(own(home).read_text())["servers"]["time"]["enabled"] is False


def test_import_keeps_the_comments_and_the_order_of_the_hubs_file(home: Path) -> None:
    own(home).parent.mkdir(parents=True)
    own(home).write_text("# mine\nservers:\n  a: {command: x}  # first\n\nlist_wait: 3s # wait\n")
    own(home).chmod(0o600)
    desktop(home, {"time": TIME})
    assert main(["import", "--yes"]) == OK
    added = "\n  time:\n    command: uvx\n    args: [mcp-server-time==2026.10.19]"
    text = f"# mine\nservers:\n  a: {{command: x}}  # first{added}\n\nlist_wait: 3s # wait\n"
    assert own(home).read_text() == text
    assert main(["undo", "--yes"]) == OK
    assert own(home).read_text() == "# mine\nservers:\n  a: {command: x}  # first\n\nlist_wait: 3s # wait\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", None),
        (b"{}", None),
        (b'{"mcpServers": {', "is not valid JSON"),
        (b'{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "already given in line 1"),
        (b'{"mcpServers": "x"}', "must be a mapping"),
        (b'{"mcpServers": {"\x1b[31mred": {"command": 5}}}', "command: must be a text"),
        (b"\xff\xfe\xff", "not UTF-8"),
        (b'{"a": "' + b"x" * 2**20 + b'"}', "larger than 1,048,576 bytes"),
    ],
)
def test_an_invalid_client_file_is_reported_and_the_others_are_imported(
    home: Path, content: bytes, says: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    desktop(home, {"time": TIME})
    (home / ".cursor/mcp.json").write_bytes(content)
    (home / ".cursor/mcp.json").chmod(0o600)
    assert main(["import", "--yes"]) == OK
    err = capsys.readouterr().err
    assert says is None or says in err
    assert "\x1b" not in err
    assert [server.id for server in load_config(own(home)).servers] == ["time"]


def test_an_unusable_entry_is_shown_as_its_file_has_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desktop(home, {"time": TIME})
    wrong = {"command": "x", "args": "one text"}
    cursor(home, {"wrong": wrong, "keyed": {**wrong, "args": f"--token {TOKEN}"}})
    assert main(["import", "--yes"]) == OK
    out, err = capsys.readouterr()
    assert re.search(r"^wrong +not usable +Cursor +x one text$", out, re.MULTILINE)
    assert re.search(r"^keyed +not usable +Cursor +x --token \*\*\*$", out, re.MULTILINE)
    assert "args: must be a list of texts" in err


RUN = {"command": "mcp-server-time"}
SHAPES: dict[str, tuple[dict[str, Any], bool]] = {
    "empty url beside a command": ({**RUN, "args": [], "env": {}, "url": "", "headers": {}}, True),
    "nulls": ({**RUN, "url": None, "headers": None, "cwd": None, "timeout": None}, True),
    "empty command beside a url": ({"command": "", "args": [], "url": "http://127.0.0.1:9/mcp"}, True),
    "transport auto": ({**RUN, "transport": "auto"}, True),
    "protocol auto": ({**RUN, "protocol": "auto", "quarantined": False}, True),
    "no transport": ({"startup_timeout_sec": 60}, False),
    "args of one text": ({**RUN, "args": "y"}, False),
    "two targets": ({**RUN, "url": "http://127.0.0.1:9/mcp"}, False),
    "a rule without a list": ({**RUN, "disabledTools": "x"}, False),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_import_and_serve_agree_on_an_entry_and_keep_its_neighbour(home: Path, shape: str) -> None:
    entry, works = SHAPES[shape]
    file = cursor(home, {"time": TIME, "odd": entry})
    if shape != "a rule without a list":  # which no hub may start without
        assert [server.id for server in load_config(file).servers if server.enabled] == ["time", "odd"][: 1 + works]
    assert main(["import", "--yes"]) == OK
    assert [server.id for server in load_config(own(home)).servers if server.enabled] == ["time", "odd"][: 1 + works]


def test_a_client_file_that_others_can_write_is_not_imported(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desktop(home, {"time": TIME}).chmod(0o666)
    assert main(["import", "--yes"]) == FAILED
    assert "every user of this machine can write to the file" in capsys.readouterr().err
    assert not own(home).exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["curser"], "did you mean 'cursor'?"),
        (["nowhere.json"], "there is no such file"),
        (["windsurf"], "Windsurf was not found on this machine. Looked for"),
        (["."], "there is no file of servers in this directory"),
        (["~no-such-user/mcp.json"], "there is no such file"),
    ],
)
def test_import_reports_a_client_or_server_that_does_not_exist(
    home: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", *words]) == BAD_INPUT
    assert says in capsys.readouterr().err


def test_import_without_clients_finds_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".cursor").rmdir()
    assert main(["import"]) == FAILED
    out = capsys.readouterr().out
    assert "no servers were found" in out
    assert "mcp-hub setup" in out


def test_secrets_are_not_kept_in_a_git_work_tree(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    desktop(home, {"github": GITHUB})
    (home / ".git").mkdir()
    assert main(["import", "--yes"]) == BAD_INPUT
    assert "set XDG_STATE_HOME and XDG_DATA_HOME" in capsys.readouterr().err
    assert not own(home).exists()


def test_descriptions_and_variable_lists_of_one_mcp_keep_their_meaning_after_an_import(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "m")
    entry = {
        "command": "a",
        "env": ["MINE", "UNSET", f"GITHUB_TOKEN={TOKEN}"],
        "toolDescriptionOverrides": {"read": "Read it"},
    }
    file = put(home / "work" / "mcp.json", {"a": entry})
    assert main(["import", str(file), "--yes"]) == OK
    assert TOKEN not in own(home).read_text()
    (server,) = load_config(own(home)).servers
    assert {name: value.get_secret_value() for name, value in server.env.items()} == {
        "MINE": "m",
        "GITHUB_TOKEN": TOKEN,
    }
    assert server.tools["read"].description == "Read it"


def test_settings_of_a_file_for_all_its_servers_are_imported_with_each_server(home: Path) -> None:
    file = put(home / "work" / "mcp.json", {"a": {"command": "a"}, "b": {"command": "b", "requestTimeout": 9000}})
    defaults = {"connectionTimeout": 7000, "requestTimeout": 8000, "env": {"GITHUB_TOKEN": TOKEN}}
    file.write_text(json.dumps({"serverDefaults": defaults, **json.loads(file.read_text())}))
    assert main(["import", str(file), "--yes"]) == OK
    a, b = load_config(own(home)).servers
    assert (a.deadlines.connect, a.deadlines.call, b.deadlines.connect, b.deadlines.call) == (7, 8, 7, 9)
    assert TOKEN not in own(home).read_text()


def test_import_names_the_default_that_it_leaves_out(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = put(home / "work" / "mcp.json", {"a": {"command": "a"}})
    file.write_text(json.dumps({"serverDefaults": {"env": {"SHARED": "x"}}, **json.loads(file.read_text())}))
    assert main(["import", str(file), "--yes"]) == OK
    assert "serverDefaults.env is not known and is ignored" in "".join(capsys.readouterr())
