"""`hub.groups` of a program: the groups of its hub, changed from sync or async code."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from mcp_hub.config.root_rules import ToolGroupSettings
from mcp_hub.hub.groups import Groups
from mcp_hub.library.engine_host import EngineHost
from mcp_hub.library.portal import Portal

T = TypeVar("T")


class HubGroups:
    """The default state of groups, for callers that have not chosen their own. Starts the hub if it is not running.

    Every method checks all of its arguments before it changes anything, and raises ValueError.
    """

    def __init__(self, portal: Portal, running: EngineHost) -> None:
        self._portal = portal
        self._running = running

    def __iter__(self) -> Iterator[ToolGroupSettings]:
        """Yields all groups but `basic`, each with whether it is active."""
        return iter(self._run(lambda groups: list(groups)))

    def __len__(self) -> int:
        return self._run(len)

    def __contains__(self, name: object) -> bool:
        return self._run(lambda groups: name in groups)

    def __getitem__(self, name: str) -> ToolGroupSettings:
        """Returns a group. Raises KeyError if there is none of this name."""
        return self._run(lambda groups: groups[name])

    def active(self) -> tuple[str, ...]:
        """Returns the names of the active groups."""
        return self._run(lambda groups: groups.active())

    def notes(self, names: Collection[str] | None = None) -> str:
        """Returns the notes of the named groups, by default of the active ones, as one text."""
        return self._run(lambda groups: groups.notes(names))

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
        options: dict[str, Any] = {"notes": notes, "active": active, "tools": tools, "servers": servers}
        self._run(lambda groups: groups.create(name, description, **options))

    def add(self, name: str, *, tools: Iterable[str] = (), servers: Iterable[str] = ()) -> None:
        """Adds tools to a group. Raises ValueError."""
        self._run(lambda groups: groups.add(name, tools=tools, servers=servers))

    def update(self, names: str | Iterable[str], active: bool) -> None:
        """Activates or deactivates groups; `basic` stays active. Raises ValueError."""
        self._run(lambda groups: groups.update(names, active))

    def reset(self, states: Mapping[str, bool]) -> None:
        """Activates the groups that are true in `states`, and deactivates all others. Raises ValueError."""
        self._run(lambda groups: groups.reset(states))

    def remove(self, names: str | Iterable[str]) -> None:
        """Removes groups, and hides the tools that are in no other group. Raises ValueError."""
        self._run(lambda groups: groups.remove(names))

    def state_dict(self) -> dict[str, Any]:
        """Returns `{"active_groups": [...]}`."""
        return self._run(lambda groups: groups.state_dict())

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Restores what `state_dict` returned; groups it does not name become inactive. `strict` refuses other keys.

        Raises ValueError.
        """
        self._run(lambda groups: groups.load_state_dict(state, strict))

    def _run(self, work: Callable[[Groups], T]) -> T:
        return self._portal.run(partial(self._in_the_loop, work))

    async def _in_the_loop(self, work: Callable[[Groups], T]) -> T:
        return work((await self._running.hub()).groups)
