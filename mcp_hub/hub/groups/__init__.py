"""Groups of tools that are activated and deactivated while the hub runs, for everybody or for one caller."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from mcp_hub import codes
from mcp_hub.catalog import Catalog, Route
from mcp_hub.config.models import Config
from mcp_hub.config.root_rules import BASIC, ToolGroupSettings
from mcp_hub.errors import ConfigError
from mcp_hub.hub.catalogs import Catalogs
from mcp_hub.hub.groups.active_groups import ActiveGroups, GroupMembers, own_tools
from mcp_hub.policy import Policy
from mcp_hub.policy.group import GroupPolicy
from mcp_hub.policy.sharing import Sharing
from mcp_hub.security.callers import Caller, CallerSlot
from mcp_hub.security.private_files import PendingWrites, PrivateDirectory, newer_format
from mcp_hub.text import printable

STATE_FORMAT: Final = 1
MAX_STATE_SIZE: Final = 1024 * 1024


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
            value = json.loads(self._files.read(self._path.name, MAX_STATE_SIZE))
            if newer := newer_format(value, STATE_FORMAT):
                self._foreign = True
                raise ValueError(newer)
            groups = value["groups"]
            if value["format"] != STATE_FORMAT or not all(isinstance(on, bool) for on in groups.values()):
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
        value = {"format": STATE_FORMAT, "groups": dict(groups)}
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


log = logging.getLogger("mcp_hub")

MAX_GROUPS: Final = 1000
"""The most groups of the configuration and of run time, with removed ones that still hide their tools."""
MAX_NAME: Final = 64


class Groups:
    """The groups of the configuration and those created at run time, by name.

    A tool in several groups is active when one of them is; a tool in none belongs to `basic`, which is always active.
    `update`, `reset` and `load_state_dict` set the default state, for callers without a choice of their own; it is
    saved if the configuration has a `state_file`. Methods check all arguments before they change anything. They must be
    called in the hub's loop. `ruled(policy)` is called as soon as there is a group whose tools may be refused.
    """

    def __init__(
        self,
        catalogs: Catalogs,
        config: Config,
        *,
        everything: bool,
        ruled: Callable[[Policy], None],
        switched_on: Iterable[str] = (),
        sharing: Sharing | None = None,
    ) -> None:
        self._catalogs = catalogs
        self._sharing = sharing or Sharing()
        self._unpublished: list[tuple[Caller | None, dict[str, bool]]] = []
        """(Caller, None for all; {group: whether it is active}) of changes that other replicas were not told yet."""
        self._add_policy = ruled
        self._rule = GroupPolicy(
            lambda route, caller: self.now.inactive(route, caller), lambda route: self.now.members.was_removed(route)
        )
        self._created: dict[str, ToolGroupSettings] = {}
        """Groups created at run time."""
        self._added: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        """(tools, servers) that were added to a group."""
        self._removed: dict[str, ToolGroupSettings] = {}
        self._replaced: set[str] = set()
        """Groups of the configuration that were removed, and whose names groups created at run time have now."""
        self._chosen = CallerSlot[dict[str, bool]]()
        self._state_file = GroupStateFile(config.state_file) if config.state_file is not None else None
        self._switched_states: dict[str, bool] = self._state_file.read() if self._state_file is not None else {}
        """Groups that were switched at run time; the others are as the configuration says."""
        self._switched_on = set(switched_on)
        """Groups that the command line activated, until they are switched."""
        self._config = config
        self._everything = everything
        self._member_sources: Any = None
        """What `_members` was made from: the groups, removed ones, and servers."""
        self._members = GroupMembers((), (), {})
        self.in_use = False
        """Whether there is or was a group or a meta tool, so that callers do not see their whole catalogs."""
        self._adopt(config, everything)
        for name in self._switched_on:
            if name not in self._groups:
                names = ", ".join(self._groups) or "none"
                raise ConfigError(
                    f"there is no group {name!r}; there are: {names} (setting: groups)", codes.NAME_UNKNOWN
                )

    # --- queries -------------------------------------------------------------------------------------------------

    @property
    def _groups(self) -> Mapping[str, ToolGroupSettings]:
        return self.now.groups

    def __contains__(self, name: object) -> bool:
        return name in self._groups

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[ToolGroupSettings]:
        """Iterates over all groups but `basic`, with `active` as it is by default."""
        on = self.active()
        return iter([group.model_copy(update={"active": name in on}) for name, group in self._groups.items()])

    def __getitem__(self, name: str) -> ToolGroupSettings:
        """Returns a group. Raises KeyError if there is none of this name."""
        return self._groups[name].model_copy(update={"active": self._default(name)})

    def active(self) -> tuple[str, ...]:
        """Returns the groups that are active by default, in their order."""
        return tuple(name for name in self._groups if self._default(name))

    def active_for(self, caller: Caller) -> tuple[str, ...]:
        """Returns the groups that are active for one caller."""
        on = self.now.active(caller)
        return tuple(name for name in self._groups if name in on)

    def of(self, route: Route) -> Collection[str]:
        """Returns the names of the groups that a tool is in."""
        members = self.now.members
        return members.groups(route)

    def shown_to(self, caller: Caller) -> tuple[ToolGroupSettings, ...]:
        """Returns the groups that one caller may know about."""
        return self.now.visible_groups(self.whole_of(caller), caller)

    def notes(self, names: Collection[str] | None = None) -> str:
        """Returns the notes of the named groups, by default of the active ones, as one text."""
        return notes_of(self._groups[name] for name in (self.active() if names is None else self._checked_names(names)))

    def notes_for(self, caller: Caller) -> str:
        """Returns the notes of the groups that are active for one caller, as one text."""
        on = self.now.active(caller)
        return notes_of(group for group in self.shown_to(caller) if group.name in on)

    def catalog_of(self, caller: Caller) -> Catalog:
        """Returns the catalog that one caller sees."""
        return self._catalogs.of(caller)

    def whole_of(self, caller: Caller) -> Catalog:
        """Returns the catalog that one caller would see if all groups were active."""
        return self._catalogs.full_catalog(caller)

    # --- changes -----------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        description: str = "",
        *,
        notes: str | None = None,
        active: bool = False,
        tools: Iterable[str] = (),
        servers: Iterable[str] = (),
    ) -> None:
        """Creates a group of `tools` (`server/tool`, exposed or original names) and `servers`; both may be patterns.

        Raises ValueError.
        """
        if name == BASIC or name in self._groups:
            raise ValueError(f"Tool group '{name}' is already registered in the toolkit.")
        if not name or len(name) > MAX_NAME or not name.isprintable():
            raise ValueError(f"a group's name has 1 to {MAX_NAME} printable characters")
        if len(self._groups) + len(self._removed) >= MAX_GROUPS:
            raise ValueError(f"there are {MAX_GROUPS} groups already")
        self._created[name] = ToolGroupSettings(
            name=name,
            description=description,
            notes=notes,
            active=active,
            tools=_strings(tools),
            servers=_strings(servers),
        )
        if self._removed.pop(name, None) is not None and name in {group.name for group in self._config.groups}:
            self._replaced.add(name)
        self._changed()

    def add(self, name: str, *, tools: Iterable[str] = (), servers: Iterable[str] = ()) -> None:
        """Adds tools to a group; does nothing for `basic`. Raises ValueError."""
        tools, servers = _strings(tools), _strings(servers)
        if name == BASIC:
            return
        if name not in self._groups:
            raise ValueError(f"Tool group '{name}' not found.")
        former = self._added.get(name, ((), ()))
        self._added[name] = tuple(dict.fromkeys((*former[0], *tools))), tuple(dict.fromkeys((*former[1], *servers)))
        self._changed()

    def update(self, names: str | Iterable[str], active: bool) -> None:
        """Activates or deactivates groups by default; `basic` stays active. Raises ValueError."""
        self._set_states(dict.fromkeys(self._checked_names(names), _flag(active)))

    def reset(self, states: Mapping[str, bool]) -> None:
        """Sets the default state of all groups: active where `states` has true, else inactive. Raises ValueError."""
        self._checked_names(states)
        on = {name for name, active in states.items() if _flag(active)}
        self._set_states({name: name in on for name in self._groups})

    def reset_for(self, caller: Caller, states: Mapping[str, bool]) -> None:
        """Sets the state of the groups that one caller knows of, or with `group_scope: hub` of everybody's.

        Raises ValueError for an unknown group or a state that is not a boolean.
        """
        self._checked_names(states)
        on = {name for name, active in states.items() if _flag(active)}
        final = {group.name: group.name in on for group in self.shown_to(caller)}
        if self._config.group_scope == "hub":
            self._set_states(final)
            return
        self._choose(caller, final)
        self._queue_for_replicas(caller, final)

    def _choose(self, caller: Caller, states: Mapping[str, bool]) -> None:
        former_catalog = self._catalogs.of(caller)
        self._chosen[caller] = {**self._chosen.get(caller, {}), **states}
        self._catalogs.changed_for(caller, former_catalog)

    def remove(self, names: str | Iterable[str]) -> None:
        """Removes groups. Tools that are in no other group become unknown names. Raises ValueError."""
        names = _strings([names] if isinstance(names, str) else names)
        if BASIC in names:
            raise ValueError("Cannot remove the default 'basic' tool group.")
        group_names = self._checked_names(names)
        for name in group_names:
            group = self._groups[name]
            self._created.pop(name, None)
            self._replaced.discard(name)
            if group.tools or group.servers or name in {settings.name for settings in self._config.groups}:
                self._removed[name] = group
        self._forget_groups(group_names)
        self._changed()

    # --- other replicas ----------------------------------------------------------------------------------------

    def _queue_for_replicas(self, caller: Caller | None, states: Mapping[str, bool]) -> None:
        if self._sharing.publish is not None:
            self._unpublished.append((caller, dict(states)))

    async def spread(self) -> None:
        """Tells the other replicas of the hub which groups were switched here; returns when they know.

        Raises CallError while the store is unreachable; the change is in force at this replica alone then.
        """
        changes, self._unpublished = self._unpublished, []
        for caller, states in changes:
            await self._sharing.broadcast("groups", caller, states)

    def take(self, caller: Caller | None, states: Mapping[str, bool]) -> None:
        """Applies states of groups from another replica, for one caller, or None for all."""
        known_states = {name: active for name, active in states.items() if name in self._groups}
        if caller is None:
            self._switch(known_states)
        elif known_states:
            self._choose(caller, known_states)

    # --- state -------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Returns `{"active_groups": [...]}`, the groups that are active by default."""
        return {"active_groups": list(self.active())}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Restores what `state_dict` returned; groups that it does not name become inactive.

        Raises ValueError if it is malformed or, with `strict`, has other keys.
        """
        active = active_in(state, strict)
        self._set_states({name: name in active for name in self._groups})

    async def close(self) -> None:
        """Waits until the state is on disk, for a bounded time. Never raises."""
        if self._state_file is not None:
            await self._state_file.close()

    # --- the hub's -----------------------------------------------------------------------------------------------

    def renew(self, config: Config, *, everything: bool) -> None:
        """Takes over another configuration: groups it lacks are dropped, the others keep their state."""
        self._adopt(config, everything)

    def _adopt(self, config: Config, everything: bool) -> None:
        dropped = (
            {group.name for group in self._config.groups}
            - {group.name for group in config.groups}
            - self._created.keys()
        )
        self._config, self._everything = config, everything
        self._replaced &= {group.name for group in config.groups}
        if dropped:
            self._forget_groups(dropped)
        self._renew()

    def _forget_groups(self, dropped: Collection[str]) -> None:
        for name in dropped:
            self._added.pop(name, None)
            self._switched_states.pop(name, None)
        # A new object: the previous view of a caller may still be compared with the new one.
        previous, self._chosen = self._chosen, CallerSlot()
        for caller, chosen in previous.items():
            self._chosen[caller] = {name: active for name, active in chosen.items() if name not in dropped}

    def _set_states(self, states: Mapping[str, bool]) -> None:
        self._switch(states)
        self._queue_for_replicas(None, states)

    def _switch(self, states: Mapping[str, bool]) -> None:
        self._switched_states.update(states)
        self._switched_on -= states.keys()
        self._changed()
        if self._state_file is not None:
            self._state_file.save(self._switched_states)

    def _changed(self) -> None:
        self._renew()
        self._catalogs.replace_view(self.now, self.now.own_names)

    def _renew(self) -> None:
        """Replaces `now`, so that the former one can still be compared with it."""
        hidden = self._removed.keys() | self._replaced
        groups = {group.name: group for group in self._config.groups if group.name not in hidden}
        groups |= {name: group for name, group in self._created.items() if name not in groups}
        for name, (tools, extra_servers) in self._added.items():
            group = groups[name]
            groups[name] = group.model_copy(
                update={"tools": group.tools + tools, "servers": group.servers + extra_servers}
            )
        servers = {server.id: server for server in self._config.servers}
        sources = (tuple(groups.values()), tuple(self._removed.values()), servers)
        if sources != self._member_sources:  # switching groups on and off does not change their members
            self._member_sources, self._members = sources, GroupMembers(*sources)
        self.now = ActiveGroups(
            groups,
            {name: self._on(group) for name, group in groups.items()},
            self._chosen,
            self._members,
            everything=self._everything,
            own_tools=(own_names := own_tools(self._config)),
        )
        self.in_use = self.in_use or bool(groups or self._removed or own_names)
        if groups or self._removed:
            self._add_policy(self._rule)

    def _on(self, group: ToolGroupSettings) -> bool:
        return group.name in self._switched_on or self._switched_states.get(group.name, group.active)

    def _default(self, name: str) -> bool:
        return self._on(self._groups[name])

    def _checked_names(self, names: str | Iterable[str]) -> tuple[str, ...]:
        """Returns the names without `basic`. Raises ValueError for an unknown one."""
        group_names = _strings([names] if isinstance(names, str) else names)
        for name in group_names:
            if name != BASIC and name not in self._groups:
                raise ValueError(f"Tool group '{name}' not found.")
        return tuple(name for name in group_names if name != BASIC)


def notes_of(groups: Iterable[Any]) -> str:
    """Returns the notes of groups, which have a `name` and `notes`, as one text."""
    return "\n".join(f"## About Tool Group '{group.name}'\n{group.notes}" for group in groups if group.notes)


def active_in(state: Any, strict: bool) -> list[str]:
    """Returns the groups that a `state_dict` names.

    Raises ValueError if it is malformed or, with `strict`, has other keys.
    """
    active = state.get("active_groups") if isinstance(state, Mapping) else None
    if not isinstance(active, list) or not all(isinstance(name, str) for name in active):
        raise ValueError(
            "The state_dict for toolkit must be a dictionary with active_groups key and its value must be a list, "
            f"but got {type(state)}."
        )
    if strict and list(state) != ["active_groups"]:
        raise ValueError(f"Get additional keys in the state_dict: {list(state)}, but only 'active_groups' is expected.")
    return active


def _strings(values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise ValueError(f"{values!r} is a single text; give a list of texts")
    texts = tuple(values)
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("names of groups, tools and servers are texts")
    return texts


def _flag(value: bool) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"a group is switched by true or false, not by {type(value)}")
    return value
