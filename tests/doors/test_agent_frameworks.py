"""The programs of `docs/agents/`, each run by its framework with a scripted model and the hub that its user starts."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.doors.packages import python_of
from tests.doors.programs import EXAMPLES, RUN, output
from tests.fakes.client import HUB, free_port
from tests.fakes.forks import python_with_sdk
from tests.peers.programs import HERE, network_server, run

pytestmark = pytest.mark.anyio

PAGES: Final = Path(__file__).parents[2] / "docs" / "agents"
FRAMEWORKS: Final = {"openai-agents": "openai_agents", "langchain": "langchain", "pydantic-ai": "pydantic_ai"}
"""Page -> the environment of its framework."""
RUNNER: Final = Path(__file__).with_name("models") / "run_agent.py"
TRANSPORTS: Final = ("stdio", "http")
TOKEN: Final = "0123456789abcdef0123456789abcdef"
PRODUCT: Final = [("demo__multiply", {"a": 6, "b": 7})]
MANY: Final = [("s0__double", {"number": 21}), ("s11__double", {"number": 2}), ("s3__close", {"ticket": "T1"})]
MANY_TOOLS: Final = str(HERE / "servers" / "many_tools.py")
SLOW_START: Final = 2
"""Seconds until the last of the twelve servers starts."""


def block(page: str, language: str) -> str:
    """The first block of a page in a language."""
    found = re.search(rf"^```{language}\n(.*?)^```$", (PAGES / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
async def python() -> str:
    """An interpreter for servers on the SDK, with all that they import."""
    command = python_with_sdk()
    await run([command, MANY_TOOLS, "warm"], RUN)
    return command


def written(directory: Path, text: str) -> Path:
    path = directory / "servers.yaml"
    path.touch(mode=0o600)
    path.write_text(text)
    return path


@asynccontextmanager
async def served(transport: str, config: Path) -> AsyncIterator[dict[str, str]]:
    """The variables with which a program finds a hub on a port that was just started, or starts one itself."""
    env = {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false", "XDG_CACHE_HOME": str(config.parent)}
    if transport == "stdio":
        yield env
        return
    port = free_port()
    command = [*HUB, "serve", "--http", "--port", str(port), "--config", config.name]
    env["MCP_HUB_TOKEN"] = TOKEN
    async with network_server(command, port, env, log=config.with_name("hub.log"), cwd=config.parent):
        yield {**env, "MCP_HUB_URL": f"http://127.0.0.1:{port}/mcp"}


async def printed(page: str, mode: str, calls: list[Any], directory: Path, env: dict[str, str]) -> list[str]:
    program = directory / "agent.py"
    program.write_text(block(page, "python"))
    name = FRAMEWORKS[page]
    arguments = [name, str(program), mode, json.dumps(calls)]
    return await output(RUNNER, *arguments, python=python_of(name), cwd=directory, env=env)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("page", FRAMEWORKS)
async def test_the_program_of_a_page_prints_the_output_shown_on_the_page(
    page: str, transport: str, python: str, tmp_path: Path
) -> None:
    shown = block(page, "console").splitlines()
    assert shown[0] == "$ python agent.py"
    (tmp_path / "demo_server.py").symlink_to(EXAMPLES / "demo_server.py")
    text = block(page, "yaml").replace("command: python", f"command: {python}") + "list_wait: 60s\n"
    async with served(transport, written(tmp_path, text)) as env:
        assert await printed(page, "main", PRODUCT, tmp_path, env) == shown[1:]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("page", FRAMEWORKS)
async def test_an_agent_with_300_tools_sees_all_calls_them_and_reads_their_errors(
    page: str, transport: str, python: str, tmp_path: Path
) -> None:
    """Twelve FastMCP servers have 25 tools each, and the last one takes a while to start."""
    delays = {f"s{number}": 0 for number in range(11)} | {"s11": SLOW_START}
    servers = {id: {"command": python, "args": [MANY_TOOLS, id, str(delay)]} for id, delay in delays.items()}
    config = written(tmp_path, json.dumps({"servers": servers, "cache_dir": str(tmp_path)}))
    async with served(transport, config) as env:
        (line,) = await printed(page, "ask", MANY, tmp_path, env)
    seen = json.loads(line)
    assert len(seen["tools"]) == 300
    assert {name.partition("__")[0] for name in seen["tools"]} == servers.keys()
    doubled, slow, refused = seen["results"]
    assert (doubled, slow) == ("42", "4")
    assert "there is no ticket T1" in refused
    assert seen["answer"] == f"42 4 {refused}"


def test_every_page_has_a_program_that_is_run() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == FRAMEWORKS.keys()
