"""The programs of `examples/`, run as they are or as they were written for the package they come from."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.peers.catalogue import run

EXAMPLES = Path(__file__).parents[2] / "examples"
SERVER = EXAMPLES / "demo_server.py"
RUN = 120.0
"""Seconds one program may take; a bound against hangs."""


def as_it_was(program: str) -> str:
    """A program before the hub: each line that says what it `was:` is that again."""
    lines = (EXAMPLES / program).read_text(encoding="utf-8").splitlines()
    return "\n".join(re.sub(r"^(\s*).*  # was: (.*)$", r"\1\2", line) for line in lines) + "\n"


def changed_lines(program: str) -> list[tuple[str, str]]:
    """What is there and what was, line by line."""
    text = (EXAMPLES / program).read_text(encoding="utf-8")
    return re.findall(r"^\s*(.*?)  # was: (.*)$", text, re.MULTILINE)


async def output(program: Path, *, python: str = sys.executable, args: tuple[str, ...] = ()) -> str:
    """What a program prints. Raises PeerFailed when it fails or does not end."""
    return await run([python, str(program), *(args or (sys.executable, str(SERVER)))], RUN)
