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
