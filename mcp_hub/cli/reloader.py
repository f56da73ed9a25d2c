"""Reloads the configuration of a running hub when one of its files changes or SIGHUP arrives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_hub import codes
from mcp_hub.config import LoadedConfig
from mcp_hub.config.file_watcher import FileWatcher
from mcp_hub.config.models import Config, Listen
from mcp_hub.config.own_files import writers_of
from mcp_hub.downstream.page_access import ConfigurationFacts, Reload
from mcp_hub.errors import ConfigError
from mcp_hub.hub import Engine
from mcp_hub.hub.composition import read_config
from mcp_hub.observability.records import log_line
from mcp_hub.policy.chain import KEYS
from mcp_hub.policy.selection import Selection
from mcp_hub.text import printable
from mcp_hub.transport.background import BACKGROUND

if TYPE_CHECKING:
    from mcp_hub.downstream.app import App

FIXED_LISTEN_KEYS: Final = ("host", "port", "tls", "verify", "max_body")
"""Keys of `listen` that cannot change while the hub runs."""


class ListenerSettings:
    """Applies a new `listen` to the running app.

    `merge_listen` returns the `listen` of a configuration with the options of the command line, or raises ConfigError.
    """

    def __init__(self, app: App, listen: Listen, merge_listen: Callable[[Config], Listen]) -> None:
        self._app = app
        self._listen = listen
        self._merge_listen = merge_listen

    def resolve(self, config: Config) -> Listen:
        """Returns the settings that can be applied. Raises ConfigError for settings that are not allowed."""
        from mcp_hub.downstream.admission import check_listener

        fixed = {name: getattr(self._listen, name) for name in FIXED_LISTEN_KEYS}
        listen = self._merge_listen(config).model_copy(update=fixed)
        objection = check_listener(listen)
        if objection is not None:
            raise ConfigError(objection, objection.code)
        return listen

    def apply(self, listen: Listen) -> None:
        """Applies settings. Sessions of callers that are no longer allowed end."""
        self._listen = listen
        self._app.take(listen)


log = logging.getLogger("mcp_hub")

WATCH_DELAY: Final = 1.0
"""Seconds after the start until files are watched, so that the first answers do not wait for it."""
RESTART_KEYS: Final = ("cache_dir", "watch", "state_file")
"""Root keys whose change needs a restart, besides those of policies (`needs_restart`)."""
MAX_LINE: Final = 4000
MAX_RELOADS: Final = 20
"""The number of reloads that the history keeps."""


class Reloader:
    """Reloads the configuration of a hub, and applies it if it is valid.

    `select` returns the selection for a configuration or raises ConfigError. `say` shows the user a line. `on_load`
    gets each new configuration before it is applied, so that the log knows its secrets. With `strict` a configuration
    with warnings is not valid.
    """

    def __init__(
        self,
        hub: Engine,
        first: LoadedConfig,
        select: Callable[[Config], Selection],
        say: Callable[[str], None],
        on_load: Callable[[Config], None],
        *,
        strict: bool = False,
    ) -> None:
        self._hub = hub
        self._loaded = first
        self._select = select
        self._say = say
        self._on_load = on_load
        self._strict = strict
        self.listener: ListenerSettings | None = None
        """The settings of the listener; None over stdio."""
        self.announced: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        """Makes the context manager of each reload, which notifies the service manager."""
        self.changing: Callable[[], contextlib.AbstractAsyncContextManager[None]] = contextlib.nullcontext
        """Makes the context manager of each change of the configuration, which notifies the other replicas."""
        self.reload_others: Callable[[], Awaitable[None]] | None = None
        """Makes the other replicas reload too, after a SIGHUP to this process."""
        self._reload_requested = asyncio.Event()
        """Set to reload because the files have changed, or because another replica requests it."""
        self._reload_lock = asyncio.Lock()
        self._files: FileWatcher | None = None
        """None before the first look at files, and if they are not watched."""
        self.loaded_at = time.time()
        """When the active configuration was loaded, in seconds since 1970."""
        self.refusal: str | None = None
        """Why the current file is not active; None if it is."""
        self.waiting: str | None = None
        """Why changed files wait for a person; None if none do."""
        self._history: deque[Reload] = deque(maxlen=MAX_RELOADS)

    def facts(self) -> ConfigurationFacts:
        """Returns the active configuration, the last reloads, and why the current files are not active, if so."""
        return ConfigurationFacts(self._loaded, tuple(self._history), self.refusal, self.waiting)

    def _note(self, changed: tuple[str, ...], problem: str | None = None) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        self._history.appendleft(Reload(now, self._hub.generation.number, changed, problem))

    @contextlib.asynccontextmanager
    async def running(self, reload_event: asyncio.Event) -> AsyncIterator[None]:
        """Reloads whenever `reload_event` is set or a file changes, while the block runs."""
        tasks = [
            BACKGROUND.keep("watching files", self._watch),
            BACKGROUND.keep("reloads", self._reload_on, self._reload_requested),
            BACKGROUND.keep("reloads by signal", self._reload_on, reload_event, True),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def load(self) -> None:
        """Requests a reload by this replica alone."""
        self._reload_requested.set()

    async def _watch(self) -> None:
        if not self._loaded.config.watch:
            return
        self._files = files = FileWatcher(self._loaded)
        await asyncio.sleep(WATCH_DELAY)
        while True:
            await files.wait_for_change()
            servers = [upstream.server for upstream in self._hub.upstreams.values()]
            shown_roots = self._hub.clients.shown_roots
            if writers := await asyncio.to_thread(writers_of, files.paths, servers, shown_roots):
                self._hold(writers)
            else:
                self._reload_requested.set()

    async def _reload_on(self, reload_event: asyncio.Event, by_signal: bool = False) -> None:
        while True:
            await reload_event.wait()
            reload_event.clear()
            try:
                await self.reload_now(everywhere=by_signal)
            except Exception:
                log.exception("loading the configuration again failed inside the hub")

    async def reload_now(self, *, everywhere: bool = True) -> Reload | None:
        """Reloads the configuration because a person wants it; `everywhere` also at the other replicas.

        Returns what it did; None for a hub without a file.
        """
        if everywhere and self.reload_others is not None:
            await self.reload_others()
        async with self._reload_lock:
            with self.announced():
                await self.reload()
        return self._history[0] if self._history else None

    def _hold(self, writers: Sequence[str]) -> None:
        """Leaves changed files unread, as a server may have changed them."""
        ids = printable(", ".join(writers), 500)
        self.waiting = (
            f"{ids} can write files of the configuration, so that a change waits for a person: mcp-hub reload"
        )
        self._note((), self.waiting)
        names = _names(self._loaded.config)
        text = codes.with_code(f"{names} or another file of it was changed. {self.waiting}", codes.OWN_FILE_WRITABLE)
        self._say(log_line("warning", text))

    async def reload(self) -> bool:
        """Reloads the configuration and returns whether it is active. An invalid configuration changes nothing."""
        path = self._hub.config.path
        if path is None:
            return False
        try:
            loaded = await asyncio.to_thread(self._read, path)
            selection = self._select(loaded.config)
            listen = self.listener.resolve(loaded.config) if self.listener is not None else self._hub.config.listen
        except ConfigError as error:
            self._refuse(error)
            return False
        self._on_load(loaded.config)
        for warning in loaded.messages:
            self._say(log_line("warning", printable(warning, MAX_LINE)))
        before, former = self._loaded.config, self._hub.generation
        config = loaded.config.model_copy(update={"listen": listen})
        changed = [name for name in RESTART_KEYS if getattr(before, name) != getattr(loaded.config, name)]
        policies = (key for key in KEYS.root if key.needs_restart)
        changed += [key.name for key in policies if key.of(before) != key.of(loaded.config)]
        fixed = FIXED_LISTEN_KEYS if self.listener is not None else ()
        changed += [
            f"listen.{name}" for name in fixed if getattr(before.listen, name) != getattr(loaded.config.listen, name)
        ]
        for name in changed:
            text = f"{_names(loaded.config)}: a change of {name} takes effect when the hub is started again"
            self._say(log_line("warning", text))
        try:
            async with self.changing():
                generation = await self._hub.renew(config, selection, strict=self._strict)
        except ConfigError as error:
            self._refuse(error)
            return False
        if self.listener is not None:
            self.listener.apply(listen)
        self._loaded, self.refusal, self.waiting = loaded, None, None
        if self._files is not None:
            self._files.follow(loaded)
        self.loaded_at = time.time()
        old, new = former.upstreams, generation.upstreams
        parts = [
            ("started", [id for id in new if id not in old]),
            ("started anew", [id for id in new if id in old and old[id] is not new[id]]),
            ("stopped", [id for id in old if id not in new]),
        ]
        sentences = [f"{action} {', '.join(ids)}" for action, ids in parts if ids] or ["every server keeps its process"]
        summary = "; ".join(sentences)
        self._note(
            (*sentences, *(f"a change of {name} takes effect when the hub is started again" for name in changed))
        )
        self._say(log_line("info", f"loaded {_names(loaded.config)} again: {printable(summary, MAX_LINE)}"))
        return True

    def _read(self, path: Path) -> LoadedConfig:
        overlays, found = self._hub.config.overlays, self._loaded.found
        loaded = read_config(path, os.environ, overlays=overlays, found=found)
        if self._strict and loaded.messages:
            raise ConfigError("\n".join(loaded.messages))
        return loaded

    def _refuse(self, error: ConfigError) -> None:
        self.refusal = str(error)
        self._note((), self.refusal)
        name = _names(self._loaded.config)
        self._say(log_line("error", f"{name} was not loaded again; the previous configuration stays in force:"))
        for line in self.refusal.splitlines():
            self._say(f"  {printable(line, MAX_LINE)}")


def _names(config: Config) -> str:
    return ", ".join(path.name for path in config.files)
