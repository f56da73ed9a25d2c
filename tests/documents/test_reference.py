"""The pages of the reference say what the program is today."""

from __future__ import annotations

import re

import pytest

from mcp_hub.cli import COMMANDS, EXIT_CODES
from tests.documents import reference, reference_settings
from tests.documents.keys import leads_to_a_key, root_keys

MOST_LINES = 250
"""Of one page; docs/codes.md is one list that is looked up by its anchors."""
PAGES = dict(reference.pages())


@pytest.mark.parametrize("name", PAGES)
def test_every_page_that_is_made_of_the_program_is_up_to_date(name: str) -> None:
    assert (reference.ROOT / name).read_text() == PAGES[name], "run scripts/reference"


def test_no_page_of_the_reference_is_long() -> None:
    long = {name for name, text in PAGES.items() if len(text.splitlines()) > MOST_LINES}
    assert long <= {"docs/codes.md"}


def test_every_command_is_on_one_page_of_the_reference() -> None:
    listed = [command for _, commands in reference.COMMAND_PAGES.values() for command in commands]
    assert sorted(listed) == sorted(COMMANDS)


def test_the_exit_codes_of_the_documents_are_those_of_the_program() -> None:
    text = (reference.ROOT / "docs" / "commands.md").read_text()
    listed = re.findall(r"^\| (\d+) \|", text, re.MULTILINE)
    assert listed == [line.split()[0] for line in EXIT_CODES.splitlines()[1:]]


def test_every_mapping_of_the_reference_is_one_that_a_file_may_have() -> None:
    places = [name for name, _ in reference_settings.of_root()]
    places += [f"servers.NAME.{name}" for name, _ in reference_settings.of_entries()]
    assert not [place for place in places if not leads_to_a_key(place.split("."), root_keys())]


def test_every_setting_of_a_mapping_says_what_it_means() -> None:
    for places in (reference_settings.of_root(), reference_settings.of_entries()):
        for name, model in places:
            without = reference_settings.hints_of(model).keys() - reference_settings.meanings(model).keys() - {"name"}
            assert not without, f"{name}: fields of {model.__name__} without a docstring"
