"""The process of `postprocess: "module:function"`: what it may import, what it is given, what it may answer."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.fakes.client import fake, spawned, write_config

pytestmark = pytest.mark.anyio

FUNCTIONS = """
def same(call, result): return dict(result)
def count(call, result): return str(len(result["content"][0]["text"]))
"""
MIB = 2**20


@pytest.fixture
def functions(tmp_path: Path) -> None:
    (tmp_path / "giving.py").write_text(FUNCTIONS)


@pytest.mark.usefixtures("functions")
async def test_nothing_is_imported_from_the_directory_the_hub_was_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client starts the hub in whatever project is open; a file there is not the user's choice."""
    config = write_config(tmp_path, {"a": fake(tools={"echo": {"postprocess": "giving:count"}})})
    project = tmp_path / "project"
    project.mkdir()
    trace = project / "executed"
    for name in ("concurrent", "pydantic", "giving"):
        (project / f"{name}.py").write_text(f"open({os.fspath(trace)!r}, 'w')\nraise ImportError('not this one')\n")
    monkeypatch.chdir(project)
    async with spawned([sys.executable, "-P", "-m", "mcp_hub", "serve", "--config", str(config)]) as client:
        await client.initialize()
        assert await client.text("a__echo", {"text": "four"}) == "4"
    assert not trace.exists()


@pytest.mark.usefixtures("functions")
async def test_a_function_can_change_a_result_larger_than_half_the_message_limit(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"a": fake(tools={"big": {"postprocess": "giving:same"}})})
    async with spawned([sys.executable, "-m", "mcp_hub", "serve", "--config", str(config)]) as client:
        await client.initialize()
        assert len(await client.text("a__big", {"bytes": 40 * MIB})) == 40 * MIB


@pytest.mark.usefixtures("functions")
async def test_a_lone_surrogate_reaches_a_function_as_a_question_mark(tmp_path: Path) -> None:
    answer = json.dumps({"content": [{"type": "text", "text": "a\ud800b"}]})
    entry = fake("--result", answer, tools={"echo": {"postprocess": "giving:same"}})
    config = write_config(tmp_path, {"a": entry})
    async with spawned([sys.executable, "-m", "mcp_hub", "serve", "--config", str(config)]) as client:
        await client.initialize()
        assert await client.text("a__echo") == "a?b"
