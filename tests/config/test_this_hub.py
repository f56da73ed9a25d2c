"""Entries that look like the hub that reads them, and are not; the other way round is in tests/hub."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from mcp_hub.errors import ConfigError
from mcp_hub.hub.composition import read_config

COMMAND = str(Path(sys.executable).with_name("mcp-hub"))


def written(directory: Path, entry: dict[str, object], **root: object) -> Path:
    path = directory / "servers.json"
    path.write_text(json.dumps({"servers": {"hub": entry}, **root}))
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    "words",
    [
        [COMMAND, "serve", "--config", "other.json"],
        [COMMAND, "serve"],
        [COMMAND, "tools", "--config", "servers.json"],
        [COMMAND, "--port", "37373", "--config", "servers.json"],
        [COMMAND, "serve", "--config"],
        [COMMAND, "serve", "--config", "x" * 5000],
        ["some-server", "serve", "--config", "servers.json"],
        [sys.executable, "-m", "mcp_hub.servers", "serve", "--config", "servers.json"],
        ["sh", "-c", "mcp-hub serve --config servers.json"],
    ],
)
def test_a_command_that_does_not_name_this_file_is_kept(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "other.json").touch()
    directory = tmp_path / "elsewhere" if words[1:] == ["serve"] else tmp_path
    entry = {"command": words[0], "args": words[1:], "cwd": str(directory), "env": {"XDG_CONFIG_HOME": str(tmp_path)}}
    loaded = read_config(written(tmp_path, entry))
    assert loaded.config.servers[0].enabled
    assert not [line for line in loaded.warnings if "this hub itself" in line]


def test_a_tilde_in_the_command_of_an_entry_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    entry = {"command": COMMAND, "args": ["serve", "--config", "~/servers.json"]}
    loaded = read_config(written(tmp_path, entry))
    assert not loaded.config.servers[0].enabled
    assert loaded.warnings == ("servers.json:1: servers.hub: is this hub itself; it is left out",)


def test_a_disabled_entry_is_not_reported_as_this_hub(tmp_path: Path) -> None:
    entry = {"command": COMMAND, "args": ["serve", "--config", "servers.json"], "cwd": str(tmp_path), "disabled": True}
    assert not read_config(written(tmp_path, entry)).warnings


def test_the_number_of_hubs_in_a_row_is_read_and_checked(tmp_path: Path) -> None:
    entry = {"command": "x"}
    assert read_config(written(tmp_path, entry)).config.max_hub_depth == 4
    assert read_config(written(tmp_path, entry, max_hub_depth=7)).config.max_hub_depth == 7
    for wrong in (0, -1, "many", True, 1.5):
        with pytest.raises(ConfigError, match="max_hub_depth: must be"):
            read_config(written(tmp_path, entry, max_hub_depth=wrong))
