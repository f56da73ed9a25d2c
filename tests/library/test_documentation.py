"""What docs/library.md shows works as it stands there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.fakes.client import PATIENCE, fake

PAGE = Path(__file__).parents[2] / "docs" / "library.md"


def test_the_programs_of_the_page_run(tmp_path: Path) -> None:
    lists = tmp_path / "lists.json"
    lists.write_text(json.dumps({"tools": [{"name": "google_search", "inputSchema": {"type": "object"}}]}))
    servers = {"search": fake("--lists", str(lists))}
    (tmp_path / "servers.yaml").write_text(json.dumps({"servers": servers, "cache_dir": str(tmp_path / "cache")}))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program = "\n".join([*blocks, "import asyncio", "asyncio.run(search())", "asyncio.run(orchestrate())"])
    completed = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert completed.stdout.splitlines() == [
        "3",
        "add 3 None",
        f"add None {completed.stdout.splitlines()[2].removeprefix('add None ')}",
        "called google_search ['search__google_search']",
        "search ['google_search']",
        "local ['add']",
        "called google_search",
    ]
    assert completed.stdout.splitlines()[2].startswith("add None invalid_parameters: ")
