"""Documents name no file, module, class, command, flag or key that does not exist."""

from __future__ import annotations

import argparse
import ast
import fnmatch
import importlib
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from mcp_hub.cli import COMMANDS
from tests.documents.keys import all_trees, entry_keys, is_key, leads_to_a_key, native_keys, root_keys, unknown_in
from tests.syntax import parsed

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
OF_THE_CODE = [ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md")]
OF_THE_CODE += [ROOT / "docs" / name for name in ("internals.md", "decisions.md", "extending.md")]
"""Documents whose code spans name classes and functions of the project."""

SPAN = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
OURS = re.compile(r"(?<![\w/.:-])(?:(?:mcp_hub|tests|bench)/[\w./*-]+|scripts/[\w.]+|docs/[\w/]+\.md)")
MODULE = re.compile(r"\bmcp_hub(?:\.\w+)+")
COMMAND = re.compile(r"(?:^|\$ |`|&& )mcp-hub ([a-z]+)((?: [^\s`|;&)]+)*)", re.MULTILINE)
SYMBOL = re.compile(r"([A-Z][A-Za-z0-9]+)(?:\.(\w+))?(?:\(\))?")
PROSE = {"mcp-hub is"}
"""What the command itself prints, in the manner of a command."""
BLOCK = re.compile(r"^( *)```(?:yaml|json)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
DOTTED = re.compile(r"[a-z_]+(?:\.(?:\w+|<\w+>))+")
SETTING = re.compile(r"([a-z_]+): \S.*")
TABLE = re.compile(r"^\| key\b[^|]*\|.*\n\|[-| :]*\n((?:\|.*\n)+)", re.MULTILINE)
SUFFIXES = (".py", ".js", ".yaml", ".toml", ".json", ".lock")
OTHER_SETTINGS = {"result", "run", "path", "browser"}
"""What looks like a setting: members of messages, what the command prints, arguments, names of servers."""
NEW_KEYS = {"hidden"}
"""The key of the policy that docs/extending.md adds."""
EXAMPLES = {
    "mcp_hub/cli/NAME.py",
    "tests/policy/access/test_hidden.py",
    "mcp_hub/policy/hidden.py",
    "mcp_hub/transport/memory_link.py",
}
"""Files that docs/extending.md tells its reader to write."""


@cache
def text_of(path: Path) -> str:
    # What the history tells of has been renamed since.
    return "" if path.name == "CHANGELOG.md" else path.read_text()


def files_that_are_missing(document: Path) -> Iterable[str]:
    named = {path.rstrip(".,:/") for path in OURS.findall(text_of(document))} - EXAMPLES
    return [name for name in named if not [*ROOT.glob(name), *ROOT.glob(f"{name}.py")]]


def modules_in_short_that_are_missing(document: Path) -> Iterable[str]:
    named = set(re.findall(r"(?<![\w./-])(?:\w+/)*\w+\.py\b", text_of(document))) - EXAMPLES
    files = [
        path.relative_to(ROOT).as_posix()
        for directory in ("mcp_hub", "tests")
        for path in (ROOT / directory).rglob("*.py")
    ]
    return [name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in files)]


def links_that_lead_nowhere(document: Path) -> Iterable[str]:
    wrong = []
    for link in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)", FENCE.sub("", text_of(document))):
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    return wrong


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as web sites that show Markdown make them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


def test_every_page_of_the_documentation_is_in_its_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for link in re.findall(r"\]\(([^)#\s]+)", index.read_text())}
    assert not {path for path in (ROOT / "docs").rglob("*.md") if path != index} - linked


def test_the_readme_has_at_most_150_lines_and_shows_scripts_serve_and_scripts_test() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    (block,) = (block for block in FENCE.findall(text) if "scripts/test" in block)
    commands = [line.partition("#")[0].strip() for line in block.splitlines()[1:-1]]
    assert commands == ["scripts/serve", "scripts/test"]


def dotted_names_that_cannot_be_imported(document: Path) -> Iterable[str]:
    examples = {file.removesuffix(".py").replace("/", ".") for file in EXAMPLES}
    return [name for name in set(MODULE.findall(text_of(document))) - examples if not resolves(name)]


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, something in one, or a logger."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            target = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if not hasattr(target, part):
                return name in loggers()
            target = getattr(target, part)
        return True
    return False


@cache
def loggers() -> frozenset[str]:
    """The names of loggers, and of attributes of spans, which look like modules."""
    texts = (path.read_text() for path in (ROOT / "mcp_hub").rglob("*.py"))
    return frozenset(name for text in texts for name in re.findall(r'"(mcp_hub\.[\w.]+)"', text))


def commands_and_flags_that_are_missing(document: Path) -> Iterable[str]:
    wrong = []
    for command, arguments in COMMAND.findall(text_of(document)):
        if f"mcp-hub {command}" in PROSE:
            continue
        if command not in (*COMMANDS, "help"):
            wrong.append(command)
            continue
        own = arguments.partition(" -- ")[0].split()  # the arguments behind it are another command's
        flags = {
            argument.partition("=")[0].strip("`.,:\"'[]") for argument in own if argument.lstrip("[").startswith("--")
        }
        wrong += [f"{command} {flag}" for flag in flags - (flags_of(command) if command != "help" else frozenset())]
    return wrong


@cache
def flags_of(command: str) -> frozenset[str]:
    parser = argparse.ArgumentParser()
    importlib.import_module(f"mcp_hub.cli.{command}").add_arguments(parser)
    return frozenset(parser._option_string_actions)


def classes_and_members_that_are_missing(document: Path) -> Iterable[str]:
    text = text_of(document)
    diagrams = "\n".join(block for block in FENCE.findall(text) if block.startswith("```\n"))
    named = {match for span in SPAN.findall(FENCE.sub("", text)) if (match := SYMBOL.fullmatch(span))}
    wrong = set()
    for match in [*named, *re.finditer(r"\b([A-Z][A-Za-z0-9]+)\.(\w+)", diagrams)]:
        name, member = match.groups()
        if member is not None and member not in members().get(name, ()):
            wrong.add(match[0])
    return wrong


def missing_tests(document: Path) -> Iterable[str]:
    named = {span for span in SPAN.findall(FENCE.sub("", text_of(document))) if re.fullmatch(r"test_\w+", span)}
    return named - names_of_tests()


@cache
def names_of_tests() -> set[str]:
    """The names of all tests, in every module."""
    texts = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    return {name for text in texts for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE)}


@cache
def members() -> dict[str, set[str]]:
    """What each class of the project has: methods, fields, and attributes that a method sets."""
    by_class: dict[str, set[str]] = {}
    for path in [*(ROOT / "mcp_hub").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                by_class.setdefault(node.name, set()).update(names_in(node))
    return by_class


def names_in(node: ast.ClassDef) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            yield inner.name
        elif isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "self":
            yield inner.attr
        elif isinstance(inner, ast.AnnAssign | ast.Assign):
            targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def constants_that_are_missing(document: Path) -> Iterable[str]:
    spans = {span.removesuffix("()") for span in SPAN.findall(FENCE.sub("", text_of(document)))}
    constants = {span for span in spans if re.fullmatch(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+", span)}
    return constants - identifiers()


@cache
def identifiers() -> frozenset[str]:
    """Every name that the project's code uses."""
    files = [path for room in ("mcp_hub", "tests", "bench") for path in (ROOT / room).rglob("*.py")]
    return frozenset(name for path in files for name in re.findall(r"\w+", path.read_text()))


def shown_keys_that_are_missing(document: Path) -> Iterable[str]:
    wrong: list[str] = []
    for _, text in BLOCK.findall(text_of(document)):
        tree = yaml.safe_load(textwrap.dedent(text))  # which reads JSON as well
        if not isinstance(tree, dict):
            continue
        if "api_url" in tree:
            wrong += unknown_in(tree, native_keys())
        elif tree.keys() & root_keys().keys() - {"description", "name"}:
            wrong += unknown_in(tree, root_keys())
    return [key for key in wrong if key.rpartition(".")[2] not in NEW_KEYS]


def named_keys_that_are_missing(document: Path) -> Iterable[str]:
    text = text_of(document)
    wrong = set()
    for span in SPAN.findall(FENCE.sub("", text)):
        if DOTTED.fullmatch(span) and not span.endswith(SUFFIXES):
            path = span.replace("<", "").replace(">", "").split(".")
            # What begins with no key is a name of something else.
            trees = [tree for tree in all_trees() if isinstance(tree.get(path[0]), dict)]
            if trees and not any(leads_to_a_key(path, tree) for tree in trees):
                wrong.add(span)
        elif (setting := SETTING.fullmatch(span)) and not is_key(setting[1]) and setting[1] not in OTHER_SETTINGS:
            wrong.add(span)
    return wrong


def keys_of_tables_that_are_missing(document: Path) -> Iterable[str]:
    wrong = set()
    for rows in TABLE.findall(text_of(document)):
        for row in rows.splitlines():
            for span in SPAN.findall(row.split("|")[1]):
                path = span.partition(":")[0].removeprefix(".").split(".")
                # `enable_*` stands for several keys.
                named = [(tree, name) for tree in all_trees() for name in fnmatch.filter(tree, path[0])]
                if not any(leads_to_a_key([name, *path[1:]], tree) for tree, name in named):
                    wrong.add(span)
    return wrong


CHECKS = {
    files_that_are_missing: DOCUMENTS,
    links_that_lead_nowhere: DOCUMENTS,
    dotted_names_that_cannot_be_imported: DOCUMENTS,
    commands_and_flags_that_are_missing: DOCUMENTS,
    missing_tests: DOCUMENTS,
    shown_keys_that_are_missing: DOCUMENTS,
    named_keys_that_are_missing: DOCUMENTS,
    keys_of_tables_that_are_missing: DOCUMENTS,
    modules_in_short_that_are_missing: OF_THE_CODE,
    classes_and_members_that_are_missing: OF_THE_CODE,
    constants_that_are_missing: OF_THE_CODE,
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_no_document_names_what_does_not_exist(check: Callable[[Path], Iterable[str]]) -> None:
    wrong = [f"{document.relative_to(ROOT)}: {name}" for document in CHECKS[check] for name in check(document)]
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        "servers: {a: {breker: 3}}",
        "servers: {a: {tools: {x: {prest: {}}}}}",
        "listen: {verify: {jwt: {isuer: x}}}",
        "guard: {tols: []}",
        "profiles: {a: {tool_set: []}}",
    ],
)
def test_a_key_that_does_not_exist_is_found_at_any_depth(text: str) -> None:
    assert len(list(unknown_in(yaml.safe_load(text), root_keys()))) == 1


@pytest.mark.parametrize(
    ("path", "exists"),
    [
        ("servers.NAME.preset", True),
        ("servers.NAME.breaker.cooldown", True),
        ("servers.NAME.breaker.cooldwn", False),
        ("listen.principals.NAME.limits.rate", True),
        ("listen.gui", False),
        ("groups.NAME.active", True),
    ],
)
def test_a_key_path_is_found_exactly_if_the_key_exists(path: str, exists: bool) -> None:
    assert leads_to_a_key(path.split("."), root_keys()) is exists
    assert entry_keys().keys() < set().union(*all_trees())


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("Set `listen.gui`.", named_keys_that_are_missing),
        ("Write `sesion: client`.", named_keys_that_are_missing),
        ("```yaml\nservers: {a: {prest: {}}}\n```", shown_keys_that_are_missing),
        ("| key | default |\n|---|---|\n| `cooldwn` | 1 |\n", keys_of_tables_that_are_missing),
    ],
)
def test_a_document_with_a_key_that_does_not_exist_fails(
    tmp_path: Path, text: str, check: Callable[[Path], Iterable[str]]
) -> None:
    document = tmp_path / "document.md"
    document.write_text(text)
    assert check(document)
