"""Each promise names a test that shows it, and each table of figures the command that measures it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROMISES = {"SECURITY.md": "Threats", "RELIABILITY.md": "The faults the project began with"}
"""Document -> the section whose table has a promise in each row, and in the last cell what shows it."""
MEASURED = ("RELIABILITY.md", "bench/README.md", "bench/context.md")
FIGURE = re.compile(r"^\|.*\d (?:µs|ms|s|KiB|MiB|MB|KB)\b.*\|$", re.MULTILINE)
COMMAND = re.compile(r"`(scripts/\w+)[ `]")


def sections(text: str) -> Iterator[tuple[str, str]]:
    """The sections of a page: each title, and the text below it."""
    parts = re.split(r"^##+ (.*)$", text, flags=re.MULTILINE)
    yield "", parts[0]
    yield from zip(parts[1::2], parts[2::2], strict=True)


def rows(page: str, title: str) -> list[str]:
    """The rows of the tables of a section, without their heads."""
    text = dict(sections((ROOT / page).read_text()))[title]
    return [row for row in re.findall(r"^\|.*\|$", text, re.MULTILINE) if not re.match(r"\| # |\|[-|]+$", row)]


@pytest.mark.parametrize(("page", "title"), PROMISES.items())
def test_every_documented_guarantee_names_an_existing_test(page: str, title: str) -> None:
    guarantees = rows(page, title)
    assert len(guarantees) > 20
    for row in guarantees:
        named = re.findall(r"`(tests/[\w/.]+)`", row.split("|")[-2])
        assert named, f"nothing shows: {row}"
        for name in named:
            path = ROOT / name
            assert list(path.rglob("test_*.py")) if path.is_dir() else path.is_file(), name


@pytest.mark.parametrize("page", MEASURED)
def test_every_table_of_figures_names_the_command_that_measures_it(page: str) -> None:
    text = (ROOT / page).read_text()
    general = COMMAND.findall(dict(sections(text))[""])
    for title, part in sections(text):
        if FIGURE.search(part):
            commands = COMMAND.findall(part) or general
            assert commands, f"{page}: {title} names no command"
            assert all(os.access(ROOT / command, os.X_OK) for command in commands)
