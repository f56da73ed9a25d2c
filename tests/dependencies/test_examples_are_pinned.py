"""Whoever copies an example runs the version that was looked at, not the one that is published next."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from mcp_hub.config.config_files import HOW_TO_CREATE
from mcp_hub.config.package_specs import find_unpinned_packages

ROOT = Path(__file__).parents[2]
EXAMPLES = [path for path in ROOT.glob("examples/**/*.*") if path.suffix != ".pyc"]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *EXAMPLES])
_FENCED = re.compile(r"^[ \t]*```(\w*) ?(\w*)[^\n]*\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)
THEIRS = ("before", "after")
"""Somebody's file, and what its import writes: the versions are theirs, and `check` says what is not pinned."""
_RUN = re.compile(
    r"(?:^[ \t]*(?:\$ )?|[`'\"]|-- |&& )"
    r"((?:npx|uvx|bunx|pnpx|pipx run|uv tool run|npm exec|pnpm dlx|yarn dlx)\s[^`\n]*)",
    re.MULTILINE,
)


def commands(tree: Any) -> Iterator[tuple[str, list[str]]]:
    """Every command with its arguments in a document."""
    if isinstance(tree, dict):
        command, args = tree.get("command"), tree.get("args") or []
        if isinstance(command, str) and isinstance(args, list):
            yield command, [str(arg) for arg in args]
        if isinstance(command, list) and command:
            yield str(command[0]), [str(arg) for arg in command[1:]]
        for inner in tree.values():
            yield from commands(inner)
    elif isinstance(tree, list):
        for inner in tree:
            yield from commands(inner)


def in_text(text: str) -> Iterator[tuple[str, list[str]]]:
    """Commands in the fenced documents and the shell lines of a page."""
    for language, mark, body in _FENCED.findall(text):
        if mark in THEIRS:
            continue
        if language in ("yaml", "yml"):
            yield from commands(yaml.safe_load(body))
        elif language in ("json", "jsonc", "json5"):
            yield from commands(json.loads(body))
        elif language in ("sh", "shell", "console", "bash", ""):
            for match in _RUN.finditer(body):
                argv = shlex.split(match[1], comments=True)
                yield argv[0], argv[1:]


def uncommented(text: str) -> str:
    """servers.yaml with all of its ready entries switched on."""
    return re.sub(r"^(\s*)# ((?:# .*)|(?:\s*[\w-]+:.*)|(?:\s+.*))$", r"\1\2", text, flags=re.MULTILINE)


def unpinned(command_lines: Iterable[tuple[str, list[str]]]) -> list[str]:
    return [package for command, args in command_lines for package in find_unpinned_packages(command, tuple(args))]


def test_no_document_shows_a_command_without_a_pinned_version() -> None:
    loose = [f"{page.name}: {package}" for page in PAGES for package in unpinned(in_text(page.read_text()))]
    assert loose == []


def test_the_ready_entries_of_servers_yaml_are_pinned() -> None:
    tree = yaml.safe_load(uncommented((ROOT / "servers.yaml").read_text()))
    command_lines = list(commands(tree))
    assert len([1 for command, _ in command_lines if command in ("npx", "uvx")]) >= 8
    assert unpinned(command_lines) == []


def test_the_example_of_an_error_is_pinned() -> None:
    command_lines = list(commands(yaml.safe_load(HOW_TO_CREATE.partition("\n")[2])))
    assert command_lines
    assert unpinned(command_lines) == []


def test_the_search_for_unpinned_commands_finds_them() -> None:
    page = (
        "```yaml\nservers: {a: {command: npx, args: [-y, thing]}}\n```\n"
        '```json\n{"mcp": {"b": {"command": ["uvx", "other"]}}}\n```\n'
        "```sh\nnpx -y third@latest\n```\n"
    )
    assert unpinned(in_text(page)) == ["thing", "other", "third@latest"]
