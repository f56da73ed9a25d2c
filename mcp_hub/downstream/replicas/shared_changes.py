"""Changes that reach every replica: switched groups, labels, approvals, pins, switched servers and reloads."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcp_hub.catalog import Route
from mcp_hub.config.field_types import SecretStr
from mcp_hub.config.models import Config
from mcp_hub.errors import CallError, HubError
from mcp_hub.policy.approvals import IDLE
from mcp_hub.policy.data_flow import FLOWS
from mcp_hub.policy.pins import PinsByServer, merge_pins, pins_file, pins_in
from mcp_hub.policy.selection import Selection
from mcp_hub.policy.sharing import ChangeKind
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.callers import Caller
from mcp_hub.security.lru import Lru
from mcp_hub.store.change_log import Change, ChangeLog
from mcp_hub.store.replica_keys import FRESH
from mcp_hub.text import printable
from mcp_hub.transport.background import BACKGROUND
from mcp_hub.version import VERSION

if TYPE_CHECKING:
    from mcp_hub.downstream.dispatcher import Dispatcher

log = logging.getLogger("mcp_hub.replicas")

MAX_PARTS: Final = 100_000
"""The most parts of changes whose times are remembered; older ones than the first that is forgotten are refused."""
MAX_CALLERS: Final = 10_000
"""The most callers whose changes are remembered until they come here; the least recent ones are dropped."""
_CALLER_KINDS: Final = frozenset({"groups", "used", "approved"})
"""Kinds of changes that concern one caller, and that a replica needs from the time before it began."""


class SharedChanges:
    """Publishes changes to the other replicas, and applies theirs here.

    Args:
        log: The log of changes of all replicas.
        me: Returns the id of this replica.
        dispatcher: The dispatcher of the hub.
        tell: Makes every other live replica look for changes now; returns when all have.
    """

    def __init__(
        self, log: ChangeLog, me: Callable[[], str], dispatcher: Dispatcher, tell: Callable[[], Awaitable[None]]
    ) -> None:
        self._log = log
        self._me = me
        self._dispatcher = dispatcher
        self._hub = dispatcher.hub
        self._tell = tell
        self._by_caller: Lru[str, dict[str, Any]] = Lru(MAX_CALLERS)
        """The changes of callers, by the caller's key and by the kind of the change."""
        self._newest_id = b""
        """The id of the newest change when this replica last began to read."""
        self._part_times: OrderedDict[tuple[str, str, str], int] = OrderedDict()
        """When what a change sets was last set: by the change's kind, its caller, and the name of the part."""
        self._began_at = time.time_ns() // 1000
        self._floor = 0
        """Changes made before this time are refused, unless a still earlier one of the same part is known.

        It is 0 until the changes from before this replica began have been read.
        """
        self._reading = asyncio.Lock()
        self._catching_up: asyncio.Task[None] | None = None
        self.reload: Callable[[], None] = lambda: None
        """Loads the files of this replica again."""

    def begin(self) -> None:
        """Makes the hub publish its changes."""
        self._hub.sharing.publish = self.publish

    async def publish(self, kind: ChangeKind, about: str, value: Any) -> None:
        """Publishes a change; returns when all live replicas know it. Raises CallError."""
        self._newest_parts(await self._log.append(Change(self._me(), kind, about, value)))
        if kind in _CALLER_KINDS:
            self._remember(about, kind, value)
        await self._tell()

    def noticed(self, newest: bytes) -> None:
        """Takes the id of the newest change; reads new changes in the background."""
        if newest != self._newest_id and (self._catching_up is None or self._catching_up.done()):
            self._newest_id = newest
            self._catching_up = BACKGROUND.keep("changes of replicas", self._catch_up_quietly)

    async def _catch_up_quietly(self) -> None:
        try:
            await self.catch_up()
        except CallError:
            self._newest_id = b""  # read again when the store is back

    async def catch_up(self) -> None:
        """Reads and applies the changes that other replicas have published. Raises StoreUnavailable."""
        async with self._reading:
            while changes := await self._log.read():
                for change in changes:
                    if change.by != self._me():
                        await self._apply_change(change)
            self._floor = max(self._floor, self._began_at - int(FRESH * 1e6))
            if self._log.skipped:
                self._log.skipped = False
                log.warning("some changes of other replicas were dropped before they were read here")

    async def _apply_change(self, change: Change) -> None:
        try:
            is_needed = change.at > (self._floor or self._began_at)  # later than this replica has read its files
            value = self._newest_parts(change)
            if value is None:
                return
            if change.kind in _CALLER_KINDS:
                self._remember(change.about, change.kind, value)
                for caller in self._callers(change.about):
                    self._apply(caller, change.kind, value)
            elif is_needed:
                await self._apply_to_hub(change.kind, value)
        except Exception as error:  # the other changes are applied all the same
            log.warning("a change of another replica (%s) was not taken over: %r", change.kind, printable(str(error)))

    def _newest_parts(self, change: Change) -> Any:
        """Returns what a change sets and no later change has set; None if there is nothing.

        So a change that somebody puts into the log again has no effect, and all replicas keep the same one of two
        changes that are made at the same time.
        """
        value = change.value
        if change.kind == "groups":
            parts = value
        elif change.kind == "pins":
            parts = pins_in(value)
        elif change.kind == "switch":
            parts = {value[0]: value}
        elif change.kind == "reload":
            parts = {"": True}
        else:
            parts = {json.dumps(value): value}
        if change.kind == "approved" and change.about.startswith("principal ") and change.at / 1e6 < time.time() - IDLE:
            return None  # by now the person would be asked again
        newest = {
            name: part for name, part in parts.items() if self._is_newest((change.kind, change.about, name), change.at)
        }
        return newest if change.kind in ("groups", "pins") else next(iter(newest.values()), None)

    def _is_newest(self, part: tuple[str, str, str], at: int) -> bool:
        """Returns whether a part is set later than ever before, and remembers the time."""
        times = self._part_times
        if at <= times.get(part, self._floor):
            return False
        times[part] = at
        times.move_to_end(part)
        if len(times) > MAX_PARTS:
            self._floor = max(self._floor, times.popitem(last=False)[1])
        return True

    async def close(self) -> None:
        """Stops publishing and reading changes."""
        self._hub.sharing.publish = None
        if self._catching_up is not None:
            self._catching_up.cancel()
            await asyncio.gather(self._catching_up, return_exceptions=True)

    # --- callers -----------------------------------------------------------------------------------------------

    def introduce(self, caller: Caller) -> None:
        """Applies to a caller that has just come to this replica the changes that were published for it before."""
        changes = self._by_caller.get(caller.key or "", {})
        for kind, value in changes.items():
            self._apply(caller, kind, value)

    def _callers(self, about: str) -> list[Caller | None]:
        """Returns the callers with this key that are known here; [None] for a change that applies to all callers."""
        if not about:
            return [None]
        kind, _, name = about.partition(" ")
        if kind == "principal":
            return [*self._hub.callers.named(name)]
        return [connection.caller for connection in self._dispatcher.connections if connection.caller.key == about]

    def _remember(self, about: str, kind: str, value: Any) -> None:
        changes = self._by_caller[about] = self._by_caller.get(about, {})
        if kind == "groups":
            changes[kind] = {**changes.get(kind, {}), **value}
        elif kind == "used":
            labels, used_at = changes.get(kind, ([], value[1]))
            changes[kind] = [sorted({*labels, *value[0]}), max(used_at, value[1])]
        else:
            changes[kind] = [*(entry for entry in changes.get(kind, ()) if entry != value), value]

    def _apply(self, caller: Caller | None, kind: str, value: Any) -> None:
        if kind == "groups":
            self._hub.groups.take(caller, value)
        elif caller is None:
            return
        elif kind == "used":
            labels, used_at = value
            since = time.monotonic() - max(time.time() - used_at, 0.0)
            self._hub.used_labels.merge(caller, since, frozenset(labels), FLOWS.of(self._hub.config).window)
        else:
            approvals = value if value and isinstance(value[0], list) else [value]
            for server, tool in approvals:
                self._hub.approvals.add(caller, Route(server, TOOLS, tool))

    # --- servers and files -------------------------------------------------------------------------------------

    async def _apply_to_hub(self, kind: str, value: Any) -> None:
        if kind == "reload":
            self.reload()
        elif kind == "switch":
            id, action = value
            switch = self._hub.switch
            await {"disable": switch.disable, "enable": switch.enable, "restart": switch.restart}[action](id)
        elif kind == "pins":
            await self._pin(value)

    async def take_switches(self, switched: Sequence[Mapping[str, bool]]) -> None:
        """Switches servers as they are switched at other replicas; off, if these differ."""
        states: dict[str, bool] = {}
        for servers in switched:
            for id, on in servers.items():
                states[id] = on and states.get(id, True)
        for id, on in states.items():
            try:
                await self._apply_to_hub("switch", [id, "enable" if on else "disable"])
            except HubError as error:  # an entry that cannot be switched on here
                log.warning("%s is not switched as at another replica: %s", printable(id, 100), printable(str(error)))

    async def _pin(self, pins: PinsByServer) -> None:
        """Records in this replica's file what was pinned at another one."""
        path = pins_file(self._hub.config)
        if path is None:
            return
        await asyncio.to_thread(merge_pins, path, pins)  # writes nothing if replicas have one file
        if (watch := self._hub.generation.pin_watch) is not None:
            watch.check()


_LOCAL_FIELDS: Final = frozenset({
    "path", "overlays", "store", "listen", "cache_dir", "token_dir", "token_store", "state_file", "tracing", "unread",
    "watch", "proxy", "max_hub_depth", "list_wait", "settings",
})  # fmt: skip
"""Fields of a configuration that replicas may differ in, as clients do not see them."""
_LOCAL_SETTINGS: Final = frozenset({"call_log", "pins"})
"""Settings that replicas may differ in, for the same reason."""


def served_config(config: Config, selection: Selection) -> bytes:
    """Returns the part of a configuration that clients see, as JSON. It has secrets: do not show or store it."""
    fields = {name: getattr(config, name) for name in config.__struct_fields__ if name not in _LOCAL_FIELDS}
    settings = {name: value for name, value in config.settings.items() if name not in _LOCAL_SETTINGS}
    home = None if config.path is None else config.path.parent

    def text(value: Any) -> str:
        if isinstance(value, SecretStr):
            return value.get_secret_value()
        if home is not None and isinstance(value, Path) and value.is_relative_to(home):
            return str(value.relative_to(home))  # each replica may have its files in another directory
        return str(value)

    content = (VERSION, fields, settings, selection)
    return json.dumps(msgspec.to_builtins(content, enc_hook=text, order="deterministic"), sort_keys=True).encode()
