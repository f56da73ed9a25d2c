"""Validates arguments against the tool's schema; the errors let a model correct its call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

from mcp_hub.catalog import Route
from mcp_hub.config.entry_rules import Validation
from mcp_hub.config.models import Server
from mcp_hub.errors import InvalidParameters
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy import Call, Json, Listed, Next, Policy, PolicyParts
from mcp_hub.policy.patterns import ToolRulesTable
from mcp_hub.policy.presentation import Presentation, Preset
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.schema.compiled_schemas import CompiledSchema, SchemaCache
from mcp_hub.schema.schema_edits import Path
from mcp_hub.schema.validation_errors import explain_errors


class Validate(Policy):
    """Checks arguments against the tool's own schema; they are never altered.

    `presented(route, schema)` returns the input schema that clients see, `hidden(call)` the paths of preset arguments,
    which errors do not name.

    `strict` passes only valid arguments, `lenient` also those that the server may convert to valid ones. Local and
    built-in tools are strict unless the configuration says otherwise.
    """

    name = "validate"

    def __init__(
        self,
        servers: Mapping[str, Server],
        listed: Listed,
        presented: Callable[[Route, Json], Json] = lambda route, schema: schema,
        hidden: Callable[[Call], Collection[Path]] = lambda call: (),
    ) -> None:
        self._modes: dict[str, Validation] = {id: _mode_of(server) for id, server in servers.items()}
        self._rules = ToolRulesTable(servers)
        self._listed = listed
        self._presented = presented
        self._schemas = SchemaCache()
        self._hidden = hidden

    @classmethod
    def of(cls, parts: PolicyParts) -> Validate:
        """Makes the policy of a configuration."""
        return cls(parts.servers, parts.listed, parts.find(Presentation).schema, parts.find(Preset).preset_paths)

    def concerns(self, route: Route) -> bool:
        """Returns whether the tool's arguments are validated."""
        mode = self._rules[route].validate_arguments or self._modes[route.upstream]
        return route.kind is TOOLS and mode != "off"

    def __call__(self, call: Call, call_next: Next) -> Awaitable[Json]:
        """Runs the call if its arguments are valid. Raises InvalidParameters otherwise; the server gets no request."""
        tool = self._listed(call.route, call.caller) if call.method == TOOLS.act_method else None
        schema = tool.get("inputSchema") if tool is not None else None
        rules = self._rules[call.route]
        mode = rules.validate_arguments or self._modes[call.route.upstream]
        if not isinstance(schema, dict) or mode == "off" or call.objects:
            return call_next(call)
        if rules.extend_schema is not None or rules.strip_titles:
            schema = self._presented(call.route, schema)
        compiled = self._schemas.find(call.route, schema, mode)
        try:
            passes = compiled is not None and compiled.accepts_quickly(call.params.get("arguments", {}))
        except (ValueError, RecursionError):
            passes = False  # `_check` finds out why
        return call_next(call) if passes else self._check(call, call_next, schema, mode)

    async def _check(self, call: Call, call_next: Next, schema: Json, mode: Validation) -> Json:
        """Checks what takes long: a schema that is not compiled yet, and arguments that are large or wrong."""
        if problems := await self._problems(call, schema, mode):
            self._refuse(call, mode, problems)
        return await call_next(call)

    async def _problems(self, call: Call, schema: Json, mode: Validation) -> Sequence[str]:
        compiled = await self._schemas.compiled(call.route, schema, mode)
        if compiled is None:
            call.notes.append("validate: the schema cannot be used, nothing is checked")
            return ()
        arguments = call.params.get("arguments", {})
        try:
            if compiled.accepts_quickly(arguments):
                return ()
            # A regular expression that takes too long gives no problem, as the caller is not at fault.
            return await in_thread(_problems, compiled, arguments, self._hidden(call))
        except (ValueError, RecursionError):  # too large, too deep, or texts that are not Unicode
            call.notes.append("validate: the arguments cannot be checked")
            return ()

    def _refuse(self, call: Call, mode: Validation, problems: Sequence[str]) -> NoReturn:
        call.refused_by = f"validate_arguments: {mode}"
        text = f"The arguments do not fit {call.exposed!r}: {'; '.join(problems)}."
        raise InvalidParameters(text, server=call.route.upstream, executed=False)


def _problems(compiled: CompiledSchema, arguments: Any, hidden: Collection[Path]) -> list[str]:
    return [] if compiled.accepts(arguments) else explain_errors(compiled, arguments, hidden)


def _mode_of(server: Server) -> Validation:
    if server.validate_arguments is not None:
        return server.validate_arguments
    is_local = server.tools_dir is not None or server.builtin is not None or server.functions is not None
    return "strict" if is_local else "lenient"
