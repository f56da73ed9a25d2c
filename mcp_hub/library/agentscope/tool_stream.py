"""A call of a tool as the stream of chunks that toolkits give to agents."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any, Final

from mcp_hub.library.agentscope.mcp_clients import McpObject
from mcp_hub.servers.local.tool_results import ToolResponse, interrupted

Chunk = ToolResponse | McpObject
"""A CallToolResult only from an MCP client that was registered with `wrap_tool_result=False`."""
Act = Callable[[Callable[[Any, bool], None]], Awaitable[Any]]
"""Makes the call, tells of chunks on the way, and returns the last one."""

MAX_WAITING: Final = 1000
"""Chunks of which nobody has taken note yet; as they accumulate, nothing is lost with the older ones."""


class NoResponse(TypeError):
    """A tool gave something that is no ToolResponse."""


class ToolRaised(Exception):
    """The tool itself raised `error`: what it said before stands."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class ToolStream(AsyncGenerator[Any, None]):
    """What `call_tool_function` gives: iterated at once, or after an `await` that gives it again."""

    def __init__(self, chunks: AsyncGenerator[Any, None]) -> None:
        self._chunks = chunks

    def __await__(self) -> Generator[Any, None, ToolStream]:
        yield from ()
        return self

    async def asend(self, value: None) -> Any:
        """The next chunk. Raises StopAsyncIteration behind the last one."""
        return await self._chunks.asend(value)

    async def athrow(self, *error: Any) -> Any:
        """Raise something where the stream waits."""
        return await self._chunks.athrow(*error)

    async def aclose(self) -> None:
        """Cancel the call, if it still runs."""
        await self._chunks.aclose()


async def stream_chunks(act: Act) -> AsyncGenerator[Any, None]:
    """The chunks of a call, the last of them marked so. Raises what the call raises, NoResponse for what is no chunk.

    A chunk that says of itself that it is the last one is passed on when another follows or the call is over. A task
    that is cancelled while it waits for a chunk gets a last one that says so.
    """
    waiting: deque[Any] = deque(maxlen=MAX_WAITING)
    something = asyncio.Event()

    def heard(chunk: Any, more: bool) -> None:
        if more:
            waiting.append(chunk)
            something.set()

    def done(acting: asyncio.Future[Any]) -> None:
        something.set()
        if not acting.cancelled():
            acting.exception()  # seen, even where nobody waits any more

    acting = asyncio.ensure_future(act(heard))
    acting.add_done_callback(done)
    passed: ToolResponse | None = None
    held: ToolResponse | None = None
    try:
        while not acting.done() or waiting:
            await something.wait()
            something.clear()
            while waiting:
                chunk = _checked(waiting.popleft())
                if held is not None:
                    passed, held = held, None
                    yield passed
                if chunk.is_last:
                    held = chunk
                else:
                    passed = chunk
                    yield passed
        last = acting.result()
    except ToolRaised as raised:
        if held is not None:
            yield held
        raise raised.error from None
    except asyncio.CancelledError:
        acting.cancel()
        yield interrupted(held or passed)
        return
    finally:
        acting.cancel()
    if isinstance(last, McpObject):
        yield last
        return
    last = _checked(last)
    yield last if last.is_last else dataclasses.replace(last, is_last=True)


def response(text: str) -> ToolResponse:
    """A chunk that is one text."""
    return ToolResponse([{"type": "text", "text": text}])


def _checked(chunk: Any) -> ToolResponse:
    if not isinstance(chunk, ToolResponse):
        raise NoResponse(
            "The tool function must return a ToolResponse object, or an AsyncGenerator/Generator of ToolResponse "
            f"objects, but got {type(chunk)}."
        )
    return chunk
