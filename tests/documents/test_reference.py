"""The pages of the reference say what the program is today."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from mcp_hub.cli import COMMANDS, EXIT_CODES
from mcp_hub.config import entry_keys
from mcp_hub.config.dialect import FILTERS, ROOT_KEYS
from mcp_hub.diagnosis import remedies
from mcp_hub.diagnosis.page import anchor
from mcp_hub.policy.chain import KEYS
from tests.documents import reference, reference_keys, reference_settings
from tests.documents.keys import leads_to_a_key, root_keys

MOST_LINES = 250
"""Of one page."""


@cache
def pages() -> dict[str, str]:
    """The text of each page by its path. Made once, and not as this module is imported by each worker."""
    return dict(reference.pages())


def test_every_generated_page_is_up_to_date() -> None:
    stale = [name for name, text in pages().items() if (reference.ROOT / name).read_text() != text]
    assert stale == [], "run scripts/reference"


def test_no_document_exceeds_the_line_limit() -> None:
    pages = [*(reference.ROOT / "docs").rglob("*.md"), reference.ROOT / "README.md"]
    assert not [str(path) for path in pages if len(path.read_text().splitlines()) > MOST_LINES]


def test_every_command_is_on_one_page_of_the_reference() -> None:
    listed = [command for _, commands in reference.COMMAND_PAGES.values() for command in commands]
    assert sorted(listed) == sorted(COMMANDS)


def test_documented_exit_codes_match_the_program() -> None:
    text = (reference.ROOT / "docs" / "commands.md").read_text()
    listed = re.findall(r"^\| (\d+) \|", text, re.MULTILINE)
    assert listed == [line.split()[0] for line in EXIT_CODES.splitlines()[1:]]


def test_every_mapping_of_the_reference_is_accepted_by_the_configuration() -> None:
    paths = [name for name, _ in reference_settings.of_root()]
    paths += [f"servers.NAME.{name}" for name, _ in reference_settings.of_entries()]
    assert not [path for path in paths if not leads_to_a_key(path.split("."), root_keys())]


def test_every_setting_of_a_mapping_has_a_description() -> None:
    for models in (reference_settings.of_root(), reference_settings.of_entries()):
        for name, model in models:
            without = reference_settings.hints_of(model).keys() - reference_settings.meanings(model).keys() - {"name"}
            assert not without, f"{name}: fields of {model.__name__} without a docstring"


def names_in(subjects: Iterator[tuple[str, list[reference_keys.Row]]]) -> list[str]:
    """The keys of the rows of subjects."""
    return [re.findall(r"`(\w+)`", row[0])[0] for _, rows in subjects for row in rows]


def test_every_key_of_a_file_is_on_the_page_of_the_root_once() -> None:
    listed = names_in(reference_keys.of_root())
    expected = {"servers", *ROOT_KEYS, *(key.name for key in KEYS.root)} - {"serverDefaults", "scrape", "always"}
    assert sorted(listed) == sorted(expected)


def test_every_key_of_an_entry_is_on_the_page_of_servers_once() -> None:
    listed = [*names_in(reference_keys.of_entry()), *reference_keys.OF_OTHER_PROGRAMS]
    halves = {half: key for key, half in FILTERS.items() if key in listed}
    expected = {*entry_keys.KEYS, *halves.values(), *(key.name for key in KEYS.entry)}
    assert sorted(listed) == sorted(expected | {"timeout", "idle_timeout"})
    assert halves.keys() == set(FILTERS.values())


def test_every_diagnosis_code_has_one_section_and_its_url_leads_there() -> None:
    for code in remedies():
        page, _, fragment = anchor(code).partition("#")
        assert pages()[page].count(f"### {code}\n") == 1
        assert fragment == code.lower()
        assert f"[{code}]({anchor(code).removeprefix('docs/')})" in pages()["docs/codes.md"]
