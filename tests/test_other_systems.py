"""The modules of the hub, and a hub at work, where Python lacks what it lacks on Windows or on macOS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PATIENCE = 240


def other_system_argv(system: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.fakes.other_system", system, *arguments]


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_every_module_is_imported_on_another_system(system: str) -> None:
    argv = other_system_argv(system, "import")
    completed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (completed.returncode, completed.stdout) == (0, ""), completed.stdout + completed.stderr[-2000:]


@contextmanager
def serving(system: str, folder: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Runs a hub over stdio, which has a skill of its own."""
    skill = folder / "skills" / "greeting"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: greeting\ndescription: How to greet\n---\nSay hello.\n")
    config = folder / "servers.yaml"
    config.write_text("servers: {}\nskills: [skills]\n")
    config.chmod(0o600)
    pipe = subprocess.PIPE
    argv = other_system_argv(system, "run", "serve", "--config", str(config))
    with subprocess.Popen(argv, cwd=ROOT, env=env, stdin=pipe, stdout=pipe, text=True) as hub:
        try:
            yield hub
        finally:
            hub.kill()


def response_to(hub: subprocess.Popen[str], number: int, method: str, params: object) -> dict[str, object]:
    assert hub.stdin is not None
    assert hub.stdout is not None
    hub.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
    hub.stdin.flush()
    for line in hub.stdout:
        message = json.loads(line)
        if message.get("id") == number:
            return message
    raise AssertionError("it closed its stdout")


def answer_of(argv: Sequence[str], env: dict[str, str]) -> str:
    return subprocess.run(
        argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True
    ).stdout


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_a_hub_answers_its_client_and_the_commands_of_its_user(system: str, tmp_path: Path) -> None:
    env = {**os.environ, "HOME": str(tmp_path), "MCP_HUB_RUNTIME_DIR": str(tmp_path / "run")}
    client = {"name": "test", "version": "1"}
    with serving(system, tmp_path, env) as hub:
        response_to(hub, 1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        assert "greeting" in json.dumps(response_to(hub, 2, "resources/list", {})["result"])
        (facts,) = json.loads(answer_of(other_system_argv(system, "run", "status", "--json"), env))
        assert facts["pid"] == hub.pid
        (socket,) = (tmp_path / "run").iterdir()
        assert socket.is_file() == (system == "win32")
        assert hub.stdin is not None
        hub.stdin.close()
        assert hub.wait(PATIENCE) == 0
    assert list((tmp_path / "run").iterdir()) == []
