"""A running hub goes over to what its configuration says now, when a file of it changes or SIGHUP comes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from mcp_hub.cli.listening import FIXED, Listening
from mcp_hub.config import Loaded, read_config
from mcp_hub.config.files import ConfigFiles
from mcp_hub.config.models import Config
from mcp_hub.errors import ConfigError
from mcp_hub.hub.engine import Hub
from mcp_hub.policy.selection import Selection
from mcp_hub.text import printable

log = logging.getLogger("mcp_hub")

BEGIN: Final = 1.0
"""Seconds after the start until the files are watched; nothing of it is needed for the first answers."""
LATER: Final = ("call_log", "cache_dir", "watch", "state_file")
"""Settings of the file that take effect at the next start only."""
MAX_SAID: Final = 4000


class Reloading:
    """`select` chooses what of a configuration is served and raises ConfigError, `say` tells the user a line.

    `told` gets each new configuration before it is in force, so that its secrets are known to the log.
    """

    def __init__(
        self,
        hub: Hub,
        first: Loaded,
        select: Callable[[Config], Selection],
        say: Callable[[str], None],
        told: Callable[[Config], None],
    ) -> None:
        self._hub = hub
        self._loaded = first
        self._select = select
        self._say = say
        self._told = told
        self.listening: Listening | None = None
        """The network side, where there is one."""
        self._done = asyncio.Event()
        """Nothing is being loaded."""
        self.loaded_at = time.time()
        """When the configuration in force was loaded, in seconds since 1970."""
        self.refused: str | None = None
        """Why the file as it is now is not in force; None: it is."""

    @contextlib.asynccontextmanager
    async def running(self, again: asyncio.Event) -> AsyncIterator[None]:
        """While the block runs, load the configuration again whenever `again` is set or one of its files changes."""
        tasks = [asyncio.get_running_loop().create_task(work) for work in (self._watch(again), self._reload_on(again))]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, again: asyncio.Event) -> None:
        if not self._loaded.config.watch:
            return
        files = ConfigFiles(self._loaded.config, self._loaded.read, self._loaded.folders)
        await asyncio.sleep(BEGIN)
        while True:
            await files.changed()
            again.set()
            self._done.clear()
            await self._done.wait()
            files.belong_to(self._loaded.config, self._loaded.read, self._loaded.folders)

    async def _reload_on(self, again: asyncio.Event) -> None:
        while True:
            await again.wait()
            again.clear()
            self._done.clear()
            try:
                await self.reload()
            except Exception:
                log.exception("loading the configuration again failed inside the hub")
            self._done.set()

    async def reload(self) -> bool:
        """Load the configuration again; whether it is in force. A bad one changes nothing and is told of."""
        path = self._hub.config.path
        if path is None:
            return False
        try:
            loaded = await asyncio.to_thread(_read, path)
            selection = self._select(loaded.config)
            listen = self.listening.wanted(loaded.config) if self.listening is not None else self._hub.config.listen
        except ConfigError as error:
            self._refuse(path, error)
            return False
        self._told(loaded.config)
        for warning in loaded.told:
            self._say(f"mcp-hub: warning: {printable(warning, MAX_SAID)}")
        before, self._loaded, self.refused = self._loaded.config, loaded, None
        former = self._hub.generation
        config = loaded.config.model_copy(update={"listen": listen})
        changed = [name for name in LATER if getattr(before, name) != getattr(loaded.config, name)]
        fixed = FIXED if self.listening is not None else ()
        changed += [
            f"listen.{name}" for name in fixed if getattr(before.listen, name) != getattr(loaded.config.listen, name)
        ]
        for name in changed:
            self._say(f"mcp-hub: warning: {path.name}: a change of {name} takes effect when the hub is started again")
        try:
            generation = await self._hub.renew(config, selection)
        except ConfigError as error:
            self._refuse(path, error)
            return False
        if self.listening is not None:
            self.listening.take(listen)
        self.loaded_at = time.time()
        old, new = former.upstreams, generation.upstreams
        parts = [
            ("started", [id for id in new if id not in old]),
            ("started anew", [id for id in new if id in old and old[id] is not new[id]]),
            ("stopped", [id for id in old if id not in new]),
        ]
        said = "; ".join(f"{what} {', '.join(ids)}" for what, ids in parts if ids) or "every server keeps its process"
        self._say(f"mcp-hub: loaded {path.name} again: {printable(said, MAX_SAID)}")
        return True

    def _refuse(self, path: Path, error: ConfigError) -> None:
        self.refused = str(error)
        self._say(f"mcp-hub: error: {path.name} was not loaded again, what was in force stays:")
        for line in self.refused.splitlines():
            self._say(f"  {printable(line, MAX_SAID)}")


def _read(path: Path) -> Loaded:
    return read_config(path, os.environ)
