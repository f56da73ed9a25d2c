"""Tools of groups that are switched off for their caller: not listed (by its view of the catalog), and not called."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from mcp_hub.catalog.catalog import Item, Route
from mcp_hub.errors import GroupInactive
from mcp_hub.policy import Call, Json, Next, unknown_name
from mcp_hub.protocol.kinds import TOOLS


class Group:
    """`inactive(route, caller)` is the group that has to be switched on first, `gone(route)` what was removed with one.

    Only a new call is refused: a task that was begun goes on, as a running call does.
    """

    def __init__(self, inactive: Callable[[Route, Hashable | None], str | None], gone: Callable[[Route], bool]) -> None:
        self._inactive = inactive
        self._gone = gone

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Nothing changes in what all callers share: the names of inactive tools have to lead somewhere."""
        return items

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Raises GroupInactive, and UnknownName for what was removed."""
        if call.route.kind is TOOLS:
            if self._gone(call.route):
                call.refused_by = "groups: removed"
                raise unknown_name(call.kind, call.exposed, call.era)
            group = self._inactive(call.route, call.caller) if call.method == TOOLS.act_method else None
            if group is not None:
                call.refused_by = f"groups.{group}: inactive"
                # The words of the toolkit that models and their users know it from.
                text = (
                    f"FunctionInactiveError: The function '{call.exposed}' is in the inactive group '{group}'. "
                    "Activate the tool group by calling 'reset_equipped_tools' first to use this tool."
                )
                raise GroupInactive(text, server=call.route.upstream, executed=False)
        return await call_next(call)
