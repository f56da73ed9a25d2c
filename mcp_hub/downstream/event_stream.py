"""Writes a client's outbox to an open event stream until either side ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from mcp_hub.downstream.http import ClientGone, Reply, Request
from mcp_hub.downstream.outbox import Outbox
from mcp_hub.transport.sse import COMMENT

KEEP_ALIVE: Final = 15.0
"""Seconds of silence until a comment is written; proxies close streams that are silent for a minute or less."""


async def news_within(event: asyncio.Event, seconds: float) -> bool:
    """Whether `event` was set in time; it is cleared."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True


async def pump(request: Request, reply: Reply, outbox: Outbox, ended: Callable[[], bool]) -> None:
    """Write what comes until the client is gone, or `ended()` and nothing waits; the stream must have begun.

    Whoever makes `ended()` true sets `outbox.news`.
    """
    request.watch(outbox.news.set)
    try:
        while not request.disconnected:
            event = outbox.take_event()
            if event is not None:
                await reply.write(event)
            elif ended():
                await reply.end()
                return
            elif not await news_within(outbox.news, KEEP_ALIVE):
                await reply.write(COMMENT)
    except ClientGone:
        return
    finally:
        request.unwatch()
