"""Every form of variable of every dialect means the same in the file that an import writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.clients import Machine
from mcp_hub.clients.detection import read_client_file
from mcp_hub.clients.imports import plan_import
from mcp_hub.editing.journal import Journal
from mcp_hub.editing.secret_store import SecretStore
from mcp_hub.editing.server_file import ServerFile

FORMS = [
    (".gemini/settings.json", "mcpServers", "$NAME"),
    (".gemini/settings.json", "mcpServers", "a${NAME}b"),
    (".gemini/settings.json", "mcpServers", "$${NAME}"),
    (".cursor/mcp.json", "mcpServers", "${env:NAME}"),
    (".cursor/mcp.json", "mcpServers", "$NAME"),
    (".cursor/mcp.json", "mcpServers", "${userHome}/x"),
    (".cursor/mcp.json", "mcpServers", "${workspaceFolder}/x"),
    ("opencode.json", "mcp", "{env:NAME}"),
    ("opencode.json", "mcp", "{file:value.txt}"),
    ("mcp.json", "servers", "${file:value.txt}"),
    ("mcp.json", "servers", "${UNSET:-fallback}"),
    ("mcp.json", "servers", "${{ secrets.NAME }}"),
]


@pytest.mark.parametrize(
    ("name", "environ"),
    [
        (".config/Code/User/mcp.json", {}),
        (".cursor/mcp.json", {}),
        ("Library/Application Support/Code/User/mcp.json", {}),
        ("moved/Code/User/mcp.json", {"XDG_CONFIG_HOME": "moved"}),
        (".config/mcp-hub/servers.json", {}),
    ],
)
def test_the_open_folder_of_a_client_is_not_the_directory_of_its_settings(
    tmp_path: Path, name: str, environ: dict[str, str]
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    files = {"command": "npx", "args": ["server-filesystem", "${workspaceFolder}"]}
    path.write_text(json.dumps({"servers": {"files": files, "other": {"command": "x"}}}))
    path.chmod(0o600)
    machine = Machine("linux", tmp_path, {key: str(tmp_path / value) for key, value in environ.items()})
    before = read_client_file(path, machine)
    target = tmp_path / ".config/mcp-hub/own.yaml"
    plan = plan_import([before], ServerFile.open(target), SecretStore(tmp_path / "s", in_keyring=False), machine)
    Journal(tmp_path / "journal").perform("import", plan.edits)
    for file in (before, read_client_file(target, machine)):
        assert [server.server.enabled for server in file.servers if server.server is not None] == [False, True]
        assert "the folder that is open" in (file.servers[0].problem or "")


def test_a_project_file_means_its_own_folder_also_below_a_directory_with_a_dot(tmp_path: Path) -> None:
    path = tmp_path / ".dotfiles/work/.vscode/mcp.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"servers": {"a": {"command": "x", "args": ["${workspaceFolder}"]}}}))
    path.chmod(0o600)
    (found,) = read_client_file(path, Machine("linux", tmp_path, {})).servers
    assert found.server is not None
    assert found.server.args == (str(tmp_path / ".dotfiles/work"),)


@pytest.mark.parametrize(("name", "root", "text"), FORMS)
def test_a_variable_of_a_client_file_expands_the_same_after_an_import(
    tmp_path: Path, name: str, root: str, text: str
) -> None:
    path = tmp_path / "project" / name
    path.parent.mkdir(parents=True)
    (path.parent / "value.txt").write_text("of a file")
    (path.parent / "value.txt").chmod(0o600)
    env = "environment" if root == "mcp" else "env"
    entry: dict[str, Any] = {"command": ["x"] if root == "mcp" else "x", env: {"A": text}}
    if ".gemini" in name:
        entry["trust"] = False
    path.write_text(json.dumps({root: {"one": entry}}))
    path.chmod(0o600)
    machine = Machine("linux", tmp_path, {"NAME": "of a variable"})
    before = read_client_file(path, machine)
    target = tmp_path / "own" / "servers.yaml"
    plan = plan_import([before], ServerFile.open(target), SecretStore(tmp_path / "s", in_keyring=False), machine)
    Journal(tmp_path / "journal").perform("import", plan.edits)
    (old,), (new,) = before.servers, read_client_file(target, machine).servers
    assert old.server is not None
    assert new.server is not None
    assert new.identity == old.identity
    assert new.server.env["A"].get_secret_value() == old.server.env["A"].get_secret_value()
