"""The hub as a child of its client: one caller on the standard streams."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from mcp_hub.errors import INVALID_REQUEST
from mcp_hub.serve.dispatcher import Dispatcher
from mcp_hub.serve.duplex import Duplex
from mcp_hub.wire.frames import FrameError, encode
from mcp_hub.wire.lines import LineReader, Oversized
from mcp_hub.wire.streams import Input, open_input, open_output

MAX_LINE: Final = 64 * 1024 * 1024
HIGH_WATER: Final = 8 * 1024 * 1024
"""Bytes the client may leave unread before no further request of its is read and notifications are dropped."""
END_GRACE: Final = 1.0
"""Seconds for running requests and unread answers after stdin has closed. With what stopping upstreams may take,
nothing is left 5 s after the client went."""
HURRIED_GRACE: Final = 0.2
"""Seconds for the answers of those that waited for an upstream to start."""


async def serve_stdio(dispatcher: Dispatcher, stdin: int, stdout: int, stop: asyncio.Event) -> None:
    """Serve until the client closes stdin or `stop` is set; then drain for a moment and return."""
    output = await open_output(stdout, stdin)
    source: Input | None = None
    reader = LineReader(MAX_LINE)
    resuming: asyncio.Task[None] | None = None

    def write(message: Any) -> None:
        nonlocal resuming
        if output.buffered > HIGH_WATER:
            if isinstance(message, dict) and "method" in message and "id" not in message:
                return  # a notification; answers and questions are never dropped
            if source is not None and (resuming is None or resuming.done()):
                source.pause()
                resuming = asyncio.get_running_loop().create_task(resume())
        try:
            line = encode(message)
        except FrameError:
            line = encode(_unwritable(message))
        output.write(line + b"\n")

    async def resume() -> None:
        await output.flush()
        if source is not None:
            source.resume()

    duplex = Duplex(dispatcher, write)
    duplex.caller.sole = True

    def data(chunk: bytes) -> None:
        for line in reader.feed(chunk):
            take(line)

    def take(line: bytes | Oversized) -> None:
        if isinstance(line, Oversized):
            duplex.refuse(INVALID_REQUEST, f"The message is {line.size:,} bytes, more than {MAX_LINE:,}.")
        elif line and not line.isspace():
            duplex.received(line)

    def end() -> None:
        rest = reader.rest()
        if rest is not None:
            take(rest)
        stop.set()

    source = await open_input(stdin, data, end)
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


def _unwritable(message: Any) -> dict[str, Any]:
    request_id = message.get("id") if isinstance(message, dict) else None
    text = "The answer cannot be written as JSON."
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32603, "message": text}}
