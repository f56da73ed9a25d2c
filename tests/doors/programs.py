"""The programs of `examples/` and the blocks of `docs/doors/`, run as they are or as they were before the hub."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.fakes.client import free_port
from tests.peers.programs import network_server, run

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGES = ROOT / "docs" / "doors"
SERVER = EXAMPLES / "demo_server.py"
RUN = 180.0
"""Seconds one program may take; a bound against hangs."""


def program_path(program: str) -> Path:
    """An example, or a program beside the tests."""
    return example if (example := EXAMPLES / program).exists() else Path(__file__).parent / program


def original_source(program: str) -> str:
    """A program before the hub: each line that says what it `was:` is that again."""
    lines = program_path(program).read_text(encoding="utf-8").splitlines()
    return "\n".join(re.sub(r"^(\s*).*  # was: (.*)$", r"\1\2", line) for line in lines) + "\n"


def changed_lines(program: str) -> list[tuple[str, str]]:
    """What is there and what was, line by line."""
    text = (EXAMPLES / program).read_text(encoding="utf-8")
    return re.findall(r"^\s*(.*?)  # was: (.*)$", text, re.MULTILINE)


def blocks(page: str, language: str, mark: str = "after") -> list[str]:
    """The blocks of a page that are about the hub, or with another mark those about something else: `before`, none."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language} ?{mark}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def documented_output(code: str) -> list[str]:
    """The lines a page says its code prints."""
    return re.findall(r"^# → (.*)$", code, re.MULTILINE)


@asynccontextmanager
async def search_engine(directory: Path) -> AsyncIterator[str]:
    """The search server of the examples over SSE: its URL."""
    port = free_port()
    async with network_server([sys.executable, str(SERVER), "--sse", str(port)], port, log=directory / "search.log"):
        yield f"http://127.0.0.1:{port}/sse"


async def output(
    program: Path,
    *args: str,
    python: str = sys.executable,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """The lines a program prints. `python` is the hub's for what it starts. Raises PeerFailed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return (await run([python, str(program), *args], RUN, cwd=cwd, env={"PATH": path, **(env or {})})).splitlines()
