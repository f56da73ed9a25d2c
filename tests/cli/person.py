"""A person with a home of their own, who runs commands of the hub in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_hub.cli import main


class Person:
    """Runs commands; `out` and `err` are what the last one printed."""

    def __init__(self, home: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self.config = home / ".config/mcp-hub/servers.yaml"
        self.out = self.err = ""
        self._capture = capture

    def run(self, *arguments: str) -> int:
        self._capture.readouterr()
        try:
            code = main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        self.out, self.err = self._capture.readouterr()
        return code

    def writes(self, text: str) -> bytes:
        """Writes the configuration, and returns its bytes."""
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(text)
        self.config.chmod(0o600)
        return self.config.read_bytes()
