"""Calls of a toolkit's tools that run in the background as tasks, which models view, wait for and cancel."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from typing import Any, Final

from mcp_hub.security.lru import Lru
from mcp_hub.servers.local.tool_results import ToolResponse

MAX_RESULTS: Final = 1000
"""Most results that nobody has taken; beyond that, the oldest is forgotten."""
MAX_TASKS: Final = 1000
"""Most tasks that run at once."""
MAX_CHUNKS: Final = 1000
"""Most chunks of a call that its result has, the last ones. Chunks accumulate, so this loses nothing."""


class TaskRegistry:
    """The running tasks of a toolkit, and the results of those that have ended until a model takes them."""

    def __init__(self) -> None:
        self._async_tasks: dict[str, asyncio.Task[None]] = {}
        self._async_results: Lru[str, ToolResponse] = Lru(MAX_RESULTS)

    async def view_task(self, task_id: str) -> ToolResponse:
        """View the status of an async tool task by its task ID.

        Args:
            task_id (`str`):
                The ID of the async tool task.
        """
        if task_id in self._async_tasks:
            return _text(f"Task {task_id} is still running.")
        return self._async_results.pop(task_id, None) or _unknown(task_id)

    async def cancel_task(self, task_id: str) -> ToolResponse:
        """Cancel an async tool task by its task ID.

        Args:
            task_id (`str`):
                The ID of the async tool task.
        """
        if task_id in self._async_tasks:
            self._async_tasks.pop(task_id).cancel()
            return _text(f"Task {task_id} has been cancelled.")
        if task_id in self._async_results:
            return _text(f"Task {task_id} has already completed and cannot be cancelled.")
        return _unknown(task_id)

    async def wait_task(self, task_id: str, timeout: float = 10) -> ToolResponse:
        """Wait for an async tool execution to complete by its task ID. Note
        the timeout shouldn't be too large, you can check the task status
        by this tool every short period of time to avoid long waiting time.

        Args:
            task_id (`str`):
                The ID of the async tool task.
            timeout (`float`, defaults to `10`):
                The maximum time to wait for the task to complete, in seconds.
        """
        if (task := self._async_tasks.get(task_id)) is not None:
            done, _ = await asyncio.wait({task}, timeout=timeout)
            if not done:
                return _text(f"Task {task_id} is still running after waiting for {timeout} seconds.")
        return self._async_results.pop(task_id, None) or _unknown(task_id)

    async def _in_background(self, tool: str, stream: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """Starts a task that consumes the stream of a call, and yields a text with its id."""
        if len(self._async_tasks) >= MAX_TASKS:
            yield _text(f"Error: {MAX_TASKS} tasks are running; wait for one of them, or cancel it.")
            return
        id = secrets.token_hex(8)
        self._async_tasks[id] = asyncio.create_task(self._finish(id, stream), name=f"{tool} in the background")
        yield _text(
            f"<system-reminder>Tool '{tool}' is executing asynchronously. Task ID: {id}. Use view_task('{id}') to "
            f"check status, wait_task('{id}') to wait for completion, or cancel_task('{id}') to cancel the task."
            "</system-reminder>"
        )

    async def _finish(self, id: str, stream: AsyncGenerator[Any, None]) -> None:
        """Keeps the result of a call: its only chunk, or the content of all its chunks."""
        chunks: Lru[str, ToolResponse] = Lru(MAX_CHUNKS)
        try:
            async for chunk in stream:
                # A raw result has no id. The last chunk may come twice, to be marked as the last.
                chunks[getattr(chunk, "id", "")] = chunk
            last = next(reversed(chunks.values()))
            result = last
            if len(chunks) > 1:
                content = [block for chunk in chunks.values() for block in chunk.content]
                result = ToolResponse(content, is_interrupted=last.is_interrupted)
        except (Exception, asyncio.CancelledError) as error:
            result = _text(f"Error during async execution: {error}")
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            text = "<system-info>The tool call has been cancelled by the user.</system-info>"
            result = ToolResponse([{"type": "text", "text": text}], is_interrupted=True)
        self._async_tasks.pop(id, None)
        self._async_results[id] = result


def _text(text: str) -> ToolResponse:
    return ToolResponse([{"type": "text", "text": text}])


def _unknown(task_id: str) -> ToolResponse:
    return _text(f"InvalidTaskIdError: Cannot find async task with ID {task_id}.")
