"""State that a newer version has written: refused with file and versions, and left as it is."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from mcp_hub.cli import BAD_INPUT, main
from mcp_hub.config.models import Server
from mcp_hub.hub.groups import GroupStateFile
from mcp_hub.oauth.token_store import SignIn, TokenStore, TokenStoreError
from mcp_hub.version import VERSION
from tests.fakes.client import write_config

REMOTE = Server(id="remote", transport="http", url="https://remote.example/mcp", namespace="remote")
SENTENCE = f"a newer mcp-hub has written it (format 2; mcp-hub {VERSION} reads up to 1)"


def written(path: Path, value: object) -> bytes:
    path.write_text(json.dumps(value))
    path.chmod(0o600)
    return path.read_bytes()


def test_a_hub_does_not_start_with_pins_of_a_newer_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path, {"up": {"command": "never-started"}}, pins="enforce")
    pins = config.with_name("servers.pins.json")
    before = written(pins, {"format": 2, "servers": {}})
    assert main(["serve", "--http", "--port", "0", "--config", str(config)]) == BAD_INPUT
    err = capsys.readouterr().err
    assert SENTENCE in err
    assert str(pins) in err
    assert pins.read_bytes() == before


def test_tokens_of_a_newer_version_are_neither_used_nor_replaced(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    store.save(REMOTE, SignIn(tokens={"access_token": "a"}))
    (file,) = tmp_path.glob("*.json")
    before = written(file, {**json.loads(file.read_text()), "format": 2})
    with pytest.raises(TokenStoreError) as refused:
        store.load(REMOTE)
    assert SENTENCE in str(refused.value)
    assert str(file) in str(refused.value)
    with pytest.raises(TokenStoreError, match="format 2"):
        store.save(REMOTE, SignIn(tokens={"access_token": "b"}))
    assert file.read_bytes() == before


def test_groups_of_a_newer_version_are_ignored_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "groups.json"
    before = written(file, {"format": 2, "groups": {"few": True}})
    state = GroupStateFile(file)
    with caplog.at_level(logging.WARNING):
        assert state.read() == {}
    assert SENTENCE in caplog.text
    state.save({"few": False})
    assert file.read_bytes() == before
