"""`mcp-hub check` says what is executed, which packages are not pinned, and where secrets stand in plain text."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.config.package_specs import find_unpinned_packages
from mcp_hub.hub.composition import read_config
from tests.cli.test_commands import run
from tests.fakes.client import FAKE, fake, write_config

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("words", "loose"),
    [
        ("npx thing", ["thing"]),
        ("npx -y thing", ["thing"]),
        ("npx --yes thing@latest --port 1", ["thing@latest"]),
        ("npx -y thing@1.2.3", []),
        ("npx -y thing@1.2", ["thing@1.2"]),
        ("npx -y thing@^1.2.3", ["thing@^1.2.3"]),
        ("npx -y thing@1.2.3-beta.1", []),
        ("npx -y @scope/thing", ["@scope/thing"]),
        ("npx -y @scope/thing@latest", ["@scope/thing@latest"]),
        ("npx -y @scope/thing@2026.8.31 dir", []),
        ("npx -p thing -c thing", ["thing"]),
        ("npx --package=thing@1.2.3 other", []),
        ("npx --package thing --package more@1.0.0 run", ["thing"]),
        ("npx --registry http://127.0.0.1 -- thing", ["thing"]),
        ("npx -y github:a/b", ["github:a/b"]),
        (f"npx -y github:a/b#{COMMIT}", []),
        ("npx -y alias@npm:thing@1.2.3", []),
        ("npx -y alias@npm:thing", ["alias@npm:thing"]),
        ("npx ./local", []),
        ("/usr/local/bin/npx -y thing", ["thing"]),
        ("C:\\node\\npx.cmd -y thing", ["thing"]),
        ("cmd /c npx -y thing", ["thing"]),
        ("env A=b npx -y thing", ["thing"]),
        ("bunx thing", ["thing"]),
        ("bunx --bun thing@1.0.0", []),
        ("npm exec -- thing", ["thing"]),
        ("npm install thing", []),
        ("pnpm dlx thing", ["thing"]),
        ("uvx thing", ["thing"]),
        ("uvx thing==1.2", []),
        ("uvx thing@1.2.3", []),
        ("uvx thing@latest", ["thing@latest"]),
        ("uvx thing==1.*", ["thing==1.*"]),
        ("uvx thing>=1.2", ["thing>=1.2"]),
        ("uvx --from thing==1.2 run", []),
        ("uvx --from thing run", ["thing"]),
        ("uvx --from=thing[cli]==1.2 run", []),
        ("uvx --python 3.12 thing", ["thing"]),
        ("uvx --with extra thing==1.0", ["extra"]),
        ("uvx --from git+https://example.org/a run", ["git+https://example.org/a"]),
        (f"uvx --from git+https://example.org/a@{COMMIT} run", []),
        ("uvx --from ./here run", []),
        ("uv tool run thing", ["thing"]),
        ("uv run thing.py", []),
        ("pipx run thing", ["thing"]),
        ("pipx run --spec thing==1.0 run", []),
        ("pipx run --spec thing run", ["thing"]),
        ("pipx run --python 3.12 thing==1", []),
        ("pipx install thing", []),
        ("python -m thing", []),
        ("npx", []),
        ("npx -y", []),
        ("uvx --from", [""]),
    ],
)
def test_unpinned_packages_are_found_in_every_notation(words: str, loose: list[str]) -> None:
    command, *args = words.split()
    assert list(find_unpinned_packages(command, tuple(args))) == loose


def launcher(directory: Path, name: str) -> str:
    """A program of that name that runs the scripted server, and fetches nothing."""
    path = directory / name
    path.write_text(f"#!/bin/sh\nexec {sys.executable} {FAKE}\n")
    path.chmod(0o700)
    return str(path)


def test_only_check_warns_of_unpinned_packages(tmp_path: Path) -> None:
    npx = launcher(tmp_path, "npx")
    servers = {
        "loose": {"command": npx, "args": ["-y", "thing"]},
        "fast": {"command": npx, "args": ["-y", "thing@1.2.3"]},
        "off": {"command": npx, "args": ["-y", "other"], "enabled": False},
    }
    config = str(write_config(tmp_path, servers))
    done = run("check", "--config", config)
    assert done.returncode == 0
    assert re.findall(r"servers\.(\w+): '(\S+)' is not pinned", done.stderr) == [("loose", "thing")]
    assert "is not pinned" not in run("tools", "--config", config).stderr


SECRET = "s3cr3t-v4lue-0f-a-t0ken"
GITHUB = "ghp_" + "a1B2" * 9


@pytest.mark.parametrize(
    ("entry", "where"),
    [
        ({"env": {"API_TOKEN": SECRET}}, ["env.API_TOKEN"]),
        ({"env": {"ANYTHING": GITHUB}}, ["env.ANYTHING"]),
        ({"env": {"DB_PASSWORD": SECRET, "LEVEL": "debug"}}, ["env.DB_PASSWORD"]),
        ({"env": ["API_KEY=" + SECRET]}, ["env[0]"]),
        ({"env": {"API_TOKEN": "${HOME}"}}, []),
        ({"env": {"API_TOKEN": "${UNSET_HERE:-x}"}}, []),
        ({"env": {"API_TOKEN": ""}}, []),
        ({"env": {"API_TOKEN": "<your token>"}}, []),
        ({"env": {"API_TOKEN": "YOUR_API_TOKEN"}}, []),
        ({"env": {"SSH_KEY": "~/.ssh/id_ed25519", "AUTH_TYPE": "oauth2", "MAX_TOKENS": 4096}}, []),
        ({"args": ["--token", SECRET]}, ["args[1]"]),
        ({"args": ["--api-key=" + SECRET]}, ["args[0]"]),
        ({"args": ["--header", f"Authorization: Bearer {SECRET}"]}, ["args[1]"]),
        ({"args": ["--header", "Authorization: Bearer ${HOME}"]}, []),
        ({"args": ["postgres://me:" + SECRET + "@127.0.0.1/db"]}, ["args[0]"]),
        ({"args": ["-y", "thing@1.2.3", "--key-file", "/etc/key.pem"]}, []),
    ],
)
def test_secrets_in_plain_text_are_found_and_never_shown(tmp_path: Path, entry: Any, where: list[str]) -> None:
    loaded = read_config(write_config(tmp_path, {"a": {"command": "x", **entry}}))
    matches = [re.search(r"servers\.a\.(\S+): a secret", line) for line in loaded.advice]
    assert [match[1] for match in matches if match is not None] == where
    assert SECRET not in "".join(loaded.advice) + "".join(loaded.warnings)
    assert GITHUB not in "".join(loaded.advice)


@pytest.mark.parametrize(
    ("entry", "where"),
    [
        ({"headers": {"Authorization": f"Bearer {SECRET}"}}, ["headers.Authorization"]),
        ({"headers": {"X-Api-Key": SECRET, "Accept": "text/event-stream"}}, ["headers.X-Api-Key"]),
        ({"headers": {"Authorization": "Bearer ${HOME}"}}, []),
        ({"api_key": SECRET}, ["api_key"]),
        ({"api_key": "${HOME}"}, []),
        ({"auth": SECRET}, ["auth"]),
        ({"url": f"http://127.0.0.1:1/mcp?token={SECRET}"}, ["url"]),
        ({"url": f"http://me:{SECRET}@127.0.0.1:1/mcp"}, ["url"]),
    ],
)
def test_secrets_of_a_server_with_a_url_are_found(tmp_path: Path, entry: Any, where: list[str]) -> None:
    loaded = read_config(write_config(tmp_path, {"a": {"url": "http://127.0.0.1:1/mcp", **entry}}))
    matches = [re.search(r"servers\.a\.(\S+): a secret", line) for line in loaded.advice]
    assert [match[1] for match in matches if match is not None] == where
    assert SECRET not in "".join(loaded.advice) + "".join(loaded.warnings)


def test_plain_text_listener_tokens_are_reported_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    path.write_text(f"servers: {{}}\nlisten:\n  token: {SECRET * 2}\n")
    path.chmod(0o600)
    assert [line.partition(" a secret")[0] for line in read_config(path).advice] == ["servers.yaml:3: listen.token:"]


def test_check_prints_the_executed_command_without_secrets(tmp_path: Path) -> None:
    injected = ";$(touch x)\x1b[2J"
    servers = {
        "a": fake("--name", injected, "--leak", "TOKEN", env={"TOKEN": SECRET}),
        "b": fake("--name", "--token", SECRET),
        "web": {"builtin": "web"},
        "url": {"url": "http://127.0.0.1:1/mcp"},
    }
    servers["b"]["args"] = [*servers["b"]["args"][:1], "--die", "x", "--token", SECRET]
    config = str(write_config(tmp_path, servers))
    done = run("check", "--config", config, cwd=tmp_path)
    lines = {line.partition(": runs ")[0]: line.partition(": runs ")[2] for line in done.stdout.splitlines()}
    assert lines["a"] == f"{sys.executable} {FAKE} --name ';$(touch x)\\x1b[2J' --leak TOKEN"
    assert lines["b"] == f"{sys.executable} {FAKE} --die x --token '***'"
    assert lines["web"].endswith("-m mcp_hub.servers web")
    assert "url" not in lines
    assert not (tmp_path / "x").exists()
    assert SECRET not in done.stdout + done.stderr
    facts = {fact["server"]: fact for fact in json.loads(run("check", "--json", "--config", config).stdout)["servers"]}
    assert facts["a"]["argv"][3] == ";$(touch x)\\x1b[2J"
    assert facts["url"]["argv"] is None


def test_check_warns_of_a_group_writable_file_and_refuses_a_world_writable_one(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": fake()})
    config.chmod(0o660)
    done = run("check", "--config", str(config))
    assert done.returncode == 0
    assert "can be written by its group" in done.stderr
    config.chmod(0o666)
    assert run("check", "--config", str(config)).returncode == 2
