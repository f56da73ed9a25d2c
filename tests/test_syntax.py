"""The tests that read sources are not disturbed by a garbage collection."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.syntax import parsed

TESTS = Path(__file__).parent
LARGE = TESTS / "requirements" / "manifest" / "agentscope.py"


class Cycle:
    """Garbage whose finalizer parses."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        ast.parse("x = 1")


@pytest.fixture
def eager_collector() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(10, 1, 1)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("eager_collector")
def test_garbage_that_parses_does_not_disturb_a_file_that_is_parsed() -> None:
    for _ in range(30):
        for _ in range(9):
            Cycle()
        assert parsed(LARGE).body
    assert gc.isenabled()


def test_tests_parse_files_only_with_the_shared_function() -> None:
    allowed = {"syntax.py", "test_syntax.py"}
    paths = [path for path in TESTS.rglob("*.py") if path.name not in allowed]
    assert not [path for path in paths if "ast.parse(" in path.read_text(encoding="utf-8")]
