"""One request of a client while it is answered."""

from __future__ import annotations

from typing import Any

import msgspec

from mcp_hub.era import Envelope, Era
from mcp_hub.serve.callers import Caller, Send
from mcp_hub.wire.link import RequestId


class Exchange(msgspec.Struct, eq=False):
    """One request of one caller while it is answered."""

    caller: Caller
    id: RequestId
    method: str
    params: dict[str, Any]
    era: Era
    envelope: Envelope
    send: Send
