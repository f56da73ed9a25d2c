"""Files of client programs that do not start this hub as they should: each is told with the code of its cure."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import codes
from mcp_hub.diagnosis.installation import own_command
from tests.diagnosis.looking import configured, findings, reported_codes, said, script
from tests.fakes.client import fake

HUB = str(own_command())


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user who has Cursor and Codex."""
    path = tmp_path / "home of a user"
    (path / ".cursor").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    return path


def cursor(home: Path, **servers: Any) -> None:
    (home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": servers}))


def entry(config: Path, command: str = HUB, **fields: Any) -> dict[str, Any]:
    return {"command": command, "args": ["serve", "--config", str(config)], **fields}


def text_of(config: Path, code: str) -> str:
    """Returns the text of the findings of the doctor that have a code."""
    return " ".join(finding["text"] for finding in findings(config) if finding["code"] == code)


def test_a_client_that_starts_this_hub_is_reported_as_ok(tmp_path: Path, home: Path) -> None:
    journal = tmp_path / "journal"
    config = configured(tmp_path, {"up": fake("--journal", str(journal))})
    cursor(home, hub=entry(config))
    assert said("check", "--config", str(config)).code == 0
    started = len(journal.read_text().splitlines())
    clients = [finding for finding in findings(config) if finding["about"] == "Cursor"]
    assert [finding["level"] for finding in clients] == ["ok"]
    assert "starts the hub in" in clients[0]["text"]
    again = len(journal.read_text().splitlines())
    assert again == 2 * started, "the doctor itself connects to servers, the hub of the client does not"


def test_a_file_of_a_client_that_is_broken_is_diagnosed(tmp_path: Path, home: Path) -> None:
    (home / ".cursor" / "mcp.json").write_text('{"mcpServers": {')
    assert codes.CLIENT_FILE_BROKEN in reported_codes(configured(tmp_path, {}))


def test_clients_without_the_hub_are_diagnosed(tmp_path: Path, home: Path) -> None:
    cursor(home, other={"command": "true"})
    assert "Cursor" in text_of(configured(tmp_path, {}), codes.CLIENT_WITHOUT_HUB)


@pytest.mark.parametrize("command", ["/no/such/venv/bin/mcp-hub", "mcp-hub"])
def test_a_hub_that_the_client_cannot_find_is_diagnosed(tmp_path: Path, home: Path, command: str) -> None:
    config = configured(tmp_path, {})
    cursor(home, hub=entry(config, command))
    assert HUB in text_of(config, codes.CLIENT_COMMAND_MISSING)


@pytest.mark.parametrize(
    "args", [["serve", "--config", "/no/such/servers.yaml"], ["serve", "--config=~no-such-user/x"], ["serve"]]
)
def test_a_configuration_that_does_not_exist_is_diagnosed(tmp_path: Path, home: Path, args: list[str]) -> None:
    cursor(home, hub={"command": HUB, "args": args})
    assert codes.CLIENT_CONFIGURATION in reported_codes(configured(tmp_path, {}))


def test_a_hub_that_is_switched_off_in_its_client_is_diagnosed(tmp_path: Path, home: Path) -> None:
    config = configured(tmp_path, {})
    (home / ".codex").mkdir()
    toml = f"[mcp_servers.hub]\ncommand = {json.dumps(HUB)}\nargs = ['serve', '--config', {json.dumps(str(config))}]\n"
    (home / ".codex" / "config.toml").write_text(f"{toml}enabled = false\n")
    assert codes.CLIENT_HUB_OFF in reported_codes(config)


def test_a_hub_that_does_not_start_is_diagnosed(tmp_path: Path, home: Path) -> None:
    config = configured(tmp_path, {})
    cursor(home, hub=entry(config, script(tmp_path, "mcp-hub", "#!/bin/sh\necho no module >&2\nexit 1\n")))
    assert "no module" in text_of(config, codes.CLIENT_START_FAILED)


def test_a_hub_that_starts_too_slowly_is_diagnosed(tmp_path: Path, home: Path) -> None:
    """Codex waits ten seconds."""
    config = configured(tmp_path, {})
    (home / ".codex").mkdir()
    slow = script(tmp_path, "mcp-hub", f'#!/bin/sh\nsleep 6\nexec {sys.executable} -m mcp_hub "$@"\n')
    toml = f"[mcp_servers.hub]\ncommand = {json.dumps(slow)}\nargs = ['serve', '--config', {json.dumps(str(config))}]\n"
    (home / ".codex" / "config.toml").write_text(toml)
    assert codes.CLIENT_START_SLOW in reported_codes(config)


def test_a_server_that_a_client_starts_in_addition_to_the_hub_is_diagnosed(tmp_path: Path, home: Path) -> None:
    config = configured(tmp_path, {"up": fake()})
    cursor(home, hub=entry(config), direct=fake())
    assert "direct" in text_of(config, codes.CLIENT_DUPLICATES)


def test_texts_of_a_client_file_are_printed_without_control_characters_or_secrets(tmp_path: Path, home: Path) -> None:
    config = configured(tmp_path, {})
    cursor(home, **{"hub\x1b[31m": {**entry(config, "/no/\x1b]8;;x\x07mcp-hub"), "env": {"API_KEY": "canary-4711"}}})
    done = said("doctor", "--config", str(config))
    assert "canary-4711" not in done.out + done.err
    assert "\x1b" not in done.out + done.err
    assert "\x07" not in done.out + done.err
