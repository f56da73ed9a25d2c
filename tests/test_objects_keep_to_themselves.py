"""What an object may reach: its own private members, and others through at most two of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mcp_hub
from tests.syntax import parsed

ROOT = Path(mcp_hub.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

DOCUMENTED = frozenset({"_asdict", "_replace", "_exit", "_getframe", "_Decompress"})
"""Names of the standard library that begin with an underscore and are public all the same."""
OF_LIBRARIES = frozenset({"_transport", "_converters"})
"""Members of other libraries without which something cannot be done; each has a comment that says so."""
CONTAINERS = frozenset({"add", "append", "clear", "get", "items", "keys", "pop", "set", "update", "values", "wait"})
"""Methods of containers and events: they reach no further object."""
DATA = frozenset({"config", "server", "listen", "scope", "reading", "tracing", "verify"})
"""Frozen data, whose members may be read as deep as they go."""
MODULES_OF_PYTHON = frozenset({"asyncio", "http", "importlib", "msgspec", "os", "urllib"})


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def members(tree: ast.AST) -> set[str]:
    """Private names that the classes and functions of a module define."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            found.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def chains(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Line and names of every chain of attributes, from its first name on."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or id(node) in inner:
            continue
        names, at = [], node
        while isinstance(at, ast.Attribute):
            names.append(at.attr)
            at = at.value  # type: ignore[assignment]
        if isinstance(at, ast.Name):
            yield node.lineno, [at.id, *reversed(names)]


@pytest.mark.parametrize("path", MODULES, ids=ids)
def test_no_private_member_of_a_class_of_another_module_is_used(path: Path) -> None:
    tree = parsed(path)
    own = members(tree)
    used = {
        f"line {line}: {'.'.join(names)}"
        for line, names in chains(tree)
        for at, name in enumerate(names)
        if at and name.startswith("_") and not name.startswith("__") and names[at - 1] not in ("self", "cls")
        if name not in own | DOCUMENTED | OF_LIBRARIES
    }
    assert not used


@pytest.mark.parametrize("path", MODULES, ids=ids)
def test_nothing_reaches_through_three_objects(path: Path) -> None:
    used = set()
    for line, names in chains(parsed(path)):
        reached = [name for name in names if name not in ("self", "cls")]
        if reached[-1] in CONTAINERS:
            reached.pop()
        data = next((at for at, name in enumerate(reached) if name in DATA), len(reached))
        if len(reached[: data + 1]) > 3 and names[0] not in MODULES_OF_PYTHON:
            used.add(f"line {line}: {'.'.join(names)}")
    assert not used
