"""Tests of redaction know no secret but their own."""

from __future__ import annotations

import pytest

from mcp_hub.security import redaction
from mcp_hub.security.redaction import LearnedSecrets


@pytest.fixture(autouse=True)
def nothing_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what tests before this one have let the process learn."""
    monkeypatch.setattr(redaction, "LEARNED", LearnedSecrets())
