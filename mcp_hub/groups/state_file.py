"""Which groups are on, kept from one run of the hub to the next."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mcp_hub.private_files import PrivateFiles
from mcp_hub.text import printable

log = logging.getLogger("mcp_hub")

FORMAT: Final = 1
MAX_SIZE: Final = 1024 * 1024
CLOSE_WAIT: Final = 5.0
"""Seconds the end of the hub waits for a disk."""


class StateFile:
    """Written by threads, the newest state last, and never in the way of a call. No method raises."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = PrivateFiles(path.parent)
        self._waiting: bytes | None = None
        self._writing: asyncio.Task[None] | None = None

    def read(self) -> dict[str, bool]:
        """{group: whether it is on}; what is no use is ignored, with a word in the log."""
        try:
            value = json.loads(self._files.read(self._path.name, MAX_SIZE))
            groups = value["groups"]
            if value["format"] != FORMAT or not all(isinstance(on, bool) for on in groups.values()):
                raise ValueError("its content is not of this version")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
            text = "state_file is ignored, groups are as the configuration says: %s: %s"
            log.warning(text, self._path.name, printable(str(error), 500))
            return {}
        return dict(groups)

    def save(self, groups: Mapping[str, bool]) -> None:
        """Have this written soon."""
        value = {"format": FORMAT, "groups": dict(groups)}
        self._waiting = json.dumps(value, indent=2, sort_keys=True).encode() + b"\n"
        if self._writing is not None and not self._writing.done():
            return
        try:
            self._writing = asyncio.get_running_loop().create_task(self._write())
        except RuntimeError:  # no hub runs yet: nobody is kept waiting
            self._put(self._waiting)

    async def _write(self) -> None:
        while (data := self._waiting) is not None:
            self._waiting = None
            await asyncio.to_thread(self._put, data)

    def _put(self, data: bytes) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._files.write(self._path.name, data)
        except (OSError, ValueError) as error:
            log.warning("state_file cannot be written: %s: %s", self._path.name, printable(str(error), 500))

    async def close(self) -> None:
        """Wait until it is written."""
        if self._writing is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_WAIT):
                    await asyncio.shield(self._writing)
