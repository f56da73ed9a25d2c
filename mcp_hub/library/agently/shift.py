"""Agently's `shift`: a function as a sync or an async one."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from mcp_hub.servers.local.call_stream import begin_alone

Shift = Literal["sync", "async"]


def shifted(func: Callable[..., Any], shift: Shift) -> Callable[..., Any]:
    """Returns the function, wrapped to be sync or async if it is not.

    The sync one also works inside a running loop. Raises ValueError for another `shift`.
    """
    if shift not in ("sync", "async"):
        raise ValueError(f"shift is 'sync', 'async' or None, not {shift!r}")
    is_async = inspect.iscoroutinefunction(func)
    if shift == "sync":
        return _sync(func) if is_async else func
    return func if is_async else _async(func)


def _sync(func: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(func(*args, **kwargs))
        future = begin_alone(func(*args, **kwargs), "mcp-hub sync")
        try:
            return future.result()
        except BaseException:
            future.cancel()  # for example after KeyboardInterrupt
            raise

    return call


def _async(func: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    @functools.wraps(func)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(func, *args, **kwargs)

    return call
