"""One stream of events over all the connections it takes: what it is for, how far it came, when to open it again."""

from __future__ import annotations

import logging
import random
from typing import Final

import msgspec

from mcp_hub.protocol.frames import FrameError, Message, decode, salvage_id
from mcp_hub.transport.link import LinkError, RequestId

log = logging.getLogger("mcp_hub.transport")

FIRST_DELAY: Final = 1.0
"""Seconds before a stream is opened again, if the upstream named no `retry`; doubled while nothing comes."""
LEAST_DELAY: Final = 0.05
MAX_DELAY: Final = 30.0


class Stream(msgspec.Struct):
    """What one stream of events, over all its connections, is for and how far it came. No `request`: standing."""

    request: RequestId | None
    answered: bool = False
    last_event_id: str | None = None
    retry: int | None = None
    arrived: int = 0

    def delay(self, fruitless: int) -> float:
        """Seconds before the next connection, with jitter upwards: `retry` is the least an upstream accepts."""
        first = FIRST_DELAY if self.retry is None else max(self.retry / 1000, LEAST_DELAY)
        return min(first * 2.0 ** min(fruitless, 16), MAX_DELAY) * (1 + random.random() / 4)


class Unreadable(LinkError):
    """An answer that is no JSON."""


def messages_of(data: bytes, stream: Stream) -> list[Message]:
    """The messages of one JSON text, batches taken apart. Raises Unreadable if it is none and may be the answer."""
    try:
        value = decode(data)
    except FrameError as error:
        about = salvage_id(data[:4096], data[-4096:])
        if stream.request is not None and about in (None, stream.request):
            raise Unreadable(f"the answer cannot be read as JSON: {error}") from None
        log.warning("a message that cannot be read as JSON was left out")
        return []
    return [message for message in (value if isinstance(value, list) else (value,)) if isinstance(message, dict)]


def error_about(body: bytes, stream: Stream) -> Message | None:
    """An HTTP error's body, if it is a JSON-RPC error that answers this stream's request."""
    try:
        value = decode(body)
    except FrameError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("error"), dict) or "method" in value:
        return None
    about = value.get("id")
    known = about is None or (about == stream.request and type(about) is type(stream.request))
    return value if known else None
