"""`mcp-hub` without a command says where the user stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.cli import main
from tests.fakes.client import fake, hub, write_config


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has nothing yet, in an empty directory."""
    directory = tmp_path / "home"
    directory.mkdir()
    for name in ("MCP_HUB_CONFIG", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(directory))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("MCP_HUB_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.chdir(directory)
    return directory


def facts(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_overview_without_a_configuration_says_how_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    output = capsys.readouterr().out
    assert "configuration  none yet\n" in output
    assert "running        no hub\n" in output
    overview = facts(capsys)
    assert overview["configuration"]["path"] is None
    assert overview["next"][0]["command"] == "mcp-hub setup"


def test_overview_lists_the_clients_that_have_the_hub(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_config(home, {"a": fake()})
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text("{}")
    assert main(["install", "cursor", "--yes", "--config", str(file)]) == 0
    (home / ".codeium/windsurf").mkdir(parents=True)
    capsys.readouterr()
    clients = {client["client"]: client["has_hub"] for client in facts(capsys)["clients"]}
    assert (clients["cursor"], clients["windsurf"]) == (True, False)
    assert facts(capsys)["next"][2]["command"] == "mcp-hub install windsurf"


def test_overview_counts_the_servers_of_the_file_in_use(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_config(home, {"a": fake(), "b": fake(enabled=False)})
    file.rename(home / "servers.json")
    configuration = facts(capsys)["configuration"]
    assert (configuration["servers"], configuration["off"], configuration["problem"]) == (2, 1, None)
    assert main([]) == 0
    assert "servers.json: 2 servers, 1 of them switched off\n" in capsys.readouterr().out


def test_overview_names_an_invalid_file_with_its_first_error(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = home / "servers.yaml"
    file.write_text("on_conflict: fight\nservers: {a: {comand: x}}\n")
    file.chmod(0o600)
    overview = facts(capsys)
    assert "on_conflict: must be one of" in overview["configuration"]["problem"]
    assert overview["next"][0]["command"] == "mcp-hub doctor"
    assert main([]) == 0
    assert "servers.yaml cannot be used: " in capsys.readouterr().out


@pytest.mark.anyio
async def test_overview_names_a_running_hub_with_its_file_and_tools(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with hub(home, {"a": fake()}) as client:
        await client.tool_names()
        overview = facts(capsys)
    (running,) = overview["running"]
    assert overview["next"][0]["command"] == "mcp-hub open"
    assert running["configuration"] == str(home / "servers.json")
    assert running["tools"] == 15
