"""Starting the counting server and reading what it wrote."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.fakes.client import PATIENCE, free_port

COUNTING = str(Path(__file__).parent.parent.parent / "fakes" / "counting.py")
FAST: dict[str, Any] = {"retry": {"backoff": 0.01, "max_backoff": 1}}


def counting(directory: Path, *faults: str, **entry: Any) -> dict[str, Any]:
    """The entry of a counting server over stdio that keeps its log in `directory`."""
    return {"command": sys.executable, "args": [COUNTING, str(directory / "log"), ",".join(faults)], **FAST, **entry}


@contextlib.asynccontextmanager
async def counting_http(
    directory: Path, *faults: str, port: int | None = None, token: str | None = None
) -> AsyncIterator[str]:
    """The URL of a counting server over HTTP."""
    port = free_port() if port is None else port
    argv = [sys.executable, COUNTING, str(directory / "log"), ",".join(faults), "--http", str(port)]
    argv += [] if token is None else ["--token", token]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            await process.stdout.readline()
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]


def written(directory: Path, line: str) -> int:
    """How often the server wrote a line: `did effect`."""
    path = directory / "log"
    return path.read_text().splitlines().count(line) if path.exists() else 0
