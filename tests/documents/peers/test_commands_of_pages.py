"""What the pages say that commands print is what they print, with the files that the pages show."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from anyio.from_thread import start_blocking_portal

from bench.terminal import COLOUR, SHOWN_HOME, Scene, run
from tests.documents.peers.stages import DOCS, STAGES, Stage, home_for, hub_in

CONSOLE: Final = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
OF_THE_DAY: Final = re.compile(r"\d[\d.,:]*|[A-Z][a-z]+day\b")
"""What differs from run to run: numbers, dates, durations."""
STARTED_WITHIN: Final = 45.0
"""Seconds in which a hub and its servers are there; `status` counts minutes from the first one on."""
COLUMNS: Final = 160
"""Of the terminal, so that tables do not wrap."""
WARNING: Final = re.compile(r"^warning: .*\n", re.MULTILINE)
"""What commands say of the file on stderr, which the pages show once, for `check`."""


def commands(page: str) -> Iterator[tuple[str, str]]:
    """Yields each command of the consoles of a page, and what the page says that it prints."""
    for text in CONSOLE.findall((DOCS / page).read_text()):
        for typed in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, printed = typed.partition("\n")
            yield command, printed


def is_run(page: str, command: str) -> bool:
    return not f"{command}\n".startswith(STAGES[page].without or ("\n",))


def pattern(printed: str) -> str:
    """Returns what matches an output like that of a page: numbers and days are others, and `...` is any lines."""
    return "".join(r"(?:.*\n)*?" if line == "..." else pattern_of(line) for line in printed.rstrip().splitlines())


def pattern_of(line: str) -> str:
    """Returns what matches a line in which `…` is the rest, whatever its columns are."""
    words = [OF_THE_DAY.sub(like, re.escape(word)) for word in line.split()]
    return r"[ ]*" + r"\s+".join(words).replace("…", ".*") + r"[ ]*\n"


def like(match: re.Match[str]) -> str:
    return r"\d[\d.,:]*" if match[0][0].isdigit() else r"\w+day"


def printed_by(command: str, home: Path, stage: Stage, shown_for: Mapping[str, str]) -> str:
    """Returns what a command leaves in a terminal, as a page shows it."""
    until = next((text for prefix, text in stage.until.items() if command.startswith(prefix)), None)
    variables = "".join(f"export {name}={value}; " for name, value in stage.environ.items())
    output = COLOUR.sub("", run(variables + command, home, Scene(command, (), until=until, columns=COLUMNS)))
    for old, new in {**shown_for, str(home): SHOWN_HOME, f"//{socket.gethostname()}:": "//hub.example:"}.items():
        output = output.replace(old, new)
    return WARNING.sub("", output).rstrip() + "\n"


@pytest.mark.parametrize("page", STAGES)
def test_commands_print_the_output_shown_on_their_page(page: str) -> None:
    stage, is_served = STAGES[page], False
    with home_for(stage) as home, ExitStack() as running:
        for command in stage.before:
            run(command, home, Scene(page, ()))
        portal = running.enter_context(start_blocking_portal())
        shown_for = running.enter_context(portal.wrap_async_context_manager(stage.beside(home)))
        for command, expected in commands(page):
            if not is_run(page, command):
                continue
            asks = f"{command}\n".startswith(stage.with_hub or ("\n",))
            if asks and not is_served:
                running.enter_context(hub_in(home))
                is_served = True
            until = time.monotonic() + (STARTED_WITHIN if asks else 0)
            output = printed_by(command, home, stage, shown_for)
            while not re.fullmatch(pattern(expected), output) and time.monotonic() < until:
                output = printed_by(command, home, stage, shown_for)  # the hub may still be starting
            assert re.fullmatch(pattern(expected), output), f"$ {command}\n{output}"


def test_every_page_with_a_console_block_is_tested() -> None:
    assert {path.name for path in DOCS.glob("*.md") if CONSOLE.search(path.read_text())} == STAGES.keys()


def test_the_console_test_detects_a_different_output() -> None:
    expected = "server  tools\ntime    2\n...\n1 of 1 server works\n"
    assert re.fullmatch(pattern(expected), "server tools\ntime 12\nmore\n1 of 4 server works\n")
    assert not re.fullmatch(pattern(expected), "server tools\nclock 2\n1 of 1 server works\n")
    assert not re.fullmatch(pattern(expected), "server tools\ntime 2\n1 of 1 server fails\n")
