"""The bundle for Claude Desktop, the entry for the registry and the container file fit the program they distribute."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.registry.launch import entry_of, missing_inputs
from mcp_hub.registry.server_json import read_answer
from mcp_hub.version import VERSION
from tests.dependencies.environments import PLAIN, ROOT, UV, WHEELS
from tests.dependencies.index import indexing
from tests.fakes.client import PATIENCE, fake, spawned, write_config
from tests.peers.programs import NODE, NPM, installed

pytestmark = pytest.mark.anyio


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def ran(*argv: str | Path, **env: str) -> str:
    done = subprocess.run(
        [*map(str, argv)], env={**os.environ, **env}, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE * 3,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_package_manifest_has_the_programs_version() -> None:
    server, manifest = read(ROOT / "server.json"), read(ROOT / "packaging/manifest.json")
    (package,) = server["packages"]
    assert {server["version"], package["version"], manifest["version"]} == {VERSION}
    assert package["identifier"] in (ROOT / "pyproject.toml").read_text()
    newest = re.search(r"^## (\S+) - (unreleased|\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == VERSION


def test_the_entry_of_the_registry_starts_the_hub_with_a_configuration() -> None:
    listing = read_answer(read(ROOT / "server.json"), "here")
    (offer,) = listing.offers
    assert [item.name for item in missing_inputs(offer, {})] == ["config"]
    arguments = ["serve", "--config", "/a/servers.yaml"]
    expected = {"command": "uvx", "args": [f"mcp-hub-gateway@{VERSION}", *arguments]}
    assert entry_of(offer, {"config": "/a/servers.yaml"}) == expected


def test_the_readme_names_the_entry_of_the_registry_so_that_the_registry_can_verify_it() -> None:
    assert f"mcp-name: {read(ROOT / 'server.json')['name']}" in (ROOT / "README.md").read_text()


async def test_the_bundle_is_valid_and_starts_a_hub_from_the_files_that_it_locks(tmp_path: Path) -> None:
    target, unpacked = tmp_path / "mcp-hub.mcpb", tmp_path / "a directory"
    mcpb = installed(NPM / ".bin" / "mcpb")
    config = write_config(tmp_path, {"up": fake()})
    with indexing(list(WHEELS.glob("*.whl"))) as index:
        uv = {
            "UV_DEFAULT_INDEX": f"{index.url}/simple/",
            "UV_CACHE_DIR": str(tmp_path / "cache"),
            "UV_PYTHON": sys.executable,
        }
        ran("scripts/bundle", target, **uv)
        ran(installed(NODE), mcpb, "unpack", target, unpacked)
        ran(installed(NODE), mcpb, "validate", unpacked / "manifest.json")
        start = read(unpacked / "manifest.json")["server"]["mcp_config"]
        assert start["command"] == "uv"
        arguments = [
            argument.replace("${__dirname}", str(unpacked)).replace("${user_config.config}", str(config))
            for argument in start["args"]
        ]
        async with spawned([str(UV), *arguments], env={**PLAIN, **uv, "UV_NO_CONFIG": "1"}) as client:
            await client.initialize()
            assert "up__echo" in await client.tool_names()


def test_the_container_runs_unprivileged_and_has_a_health_check() -> None:
    text = (ROOT / "Dockerfile").read_text()
    last = text[text.rindex("\nFROM ") :]
    assert re.search(r"^USER (?!0|root)\w+$", last, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK .*(\\\n.*)*/healthz", last, re.MULTILINE)
    ran(Path(sys.executable).with_name("hadolint"), "Dockerfile")


def test_files_that_the_container_build_needs_are_not_ignored() -> None:
    included = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert {name for line in copied for name in line.split()} == included
