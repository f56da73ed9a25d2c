"""A person at the command line, and a registry on loopback, for the tests of commands."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.person import Person
from tests.registry.loopback import Loopback, serving
from tests.registry.packages import use_indexes


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Person:
    home = tmp_path / "home of a person"
    home.mkdir()
    work = tmp_path / "work"
    work.mkdir()
    for name in ("MCP_HUB_CONFIG", "MCP_HUB_REGISTRY", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_CACHE_HOME", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "npm_config_registry", "NPM_CONFIG_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    node = shutil.which("npx")
    assert node is not None, "npx is needed"
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{Path(node).parent}:/usr/bin:/bin")
    # No registry by accident: one that cannot be reached, on this machine.
    monkeypatch.setenv("MCP_HUB_REGISTRY", "http://127.0.0.1:9")
    monkeypatch.chdir(work)
    return Person(home, capsys)


@pytest.fixture
def loopback(person: Person, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """A registry, and indexes of npm and PyPI, that this person's commands and launchers use."""
    with serving() as registry:
        use_indexes(registry, person.home)
        monkeypatch.setenv("MCP_HUB_REGISTRY", registry.base)
        yield registry
