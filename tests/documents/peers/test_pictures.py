"""The pictures of terminals in the documents show what the commands print today, against the same real servers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import pytest

from bench.pictures import PICTURES, SCENES, scenes_of_clients
from bench.terminal import COLOUR, ROOT, Scene, text_in, text_of

OF_THE_DAY: Final = re.compile(r"[\d.,]+|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)(?=day\b)")
"""What differs from run to run: numbers, dates, durations."""
OF_THE_MACHINE: Final = re.compile(r"^ *ok +(?:npx|uvx|docker) .*\n", re.MULTILINE)
"""Which launchers are installed, in what `doctor` prints."""


def compared(text: str) -> str:
    """A text without what differs from run to run, and without the columns and the wrapping that numbers decide."""
    return "".join(OF_THE_DAY.sub("", OF_THE_MACHINE.sub("", text)).split())


@pytest.mark.parametrize("scene", [*SCENES, *scenes_of_clients()], ids=lambda scene: scene.name)
def test_a_picture_of_a_terminal_shows_what_the_command_prints(scene: Scene) -> None:
    text = text_in(PICTURES / f"{scene.name}.svg")
    for command in scene.typed:
        if not command.startswith("mcp-hub "):  # a client program, of 700 MB, that only scripts/pictures installs
            text, separator, output = text.partition(f"$ {command}\n")
            assert separator
            assert "hub" in output
            assert "✗" not in output
            assert not re.search(rf"{ROOT}|/tmp/", output)
    scene = replace(scene, typed=[typed for typed in scene.typed if typed.startswith("mcp-hub ")])
    assert compared(text) == compared(COLOUR.sub("", text_of(scene))), "run scripts/pictures"
    assert not re.search(rf"{ROOT}|/tmp/", text)


def test_the_picture_test_detects_a_different_output() -> None:
    assert compared("ok    time  2 tools, connected in 3.2 s\n") == compared("ok  time  12 tools, connected in 10 s")
    assert compared("ok    time  2 tools") != compared("FAIL  time  2 tools")
    assert compared("ok    npx   not installed\nok    time") == compared("ok  time")
