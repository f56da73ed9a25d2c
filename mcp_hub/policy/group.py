"""The policy that refuses calls of tools whose group is inactive for the caller."""

from __future__ import annotations

from collections.abc import Callable

from mcp_hub.catalog import Route
from mcp_hub.errors import CallError
from mcp_hub.policy import Call, Json, Next, Policy, unknown_name
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.callers import Caller


class GroupInactive(CallError):
    """The tool exists, but its group is inactive for this caller."""

    code, rpc_code = "group_inactive", -32016
    policy, refuses = "group", True


class GroupPolicy(Policy):
    """Refuses calls of tools whose groups are inactive for the caller.

    `inactive(route, caller)` returns the group to activate first, or None; `gone(route)` says whether a tool was
    removed with its groups. Only new calls are refused: tasks and running calls go on.
    """

    name = "group"

    def __init__(self, inactive: Callable[[Route, Caller], str | None], gone: Callable[[Route], bool]) -> None:
        self._inactive = inactive
        self._is_removed = gone

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Runs the call. Raises GroupInactive, and UnknownName for a removed tool."""
        if call.route.kind is TOOLS:
            if self._is_removed(call.route):
                call.refused_by = "groups: removed"
                raise unknown_name(call.kind, call.exposed, call.era)
            is_checked = call.method == TOOLS.act_method and not call.in_any_group
            group = self._inactive(call.route, call.caller) if is_checked else None
            if group is not None:
                call.refused_by = f"groups.{group}: inactive"
                # The text of AgentScope's toolkit, which models and programs know.
                text = (
                    f"FunctionInactiveError: The function '{call.exposed}' is in the inactive group '{group}'. "
                    "Activate the tool group by calling 'reset_equipped_tools' first to use this tool."
                )
                raise GroupInactive(text, server=call.route.upstream, executed=False)
        return await call_next(call)
