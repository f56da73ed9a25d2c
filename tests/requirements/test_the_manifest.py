"""Every row and every check has its tests or its reason, and every test that is named is there."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.requirements.manifest import OUT, PARTLY, ROW_TESTS
from tests.requirements.pages import DOORS, PAGE_TEXTS
from tests.requirements.rows import CHECKS, ROWS
from tests.syntax import parsed

TESTS = Path(__file__).parents[1]


@functools.cache
def functions(path: str) -> dict[str, str]:
    """The tests of a file, with their docstrings."""
    tree = parsed(TESTS / path)
    return {
        node.name: ast.get_docstring(node) or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def missing(nodes: tuple[str, ...]) -> Iterator[str]:
    for node in nodes:
        path, _, name = node.partition("::")
        if not (TESTS / path).is_file() or name not in functions(path):
            yield node


@functools.cache
def check_tests() -> dict[int, list[str]]:
    """Check -> the tests whose docstring begins with its number, or whose name does."""
    tests_by_check: dict[int, list[str]] = {}
    for path in sorted(TESTS.rglob("*.py")):
        for name, docstring in functions(str(path.relative_to(TESTS))).items():
            numbers = re.match(r"Checks? ([\d, and]+)", docstring) or re.match(r"test_check_(\d+)_", name)
            for number in re.findall(r"\d+", numbers[1]) if numbers else []:
                tests_by_check.setdefault(int(number), []).append(f"{path.name}::{name}")
    return tests_by_check


@pytest.mark.parametrize("row", ROWS)
def test_every_requirement_has_its_tests_or_a_reason_for_none(row: str) -> None:
    assert (row in ROW_TESTS) is not (row in OUT), f"{row}, {ROWS[row]}: tests, or a reason why there are none"
    if row in ROW_TESTS:
        assert ROW_TESTS[row], f"{row} names no test"
        assert list(missing(ROW_TESTS[row])) == []


@pytest.mark.parametrize("row", ROWS)
def test_every_row_is_found_from_the_page_of_its_document(row: str) -> None:
    door = DOORS[row.partition("-")[0]]
    page, text = entry if isinstance(entry := PAGE_TEXTS[row], tuple) else (door, entry)
    start = TESTS.parent / door
    linked = {(start.parent / link).resolve() for link in re.findall(r"\]\(([^)#\s]+)", start.read_text())}
    assert page == door or TESTS.parent / page in linked, f"{door} does not link to {page}"
    assert text in (TESTS.parent / page).read_text(), f"{row}, {ROWS[row]}: {page} does not say {text!r}"


def test_the_manifest_has_no_unknown_rows() -> None:
    assert {*ROW_TESTS, *OUT} <= set(ROWS)
    assert set(PAGE_TEXTS) == set(ROWS)
    assert set(PARTLY) <= set(ROW_TESTS), "where nothing is done, OUT says why"
    assert all(reason.strip() for reason in (*OUT.values(), *PARTLY.values()))


@pytest.mark.parametrize("number", CHECKS)
def test_every_check_has_a_test_that_names_it(number: int) -> None:
    assert number in check_tests(), f"no test says that it shows check {number}: {CHECKS[number]}"


def test_no_test_names_a_check_that_does_not_exist() -> None:
    assert set(check_tests()) <= set(CHECKS)
