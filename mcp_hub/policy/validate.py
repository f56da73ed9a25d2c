"""Validates arguments against the tool's schema, with errors from which a model can correct its call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from mcp_hub.catalog.catalog import Item, Route
from mcp_hub.config.entry_rules import Validation
from mcp_hub.config.models import Server
from mcp_hub.errors import InvalidParameters
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy import Call, Json, Next
from mcp_hub.policy.patterns import ToolRulesTable
from mcp_hub.protocol.frames import weighs_more
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.schema.compiled_schemas import CompiledSchema, SchemaCache
from mcp_hub.schema.schema_edits import Path
from mcp_hub.schema.validation_errors import explain_errors


class Validate:
    """Checks arguments against the tool's own schema, `schema(route)`; they are never altered.

    `hidden(call)` are the paths of arguments that are preset: errors name none of them.

    `lenient` passes what the server could read as valid, `strict` only what is. Local and built-in tools are strict
    unless the configuration says otherwise.
    """

    def __init__(
        self,
        servers: Mapping[str, Server],
        schema: Callable[[Route], Json | None],
        hidden: Callable[[Call], Collection[Path]] = lambda call: (),
    ) -> None:
        self._modes: dict[str, Validation] = {id: _mode_of(server) for id, server in servers.items()}
        self._rules = ToolRulesTable(servers)
        self._schema = schema
        self._schemas = SchemaCache()
        self._hidden = hidden

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Returns the items unchanged."""
        return items

    def concerns(self, route: Route) -> bool:
        """Whether the tool's arguments are validated."""
        return route.kind is TOOLS and self._mode(route) != "off"

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Raises InvalidParameters; the server is not asked."""
        if call.method == TOOLS.act_method:
            await self._check(call)
        return await call_next(call)

    def _mode(self, route: Route) -> Validation:
        return self._rules(route).validate_arguments or self._modes[route.upstream]

    async def _check(self, call: Call) -> None:
        mode = self._mode(call.route)
        schema = self._schema(call.route) if mode != "off" else None
        if schema is None:
            return
        compiled = await self._schemas.compiled(call.route, schema, mode)
        if compiled is None:
            call.notes.append("validate: the schema cannot be used, nothing is checked")
            return
        arguments = call.params.get("arguments", {})
        try:
            if not weighs_more(arguments) and compiled.accepts_quickly(arguments):
                return
            problems = await in_thread(_problems, compiled, arguments, self._hidden(call))
        except (ValueError, RecursionError):  # too large, too deep, or texts that are not Unicode
            call.notes.append("validate: the arguments cannot be checked")
            return
        if not problems:
            return  # a regular expression gave up, which is not the caller's fault
        call.refused_by = f"validate: {mode}"
        text = f"The arguments do not fit {call.exposed!r}: {'; '.join(problems)}."
        raise InvalidParameters(text, server=call.route.upstream, executed=False)


def _problems(compiled: CompiledSchema, arguments: Any, hidden: Collection[Path]) -> list[str]:
    return [] if compiled.accepts(arguments) else explain_errors(compiled, arguments, hidden)


def _mode_of(server: Server) -> Validation:
    if server.validate_arguments is not None:
        return server.validate_arguments
    own = server.tools_dir is not None or server.builtin is not None or server.functions is not None
    return "strict" if own else "lenient"
