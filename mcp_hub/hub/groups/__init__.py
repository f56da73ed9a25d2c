"""Groups of tools that are switched on and off while the hub runs, for everybody or for one caller."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final

from mcp_hub.catalog.catalog import Catalog, Route
from mcp_hub.config.models import Config
from mcp_hub.config.rules import ToolGroup
from mcp_hub.errors import ConfigError
from mcp_hub.hub.catalogs import Catalogs
from mcp_hub.hub.groups.acting import act
from mcp_hub.hub.groups.equipped import Equipped
from mcp_hub.hub.groups.members import BASIC, Members
from mcp_hub.hub.groups.meta_tools import CALL_ROUTE, held
from mcp_hub.hub.groups.state_file import StateFile
from mcp_hub.policy import Call, Json, Policy
from mcp_hub.policy.group import Group as Rule

__all__ = ["BASIC", "Equipped", "Groups", "ToolGroup"]

MAX_GROUPS: Final = 1000
"""Of the configuration and of run time together, removed ones that keep tools away included."""
MAX_NAME: Final = 64
MAX_CALLERS: Final = 10_000
"""Callers that have chosen for themselves; the longest unseen falls back to what holds for everybody."""


class Groups:
    """`hub.groups`: those of the configuration and those made at run time, by name.

    A tool in several groups is on when one of them is; one in none is in `basic` and always on. `update`, `reset` and
    `load_state_dict` say what holds for callers who have not chosen themselves, and are kept where the configuration
    has a `state_file`. Every method checks all it was given before it changes anything, and raises ValueError.
    To be used in the hub's loop. `ruled(rule)` is called as soon as there is something to refuse.
    """

    def __init__(
        self,
        catalogs: Catalogs,
        config: Config,
        *,
        everything: bool,
        ruled: Callable[[Policy], None],
        switched_on: Iterable[str] = (),
    ) -> None:
        self._catalogs = catalogs
        self._ruled = ruled
        self._rule = Rule(
            lambda route, caller: self.now.inactive(route, caller), lambda route: self.now.members.gone(route)
        )
        self._made: dict[str, ToolGroup] = {}
        """At run time."""
        self._added: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        """Tools and servers a group has been given besides."""
        self._removed: dict[str, ToolGroup] = {}
        self._chosen: OrderedDict[Hashable | None, dict[str, bool]] = OrderedDict()
        self._state = StateFile(config.state_file) if config.state_file is not None else None
        self._said: dict[str, bool] = self._state.read() if self._state is not None else {}
        """What was said at run time; what the configuration says holds of the others."""
        self._switched_on = set(switched_on)
        """By the command line; until somebody says otherwise."""
        self._config = config
        self._everything = everything
        self._take(config, everything)
        for name in self._switched_on:
            if name not in self._groups:
                known = ", ".join(self._groups) or "none"
                raise ConfigError(f"there is no group {name!r}; there are: {known} (setting: groups)")

    # --- what there is -----------------------------------------------------------------------------------------

    @property
    def _groups(self) -> Mapping[str, ToolGroup]:
        return self.now.groups

    def __contains__(self, name: object) -> bool:
        return name in self._groups

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[ToolGroup]:
        """All groups but `basic`, each with whether it is on for callers who have not chosen themselves."""
        on = self.active()
        return iter([group.model_copy(update={"active": name in on}) for name, group in self._groups.items()])

    def __getitem__(self, name: str) -> ToolGroup:
        """Raises KeyError."""
        return self._groups[name].model_copy(update={"active": self._default(name)})

    def active(self) -> tuple[str, ...]:
        """The groups that are on for callers who have not chosen themselves, in their order."""
        return tuple(name for name in self._groups if self._default(name))

    def active_for(self, caller: Hashable | None) -> tuple[str, ...]:
        """The groups that are on for one caller."""
        on = self.now.active(caller)
        return tuple(name for name in self._groups if name in on)

    def shown_to(self, caller: Hashable | None) -> tuple[ToolGroup, ...]:
        """The groups one caller is told of."""
        return self.now.shown(self.whole_of(caller), caller)

    def notes(self, names: Collection[str] | None = None) -> str:
        """How the tools of the groups are to be used: of those named, else of those that are on."""
        return _notes(self._groups[name] for name in (self.active() if names is None else self._known(names)))

    def notes_for(self, caller: Hashable | None) -> str:
        """The same for one caller, of the groups that are on for it."""
        on = self.now.active(caller)
        return _notes(group for group in self.shown_to(caller) if group.name in on)

    def catalog_of(self, caller: Hashable | None) -> Catalog:
        """What one caller sees."""
        return self._catalogs.of(caller)

    def whole_of(self, caller: Hashable | None) -> Catalog:
        """What one caller sees, and what it would see with all groups on."""
        return self._catalogs.whole(caller)

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
        """One more group. `tools` are `server/tool`, exposed or original names, `servers` ids; both may be patterns."""
        if name == BASIC or name in self._groups:
            raise ValueError(f"Tool group '{name}' is already registered in the toolkit.")
        if not name or len(name) > MAX_NAME or not name.isprintable():
            raise ValueError(f"a group's name has 1 to {MAX_NAME} printable characters")
        if len(self._groups) + len(self._removed) >= MAX_GROUPS:
            raise ValueError(f"there are {MAX_GROUPS} groups already")
        self._made[name] = ToolGroup(
            name=name,
            description=description,
            notes=notes,
            active=active,
            tools=_texts(tools),
            servers=_texts(servers),
        )
        self._removed.pop(name, None)
        self._changed()

    def add(self, name: str, *, tools: Iterable[str] = (), servers: Iterable[str] = ()) -> None:
        """More tools for a group; for `basic` there is nothing to do."""
        tools, servers = _texts(tools), _texts(servers)
        if name == BASIC:
            return
        if name not in self._groups:
            raise ValueError(f"Tool group '{name}' not found.")
        before = self._added.get(name, ((), ()))
        self._added[name] = tuple(dict.fromkeys((*before[0], *tools))), tuple(dict.fromkeys((*before[1], *servers)))
        self._changed()

    def update(self, names: str | Iterable[str], active: bool) -> None:
        """Switch groups on or off for callers who have not chosen themselves; `basic` stays on."""
        self._say(dict.fromkeys(self._known(names), _flag(active)))

    def reset(self, states: Mapping[str, bool]) -> None:
        """Switch on what is true here and off everything else, for callers who have not chosen themselves."""
        self._known(states)
        on = {name for name, active in states.items() if _flag(active)}
        self._say({name: name in on for name in self._groups})

    def reset_for(self, caller: Hashable | None, states: Mapping[str, bool]) -> None:
        """The same for one caller and the groups it is told of; with `group_scope: hub`, for everybody."""
        self._known(states)
        on = {name for name, active in states.items() if _flag(active)}
        final = {group.name: group.name in on for group in self.shown_to(caller)}
        if self._config.group_scope == "hub":
            self._say(final)
            return
        before = self._catalogs.of(caller)
        self._chosen[caller] = {**self._chosen.get(caller, {}), **final}
        self._chosen.move_to_end(caller)
        while len(self._chosen) > MAX_CALLERS:
            self._chosen.popitem(last=False)
        self._catalogs.changed_for(caller, before)

    def remove(self, names: str | Iterable[str]) -> None:
        """Groups go, and with them the tools that are in no other: they are as unknown as any that does not exist."""
        names = _texts([names] if isinstance(names, str) else names)
        if BASIC in names:
            raise ValueError("Cannot remove the default 'basic' tool group.")
        known = self._known(names)
        for name in known:
            group = self._groups[name]
            self._made.pop(name, None)
            if group.tools or group.servers or name in {one.name for one in self._config.groups}:
                self._removed[name] = group
        self._forget_groups(known)
        self._changed()

    def forget(self, caller: Hashable | None) -> None:
        """`caller` is gone."""
        self._chosen.pop(caller, None)

    # --- state -------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """`{"active_groups": [...]}`: those that are on for callers who have not chosen themselves."""
        return {"active_groups": list(self.active())}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """What `state_dict` gave; groups it does not name are switched off. `strict`: nothing else may be in it."""
        listed = state.get("active_groups") if isinstance(state, Mapping) else None
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise ValueError(
                "The state_dict for toolkit must be a dictionary with active_groups key and its value must be a list, "
                f"but got {type(state)}."
            )
        if strict and list(state) != ["active_groups"]:
            raise ValueError(
                f'Get additional keys in the state_dict: {list(state)}, but only "active_groups" is expected.'
            )
        self._say({name: name in listed for name in self._groups})

    async def close(self) -> None:
        """Wait until what was said is on disk. Never raises."""
        if self._state is not None:
            await self._state.close()

    # --- the hub's -----------------------------------------------------------------------------------------------

    def renew(self, config: Config, *, everything: bool) -> None:
        """From now on this configuration: groups it has no more are gone, the others stay as they were switched."""
        self._take(config, everything)

    @staticmethod
    def held(route: Route, arguments: Json) -> tuple[str, Json] | None:
        """(tool, its arguments) where a route leads to `hub_call`. Raises InvalidParameters."""
        return held(arguments) if route == CALL_ROUTE else None

    async def act(self, call: Call) -> Json:
        """The result of one call of a tool of the hub's own. Raises InvalidParameters."""
        return await act(self, call)

    def _take(self, config: Config, everything: bool) -> None:
        gone = {one.name for one in self._config.groups} - {one.name for one in config.groups} - self._made.keys()
        self._config, self._everything = config, everything
        if gone:
            self._forget_groups(gone)
        self._renew()

    def _forget_groups(self, gone: Collection[str]) -> None:
        for name in gone:
            self._added.pop(name, None)
            self._said.pop(name, None)
        # Another object: what callers saw before is still asked for.
        self._chosen = OrderedDict(
            (caller, {name: active for name, active in chosen.items() if name not in gone})
            for caller, chosen in self._chosen.items()
        )

    def _say(self, states: Mapping[str, bool]) -> None:
        self._said.update(states)
        self._switched_on -= states.keys()
        self._changed()
        if self._state is not None:
            self._state.save(self._said)

    def _changed(self) -> None:
        self._renew()
        self._catalogs.look(self.now.view, self.now.own_names)

    def _renew(self) -> None:
        """Make `now` anew; who compares it with what was finds both."""
        groups = {one.name: one for one in self._config.groups if one.name not in self._removed}
        groups |= {name: group for name, group in self._made.items() if name not in groups}
        for name, (tools, more) in self._added.items():
            one = groups[name]
            groups[name] = one.model_copy(update={"tools": one.tools + tools, "servers": one.servers + more})
        servers = {server.id: server for server in self._config.servers}
        self.now = Equipped(
            groups,
            {name: self._on(group) for name, group in groups.items()},
            self._chosen,
            Members(groups.values(), self._removed.values(), servers),
            everything=self._everything,
            meta_tools=self._config.meta_tools,
        )
        if groups or self._removed:
            self._ruled(self._rule)

    def _on(self, group: ToolGroup) -> bool:
        return group.name in self._switched_on or self._said.get(group.name, group.active)

    def _default(self, name: str) -> bool:
        return self._on(self._groups[name])

    def _known(self, names: str | Iterable[str]) -> tuple[str, ...]:
        """The names without `basic`."""
        wanted = _texts([names] if isinstance(names, str) else names)
        for name in wanted:
            if name != BASIC and name not in self._groups:
                raise ValueError(f"Tool group '{name}' not found.")
        return tuple(name for name in wanted if name != BASIC)


def _notes(groups: Iterable[ToolGroup]) -> str:
    return "\n".join(f"## About Tool Group '{group.name}'\n{group.notes}" for group in groups if group.notes)


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise ValueError(f"{values!r} is one text where several are meant; put it in a list")
    found = tuple(values)
    if not all(isinstance(one, str) for one in found):
        raise ValueError("names of groups, tools and servers are texts")
    return found


def _flag(value: bool) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"a group is switched by true or false, not by {type(value)}")
    return value
