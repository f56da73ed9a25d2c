"""What an object may reach: its own private members, and others through at most two of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import mcp_hub
from tests.syntax import parsed

ROOT = Path(mcp_hub.__file__).parent

DOCUMENTED = frozenset({"_asdict", "_replace", "_exit", "_getframe", "_Decompress"})
"""Names of the standard library that begin with an underscore and are public all the same."""
OF_LIBRARIES = frozenset({"_transport", "_converters"})
"""Members of other libraries without which something cannot be done; each has a comment that says so."""
CONTAINERS = frozenset({"add", "append", "clear", "get", "items", "keys", "pop", "set", "update", "values", "wait"})
"""Methods of containers and events: they reach no further object."""
DATA = frozenset({"config", "server", "listen", "scope", "reading", "tracing", "verify"})
"""Frozen data, whose members may be read as deep as they go."""
MODULES_OF_PYTHON = frozenset({"asyncio", "http", "importlib", "msgspec", "os", "urllib"})


def members(tree: ast.AST) -> set[str]:
    """Private names that the classes and functions of a module define."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            names.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def chains(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Line and names of every chain of attributes, from its first name on."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or id(node) in inner:
            continue
        names, expression = [], node
        while isinstance(expression, ast.Attribute):
            names.append(expression.attr)
            expression = expression.value  # type: ignore[assignment]
        if isinstance(expression, ast.Name):
            yield node.lineno, [expression.id, *reversed(names)]


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """The syntax trees of all modules, by path within the package."""
    return {str(path.relative_to(ROOT)): parsed(path) for path in sorted(ROOT.rglob("*.py"))}


def test_no_private_member_of_a_class_of_another_module_is_used(trees: dict[str, ast.Module]) -> None:
    used = set()
    for path, tree in trees.items():
        own = members(tree)
        for line, names in chains(tree):
            for owner, name in pairwise(names):
                private = name.startswith("_") and not name.startswith("__") and owner not in ("self", "cls")
                if private and name not in own | DOCUMENTED | OF_LIBRARIES:
                    used.add(f"{path}:{line}: {'.'.join(names)}")
    assert not used


def test_no_expression_reaches_through_three_objects(trees: dict[str, ast.Module]) -> None:
    used = set()
    for path, tree in trees.items():
        for line, names in chains(tree):
            reached = [name for name in names if name not in ("self", "cls")]
            if reached[-1] in CONTAINERS:
                reached.pop()
            data = next((index for index, name in enumerate(reached) if name in DATA), len(reached))
            if len(reached[: data + 1]) > 3 and names[0] not in MODULES_OF_PYTHON:
                used.add(f"{path}:{line}: {'.'.join(names)}")
    assert not used
