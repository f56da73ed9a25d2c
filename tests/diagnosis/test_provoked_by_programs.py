"""Servers that are processes and do not work: each failure is told with the code of its cure."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_hub import codes
from tests.diagnosis.looking import checked, configured, reported_codes, said, script, unused_port
from tests.fakes.client import fake


def python(text: str, **entry: Any) -> dict[str, Any]:
    """An entry whose process runs a program."""
    return {"command": sys.executable, "args": ["-c", text], **entry}


ANSWERS = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **%r}), flush=True)
"""
"""A server that answers every request alike."""
SILENT_LISTS = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        info = {"name": "silent", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
    elif asked.get("method") == "server/discover":
        error = {"code": -32601, "message": "unknown"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
"""
"""A server that answers the handshake, but no list."""
BROKEN = 'import sys\nfor line in sys.stdin: print(\'{"jsonrpc": "2.0", oops\', flush=True)'
"""A server whose answers are not valid JSON."""
ERROR = {"error": {"code": -32603, "message": "no key"}}
OLD = {"result": {"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}}
SHORT = {"deadlines": {"connect": "1s", "list": "500ms"}}


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"command": "no-such-command"}, codes.PROGRAM_MISSING),
        ({"command": "./no-such-file"}, codes.PROGRAM_MISSING),
        ({"command": "python3 -m server"}, codes.COMMAND_WITH_SPACES),
        (python("", cwd="/no/such/directory"), codes.PROGRAM_NOT_STARTED),
        (python("import sys; sys.exit('no key')"), codes.PROCESS_EXITED),
        (python("import os; os.close(1); input()"), codes.PROCESS_EXITED),
        (python("import os; os.kill(os.getpid(), 9)"), codes.PROCESS_KILLED),
        (python("import sys; sys.stdin.read()", **SHORT), codes.HANDSHAKE_LATE),
        (python(BROKEN), codes.STDOUT_NOISY),
        (python(ANSWERS % ERROR), codes.HANDSHAKE_REFUSED),
        (python(ANSWERS % OLD), codes.NO_COMMON_REVISION),
        (python(SILENT_LISTS, **SHORT), codes.LIST_LATE),
        (fake("--list-pause", "5", "--resources", '["a://b"]', **SHORT), codes.LISTS_INCOMPLETE),
        (fake("--tools", "50", max_frame="2KiB"), codes.MESSAGE_TOO_LARGE),
        (fake("--cursor-loop"), codes.LISTS_INCOMPLETE),
    ],
)
def test_a_server_that_fails_to_start_is_diagnosed(tmp_path: Path, entry: dict[str, Any], code: str) -> None:
    path = configured(tmp_path, {"a": entry})
    facts = json.loads(said("check", "--json", "--config", str(path)).out)["servers"][0]
    assert code in checked(path)
    assert code in reported_codes(path)
    assert facts["code"] == (None if code == codes.LISTS_INCOMPLETE else code)


def test_the_last_words_of_a_server_that_answers_too_late_are_shown(tmp_path: Path) -> None:
    arguments = ["-c", "echo 'waiting for the database' >&2; while read line; do :; done"]
    path = configured(tmp_path, {"a": {"command": "/bin/sh", "args": arguments, **SHORT}})
    output = said("check", "--config", str(path)).out
    assert f"its last words: waiting for the database [{codes.HANDSHAKE_LATE}]" in output


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("SEARCH_API_KEY is not set", "SEARCH_API_KEY"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "DOCKER_HOST"),
        ("dial tcp: The connection to the server localhost:8080 was refused", "KUBECONFIG"),
        ("git@host: Permission denied (publickey).", "SSH_AUTH_SOCK"),
    ],
)
def test_a_server_that_fails_without_a_variable_that_is_set_here_is_diagnosed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, name: str
) -> None:
    monkeypatch.setenv(name, "here-abcdef0123456789")
    failing = python(f"import os, sys; sys.exit({words!r} if {name!r} not in os.environ else 'something else')")
    path = configured(tmp_path, {"a": failing})
    facts = json.loads(said("check", "--json", "--config", str(path)).out)["servers"][0]
    assert facts["code"] == codes.VARIABLE_NOT_PASSED
    assert f"{{{name}: ${{{name}}}}}" in facts["problem"]
    assert "here-abcdef" not in facts["problem"]
    assert codes.VARIABLE_NOT_PASSED in reported_codes(path)
    told = configured(tmp_path, {"a": {**failing, "env": {name: f"${{{name}}}"}}})
    assert codes.PROCESS_EXITED in checked(told)


def test_a_file_that_is_not_executable_is_diagnosed(tmp_path: Path) -> None:
    (tmp_path / "server").write_text("#!/bin/sh\n")
    path = configured(tmp_path, {"a": {"command": str(tmp_path / "server")}})
    assert codes.PROGRAM_NOT_EXECUTABLE in checked(path)


def test_a_program_whose_interpreter_is_missing_is_diagnosed(tmp_path: Path) -> None:
    command = script(tmp_path, "server", "#!/no/such/interpreter\n")
    assert codes.PROGRAM_NOT_STARTED in checked(configured(tmp_path, {"a": {"command": command}}))


def npx(package: str, registry: int, directory: Path) -> dict[str, Any]:
    """An entry for npx with a registry on a port of loopback, and a cache of its own."""
    env = {
        "npm_config_registry": f"http://127.0.0.1:{registry}",
        "npm_config_cache": str(directory / "cache"),
        "npm_config_fetch_retries": "0",
        "npm_config_engine_strict": "true",
        "npm_config_update_notifier": "false",
    }
    return {"command": "npx", "args": ["-y", package], "env": env}


def test_a_package_of_npm_that_does_not_exist_is_diagnosed(tmp_path: Path) -> None:
    from tests.diagnosis.looking import answering, http

    with answering(http("404 Not Found", b"{}", Content_Type="application/json")) as url:
        port = int(url.split(":")[2].partition("/")[0])
        path = configured(tmp_path, {"a": npx("no-such-package-of-the-hub@1.0.0", port, tmp_path)})
        assert codes.PACKAGE_UNKNOWN in checked(path)


def test_a_registry_of_npm_that_does_not_answer_is_diagnosed(tmp_path: Path) -> None:
    path = configured(tmp_path, {"a": npx("no-such-package-of-the-hub@1.0.0", unused_port(), tmp_path)})
    assert codes.PACKAGES_UNREACHABLE in checked(path)


def test_a_package_that_requires_another_node_version_is_diagnosed(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    manifest = {"name": "wants", "version": "1.0.0", "bin": "server.js", "engines": {"node": ">=999"}}
    (tmp_path / "package" / "package.json").write_text(json.dumps(manifest))
    (tmp_path / "package" / "server.js").write_text("#!/usr/bin/env node\n")
    path = configured(tmp_path, {"a": npx(f"file:{tmp_path / 'package'}", unused_port(), tmp_path)})
    assert codes.NODE_TOO_OLD in checked(path)


def test_docker_without_its_daemon_is_diagnosed(tmp_path: Path) -> None:
    """The client of Docker says so itself; where it is not installed, a script says the same."""
    import shutil

    said_by_docker = "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?"
    own = script(tmp_path, "docker", f"#!/bin/sh\necho '{said_by_docker}' >&2\nexit 125\n")
    env = {"DOCKER_HOST": f"unix://{tmp_path}/no.sock", "HOME": str(tmp_path)}
    entry = {"command": shutil.which("docker") or own, "args": ["run", "-i", "--rm", "image"], "env": env}
    path = configured(tmp_path, {"a": entry})
    assert codes.DOCKER_UNAVAILABLE in checked(path)
    assert codes.DOCKER_UNAVAILABLE in reported_codes(path)


def test_a_program_found_only_on_the_shells_path_is_diagnosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin", "some-server-of-mine", "#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert codes.SHORT_PATH in reported_codes(configured(tmp_path, {"a": {"command": "some-server-of-mine"}}))
