"""`with_timeout`: a deadline around a coroutine function."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def with_timeout(timeout_s: float = 300.0) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
    """A decorator: the coroutine is cancelled after so many seconds, and its caller gets asyncio.TimeoutError."""

    def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        @functools.wraps(function)
        async def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            return await asyncio.wait_for(function(*args, **kwargs), timeout=timeout_s)

        return limited

    return decorate
