"""Notices when files of a configuration change."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from mcp_hub.config import LoadedConfig
from mcp_hub.config.config_files import FileStamp, folder_files, python_files, stamp_of, tool_files

SETTLE_TIME: Final = 0.2
"""Seconds without a change after which files are read, as editors write in several steps."""
DEBOUNCE: Final = 100
"""Milliseconds during which events are collected."""
WATCH_TIMEOUT: Final = 60_000
"""Milliseconds after which the files are compared without an event."""

WatchedPath = tuple[str, Path]
"""(`file`, `tools` or `folder`, its path)."""


class FileWatcher:
    """Watches the files of a configuration: those it was read from, those of local tools, and those in its folders."""

    def __init__(self, loaded: LoadedConfig) -> None:
        self._paths: tuple[Path, ...] = ()
        self._tools: tuple[Path, ...] = ()
        self._folders: tuple[Path, ...] = ()
        self._last_stamps: dict[WatchedPath, tuple[FileStamp | None, ...]] = {}
        self._followed = asyncio.Event()
        """Set when other files are watched, which ends the wait for events of the former ones."""
        self.follow(loaded)

    def follow(self, loaded: LoadedConfig) -> None:
        """Watches the files of this configuration from now on. A newly watched file does not count as changed."""
        self._paths = tuple(sorted({*loaded.read, *loaded.config.files}))
        self._tools = tuple(server.tools_dir for server in loaded.config.servers if server.tools_dir is not None)
        self._folders = loaded.folders
        # Earlier stamps are kept, so that a change while the configuration is loaded is noticed.
        self._last_stamps = {
            watched_path: self._last_stamps.get(watched_path, stamps) for watched_path, stamps in self._stamps().items()
        }
        self._followed.set()

    def _stamps(self) -> dict[WatchedPath, tuple[FileStamp | None, ...]]:
        stamps: dict[WatchedPath, tuple[FileStamp | None, ...]] = {
            ("file", path): (stamp_of(path),) for path in self._paths
        }
        stamps |= {("tools", directory): tool_files(directory) for directory in self._tools}
        for folder in self._folders:
            files = (*folder_files(folder), *python_files(folder))
            # The existence of a directory counts too, as it can be watched from then on.
            existing = (*(None for directory in (folder.parent, folder) if directory.is_dir()),)
            stamps["folder", folder] = (*existing, *map(stamp_of, files))
        return stamps

    def _directories(self) -> list[Path]:
        # Replacing a file or changing a link is an event of the directory.
        directories = {path.parent for path in self._paths} | {path.resolve().parent for path in self._paths}
        directories |= {folder for directory in self._tools for folder in (directory, directory / "builtin")}
        directories |= {
            ancestor for folder in self._folders for ancestor in (folder, folder.parent, folder.parent.parent)
        }
        return sorted(directory for directory in directories if directory.is_dir())

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files and directories whose changes count."""
        return (*self._paths, *self._tools, *self._folders)

    def have_changed(self) -> bool:
        """Returns whether a file has changed since this was asked last, or since the last wait for a change."""
        former_stamps, self._last_stamps = self._last_stamps, self._stamps()
        return former_stamps != self._last_stamps

    async def wait_for_change(self) -> None:
        """Returns when a file has changed and no more changes follow for `SETTLE_TIME`."""
        while True:
            await self._wait_for_difference()
            before, now = None, await asyncio.to_thread(self._stamps)
            while now != before:
                await asyncio.sleep(SETTLE_TIME)
                before, now = now, await asyncio.to_thread(self._stamps)
            if now != self._last_stamps:  # it may be that other files are watched now
                self._last_stamps = now
                return

    async def _wait_for_difference(self) -> None:
        from watchfiles import awatch  # not at the top, as it takes 60 ms

        while await asyncio.to_thread(self._stamps) == self._last_stamps:
            self._followed.clear()
            directories = await asyncio.to_thread(self._directories)
            events = awatch(
                *directories,
                watch_filter=None,
                recursive=False,
                debounce=DEBOUNCE,
                stop_event=self._followed,
                rust_timeout=WATCH_TIMEOUT,
                yield_on_timeout=True,
                ignore_permission_denied=True,
            )
            event = asyncio.ensure_future(anext(events))
            try:
                await asyncio.sleep(0)  # starts to watch; the comparison notices earlier changes
                while await asyncio.to_thread(self._stamps) == self._last_stamps:
                    await event
                    event = asyncio.ensure_future(anext(events))
            except StopAsyncIteration:  # other files are to be watched
                pass
            except FileNotFoundError:  # a directory was deleted before it could be watched
                await asyncio.sleep(SETTLE_TIME)
            finally:
                event.cancel()
                await asyncio.gather(event, return_exceptions=True)
                await events.aclose()
