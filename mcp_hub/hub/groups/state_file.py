"""The file named by the setting `state_file`, which keeps the states of groups over restarts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from mcp_hub.security.private_files import PendingWrites, PrivateDirectory, newer_format
from mcp_hub.text import printable

log = logging.getLogger("mcp_hub")

FORMAT: Final = 1
MAX_SIZE: Final = 1024 * 1024


class GroupStateFile:
    """The file that keeps the state of groups. It is written in threads, always with the newest state.

    No method raises. A write that fails is retried as long as the hub runs.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = PrivateDirectory(path.parent)
        self._writes = PendingWrites()
        self._foreign = False
        """Whether a newer version of the hub has written the file, which is not replaced then."""

    def read(self) -> dict[str, bool]:
        """Returns {group: whether it is active}. A file that cannot be used is logged and ignored."""
        try:
            value = json.loads(self._files.read(self._path.name, MAX_SIZE))
            if newer := newer_format(value, FORMAT):
                self._foreign = True
                raise ValueError(newer)
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
        """Schedules the state to be written."""
        value = {"format": FORMAT, "groups": dict(groups)}
        data = json.dumps(value, indent=2, sort_keys=True).encode() + b"\n"
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # no event loop runs yet, so nothing is blocked
            with contextlib.suppress(OSError, ValueError):
                self._write(data)
                return
        self._writes.put(
            f"writing state_file {printable(self._path.name)}", partial(asyncio.to_thread, self._write, data)
        )

    def _write(self, data: bytes) -> None:
        if self._foreign:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._files.write(self._path.name, data)

    async def close(self) -> None:
        """Waits until the state is written, for a bounded time."""
        await self._writes.close()
