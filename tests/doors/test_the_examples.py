"""The same program on the original and on the hub; and what the texts without a package promise, line by line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.doors.packages import python_beside, python_of
from tests.doors.programs import EXAMPLES, SERVER, changed_lines, original_source, output, program_path
from tests.fakes.client import FAKE
from tests.fakes.forks import python_with_sdk
from tests.fakes.json_api import Answer, json_api
from tests.policy.tries.counted import counting_http

pytestmark = pytest.mark.anyio


def demo() -> tuple[str, str]:
    """The command that starts the server of the examples."""
    return python_with_sdk(), str(SERVER)


KEY = "a-key-of-the-search-engine"
ORIGINALS = {"agently_tools.py": "agently", "agentscope_toolkit.py": "agentscope1"}
"""Program -> the environment of the package it was written for."""


@pytest.mark.parametrize("program", ORIGINALS)
async def test_an_example_prints_the_same_on_the_original_library_and_on_the_hub(tmp_path: Path, program: str) -> None:
    original = tmp_path / program
    original.write_text(original_source(program), encoding="utf-8")
    before = await output(original, *demo(), python=python_of(ORIGINALS[program]))
    assert len(before) > 10
    assert await output(EXAMPLES / program, *demo()) == before


async def test_calls_give_back_what_agently_4_0_gives_back(tmp_path: Path) -> None:
    original = tmp_path / "calls.py"
    original.write_text(original_source("agently_calls.py"), encoding="utf-8")
    server = (sys.executable, FAKE)
    printed = await output(original, *server, python=python_of("agently40"))
    before = [line for line in printed if not line.startswith("WARNING:")]  # of asyncio, which Agently prints
    assert len(before) > 6
    assert await output(program_path("agently_calls.py"), *server) == before


@pytest.mark.parametrize(("environment", "options"), [("agentscope1", ()), ("agentscope1_newest", ("newest",))])
async def test_interruptions_own_clients_middlewares_and_tasks_are_those_of_agentscope(
    tmp_path: Path, environment: str, options: tuple[str, ...]
) -> None:
    original = tmp_path / "calls.py"
    original.write_text(original_source("agentscope_calls.py"), encoding="utf-8")
    before = await output(original, *demo(), *options, python=python_of(environment))
    assert len(before) > 15
    assert await output(program_path("agentscope_calls.py"), *demo(), *options) == before


@pytest.mark.parametrize("program", ORIGINALS)
def test_the_two_versions_differ_only_in_imports_and_construction(program: str) -> None:
    lines = changed_lines(program)
    assert 0 < len(lines) <= 3
    for line, original in lines:
        assert re.fullmatch(r"from mcp_hub import [\w, ]+|import mcp_hub as \w+|\w+ = \w+\(\)", line), line
        assert re.fullmatch(r"from [\w.]+ import [\w, ]+|import [\w.]+ as \w+|\w+ = [\w.]+", original), original


@pytest.mark.parametrize("environment", ["agentscope1", "agentscope1_newest"])
async def test_agentscopes_own_agent_does_the_same_with_the_hubs_toolkit(tmp_path: Path, environment: str) -> None:
    """One environment has AgentScope and the hub. The agent, its plan and its MCP client are AgentScope's own."""
    program = EXAMPLES / "agentscope_agent.py"
    original = tmp_path / program.name
    original.write_text(original_source(program.name), encoding="utf-8")
    assert len(changed_lines(program.name)) == 1
    python = await python_beside(environment, tmp_path / "beside")
    before = await output(original, *demo(), python=python)
    assert len(before) > 20
    assert await output(program, *demo(), python=python) == before


def expected(name: str) -> list[str]:
    return (EXAMPLES / "expected" / f"{name}.txt").read_text(encoding="utf-8").splitlines()


async def test_the_toolkit_example_prints_what_its_operating_procedure_describes() -> None:
    assert await output(EXAMPLES / "agentscope_sop.py", *demo()) == expected("agentscope_sop")


async def test_the_orchestrator_of_miroflow_runs_unchanged(tmp_path: Path) -> None:
    """Two `asyncio.run`, calls by position and by keyword, the beginnings of errors it looks for."""
    assert await output(EXAMPLES / "miroflow_manager.py", *demo(), "--scrape") == expected("miroflow_manager")


@pytest.fixture
def search_engine() -> Iterator[str]:
    """A REST API on loopback that wants its key, and does not answer at `/slow` before the end of the test."""

    def answer(path: str, headers: Mapping[str, str], body: Any) -> Answer:
        parts = urlsplit(path)
        if parts.path == "/slow":
            return None
        if headers.get("X-API-Key") != KEY:
            return 401, {"refused": True}
        query = parse_qs(parts.query)
        return 200, {"found": [f"{query['q'][0]} {number}" for number in range(1, int(query["limit"][0]) + 1)]}

    with json_api(answer) as url:
        yield url


async def test_the_tool_system_example_meets_its_requirements(tmp_path: Path, search_engine: str) -> None:
    async with counting_http(tmp_path, token=KEY) as url:
        env = {
            "DEMO_PYTHON": python_with_sdk(), "DEMO_SERVER": str(SERVER), "SEARCH_URL": search_engine,
            "SEARCH_KEY": KEY, "REMOTE_URL": url, "REMOTE_KEY": KEY,
        }  # fmt: skip
        assert await output(EXAMPLES / "tool_system" / "program.py", env=env) == expected("tool_system")


def test_the_tool_system_example_has_the_documented_contents() -> None:
    """Seed 4.2 and 4.3.1 have a tool set, an agent's references and its strategy in YAML; seed 4.1.1 a function."""
    project = EXAMPLES / "tool_system"
    tool_set = (project / "configs" / "tool_sets" / "data_analysis_set.yaml").read_text(encoding="utf-8")
    assert tool_set == (
        "name: data_analysis_set\ndescription: 数据分析工具集\ntools:\n  - sql_tool\n  - excel_tool\n  - plot_tool\n"
    )
    agent = (project / "servers.yaml").read_text(encoding="utf-8")
    assert "    tool_sets: [data_analysis_set]\n    tools: [search_tool]\n" in agent
    assert "output_strategy:\n  function_calling: true # 优先使用模型原生Function Calling\n" in agent
    assert "  fallback_to_structured_output: true # 失败时降级为LangChain结构化输出\n" in agent
    assert "timeout: 30s\n" in agent
    calculate = (project / "tools" / "builtin" / "calculate.py").read_text(encoding="utf-8")
    assert "@tool\ndef calculate(a: int, b: int) -> int:\n" in calculate
