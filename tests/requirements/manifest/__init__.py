"""Which tests show each row, or why there is nothing to show. `test_the_manifest.py` compares them with the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.requirements.manifest import agently, agentscope, charter, miroflow, tool_system

_DOCUMENTS: Final = (agently, agentscope, tool_system, miroflow, charter)

ROW_TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    row: tests for document in _DOCUMENTS for row, tests in document.ROW_TESTS.items()
}
"""Row -> the tests that show it, as `path below tests/::name`."""
OUT: Final[Mapping[str, str]] = {row: reason for document in _DOCUMENTS for row, reason in document.OUT.items()}
"""Row -> why it is not done."""
PARTLY: Final[Mapping[str, str]] = {row: why for document in _DOCUMENTS for row, why in document.PARTLY.items()}
"""Row -> where what is there differs from the text of the row, and why."""
