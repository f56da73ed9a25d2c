"""One request of a client while it is answered, and how many may come in one batch."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mcp_hub.downstream.callers import Caller, Send
from mcp_hub.errors import INVALID_REQUEST, ProtocolError
from mcp_hub.protocol.era import Envelope, Era
from mcp_hub.transport.link import RequestId

MAX_BATCH: Final = 1000
"""Members of one batch. Each becomes a task, so a longer batch is refused before anything of it begins."""


class Exchange(msgspec.Struct, eq=False):
    """One request of one caller while it is answered."""

    caller: Caller
    id: RequestId
    method: str
    params: dict[str, Any]
    era: Era
    envelope: Envelope
    send: Send


def batch_fault(members: list[Any]) -> ProtocolError | None:
    """Why a batch is refused as a whole; None if its members may be carried out."""
    if not members:
        return ProtocolError(INVALID_REQUEST, "A batch must not be empty.")
    if len(members) > MAX_BATCH:
        text = f"A batch may have at most {MAX_BATCH:,} members; this one has {len(members):,}."
        return ProtocolError(INVALID_REQUEST, text)
    return None
