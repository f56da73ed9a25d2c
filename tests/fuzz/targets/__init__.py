"""What is fuzzed: one function each, bytes -> None, that raises where a promise of the hub is broken.

Beside `target` each module has `TOKENS`, pieces worth putting in, and `SEEDS`, texts worth starting from. The tests run
them with hypothesis, `scripts/fuzz` guided by coverage.
"""

from __future__ import annotations

import importlib
from types import ModuleType

NAMES = (
    "lines",
    "frames",
    "events",
    "exposed_names",
    "configuration",
    "gate",
    "urls",
    "redacted",
    "conversation",
    "bodies",
    "sockets",
    "answers",
)


def load(name: str) -> ModuleType:
    """The module of one target; imported only now, so that a coverage-guided run can instrument what it imports."""
    return importlib.import_module(f"{__name__}.{name}")
