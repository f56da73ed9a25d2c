"""The pages of docs/reference that are made of the program: its commands, settings and metrics."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from mcp_hub.cli import COMMANDS
from mcp_hub.config.inherited import INHERITED
from mcp_hub.diagnosis import page as codes
from tests.documents import reference_keys as keys
from tests.documents import reference_metrics as metrics
from tests.documents import reference_settings as settings

ROOT: Final = Path(__file__).parents[2]
GENERATED_NOTE: Final = "`scripts/reference` generates this page from {source}."
COMMAND_PAGES: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    "commands-run": (
        "Commands that run and inspect the hub",
        ("serve", "status", "logs", "open", "reload", "check", "doctor", "explain", "browser", "completion"),
    ),
    "commands-tools": (
        "Commands about tools and servers",
        ("tools", "tokens", "call", "search", "pin", "login", "logout", "trust"),
    ),
    "commands-change": (
        "Commands that change files",
        ("setup", "add", "remove", "enable", "disable", "update", "import", "install", "uninstall", "undo"),
    ),
}
"""Page -> its title, and the commands on it."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table. A bar within a cell is escaped, also in code, as GitHub wants it."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def parser_of(command: str) -> tuple[argparse.ArgumentParser, str]:
    """Returns the parser of a command, and its examples."""
    parser = argparse.ArgumentParser(prog=f"mcp-hub {command}", add_help=False)
    module = import_module(f"mcp_hub.cli.{command}")
    module.add_arguments(parser)
    return parser, module.EXAMPLES


def command_section(command: str) -> str:
    """Returns what a command takes, and its examples."""
    parser, examples = parser_of(command)
    positional = [action for action in parser._actions if not action.option_strings]
    options = [action for action in parser._actions if action.option_strings and action.help != argparse.SUPPRESS]
    usage = [f"mcp-hub {command}", *(["[OPTIONS]"] if options else []), *map(placed, positional)]
    summary = COMMANDS[command]
    parts = [f"## `mcp-hub {command}`", f"{summary[0].upper()}{summary[1:]}.", f"```text\n{' '.join(usage)}\n```"]
    rows = [(f"`{named(action)}`", meaning(action, parser)) for action in (*positional, *options)]
    if rows:
        parts.append(table(("argument", "meaning"), rows))
    examples_text = "\n".join(line.removeprefix("  ") for line in examples.splitlines() if line != "examples:")
    return "\n\n".join([*parts, f"```text\n{examples_text}\n```"])


def placed(action: argparse.Action) -> str:
    """Returns a positional argument as it stands in a usage line."""
    name = metavar(action)
    shapes = {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [{name} ...]", argparse.REMAINDER: "..."}
    return shapes.get(str(action.nargs), name)


def metavar(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return "|".join(map(str, action.choices)) if action.choices else action.dest.upper()


def named(action: argparse.Action) -> str:
    """Returns an argument with its spellings and its value."""
    if not action.option_strings:
        return metavar(action)
    value = "" if action.nargs == 0 else f" {placed(action)}"
    return ", ".join(f"{spelling}{value}" for spelling in action.option_strings)


def meaning(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    return (action.help or "") % {**vars(action), "prog": parser.prog}


def command_page(title: str, commands: Sequence[str]) -> str:
    """Returns a page of commands."""
    note = GENERATED_NOTE.format(source="the parsers of the commands")
    beginning = (
        f"# {title}\n\n[Commands](../commands.md) shows them with their output, and lists the exit codes.\n"
        f"Every command also accepts `-h` (help), `-v` (more messages on stderr) and `-vv` (all messages). {note}"
    )
    return "\n\n".join([beginning, *map(command_section, commands)]) + "\n"


def settings_page(title: str, plain: Iterator[str], models: Iterator[settings.NamedModel]) -> str:
    """Returns a page of settings: keys by subject, and the mappings among them."""
    beginning = (
        f"# {title}\n\n[Configuration](../configuration.md) explains how the hub finds and reads a file, and how to\n"
        f"write durations and sizes. {GENERATED_NOTE.format(source='the models of the configuration')}"
    )
    head = ("key", "type", "default", "meaning")
    mappings = [f"{heading}\n\n{table(head, rows)}" for heading, rows in settings.sections(models)]
    return "\n\n".join([beginning, *plain, *mappings]) + "\n"


def plain_keys(page: str) -> Iterator[str]:
    """Yields the sections of a page about keys by subject, before the mappings that they may have."""
    subjects = {"settings-root": keys.of_root, "settings-servers": keys.of_entry}.get(page)
    if subjects is None:
        return
    for subject, rows in subjects():
        yield f"## {subject}\n\n{table(keys.HEAD, rows)}"
    if page == "settings-servers":
        rows = [(f"`{name}`", description) for name, description in keys.OF_OTHER_PROGRAMS.items()]
        yield f"## Keys and spellings of other programs\n\n{table(('key', 'meaning'), rows)}"
        yield table(("key", "may be written as"), list(keys.spellings()))


INHERITANCE: Final = f"""# What servers inherit

Of the hub's own variables, the program of a server gets only those of this table. Any other variable must stand under
`env` of its entry: `env: {{MY_TOKEN: ${{MY_TOKEN}}}}`. A value that contains a credential, such as the password of a
URL, does not pass, nor does a name that only a `*` matches and that stands for a secret (`UV_PUBLISH_TOKEN`).
{GENERATED_NOTE.format(source="`mcp_hub/config/inherited.py`")}
"""


def inherited() -> Iterator[Sequence[str]]:
    """Yields the rows of the table of inherited variables."""
    systems = {"always": "all", "posix": "all, but on Windows", "windows": "all, on Windows", "never": "none"}
    for row in INHERITED:
        programs = ", ".join(f"`{program}`" for program in row.programs.split())
        yield " ".join(f"`{name}`" for name in row.names.split()), systems.get(row.passing, programs), row.reason


def pages() -> Iterator[tuple[str, str]]:
    """Yields the path of each page in the repository, and its text."""
    for name, (title, commands) in COMMAND_PAGES.items():
        yield f"docs/reference/{name}.md", command_page(title, commands)
    for name, title in settings.PAGES.items():
        yield f"docs/reference/{name}.md", settings_page(title, plain_keys(name), settings.on_page(name))
    rows = list(metrics.rows(metrics.exposition()))
    yield metrics.PAGE, metrics.BEGINNING + table(("metric", "kind", "labels", "meaning"), rows) + "\n"
    environment = table(("variables", "pass to", "reason"), list(inherited()))
    yield "docs/reference/environment.md", f"{INHERITANCE}\n{environment}\n"
    yield from codes.pages()


def main() -> int:
    """Writes all pages."""
    for name, text in pages():
        (ROOT / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
