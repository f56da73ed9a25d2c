"""`mcp-hub add`: the forms of its arguments, those of other programs among them, and mistakes in them."""

import pytest
import yaml

from mcp_hub.cli import BAD_INPUT, OK, UNCONFIRMED
from tests.cli.person import Person


@pytest.mark.parametrize(
    "words",
    [
        ["no-such-server"],
        ["ftp://example.com/mcp"],
        ["https:///mcp"],
        ["https://exa mple.com/"],
        ["time", "--name", "a b"],
        ["time", "--name", "../x"],
        ["x", "--command"],
        ["time", "--set", "novalue"],
        ["x\x1b[2J", "--command", "true"],
    ],
)
def test_invalid_input_is_refused_with_an_explanation(person: Person, words: list[str]) -> None:
    assert person.run("add", "--yes", *words) == BAD_INPUT
    assert person.err.strip()
    assert "\x1b" not in person.err + person.out
    assert not person.config.exists()


def test_a_misspelled_name_is_answered_with_the_name_that_is_meant(person: Person) -> None:
    assert person.run("add", "tiem") == BAD_INPUT
    assert "did you mean 'time'?" in person.err


def test_a_command_line_in_one_pair_of_quotes_is_refused(person: Person) -> None:
    assert person.run("add", "notes", "--yes", "--command", "npx -y notes") == BAD_INPUT
    assert "without quotes" in person.err


def test_an_option_behind_the_command_line_is_pointed_out(person: Person) -> None:
    assert person.run("add", "notes", "--command", "true", "--yes") == UNCONFIRMED
    assert "note: --yes is a word of the command" in person.err


@pytest.mark.parametrize(
    "words",
    [
        ["notes", "--env", "LEVEL=3", "--off", "--yes", "--", "true", "--deep", "--"],
        ["-e", "LEVEL=3", "notes", "--transport", "stdio", "--yes", "--off", "--", "true", "--deep", "--"],
        ["notes", "--set", "LEVEL=3", "--off", "--yes", "--command", "true", "--deep", "--"],
    ],
)
def test_a_command_line_is_added_by_the_arguments_of_claude_and_codex(person: Person, words: list[str]) -> None:
    assert person.run("add", *words) == OK
    entry = yaml.safe_load(person.config.read_text())["servers"]["notes"]
    assert entry == {"command": "true", "args": ["--deep", "--"], "env": {"LEVEL": "3"}, "enabled": False}


@pytest.mark.parametrize(
    ("words", "transport"),
    [
        (["--transport", "http", "notes", "https://mcp.example.com/mcp"], {"transport": "http"}),
        (["notes", "https://mcp.example.com/mcp"], {}),
        (["notes", "--url", "https://mcp.example.com/mcp"], {}),
    ],
)
def test_an_address_is_added_by_the_arguments_of_claude_and_codex(
    person: Person, words: list[str], transport: dict[str, str]
) -> None:
    assert person.run("add", *words, "--header", "X-Team: a=b: c", "--off", "--yes") == OK
    entry = yaml.safe_load(person.config.read_text())["servers"]["notes"]
    expected = {"url": "https://mcp.example.com/mcp", "headers": {"X-Team": "a=b: c"}, "enabled": False}
    assert entry == expected | transport


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["notes", "npx", "pkg"], "mcp-hub add notes -- npx pkg"),
        (["notes", "https://mcp.example.com/mcp", "--", "true"], "mcp-hub add NAME -- COMMAND"),
        (["notes", "https://mcp.example.com/mcp", "--transport", "stdio"], "is for a command line"),
        (["notes", "--header", "X-Team: a", "--", "true"], "are for an address: mcp-hub add NAME URL"),
        (["time", "--transport", "sse"], "are for an address: mcp-hub add NAME URL"),
        (["notes", "--"], "the command line is missing"),
        (["https://mcp.example.com/mcp", "--header", "X-Team"], "--header needs 'NAME: VALUE'"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused_with_the_form_to_write(
    person: Person, words: list[str], text: str
) -> None:
    assert person.run("add", "--yes", *words) == BAD_INPUT
    assert text in person.err
    assert not person.config.exists()


@pytest.mark.parametrize("name", ["@modelcontextprotocol/server-memory", "@small/server@1.0.0", "mcp-server-time"])
def test_a_bare_package_name_is_answered_with_the_command_that_adds_it(person: Person, name: str) -> None:
    assert person.run("add", name, "--yes") == BAD_INPUT
    assert f"there is no '{name}' in the bundled list" in person.err
    assert "mcp-hub add NAME -- npx -y PACKAGE (or uvx PACKAGE)" in person.err
