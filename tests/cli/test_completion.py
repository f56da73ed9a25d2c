"""What a shell completes after `mcp-hub completion SHELL`, in a real bash and by the protocol of zsh and fish."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.client import FAKE, HUB, PATIENCE, fake, write_config

ASK = """
eval "$({hub} completion bash)"
mcp-hub() {{ {hub} "$@"; }}
COMP_LINE={line} COMP_POINT={point} COMP_TYPE=9
_python_argcomplete mcp-hub
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(line: str, directory: Path) -> list[str]:
    """Returns the completions that bash has for a line with the cursor at its end."""
    script = ASK.format(hub=shlex.join(HUB), line=shlex.quote(line), point=len(line.encode()))
    environ = {**os.environ, "XDG_CACHE_HOME": str(directory / "cache"), "HOME": str(directory)}
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=PATIENCE, cwd=directory, env=environ, check=True
    )
    assert done.stderr == ""
    return sorted(candidate.strip() for candidate in done.stdout.splitlines() if candidate.strip())


def candidates_of(line: str, directory: Path, shell: str, separator: str) -> list[str]:
    """Returns the completions that the program writes to the descriptor which the completion code of a shell reads."""
    reading, writing = os.pipe()
    environ = {
        **os.environ, "HOME": str(directory), "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_SHELL": shell, "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        **({"_ARGCOMPLETE_DFS": "\t"} if shell == "fish" else {}),
    }  # fmt: skip
    script = f"exec 8>&{writing}; exec {shlex.join([sys.executable, '-m', 'mcp_hub'])}"
    subprocess.run(
        ["bash", "-c", script], timeout=PATIENCE, cwd=directory, env=environ, pass_fds=[writing], check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(writing)
    with os.fdopen(reading) as stream:
        return [candidate.split(separator)[0] for candidate in stream.read().split("\n")]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a configuration that commands find by themselves."""
    config = write_config(
        tmp_path,
        {"up": fake(), "second": fake(enabled=False)},
        profiles={"small": {"tools": ["up/echo"]}},
        groups={"extra": {"tools": ["up/add"]}},
    )
    assert config == tmp_path / "servers.json"
    return tmp_path


def test_commands_and_their_options_are_completed(directory: Path) -> None:
    assert completed("mcp-hub ch", directory) == ["check"]
    assert completed("mcp-hub check --st", directory) == ["--strict"]
    assert {"serve", "check", "tools", "call", "completion"} <= {*completed("mcp-hub ", directory)}


def test_names_of_the_configuration_are_completed(directory: Path) -> None:
    assert completed("mcp-hub pin ", directory)[-2:] == ["second", "up"]
    assert completed("mcp-hub tools --profile ", directory) == ["small"]
    assert completed("mcp-hub call --group ", directory) == ["extra"]
    config = directory / "other.json"
    (directory / "servers.json").rename(config)
    assert completed("mcp-hub pin s", directory) == []
    assert completed(f"mcp-hub pin --config {config} s", directory) == ["second"]


def test_tools_and_their_arguments_come_from_the_cached_catalog_and_no_server_is_started(directory: Path) -> None:
    started = directory / "started"
    script = f"echo once >> {shlex.quote(str(started))}; exec {shlex.join([sys.executable, FAKE])}"
    write_config(directory, {"up": {"command": "/bin/sh", "args": ["-c", script]}})
    assert completed("mcp-hub call up__ec", directory) == []
    assert not started.exists()
    subprocess.run(
        [*HUB, "tools", "--config", "servers.json"],
        cwd=directory,
        timeout=PATIENCE,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    assert completed("mcp-hub call up__ec", directory) == ["up__echo"]
    assert completed("mcp-hub call up__echo te", directory) == ["text="]
    assert started.read_text() == "once\n"


def test_servers_of_the_bundled_list_are_completed_for_add(directory: Path) -> None:
    assert completed("mcp-hub add ti", directory) == ["time"]
    assert completed("mcp-hub add time ti", directory) == []


@pytest.mark.parametrize(("shell", "separator"), [("zsh", ":"), ("fish", "\t")])
def test_zsh_and_fish_get_the_same_completions_as_bash(directory: Path, shell: str, separator: str) -> None:
    assert candidates_of("mcp-hub ch", directory, shell, separator) == ["check"]
    assert candidates_of("mcp-hub call --group ", directory, shell, separator) == ["extra"]
