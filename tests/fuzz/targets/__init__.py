"""The fuzz targets: one function each, bytes -> None, that raises where a promise of the hub is broken.

Beside `target` each module has `TOKENS`, pieces worth inserting, and `SEEDS`, texts worth starting from. The tests run
them with hypothesis, `scripts/fuzz` guided by coverage.
"""

from __future__ import annotations

import importlib
import time
from types import ModuleType
from typing import Final

STALL: Final = 0.1
"""Seconds of processor time for one text, which has some hundred bytes: more would block a hub's loop."""

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
    "readers",
)


def load(name: str) -> ModuleType:
    """Imports the module of one target, only now, so that a coverage-guided run can instrument what it imports."""
    return importlib.import_module(f"{__name__}.{name}")


def run(module: ModuleType, data: bytes) -> None:
    """Runs one text, which must not take longer than `STALL` in any of three attempts."""
    for attempt in range(3):
        began = time.thread_time()
        module.target(data)
        seconds = time.thread_time() - began
        if seconds <= STALL:
            return
        assert attempt < 2, f"{seconds:.2f} s of processor time for {len(data):,} bytes"
