"""Serves the standard streams, for a hub that is a child process of its only client."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any, Final

from mcp_hub.downstream import encoded
from mcp_hub.downstream.dispatcher import Dispatcher, Duplex
from mcp_hub.errors import INVALID_REQUEST
from mcp_hub.policy.quotas import LARGE, Share
from mcp_hub.protocol.frames import has_method, salvage_id
from mcp_hub.security.callers import SOLE
from mcp_hub.transport.children import Children
from mcp_hub.transport.lines import FairLineReader, Line, OversizedLine, is_blank
from mcp_hub.transport.standard_streams import Input, Output, open_input, open_output

MAX_LINE: Final = 64 * 1024 * 1024
HIGH_WATER: Final = 8 * 1024 * 1024
"""Bytes the client may leave unread; above that, notifications are dropped, and each answer pauses reading."""
END_GRACE: Final = 1.0
"""Seconds for running requests and unread answers after stdin has closed. Together with stopping the upstreams,
everything ends within 5 s."""
HELD_BACK: Final = 2.0
"""Seconds for which reading from the upstreams is paused so that the client catches up. It is less than the write
deadline (5 s), as an upstream whose output is not read may stop reading. No pause follows one in which the client has
read nothing."""
BREATH: Final = 0.01
"""Seconds between two such pauses, in which upstreams are read and written."""
HURRIED_GRACE: Final = 0.2
"""Seconds for the answers of requests that waited for an upstream to start."""


async def serve_stdio(dispatcher: Dispatcher, stdin: int, stdout: int, stop: asyncio.Event) -> None:
    """Serves until the client closes stdin or `stop` is set; then drains for at most 1.2 s and returns."""
    output = await open_output(stdout, stdin)
    pause = _ReadPause()
    share = dispatcher.backlog.share()
    writer = _ClientWriter(output, share, pause, dispatcher.hub.children)
    duplex = Duplex(dispatcher, writer.write, share, SOLE)
    duplex.connection.transport = "stdio"

    def on_line(line: Line | OversizedLine) -> None:
        if isinstance(line, OversizedLine):
            # An error under the id of a response would end another request, one of this client.
            id = salvage_id(line.head, line.tail) if has_method(line.head, line.tail) else None
            duplex.refuse(INVALID_REQUEST, f"The message is {line.size:,} bytes, more than {MAX_LINE:,}.", id)
        elif line[:1] == b"{" or not is_blank(line):
            duplex.received(line)

    lines = FairLineReader(MAX_LINE, on_line, partial(pause.hold, "turns"))

    def on_end() -> None:
        lines.end()
        stop.set()

    pause.attach(await open_input(stdin, lines.feed, on_end))
    await stop.wait()
    dispatcher.close()
    await _drain(duplex, output, dispatcher)
    writer.close()
    duplex.close()


async def _drain(duplex: Duplex, output: Output, dispatcher: Dispatcher) -> None:
    """Waits until all requests are answered and the client has read the answers, for a bounded time."""
    for grace in (END_GRACE, HURRIED_GRACE):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await duplex.drained()
                await output.flush()
                break
        dispatcher.hub.hurry()  # requests that still wait for an upstream to start are answered with what there is


class _ReadPause:
    """Pauses reading from the client while there is a reason to."""

    def __init__(self) -> None:
        self._reasons: set[str] = set()
        self._source: Input | None = None

    def attach(self, source: Input) -> None:
        self._source = source

    def hold(self, reason: str, is_active: bool) -> None:
        """Adds a reason to pause, or removes it; reading resumes without one."""
        (self._reasons.add if is_active else self._reasons.discard)(reason)
        if self._source is not None:
            (self._source.pause if self._reasons else self._source.resume)()


class _ClientWriter:
    """Writes messages to the client; reading from it is paused while it leaves too many answers unread."""

    def __init__(self, output: Output, share: Share, pause: _ReadPause, children: Children) -> None:
        self._output = output
        self._unread = _Unread(output)
        self._share = share
        self._pause = pause
        self._children = children
        self._resuming: asyncio.Task[None] | None = None

    def write(self, message: Any) -> None:
        """Queues a message or its text; a notification is dropped if too much is unread. Never blocks."""
        output = self._output
        buffered = output.buffered
        is_notification = isinstance(message, dict) and "method" in message and "id" not in message
        if is_notification and buffered > HIGH_WATER:
            return
        line = message if isinstance(message, bytes) else encoded(message)
        if len(line) >= LARGE:  # a copy of 30 MB would block the event loop
            output.write(line)
            output.write(b"\n")
        else:
            output.write(line + b"\n")
        if len(line) >= LARGE or buffered > LARGE:
            self._share.watch(self._unread)
            if is_notification:
                return  # notifications never pause reading, as a cancellation must be read; they are dropped instead
            if output.buffered > HIGH_WATER and (self._resuming is None or self._resuming.done()):
                self._pause.hold("unread", True)
                self._resuming = asyncio.get_running_loop().create_task(self._resume())

    async def _resume(self) -> None:
        await _catch_up(self._output, self._children)
        await self._output.flush()
        self._pause.hold("unread", False)

    def close(self) -> None:
        """Stops waiting for the client to read."""
        if self._resuming is not None:
            self._resuming.cancel()


async def _catch_up(output: Output, children: Children) -> None:
    """Pauses reading from the upstreams until the client has read everything, or nothing for HELD_BACK seconds."""
    while True:
        buffered_before = output.buffered
        children.pause_reading()
        try:
            async with asyncio.timeout(HELD_BACK):
                await output.flush()
                return
        except TimeoutError:
            if output.buffered >= buffered_before:
                return
        finally:
            children.resume_reading()
        await asyncio.sleep(BREATH)


class _Unread:
    """The bytes that the only client has not read yet (ByteQueue)."""

    def __init__(self, output: Output) -> None:
        self._output = output

    @property
    def unread(self) -> int:
        return self._output.buffered

    def drop_unread(self) -> bool:
        """Returns False: there is no other client that needs the memory."""
        return False
