"""`mcp-hub install` and `uninstall`: the hub's entry in the files of clients, as a person uses them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from mcp_hub.cli import BAD_INPUT, OK, STALE, UNCONFIRMED, main
from tests.cli.test_import import TIME, cursor, desktop, home, own
from tests.fakes.client import PATIENCE, fake

__all__ = ["home"]


@pytest.fixture
def configured(home: Path) -> Path:
    own(home).parent.mkdir(parents=True)
    own(home).write_text(json.dumps({"servers": {"up": fake(), "time": TIME}}))
    own(home).chmod(0o600)
    return home


def test_an_installed_entry_starts_with_the_short_path_variable_of_a_desktop_application(configured: Path) -> None:
    path = desktop(configured, {})
    assert main(["install", "claude-desktop", "--yes"]) == OK
    entry = json.loads(path.read_text())["mcpServers"]["hub"]
    assert Path(entry["command"]).is_absolute()
    assert entry["args"] == ["serve", "--config", str(own(configured))]
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    done = subprocess.run(
        [entry["command"], *entry["args"]],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        cwd="/",
        env={"HOME": str(configured), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        check=False,
    )
    answers = {answer.get("id"): answer for answer in map(json.loads, done.stdout.splitlines())}
    assert answers[1]["result"]["serverInfo"]["name"] == "mcp-hub", done.stderr
    assert answers[2]["result"]["tools"]


def test_a_preview_token_confirms_only_its_own_preview(configured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = cursor(configured, {})
    assert main(["install", "cursor", "--json"]) == UNCONFIRMED
    token = json.loads(capsys.readouterr().out)["token"]
    path.write_text(path.read_text() + "\n")
    assert main(["install", "cursor", "--confirm", token]) == STALE
    assert "hub" not in path.read_text()
    capsys.readouterr()
    assert main(["install", "cursor", "--json"]) == UNCONFIRMED
    token = json.loads(capsys.readouterr().out)["token"]
    assert main(["install", "cursor", "--confirm", token]) == OK
    assert "hub" in json.loads(path.read_text())["mcpServers"]


def test_install_is_undone_byte_for_byte(configured: Path) -> None:
    path = cursor(configured, {"time": TIME, "mine": {"command": "x"}})
    before = path.read_bytes()
    assert main(["install", "cursor", "--switch-off", "--yes"]) == OK
    assert json.loads(path.read_text())["mcpServers"].keys() == {"mine", "hub"}
    assert main(["undo", "--yes"]) == OK
    assert path.read_bytes() == before


def test_install_keeps_original_entries_unless_told_to_disable_them(
    configured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = cursor(configured, {"time": TIME})
    assert main(["install", "cursor", "--yes"]) == OK
    assert json.loads(path.read_text())["mcpServers"].keys() == {"time", "hub"}
    assert main(["install", "cursor", "--switch-off"]) == UNCONFIRMED
    assert "taken out (this client cannot switch one off), as the hub serves them: time" in capsys.readouterr().out


def test_a_second_install_changes_nothing_and_another_configuration_replaces_the_entry(
    configured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = cursor(configured, {})
    assert main(["install", "cursor", "--yes"]) == OK
    before = path.read_bytes()
    assert main(["install", "cursor", "--yes"]) == OK
    assert "has the hub already" in capsys.readouterr().out
    assert path.read_bytes() == before
    other_config = configured / "other.yaml"
    other_config.write_text("servers: {}\n")
    other_config.chmod(0o600)
    assert main(["install", "cursor", "--config", str(other_config), "--yes"]) == OK
    entries = json.loads(path.read_text())["mcpServers"]
    assert [entry["args"][-1] for entry in entries.values()] == [str(other_config)]


def test_install_does_not_replace_a_foreign_server_named_hub(
    configured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = cursor(configured, {"hub": {"command": "somebody-elses"}})
    before = path.read_bytes()
    assert main(["install", "cursor", "--yes"]) == BAD_INPUT
    assert "there is another server 'hub'" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_install_without_a_configuration_exits_2_and_suggests_setup(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cursor(home, {})
    assert main(["install", "cursor"]) == BAD_INPUT
    assert "first run: mcp-hub setup" in capsys.readouterr().err


def test_uninstall_of_a_client_without_the_hub_changes_nothing(
    configured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cursor(configured, {"time": TIME})
    assert main(["uninstall", "cursor", "--json"]) == OK
    assert json.loads(capsys.readouterr().out)["edits"] == []


@pytest.mark.parametrize("kind", ["broken", "read-only", "directory", "huge"])
def test_a_file_that_cannot_be_edited_stays_as_it_is(
    configured: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = cursor(configured, {})
    if kind == "broken":
        path.write_text('{"mcpServers": {')
    elif kind == "read-only":
        path.chmod(0o400)
    elif kind == "huge":
        path.write_text(json.dumps({"x": "y" * 2**20}))
    else:
        path.unlink()
        path.mkdir()
    before = path.read_bytes() if path.is_file() else None
    assert main(["install", "cursor", "--yes"]) == BAD_INPUT
    expected = {"broken": "not valid JSON", "read-only": "is read-only", "directory": "is not a file", "huge": "larger"}
    err = capsys.readouterr().err
    assert expected[kind] in err
    assert str(path) in err or path.name in err
    assert (path.read_bytes() if path.is_file() else None) == before


def test_for_an_uneditable_file_install_names_the_clients_own_command(
    configured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (configured / ".claude.json").write_text(json.dumps({"history": "x" * 2**20}))
    assert main(["install", "claude-code", "--yes"]) == BAD_INPUT
    err = capsys.readouterr().err
    assert "larger than 1,048,576 bytes" in err
    assert "claude mcp add --scope user hub -- /" in err
    assert str(own(configured)) in err


def test_a_file_of_another_user_is_left_alone(
    configured: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = cursor(configured, {})
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert main(["install", "cursor", "--yes"]) == BAD_INPUT
    assert "belongs to another user" in capsys.readouterr().err
    assert "hub" not in path.read_text()


def test_a_configuration_with_a_unix_socket_is_installed_over_stdio_with_a_note(
    configured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = cursor(configured, {})
    own(configured).write_text(json.dumps({"servers": {"up": fake()}, "listen": "unix:/run/mcp-hub/hub.sock"}))
    assert main(["install", "cursor", "--yes"]) == OK
    assert "over stdio: none has a URL for unix:/run/mcp-hub/hub.sock" in capsys.readouterr().out
    assert "command" in json.loads(path.read_text())["mcpServers"]["hub"]
