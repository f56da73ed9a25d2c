"""The user's functions that change results, as tools of a process: `python -m mcp_hub.servers steps ...`.

Each tool gets `call`, `result` and `options`, and answers `{"result": ...}`, with null for an unchanged result. They
run outside of the hub's process, so that a function that blocks, prints or exits affects only its own call.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

MAX_RUNNING: Final = 32
"""Most functions that run at the same time; further calls wait."""
MAX_STUCK: Final = 8
"""Functions that still run after their calls were cancelled. With so many the process ends, and the hub restarts it."""


class ThreadRunner:
    """Runs each call in a new thread. As threads cannot be ended from outside, those that never end are counted."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_RUNNING)
        self._stuck: set[threading.Thread] = set()

    async def run(self, function: Callable[[], Any]) -> Any:
        """Runs the function in a thread, and returns or raises the same as the function."""
        done: Future[Any] = Future()

        def work() -> None:
            try:
                done.set_result(function())
            except StopIteration as error:  # a future cannot hold a StopIteration
                done.set_exception(RuntimeError(repr(error)))
            except BaseException as error:  # also sys.exit, which must end the call and not only the thread
                done.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

        async with self._slots:
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            try:
                return await asyncio.shield(asyncio.wrap_future(done))
            except asyncio.CancelledError:
                self._give_up(thread)
                raise

    def _give_up(self, thread: threading.Thread) -> None:
        self._stuck = {candidate for candidate in (*self._stuck, thread) if candidate.is_alive()}
        if len(self._stuck) >= MAX_STUCK:
            print(f"{MAX_STUCK} functions did not end with their calls: restarting", file=sys.stderr, flush=True)
            os._exit(1)


def make_step_tool(name: str, threads: ThreadRunner) -> Callable[..., Any]:
    """Returns the tool for one `module:function`, which is imported when it is called."""
    from pydantic import TypeAdapter

    from mcp_hub.servers.local.tool_results import ToolRefused, ToolResult

    as_json: TypeAdapter[Any] = TypeAdapter(Any)

    async def run(call: Json, result: Json, options: Json) -> Any:
        """Change a result."""
        try:
            changed = await threads.run(lambda: _apply(name, call, result, options))
        except _Raised as raised:
            raise ToolRefused("tool_error", str(raised)) from None
        if isinstance(changed, str):
            changed = {"content": [{"type": "text", "text": changed}]}
        if changed is not None and not isinstance(changed, dict):
            raise TypeError(f"it returned {type(changed).__name__}, not a result, a text or None")
        try:
            plain = as_json.dump_python(changed, mode="json")
        except Exception:
            raise TypeError("it returned something that is not JSON") from None
        # Only structured: a copy as text would double the size, and the hub reads at most `max_frame` bytes.
        return ToolResult([], structured={"result": plain})

    return run


class _Raised(Exception):
    """The function raised. The message may quote the result, so only the type of the error and its place are told."""


def _apply(name: str, call: Json, result: Json, options: Json) -> Any:
    function = import_function(name)
    try:
        changed = function(call, result, **options)
        return asyncio.run(_await_value(changed)) if inspect.isawaitable(changed) else changed
    except BaseException as error:  # also sys.exit
        *_, (frame, line) = traceback.walk_tb(error.__traceback__)
        raise _Raised(f"{type(error).__name__} at {Path(frame.f_code.co_filename).name}:{line}") from None


async def _await_value(value: Any) -> Any:
    return await value


def import_function(name: str) -> Callable[..., Any]:
    """Imports and returns the function `module:function`. Raises ImportError if there is none."""
    module, _, function = name.partition(":")
    target = getattr(importlib.import_module(module), function, None)
    if not callable(target):
        raise ImportError(f"the module {module!r} has no function {function!r}")
    return target  # type: ignore[no-any-return]
