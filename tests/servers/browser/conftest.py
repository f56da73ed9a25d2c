from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the processes of this test put temporary files; its path is short, for Chromium makes a socket in there."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        monkeypatch.setenv("TMPDIR", directory)
        yield Path(directory)
