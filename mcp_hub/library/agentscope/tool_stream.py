"""A call of a tool as the stream of chunks that toolkits give to agents."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from functools import partial
from typing import Any, Final

from mcp_hub.library.agentscope.mcp_clients import McpObject
from mcp_hub.servers.local.tool_results import ToolResponse, interrupted_response

Chunk = ToolResponse | McpObject
"""A CallToolResult comes only from an MCP client that was registered with `wrap_tool_result=False`."""
Act = Callable[[Callable[[Any, bool], None]], Awaitable[Any]]
"""Makes the call, passes chunks to its argument as they come, and returns the last one."""

MAX_WAITING: Final = 1000
"""Most chunks that wait to be consumed. Chunks accumulate, so dropping the oldest ones loses nothing."""


class NoResponse(TypeError):
    """A tool returned something that is not a ToolResponse."""


class ToolRaised(Exception):
    """The tool itself raised `error`. Chunks that came before it remain valid."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class ToolStream(AsyncGenerator[Any, None]):
    """The return value of `call_tool_function`: an async iterator that may be awaited first, which returns itself."""

    def __init__(self, chunks: AsyncGenerator[Any, None]) -> None:
        self._chunks = chunks

    def __await__(self) -> Generator[Any, None, ToolStream]:
        yield from ()
        return self

    async def asend(self, value: None) -> Any:
        """Returns the next chunk. Raises StopAsyncIteration after the last one."""
        return await self._chunks.asend(value)

    async def athrow(self, *error: Any) -> Any:
        """Raises an exception at the point where the stream waits."""
        return await self._chunks.athrow(*error)

    async def aclose(self) -> None:
        """Cancels the call if it still runs."""
        await self._chunks.aclose()


async def stream_chunks(act: Act) -> AsyncGenerator[Any, None]:
    """Yields the chunks of a call, the last one with `is_last`.

    Raises what the call raises, and NoResponse for a chunk that is not a ToolResponse. A chunk with `is_last` is held
    back until another one follows or the call ends. If the task is cancelled while it waits, a last chunk says so.
    """
    waiting: deque[Any] = deque(maxlen=MAX_WAITING)
    something = asyncio.Event()

    def heard(chunk: Any, more: bool) -> None:
        if more:
            waiting.append(chunk)
            something.set()

    acting = asyncio.ensure_future(act(heard))
    acting.add_done_callback(partial(_ended, something))
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
        yield interrupted_response(held or passed)
        return
    finally:
        acting.cancel()
    if isinstance(last, McpObject):
        yield last
        return
    last = _checked(last)
    yield last if last.is_last else dataclasses.replace(last, is_last=True)


def _ended(something: asyncio.Event, acting: asyncio.Future[Any]) -> None:
    something.set()
    if not acting.cancelled():
        acting.exception()  # marks it as retrieved, so that asyncio does not log it


def response(text: str) -> ToolResponse:
    """Returns a chunk with one text."""
    return ToolResponse([{"type": "text", "text": text}])


def _checked(chunk: Any) -> ToolResponse:
    if not isinstance(chunk, ToolResponse):
        raise NoResponse(
            "The tool function must return a ToolResponse object, or an AsyncGenerator/Generator of ToolResponse "
            f"objects, but got {type(chunk)}."
        )
    return chunk
