from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of sockets of hubs: no test sees hubs of others."""
    path = tmp_path / "run"
    path.mkdir(mode=0o700)
    monkeypatch.setenv("MCP_HUB_RUNTIME_DIR", str(path))
    return path
