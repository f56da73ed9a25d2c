"""Names and sizes, read from the sources: one name for one thing, and pieces that fit on a screen."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

import mcp_hub
from tests.syntax import parsed

ROOT = Path(mcp_hub.__file__).parent

MODULES_AT_THE_ROOT = 6
LINES_OF_A_FILE = 600
LINES_OF_A_FUNCTION = 50
"""Without its signature and docstring."""


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    """The syntax trees of all modules."""
    return {path: parsed(path) for path in sorted(ROOT.rglob("*.py"))}


def with_one_name(paths: Mapping[str, list[str]]) -> list[str]:
    """Says which names stand for two things, and where they are."""
    return [f"{name}: {', '.join(locations)}" for name, locations in sorted(paths.items()) if len(locations) > 1]


def test_no_two_modules_have_one_name(trees: dict[Path, ast.Module]) -> None:
    paths = defaultdict(list)
    for path in trees:
        if not path.name.startswith("__"):
            paths[path.name].append(str(path.relative_to(ROOT)))
    assert not with_one_name(paths)


def test_no_two_public_classes_have_one_name(trees: dict[Path, ast.Module]) -> None:
    paths = defaultdict(list)
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                paths[node.name].append(str(path.relative_to(ROOT)))
    assert not with_one_name(paths)


def test_the_root_has_at_most_six_modules(trees: dict[Path, ast.Module]) -> None:
    assert len([path for path in trees if path.parent == ROOT]) <= MODULES_AT_THE_ROOT


def test_no_file_is_longer_than_a_noun_needs(trees: dict[Path, ast.Module]) -> None:
    lengths = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n") for path in trees}
    assert not {path: length for path, length in lengths.items() if length > LINES_OF_A_FILE}


def test_no_function_is_longer_than_a_screen(trees: dict[Path, ast.Module]) -> None:
    long = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[1] if ast.get_docstring(node) is not None and node.body[1:] else node.body[0]
                assert node.end_lineno is not None
                lines = node.end_lineno - first.lineno + 1
                if lines > LINES_OF_A_FUNCTION:
                    long[f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"] = lines
    assert not long
