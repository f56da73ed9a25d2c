"""The answers of a client that offers its servers nothing."""

from __future__ import annotations

from typing import Any

from mcp_hub.errors import METHOD_NOT_FOUND, ProtocolError
from mcp_hub.transport.peer import Cause


async def nothing_offered(method: str, params: dict[str, Any], cause: Cause | None = None) -> dict[str, Any]:
    """Answers an upstream's request if the hub offers nothing to it: a ping with `{}`.

    Raises ProtocolError (-32601) for any other method.
    """
    if method == "ping":
        return {}
    raise ProtocolError(METHOD_NOT_FOUND, f"The hub does not offer {method!r} to this server.")
