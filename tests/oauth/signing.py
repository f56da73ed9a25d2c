"""Signing in as a user does: `mcp-hub login` as a process, and a browser that follows the address it prints."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.fakes.client import HUB, write_config

COMMAND = 120.0
"""Seconds a command may take where the machine has much else to do; it imports the SDK. A bound against hangs."""


@dataclass
class Said:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        return self.out + self.err


def configured(directory: Path, servers: dict[str, Any], **root: Any) -> Path:
    """A configuration whose tokens are kept inside `directory`."""
    return write_config(directory, servers, **{"token_dir": str(directory / "tokens"), **root})


def kept_files(directory: Path) -> list[Path]:
    return sorted((directory / "tokens").glob("*.json"))


async def browse(url: str) -> int:
    """Follow an address to its end; the status there."""
    async with httpx2.AsyncClient(follow_redirects=True, trust_env=False, timeout=COMMAND) as browser:
        return (await browser.get(url)).status_code


async def command(*arguments: str, env: Mapping[str, str] | None = None, follow: Any = browse) -> Said:
    """Run one command of the hub; addresses it prints are followed by `follow`."""
    process = await asyncio.create_subprocess_exec(
        *HUB, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, env={**os.environ, **(env or {})},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.create_task(process.stderr.read())
    out = ""
    try:
        async with asyncio.timeout(COMMAND):
            while line := (await process.stdout.readline()).decode():
                out += line
                if line.startswith(("http://", "https://")) and follow is not None:
                    await follow(line.strip())
            await process.wait()
            return Said(process.returncode or 0, out, (await errors).decode())
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        errors.cancel()
        process._transport.close()  # type: ignore[attr-defined]


async def login(config: Path, server: str = "a", *arguments: str, follow: Any = browse, **options: Any) -> Said:
    """`mcp-hub login SERVER --no-browser`."""
    return await command("login", server, "--no-browser", *arguments, "--config", str(config), follow=follow, **options)
