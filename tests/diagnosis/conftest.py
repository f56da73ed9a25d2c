from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of sockets of hubs: no test sees hubs of others."""
    path = tmp_path / "run"
    path.mkdir(mode=0o700)
    monkeypatch.setenv("MCP_HUB_RUNTIME_DIR", str(path))
    return path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without client programs: no test looks at the files of whoever runs it, or starts what they name."""
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    return path
