"""What an imported server gets of the variables that it got from its client."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp_hub.cli import OK, UNCONFIRMED
from tests.cli.person import Person
from tests.fakes.client import FAKE

LOCATIONS = {
    "DISPLAY": ":7",
    "WAYLAND_DISPLAY": "wayland-7",
    "JAVA_HOME": "/opt/java",
    "NVM_DIR": "/opt/nvm",
    "GOPATH": "/opt/go",
    "CARGO_HOME": "/opt/cargo",
    "npm_config_cache": "/opt/cache",
    "UV_CACHE_DIR": "/opt/uv",
    "PIP_CACHE_DIR": "/opt/pip",
}
CAPABILITIES = {
    "SSH_AUTH_SOCK": "/run/agent",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus",
    "DOCKER_HOST": "unix:///run/user/1000/docker.sock",
    "KUBECONFIG": "/opt/kube",
    "AWS_PROFILE": "work",
}
OTHERS = {
    "GITHUB_TOKEN": "t-secret",
    "SEARCH_API_KEY": "k-secret",
    "MY_SETTING": "mine",
    "PIP_INDEX_URL": "http://me:pw-secret@index.example",
}
SHELL = LOCATIONS | CAPABILITIES | OTHERS


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 18 variables of a person's shell."""
    for name, value in SHELL.items():
        monkeypatch.setenv(name, value)


def server(seen: Path, program: str = "/bin/sh") -> dict[str, Any]:
    """A server that writes its environment to a file."""
    return {"command": program, "args": ["-c", f"env > {shlex.quote(str(seen))}; exec {sys.executable} {FAKE}"]}


def claude_code(person: Person, servers: dict[str, Any]) -> None:
    (person.home / ".claude.json").write_text(json.dumps({"mcpServers": servers}))


def variables(seen: Path) -> dict[str, str]:
    """What a server got of the person's shell."""
    lines = dict(line.partition("=")[::2] for line in seen.read_text().splitlines())
    return {name: value for name, value in lines.items() if name in SHELL}


def entries(person: Person) -> dict[str, Any]:
    servers: dict[str, Any] = yaml.safe_load(person.config.read_text())["servers"]
    return servers


@pytest.mark.parametrize("command", ["setup", "import"])
def test_an_imported_server_gets_the_locations_and_capabilities_that_its_client_passed(
    person: Person, tmp_path: Path, command: str
) -> None:
    seen = tmp_path / "seen"
    claude_code(person, {"mine": {**server(seen), "env": {"AWS_PROFILE": "home"}}})
    assert person.run(command) == UNCONFIRMED
    assert "DOCKER_HOST: ${DOCKER_HOST}" in person.out
    shown = person.out + person.err
    assert all(name in shown for name in OTHERS)
    assert "secret@" not in shown
    assert "-secret" not in shown
    assert person.run(command, "--yes") == OK
    expected = {name: f"${{{name}}}" for name in CAPABILITIES} | {"AWS_PROFILE": "home"}
    assert entries(person)["mine"]["env"] == expected
    assert person.run("check") == OK
    assert variables(seen) == LOCATIONS | CAPABILITIES | {"AWS_PROFILE": "home"}


def test_a_launcher_that_needs_a_capability_gets_it_without_naming_it(person: Person, tmp_path: Path) -> None:
    docker, seen = tmp_path / "docker", tmp_path / "seen"
    docker.symlink_to("/bin/sh")
    claude_code(person, {"container": server(seen, str(docker))})
    assert person.run("import", "--yes") == OK
    assert set(entries(person)["container"]["env"]) == {"KUBECONFIG", "AWS_PROFILE"}
    assert person.run("check") == OK
    assert variables(seen) == LOCATIONS | CAPABILITIES


def test_an_entry_of_a_client_with_a_small_environment_gets_no_capabilities(person: Person, tmp_path: Path) -> None:
    path = person.home / ".config/Claude/claude_desktop_config.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"mcpServers": {"mine": server(tmp_path / "seen")}}))
    assert person.run("import", "--yes") == OK
    assert "env" not in entries(person)["mine"]
    assert not any(name in person.out + person.err for name in OTHERS)


def test_gemini_cli_passes_nothing_whose_name_looks_secret(person: Person, tmp_path: Path) -> None:
    (person.home / ".gemini").mkdir()
    (person.home / ".gemini/settings.json").write_text(json.dumps({"mcpServers": {"mine": server(tmp_path / "seen")}}))
    assert person.run("import", "--yes", "--json") == OK
    facts = json.loads(person.out)
    assert facts["servers"][0]["inherits"] == sorted({*CAPABILITIES} - {"SSH_AUTH_SOCK"})
    (note,) = facts["left_out"]
    assert "MY_SETTING" in note
    assert "GITHUB_TOKEN" not in note


def test_an_entry_that_names_its_capabilities_is_the_same_server_as_in_its_client(
    person: Person, tmp_path: Path
) -> None:
    claude_code(person, {"mine": server(tmp_path / "seen")})
    assert person.run("import", "--yes") == OK
    assert person.run("import", "--json") == OK
    assert [row["action"] for row in json.loads(person.out)["servers"]] == ["same"]


def test_a_server_starts_without_a_capability_that_is_not_set(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    claude_code(person, {"mine": server(seen)})
    assert person.run("import", "--yes") == OK
    monkeypatch.delenv("SSH_AUTH_SOCK")
    assert person.run("check") == OK
    assert "SSH_AUTH_SOCK" not in variables(seen)
    assert variables(seen)["KUBECONFIG"] == CAPABILITIES["KUBECONFIG"]
    person.writes(json.dumps({"servers": {"mine": {**server(seen), "env": {"NO_SUCH_KEY": "${NO_SUCH_KEY}"}}}}))
    assert person.run("check", "--strict") != OK


def test_a_server_on_a_network_gets_no_variables(person: Person) -> None:
    claude_code(person, {"web": {"type": "http", "url": "http://127.0.0.1:9/mcp"}})
    assert person.run("import", "--yes") == OK
    assert "env" not in entries(person)["web"]
    assert "MY_SETTING" not in person.err
