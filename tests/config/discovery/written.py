"""Files in the folders beside a configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PYTHON = "from mcp_hub import tool\n\n@tool\ndef {name}(a: int = 1) -> str:\n    return '{name} of {file}'\n"


def write(directory: Path, name: str, content: Any) -> Path:
    """A file below `directory`; what is no text is written as JSON."""
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    path.chmod(0o600)
    return path


def function(directory: Path, file: str, name: str) -> Path:
    """A file with one tool, which says where it is from."""
    return write(directory, file, PYTHON.format(name=name, file=Path(file).name))
