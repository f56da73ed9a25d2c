"""The files a configuration was read from, as they are now, and the wait for one of them to change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mcp_hub.config.file_stamps import Stamp, folder_files, python_files, stamp, tool_files
from mcp_hub.config.models import Config

SETTLED: Final = 0.2
"""Seconds for which nothing may change any more: an editor writes in several steps."""
DEBOUNCE: Final = 100
"""Milliseconds changes of one moment are collected."""
LOOK_AGAIN: Final = 60_000
"""Milliseconds after which the wait for an event begins anew."""

Place = tuple[str, Path]
"""`file`, `tools` or `folder`, and which."""


class ConfigFiles:
    """`read` are the files of the configuration; those of local tools and all in `folders` belong to it as well."""

    def __init__(self, config: Config, read: Iterable[Path], folders: Iterable[Path] = ()) -> None:
        self._paths: tuple[Path, ...] = ()
        self._tools: tuple[Path, ...] = ()
        self._folders: tuple[Path, ...] = ()
        self._seen: dict[Place, tuple[Stamp | None, ...]] = {}
        self.belong_to(config, read, folders)

    def belong_to(self, config: Config, read: Iterable[Path], folders: Iterable[Path] = ()) -> None:
        """From now on the files of this configuration; one that is new to it does not count as changed."""
        self._paths = tuple(sorted({*read, *([config.path] if config.path is not None else [])}))
        self._tools = tuple(server.tools_dir for server in config.servers if server.tools_dir is not None)
        self._folders = tuple(folders)
        # What has changed while the configuration was being loaded was not: it still counts.
        self._seen = {place: self._seen.get(place, now) for place, now in self._stamps().items()}

    def _stamps(self) -> dict[Place, tuple[Stamp | None, ...]]:
        found: dict[Place, tuple[Stamp | None, ...]] = {("file", path): (stamp(path),) for path in self._paths}
        found |= {("tools", directory): tool_files(directory) for directory in self._tools}
        for folder in self._folders:
            files = (*folder_files(folder), *python_files(folder))
            # That a directory is there counts too: from then on it can be watched.
            there = (*(None for one in (folder.parent, folder) if one.is_dir()),)
            found["folder", folder] = (*there, *map(stamp, files))
        return found

    def _directories(self) -> list[Path]:
        # A file that is replaced, or a link that is turned, is an event of its directory.
        wanted = {path.parent for path in self._paths} | {path.resolve().parent for path in self._paths}
        wanted |= {folder for directory in self._tools for folder in (directory, directory / "builtin")}
        wanted |= {one for folder in self._folders for one in (folder, folder.parent, folder.parent.parent)}
        return sorted(directory for directory in wanted if directory.is_dir())

    async def changed(self) -> None:
        """Return when the files differ from what they were and have come to rest."""
        from watchfiles import awatch  # 60 ms that no first answer waits for

        before = await asyncio.to_thread(self._stamps)
        while before == self._seen:
            directories = await asyncio.to_thread(self._directories)
            events = awatch(
                *directories,
                watch_filter=None,
                recursive=False,
                debounce=DEBOUNCE,
                rust_timeout=LOOK_AGAIN,
                yield_on_timeout=True,
                ignore_permission_denied=True,
            )
            event = asyncio.ensure_future(anext(events))
            try:
                await asyncio.sleep(0)  # it watches from its first turn on: what came before that is seen here
                while (before := await asyncio.to_thread(self._stamps)) == self._seen:
                    await event
                    event = asyncio.ensure_future(anext(events))
            except FileNotFoundError:  # a directory went before it could be watched
                await asyncio.sleep(SETTLED)
            finally:
                event.cancel()
                await asyncio.gather(event, return_exceptions=True)
                await events.aclose()
        while True:
            await asyncio.sleep(SETTLED)
            now = await asyncio.to_thread(self._stamps)
            if now == before:
                self._seen = now
                return
            before = now
