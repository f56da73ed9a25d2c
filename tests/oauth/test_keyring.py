"""`${keyring:SERVICE/USERNAME}`: what a server is given out of a keyring, and what is said where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import pytest
from keyring.backends.fail import Keyring as NoKeyring

from mcp_hub.hub.composition import load_config
from tests.fakes.client import HUB, PATIENCE, write_config
from tests.oauth.file_keyring import BACKEND, FileKeyring

CANARY = "canary-in-a-keyring-2718"
MANY = {"url": "https://mcp.example/", "headers": {"X-Key": "${keyring:https://mcp.example/a/me}"}}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileKeyring]:
    monkeypatch.setenv("TEST_KEYRING", str(tmp_path / "ring.json"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", BACKEND)
    before = keyring.get_keyring()
    backend = FileKeyring()
    keyring.set_keyring(backend)
    yield backend
    keyring.set_keyring(before)


def reason(tmp_path: Path, entry: dict[str, Any]) -> str:
    (server,) = load_config(write_config(tmp_path, {"a": entry})).servers
    assert not server.enabled
    assert server.disabled_reason is not None
    return server.disabled_reason


def test_headers_and_environment_get_their_values_from_the_keyring(tmp_path: Path, kept: FileKeyring) -> None:
    kept.set_password("https://mcp.example/a", "me", CANARY)
    kept.set_password("git", "token", "another-secret")
    command = {"command": "x", "env": {"TOKEN": "t-${keyring:git/token}"}}
    remote, local = load_config(write_config(tmp_path, {"a": MANY, "b": command})).servers
    assert remote.headers["X-Key"].get_secret_value() == CANARY
    assert local.env["TOKEN"].get_secret_value() == "t-another-secret"


def test_a_missing_keyring_entry_disables_the_server_with_advice(tmp_path: Path, kept: FileKeyring) -> None:
    assert "keyring set SERVICE USERNAME" in reason(tmp_path, MANY)


def test_a_locked_keyring_is_reported(tmp_path: Path, kept: FileKeyring) -> None:
    (tmp_path / "ring.locked").touch()
    assert "the keyring is locked; unlock it" in reason(tmp_path, MANY)


def test_without_a_keyring_the_error_names_the_variable_that_selects_a_backend(
    tmp_path: Path, kept: FileKeyring
) -> None:
    keyring.set_keyring(NoKeyring())
    assert "PYTHON_KEYRING_BACKEND" in reason(tmp_path, MANY)


@pytest.mark.parametrize("reference", ["${keyring:}", "${keyring:name}", "${keyring:/me}", "${keyring:service/}"])
def test_a_reference_names_service_and_user(tmp_path: Path, kept: FileKeyring, reference: str) -> None:
    assert "${keyring:SERVICE/USERNAME}" in reason(tmp_path, {"command": "x", "env": {"A": reference}})


def test_a_process_reads_the_keyring_and_prints_no_secret_of_it(tmp_path: Path, kept: FileKeyring) -> None:
    kept.set_password("s", "u", CANARY)
    script = f"import os, sys; sys.exit('I have ' + os.environ['TOKEN'] + ', {'x' * 3}')"
    entry = {"command": sys.executable, "args": ["-c", script], "env": {"TOKEN": "${keyring:s/u}"}}
    config = write_config(tmp_path, {"a": entry})
    done = subprocess.run(
        [*HUB, "check", "--json", "-vv", "--config", str(config)], capture_output=True, text=True, timeout=PATIENCE
    )
    (fact,) = json.loads(done.stdout)["servers"]
    assert "I have ***, xxx" in fact["problem"]
    assert CANARY not in done.stdout + done.stderr


def test_a_keyring_backend_that_cannot_be_loaded_is_reported_without_a_traceback(
    tmp_path: Path, kept: FileKeyring
) -> None:
    config = write_config(tmp_path, {"a": MANY})
    done = subprocess.run(
        [*HUB, "check", "--json", "--config", str(config)], capture_output=True, text=True, timeout=PATIENCE,
        env={"PYTHON_KEYRING_BACKEND": "no.such.Backend", "PATH": "/usr/bin"},
    )  # fmt: skip
    (fact,) = json.loads(done.stdout)["servers"]
    assert "the keyring cannot be loaded" in fact["problem"]
    assert "Traceback" not in done.stderr
