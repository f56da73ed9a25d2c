"""What servers see of the user: roots, variables, what `setup` makes of the client's file; and prompts of the user."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.peers.programs import NODE, NPM, installed
from tests.real.client_programs import Client
from tests.real.conftest import Report
from tests.real.scripted_provider import Call
from tests.real.turns import BEHIND, DIRECT, WAYS, Turn, User, scripted

LOCATIONS = {
    "DISPLAY": ":7",
    "WAYLAND_DISPLAY": "wayland-7",
    "JAVA_HOME": "/opt/java",
    "NVM_DIR": "/opt/nvm",
    "GOPATH": "/opt/go",
    "CARGO_HOME": "/opt/cargo",
    "npm_config_registry": "http://127.0.0.1:9/npm",
    "UV_INDEX_URL": "http://127.0.0.1:9/uv",
    "PIP_INDEX_URL": "http://127.0.0.1:9/pip",
}
CAPABILITIES = {
    "SSH_AUTH_SOCK": "/run/agent",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus",
    "DOCKER_HOST": "unix:///run/docker.sock",
    "KUBECONFIG": "/opt/kube",
    "AWS_PROFILE": "work",
}
SECRETS = {"GITHUB_TOKEN": "ghp_secret", "AWS_SECRET_ACCESS_KEY": "secret", "OPENAI_API_KEY": "sk-secret"}


def _variables(turn: Turn) -> set[str]:
    """Those of the variables of the shell that a server has got."""
    text = "".join(turn.results)
    return {name for name in {**LOCATIONS, **CAPABILITIES, **SECRETS} if f'"{name}' in text.replace("\\", "")}


def test_servers_inherit_the_locations_that_the_client_passes_and_no_secret(
    user: Callable[[str], User], report: Report
) -> None:
    inherited = {}
    for way in WAYS:
        one = user(way)
        one.exports(**LOCATIONS, **CAPABILITIES, **SECRETS)
        one.has({"inheriting": scripted()}, None if way == DIRECT else {})
        one.turn()
        inherited[way] = _variables(one.turn(Call("environ")))
    for kind, names in (("locations", LOCATIONS), ("secrets", SECRETS)):
        counts = [len(inherited[way] & set(names)) for way in WAYS]
        report(f"variables: {kind} of {len(names)}", *counts)
    assert inherited[DIRECT] & set(LOCATIONS) <= inherited[BEHIND]
    assert not inherited[BEHIND] & set(SECRETS)


def test_after_setup_a_server_has_what_it_had_before_but_secrets(
    user: Callable[[str], User], client: Client, report: Report
) -> None:
    one = user("person")
    one.exports(**LOCATIONS, **CAPABILITIES, **SECRETS)
    one.has({"inheriting": scripted()})
    one.turn()
    before = one.turn(Call("environ"))
    one.runs("setup", client.name, "--switch-off", "--yes")
    one.turn()
    after = one.turn(Call("environ"))
    names = {**LOCATIONS, **CAPABILITIES}
    counts = [len(_variables(turn) & set(names)) for turn in (before, after)]
    report(f"`setup`: locations and capabilities of {len(names)}", *counts)
    assert "hub" in "".join(after.mcp_tools(["hub"]))
    assert _variables(before) & set(names) <= _variables(after)
    assert not _variables(after) & set(SECRETS)


@pytest.mark.parametrize("tool", ["read_text_file", "write_file"])
def test_the_first_call_of_a_filesystem_server_keeps_to_the_roots_of_the_client(
    user: Callable[[str], User], report: Report, tmp_path: Path, tool: str
) -> None:
    server = [installed(NODE), installed(NPM / ".bin" / "mcp-server-filesystem")]
    denied = {}
    for way in WAYS:
        directory = tmp_path / f"{way}-files"
        directory.mkdir()
        outside, slow = directory / "outside.txt", directory / "slow"
        outside.write_text("OUTSIDE-CONTENT")
        start = f"[ ! -e {shlex.quote(str(slow))} ] || sleep 3; exec {shlex.join([*server, str(directory)])}"
        one = user(way)
        one.has({"files": {"command": "/bin/sh", "args": ["-c", start]}}, None if way == DIRECT else {"list_wait": 10})
        one.turn()
        if way == BEHIND:
            slow.touch()  # the list is kept, so that the call comes before the server
        turn = one.turn(Call(tool, {"path": str(outside), "content": "CHANGED"}))
        denied[way] = "denied" in "".join(turn.results)
        assert turn.results, turn.output
        assert denied[way] == ("OUTSIDE-CONTENT" not in "".join(turn.results) and "CHANGED" not in outside.read_text())
    report(f"first `{tool}` outside of the roots: denied", denied[DIRECT], denied[BEHIND])
    assert denied[DIRECT] <= denied[BEHIND]


def test_the_user_gets_a_prompt_of_a_server(user: Callable[[str], User], client: Client, report: Report) -> None:
    got = {}
    for way, server, name in ((DIRECT, "prompting", "greet"), (BEHIND, "hub", "prompting__greet")):
        one = user(way)
        one.has({"prompting": scripted()}, None if way == DIRECT else {})
        one.turn()
        if (words := client.words_of_prompt(server, name, "Bob")) is None:
            return
        turn = one.turn(words=words)
        got[way] = "hello Bob" in str(turn.requests)
    report("a prompt: its text reaches the model", got[DIRECT], got[BEHIND])
    assert got[DIRECT] <= got[BEHIND]
