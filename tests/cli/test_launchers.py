"""What listings of container images and NuGet packages start, recorded by programs that stand in for the launchers.

The command lines are those of the registry's documentation (docs/reference/server-json/generic-server-json.md of
modelcontextprotocol/registry, MIT) and of `dotnet tool exec` (learn.microsoft.com): `dnx NAME@VERSION -- ARGUMENTS`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.cli import FAILED
from tests.cli.person import Person
from tests.registry.loopback import listing

RECORDER = f"""#!{sys.executable}
import json, os, pathlib, sys
names = ("API_TOKEN", "LEVEL")
said = {{"argv": sys.argv[1:], "env": {{name: os.environ[name] for name in names if name in os.environ}}}}
pathlib.Path(__file__ + ".json").write_text(json.dumps(said))
"""


def started(
    person: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: dict[str, Any], *options: str
) -> Any:
    """Adds a listing with this package; returns what its launcher was given, None if it was not started."""
    programs = tmp_path / "programs"
    programs.mkdir()
    launcher = programs / {"oci": "docker", "nuget": "dnx"}[package["registryType"]]
    launcher.write_text(RECORDER)
    launcher.chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "registry").mkdir()
    server_listing = listing("io.github.o/it", packages=[{**package, "transport": {"type": "stdio"}}])
    (tmp_path / "registry/it.json").write_text(json.dumps(server_listing))
    monkeypatch.setenv("MCP_HUB_REGISTRY", str(tmp_path / "registry"))
    assert person.run("add", "io.github.o/it", "--yes", *options) == FAILED  # what stands in is no server
    record = Path(f"{launcher}.json")
    return json.loads(record.read_text()) if record.exists() else None


def test_arguments_of_a_nuget_package_follow_two_dashes(
    person: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = {
        "registryType": "nuget",
        "registryBaseUrl": "https://api.nuget.org/v3/index.json",
        "identifier": "Weather.Mcp",
        "version": "0.4.0-beta",
        "runtimeHint": "dnx",
        "packageArguments": [{"type": "positional", "value": "mcp"}, {"type": "positional", "value": "start"}],
        "environmentVariables": [{"name": "LEVEL", "isRequired": True}],
    }
    invocation = started(person, monkeypatch, tmp_path, package, "--set", "LEVEL=high")
    assert invocation["argv"] == ["Weather.Mcp@0.4.0-beta", "--yes", "--", "mcp", "start"]
    assert invocation["env"] == {"LEVEL": "high"}


def test_a_container_gets_mounts_and_the_names_of_its_variables(
    person: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    inputs = {"source": {"format": "filepath", "isRequired": True}, "target": {"default": "/project"}}
    package = {
        "registryType": "oci",
        "identifier": "docker.io/someone/files:1.0.2",
        "runtimeArguments": [
            {"type": "named", "name": "--mount", "value": "type=bind,src={source},dst={target}", "variables": inputs},
            {"type": "named", "name": "--network", "value": "none"},
        ],
        "packageArguments": [{"type": "positional", "value": "/project"}],
        "environmentVariables": [{"name": "API_TOKEN", "isSecret": True, "isRequired": True}],
    }
    options = ("--set", f"source={tmp_path}", "--set", "API_TOKEN=k3y-of-mine")
    invocation = started(person, monkeypatch, tmp_path, package, *options)
    mount = ["--mount", f"type=bind,src={tmp_path},dst=/project", "--network", "none"]
    image = "docker.io/someone/files:1.0.2"
    assert invocation["argv"] == ["run", "-i", "--rm", *mount, "-e", "API_TOKEN", image, "/project"]
    assert invocation["env"] == {"API_TOKEN": "k3y-of-mine"}  # its value is on no command line


@pytest.mark.parametrize(
    "words",
    [
        ["--rm", "evil/image"],
        ["--mount", "type=volume,dst=/host,volume-opt=type=none,volume-opt=o=bind,volume-opt=device=/"],
    ],
)
def test_a_container_that_runs_another_image_or_mounts_this_machine_is_not_started(
    person: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    arguments = [{"type": "positional", "value": word} for word in words]
    package = {"registryType": "oci", "identifier": "good/image:1.0.2", "runtimeArguments": arguments}
    assert started(person, monkeypatch, tmp_path, package) is None
    assert "which a listing must not set" in person.err
    assert not person.config.exists()
