"""The hub as a child of its client: one caller on the standard streams."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any, Final

from mcp_hub.downstream.backlog import LARGE, encoded
from mcp_hub.downstream.dispatcher import Dispatcher
from mcp_hub.downstream.duplex import Duplex
from mcp_hub.errors import INVALID_REQUEST
from mcp_hub.transport.children import Children
from mcp_hub.transport.lines import Oversized, Turns
from mcp_hub.transport.streams import Input, Output, open_input, open_output

MAX_LINE: Final = 64 * 1024 * 1024
HIGH_WATER: Final = 8 * 1024 * 1024
"""Bytes the client may leave unread before notifications are dropped and, behind an answer, nothing more is read."""
END_GRACE: Final = 1.0
"""Seconds for running requests and unread answers after stdin has closed. With what stopping upstreams may take,
nothing is left 5 s after the client went."""
HELD_BACK: Final = 2.0
"""Seconds for which nothing is taken from servers, so that a client catches up; less than the write deadline (5 s), as
a server that waits to be read may not read. One that has read nothing in that time does not hold them up again."""
BREATH: Final = 0.01
"""Seconds in between, for what servers have to hear and say meanwhile."""
HURRIED_GRACE: Final = 0.2
"""Seconds for the answers of those that waited for an upstream to start."""


async def serve_stdio(dispatcher: Dispatcher, stdin: int, stdout: int, stop: asyncio.Event) -> None:
    """Serve until the client closes stdin or `stop` is set; then drain for a moment and return."""
    output = await open_output(stdout, stdin)
    source: Input | None = None
    held: set[str] = set()
    """Why nothing is read from the client."""
    resuming: asyncio.Task[None] | None = None
    share, unread = dispatcher.backlog.share(), _Unread(output)

    def write(message: Any) -> None:
        nonlocal resuming
        buffered = output.buffered
        notification = isinstance(message, dict) and "method" in message and "id" not in message
        if notification and buffered > HIGH_WATER:
            return
        line = message if isinstance(message, bytes) else encoded(message)
        output.write(line + b"\n")
        if len(line) >= LARGE or buffered > LARGE:
            share.watch(unread)
            if notification:
                return  # no matter how many there are, a cancellation must be read: they are dropped instead
            if output.buffered > HIGH_WATER and (resuming is None or resuming.done()):
                hold("unread", True)
                resuming = asyncio.get_running_loop().create_task(resume())

    async def resume() -> None:
        await _catch_up(output, dispatcher.hub.children)
        await output.flush()
        hold("unread", False)

    def hold(reason: str, wanted: bool) -> None:
        (held.add if wanted else held.discard)(reason)
        if source is not None:
            (source.pause if held else source.resume)()

    duplex = Duplex(dispatcher, write, share)
    duplex.caller.sole = True

    def take(line: bytes | Oversized) -> None:
        if isinstance(line, Oversized):
            duplex.refuse(INVALID_REQUEST, f"The message is {line.size:,} bytes, more than {MAX_LINE:,}.")
        elif line and not line.isspace():
            duplex.received(line)

    lines = Turns(MAX_LINE, take, partial(hold, "turns"))

    def end() -> None:
        lines.end()
        stop.set()

    source = await open_input(stdin, lines.feed, end)
    await stop.wait()
    dispatcher.close()
    for grace in (END_GRACE, HURRIED_GRACE):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await duplex.drained()
                await output.flush()
                break
        dispatcher.hub.hurry()  # who still waits for an upstream to start is answered with what is there
    if resuming is not None:
        resuming.cancel()
    duplex.close()


async def _catch_up(output: Output, children: Children) -> None:
    """Take nothing from servers until the client has read everything, or has read nothing for a while."""
    while True:
        before = output.buffered
        children.hold_back()
        try:
            async with asyncio.timeout(HELD_BACK):
                await output.flush()
                return
        except TimeoutError:
            if output.buffered >= before:
                return
        finally:
            children.go_on()
        await asyncio.sleep(BREATH)


class _Unread:
    """What the only client has not read yet, as the queue of its share (Queue)."""

    def __init__(self, output: Output) -> None:
        self._output = output

    @property
    def unread(self) -> int:
        return self._output.buffered

    def drop_unread(self) -> bool:
        """There is no other client that needs the room."""
        return False
