"""`mcp-hub call --explain`: where a call went, what each policy did with it, and which rule hides a name."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import HUB, PATIENCE, fake, write_config

SERVERS = {
    "up": fake(timeout="1s", disable_tools=["pid"], preset={"add": {"a": 40}}),
    "new": fake("--era", "modern", tools={"echo": {"name": "say"}}),
    "off": fake(enabled=False),
}


def called(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    config = write_config(directory, SERVERS, blacklist=["new/meta"], call_log={"file": str(directory / "calls.jsonl")})
    argv = [*HUB, "call", *arguments, "--config", str(config)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE)


def facts_of(completed: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(completed.stdout)
    return facts


def test_explain_prints_the_explanation_before_the_result(tmp_path: Path) -> None:
    completed = called(tmp_path, "up__add", "--args", '{"a": 1, "b": 2}', "--explain")
    assert completed.returncode == 0, completed.stderr
    explanation, _, result = completed.stdout.partition("\n\n")
    assert result == "42\n"
    lines = dict(line.split(maxsplit=1) for line in explanation.splitlines())
    assert lines["name"] == "up__add"
    assert lines["server"] == "up (stdio, handshake 2025-11-25)"
    assert lines["tool"] == "add"
    assert lines["preset"] == "1 set; 1 sent by the caller dropped"
    assert lines["access"] == lines["deadline"] == lines["limits"] == "passed"
    assert lines["upstream"] == "was asked once"
    assert re.fullmatch(r"ok after [\d.,]+ ms", lines["outcome"])
    order = [line.split()[0] for line in explanation.splitlines()]
    assert order.index("access") < order.index("deadline") < order.index("preset") < order.index("limits")


def test_explain_as_json_is_one_object_with_the_result(tmp_path: Path) -> None:
    facts = facts_of(called(tmp_path, "new", "echo", "--args", '{"text": "hi"}', "--explain", "--json"))
    route = facts["route"]
    assert (route["name"], route["server"], route["tool"]) == ("new__say", "new", "echo")
    assert (route["transport"], route["era"], route["revision"]) == ("stdio", "modern", "2026-07-28")
    assert (facts["verdict"], facts["attempts"]) == ("ok", 1)
    assert facts["result"]["content"][0]["text"] == "hi"
    assert {"policy": "access", "did": ["passed"]} in facts["policies"]


def test_a_call_by_server_and_tool_prints_the_same_as_by_exposed_name(tmp_path: Path) -> None:
    by_name = called(tmp_path, "new__say", "--args", '{"text": "hi"}')
    by_place = called(tmp_path, "new", "echo", "--args", '{"text": "hi"}')
    assert (by_place.returncode, by_place.stdout) == (by_name.returncode, by_name.stdout) == (0, "hi\n")


def test_explain_of_a_timed_out_call_names_its_deadline(tmp_path: Path) -> None:
    completed = called(tmp_path, "up", "sleep", "--explain", "--json")
    facts = facts_of(completed)
    assert completed.returncode == 1
    assert (facts["verdict"], facts["code"]) == ("error", "timeout")
    (deadline,) = [policy["did"] for policy in facts["policies"] if policy["policy"] == "deadline"]
    assert deadline[0].startswith("ended the call: ")
    assert facts["result"]["isError"] is True


def test_an_error_of_the_upstream_is_shown_after_the_explanation(tmp_path: Path) -> None:
    completed = called(tmp_path, "up__fail", "--explain")
    assert completed.returncode == 1
    assert "error (-32050)" in completed.stdout
    assert "error -32050: no" in completed.stderr


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["up__pid"], "servers.up: filter of tools"),
        (["up", "pid"], "servers.up: filter of tools"),
        (["new", "meta"], "blacklist"),
        (["new__meta"], "blacklist"),
    ],
)
def test_explain_of_a_hidden_name_gives_the_hiding_rule(tmp_path: Path, words: list[str], rule: str) -> None:
    completed = called(tmp_path, *words, "--explain")
    assert (completed.returncode, completed.stdout) == (2, "")
    assert rule in completed.stderr
    assert rule not in called(tmp_path, *words).stderr
    assert facts_of(called(tmp_path, *words, "--explain", "--json"))["hidden_by"] == rule
    reasons = [json.loads(line)["reason"] for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert reasons == [rule] * 3


@pytest.mark.parametrize("words", [["up__nothing"], ["up", "nothing"]])
def test_explain_reports_an_unknown_name(tmp_path: Path, words: list[str]) -> None:
    completed = called(tmp_path, *words, "--explain")
    assert completed.returncode == 2
    assert "there is no tool" in completed.stderr


def test_explain_of_a_disabled_servers_tool_gives_that_reason(tmp_path: Path) -> None:
    completed = called(tmp_path, "off", "echo", "--explain")
    assert (completed.returncode, completed.stderr) == (
        1,
        "off is not available: it is switched off in the configuration\n",
    )


def test_a_call_to_an_unknown_server_lists_the_configured_ones(tmp_path: Path) -> None:
    completed = called(tmp_path, "nowhere", "echo")
    assert (completed.returncode, completed.stdout) == (2, "")
    assert "there is no server 'nowhere'; there are: up, new, off" in completed.stderr
