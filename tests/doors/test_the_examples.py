"""The same program on the original and on the hub; and what the texts without a package promise, line by line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.doors.packages import python_of
from tests.doors.programs import EXAMPLES, SERVER, as_it_was, changed_lines, output

pytestmark = pytest.mark.anyio

DEMO = (sys.executable, str(SERVER))
ORIGINALS = {"agently_tools.py": "agently", "agentscope_toolkit.py": "agentscope1"}
"""Program -> the environment of the package it was written for."""


@pytest.mark.parametrize("program", ORIGINALS)
async def test_a_program_prints_the_same_on_the_original_and_on_the_hub(tmp_path: Path, program: str) -> None:
    original = tmp_path / program
    original.write_text(as_it_was(program), encoding="utf-8")
    before = await output(original, *DEMO, python=python_of(ORIGINALS[program]))
    assert len(before) > 10
    assert await output(EXAMPLES / program, *DEMO) == before


@pytest.mark.parametrize("program", ORIGINALS)
def test_what_differs_are_imports_and_what_is_made_of_them(program: str) -> None:
    lines = changed_lines(program)
    assert 0 < len(lines) <= 2
    for now, was in lines:
        assert re.fullmatch(r"from mcp_hub import [\w, ]+|\w+ = \w+\(\)", now), now
        assert re.fullmatch(r"from [\w.]+ import [\w, ]+|\w+ = [\w.]+", was), was


def expected(name: str) -> list[str]:
    return (EXAMPLES / "expected" / f"{name}.txt").read_text(encoding="utf-8").splitlines()


async def test_the_toolkit_does_what_its_operating_procedure_says() -> None:
    assert await output(EXAMPLES / "agentscope_sop.py", *DEMO) == expected("agentscope_sop")


async def test_the_orchestrator_of_miroflow_finds_its_habits(tmp_path: Path) -> None:
    """Two `asyncio.run`, calls by position and by keyword, the beginnings of errors it looks for."""
    assert await output(EXAMPLES / "miroflow_manager.py", *DEMO, "--scrape") == expected("miroflow_manager")
