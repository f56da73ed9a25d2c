"""Arguments that the configuration sets: clients do not see them, and what clients send in their place is dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from mcp_hub.catalog.catalog import Item, Route
from mcp_hub.config.models import Server
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy import Call, Json, Next
from mcp_hub.policy.patterns import RulesOfTools
from mcp_hub.protocol.frames import weighs_more
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.schema.arguments import Path, path_of, with_value, without, without_value

MAX_PATHS: Final = 10_000
"""Tools whose paths are remembered, as many as those whose rules are."""


class Preset:
    """Hides preset arguments where tools are listed and sets them where tools are called.

    `of_calls`: calls may bring presets of their own, those of a program that has registered the tool.
    """

    def __init__(self, servers: Mapping[str, Server], *, of_calls: bool = False) -> None:
        self._rules = RulesOfTools(servers)
        self._paths: dict[Route, tuple[Path, ...]] = {}
        self._of_calls = of_calls
        self._declared: dict[Route, frozenset[str]] = {}
        """The arguments a tool with presets lists, so that none of them is taken for a spelling of another."""

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Tools without the arguments that are set for them."""
        return [self._shown(item) for item in items]

    def _shown(self, item: Item) -> Item:
        preset = self._rules(item.route).preset
        if item.route.kind is not TOOLS or not preset or not isinstance(item.wire, dict):
            return item
        schema = item.wire.get("inputSchema")
        if not isinstance(schema, dict):
            return item
        properties = schema.get("properties")
        self._declared[item.route] = frozenset(properties) if isinstance(properties, dict) else frozenset()
        for written in preset:
            schema = without(schema, path_of(written), schema)
        return msgspec.structs.replace(item, wire={**item.wire, "inputSchema": schema})

    def concerns(self, route: Route) -> bool:
        """Tools with presets."""
        return route.kind is TOOLS and (self._of_calls or bool(self._rules(route).preset))

    def hidden(self, call: Call) -> tuple[Path, ...]:
        """Where the arguments are that the caller neither sees nor sets."""
        of_call = tuple((name,) for name in call.preset or ())
        written = self._rules(call.route).preset
        if not written:
            return of_call
        paths = self._paths.get(call.route)
        if paths is None:
            if len(self._paths) >= MAX_PATHS:
                self._paths.clear()
            paths = self._paths[call.route] = tuple(map(path_of, written))
        return (*paths, *of_call)

    def shown(self, call: Call, arguments: Any) -> Any:
        """The arguments a caller sent, for records and spans: without those that are preset."""
        hidden = self.hidden(call)
        if hidden:
            declared = self._declared.get(call.route, frozenset())
            for path in hidden:
                arguments = without_value(arguments, path, declared)
        return arguments

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """The call with the configured values, whatever the caller sent there."""
        hidden = self.hidden(call) if call.method == TOOLS.act_method else ()
        if not hidden:
            return await call_next(call)
        arguments = call.params.get("arguments")
        merged: Any = arguments if isinstance(arguments, dict) else {}
        declared = self._declared.get(call.route, frozenset())
        values = (*self._rules(call.route).preset.values(), *(call.preset or {}).values())
        large, lost = weighs_more(merged), 0
        for path, value in zip(hidden, values, strict=True):
            given = (merged, path, value, declared)
            merged, dropped = await in_thread(with_value, *given) if large else with_value(*given)
            lost += dropped
        # Neither the names nor the values: notes are read by more people than the configuration.
        call.notes.append(f"preset: {len(hidden)} set" + (f"; {lost} sent by the caller dropped" if lost else ""))
        call.params = {**call.params, "arguments": merged}
        return await call_next(call)
