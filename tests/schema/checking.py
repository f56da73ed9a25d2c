"""The argument check by itself: one tool of one server, and the outcome of a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mcp_hub.catalog import Route
from mcp_hub.config.models import Server
from mcp_hub.errors import InvalidParameters
from mcp_hub.policy import Call
from mcp_hub.policy.presentation import Preset
from mcp_hub.policy.validate import Validate
from mcp_hub.protocol.era import Envelope
from mcp_hub.protocol.kinds import TOOLS

ROUTE = Route("s", TOOLS, "t")


@dataclass
class Outcome:
    """`refused` is the text of the error, or None if the call reached the server; `notes` are those of the call."""

    refused: str | None
    asked: list[Any]
    notes: list[str]
    refused_by: str | None = None
    executed: bool = True

    @property
    def checked(self) -> bool:
        return not self.notes


class Tool:
    """A tool with a schema, behind the argument check."""

    def __init__(self, schema: Any, mode: str = "lenient", **settings: Any) -> None:
        defaults = {"transport": "stdio", "command": "x", "namespace": "s", "validate_arguments": mode}
        server = Server.model_validate({"id": "s", **defaults, **settings})
        hidden = Preset({"s": server}).preset_paths
        self.validate = Validate({"s": server}, lambda route, caller: {"inputSchema": schema}, hidden=hidden)

    async def call(self, arguments: Any) -> Outcome:
        requests: list[Any] = []

        async def server(call: Call) -> dict[str, Any]:
            requests.append(call.params["arguments"])
            return {"content": []}

        params = {"name": "t", "arguments": arguments}
        call = Call(TOOLS.act_method, "s__t", ROUTE, params, "handshake", Envelope())
        try:
            await self.validate(call, server)
        except InvalidParameters as error:
            return Outcome(error.message, requests, call.notes, call.refused_by, error.executed)
        return Outcome(None, requests, call.notes)
