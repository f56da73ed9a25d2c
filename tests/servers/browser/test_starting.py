"""A browser that does not start is told of, with the reason."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from mcp_hub.servers.builtin import Settings, chromium
from mcp_hub.servers.builtin.browser_session import open_browser
from mcp_hub.servers.local.tool_results import ToolRefused
from tests.fakes.client import PATIENCE

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("script", "wait", "code", "said"),
    [
        ("exec sleep 60", 3.0, "timeout", "did not start within 3 s"),
        ("echo no display >&2; exit 3", PATIENCE, "server_unavailable", "no display"),
    ],
)
async def test_a_browser_that_fails_to_start_is_reported_with_the_reason(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, script: str, wait: float, code: str, said: str
) -> None:
    executable = temporary / "chromium"
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o755)
    monkeypatch.setattr(chromium, "LAUNCH_WAIT", wait)
    with mock.patch.dict(os.environ), pytest.raises(ToolRefused) as refused:
        await open_browser(Settings(executable=str(executable)))
    assert refused.value.code == code
    assert str(executable) in str(refused.value)
    assert said in str(refused.value)
