"""Which groups are on, kept from one run of the hub to the next."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from mcp_hub.security.private_files import PendingWrites, PrivateFiles
from mcp_hub.text import printable

log = logging.getLogger("mcp_hub")

FORMAT: Final = 1
MAX_SIZE: Final = 1024 * 1024


class StateFile:
    """Written by threads, the newest state last, and never in the way of a call. No method raises.

    What cannot be written is tried again as long as the hub runs.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = PrivateFiles(path.parent)
        self._writes = PendingWrites()

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
        data = json.dumps(value, indent=2, sort_keys=True).encode() + b"\n"
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # no hub runs yet: nobody is kept waiting
            with contextlib.suppress(OSError, ValueError):
                self._write(data)
                return
        self._writes.put(
            f"writing state_file {printable(self._path.name)}", partial(asyncio.to_thread, self._write, data)
        )

    def _write(self, data: bytes) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._files.write(self._path.name, data)

    async def close(self) -> None:
        """Wait until it is written, for a bounded time."""
        await self._writes.close()
