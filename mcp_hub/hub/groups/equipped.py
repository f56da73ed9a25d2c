"""Which tools are on for whom, at one moment; the listing and the call ask the same object."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Final
from weakref import WeakKeyDictionary

from mcp_hub.catalog.catalog import OWN, Catalog, Entry, Route
from mcp_hub.config.rules import ToolGroup
from mcp_hub.hub.groups.members import Members
from mcp_hub.hub.groups.meta_tools import definitions
from mcp_hub.protocol.frames import encode
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.principals import profile_of

MAX_VIEWS: Final = 64
"""Of one catalog: callers with the same groups on share one; the longest unused is made again when it is wanted."""


class Equipped:
    """Groups and whether each is on. `chosen` is what callers have said themselves, `defaults` what holds otherwise.

    `everything` says whether all that is configured is served. A caller that may not see all of it is not told of
    groups of which it sees nothing.
    """

    def __init__(
        self,
        groups: Mapping[str, ToolGroup],
        defaults: Mapping[str, bool],
        chosen: Mapping[Hashable | None, Mapping[str, bool]],
        members: Members,
        *,
        everything: bool,
        meta_tools: bool,
    ) -> None:
        self.groups = groups
        self.members = members
        self._defaults = defaults
        self._chosen = chosen
        self._everything = everything
        self._meta_tools = meta_tools
        self._views: WeakKeyDictionary[Catalog, OrderedDict[Hashable, Catalog]] = WeakKeyDictionary()
        self._shown: WeakKeyDictionary[Catalog, tuple[ToolGroup, ...]] = WeakKeyDictionary()

    @property
    def own_names(self) -> frozenset[str]:
        """The tools of the hub's own that some caller has."""
        return frozenset(one["name"] for one in definitions(tuple(self.groups.values()), self._meta_tools))

    def active(self, caller: Hashable | None) -> frozenset[str]:
        """The groups that are on for a caller."""
        chosen = self._chosen.get(caller, {})
        return frozenset(name for name in self.groups if chosen.get(name, self._defaults[name]))

    def inactive(self, route: Route, caller: Hashable | None) -> str | None:
        """The group that has to be switched on before a tool can be used; None: none has."""
        names = self.members.groups(route)
        if not names or not self.active(caller).isdisjoint(names):
            return None
        return names[0]

    def shown(self, whole: Catalog, caller: Hashable | None) -> tuple[ToolGroup, ...]:
        """The groups a caller is told of; `whole` is its catalog with all that it may see."""
        if not self._restricts(caller):
            return tuple(self.groups.values())
        found = self._shown.get(whole)
        if found is None:
            seen = {name for route in whole.routes(TOOLS) for name in self.members.groups(route)}
            found = self._shown[whole] = tuple(group for name, group in self.groups.items() if name in seen)
        return found

    def view(self, whole: Catalog, caller: Hashable | None) -> Catalog:
        """What a caller sees of `whole`: tools that are on, and the hub's own in front of them."""
        active = self.active(caller)
        key = (active, self._restricts(caller))
        views = self._views.setdefault(whole, OrderedDict())
        if key in views:
            views.move_to_end(key)
            return views[key]

        def listed(route: Route) -> bool:
            names = self.members.groups(route)
            return not names or not active.isdisjoint(names)

        own = [_entry(wire) for wire in definitions(self.shown(whole, caller), self._meta_tools)]
        views[key] = whole.view(listed, self.members.gone, own)
        if len(views) > MAX_VIEWS:
            views.popitem(last=False)
        return views[key]

    def _restricts(self, caller: Hashable | None) -> bool:
        return not self._everything or profile_of(caller) is not None


def _entry(wire: dict[str, object]) -> Entry:
    name = str(wire["name"])
    return Entry(name, Route(OWN, TOOLS, name), wire, encode(wire))
