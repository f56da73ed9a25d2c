"""Runs `mcp-hub` on the loop it always runs on, and reports every callback that keeps the loop too long.

A stall is the processor time of the loop's thread in one callback, so a busy machine makes none. Decoding and encoding
one frame are exempt: the longest of each in a callback is taken off. So are imports: no input makes them longer.
Reports go to the file that `MCP_HUB_STALLS` names, one JSON object a line: `{"seconds", "frames", "garbage",
"callback", "stack"}`; `garbage` are the seconds of them in which garbage was collected.

Run as a program: `MCP_HUB_STALLS=FILE python watched.py serve ...`. `MCP_HUB_STALL` is the limit in seconds.
"""

from __future__ import annotations

import builtins
import functools
import gc
import importlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT = 0.1
"""Seconds of processor time in one callback; the promise is 0.02."""
SAMPLE = 0.02
"""Seconds between two looks at what a long callback does."""
UNSEEN = 5
"""Times the limit that a callback may take which was hardly seen at work: time in which its host stops a virtual
machine counts as processor time of whatever runs, and cannot be told from one long operation of the interpreter."""
MIN_SAMPLES = 3
"""Looks at a long callback without which it was hardly seen."""

CALLED_BY_THE_LOOP = (
    "connection_made", "data_received", "buffer_updated", "eof_received", "connection_lost", "pause_writing",
    "resume_writing",
)  # fmt: skip


class Watch:
    """What the loop's thread does now."""

    def __init__(self, file: str = os.devnull, limit: float = LIMIT) -> None:
        self._file = file
        self._limit = limit
        self._started_at: float | None = None
        self._stacks: list[str] = []
        self._longest: dict[str, float] = {}
        self._in_frame = False
        self._imports = 0.0
        self._importing = False
        self._garbage = 0.0
        self._collecting = 0.0
        self._thread = threading.get_ident()

    def report_to(self, file: str, limit: float) -> None:
        """Report callbacks that take longer than `limit` seconds to a file."""
        self._file = file
        self._limit = limit

    def start(self) -> None:
        """Measure callbacks of the thread this is called in."""
        self._thread = threading.get_ident()
        threading.Thread(target=self._sample, daemon=True).start()

    def run(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Call and measure; what is called inside of another callback belongs to that one."""
        if self._started_at is not None or threading.get_ident() != self._thread:
            return callback(*args)
        self._longest, self._imports, self._garbage = {}, 0.0, 0.0
        self._started_at = started_at = time.thread_time()
        try:
            return callback(*args)
        finally:
            seconds = time.thread_time() - started_at
            self._started_at = None
            if seconds > self._limit:
                self._report(seconds, callback)
            if self._stacks:
                self._stacks = []

    def frame(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, which decodes or encodes, measured by itself."""

        def measured(*args: Any) -> Any:
            if self._started_at is None or threading.get_ident() != self._thread:
                return function(*args)
            started_at, self._in_frame = time.thread_time(), True
            try:
                return function(*args)
            finally:
                seconds = time.thread_time() - started_at
                self._in_frame = False
                self._longest[kind] = max(self._longest.get(kind, 0.0), seconds)

        return measured

    def imports(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, which imports something, measured by itself."""

        def measured(*args: Any, **kwargs: Any) -> Any:
            if self._started_at is None or self._importing or threading.get_ident() != self._thread:
                return function(*args, **kwargs)
            started_at, self._importing = time.thread_time(), True
            try:
                return function(*args, **kwargs)
            finally:
                self._importing = False
                self._imports += time.thread_time() - started_at

        return measured

    def collecting(self, phase: str, _info: dict[str, int]) -> None:
        """Called as a collection of garbage begins and ends."""
        if self._started_at is None or threading.get_ident() != self._thread:
            return
        now = time.thread_time()
        if phase == "start":
            self._collecting = now
        else:
            self._garbage += now - self._collecting

    def _report(self, seconds: float, callback: Callable[..., Any]) -> None:
        frames = sum(self._longest.values()) + self._imports
        was_sampled = len(self._stacks) >= max(MIN_SAMPLES, (seconds - self._limit / 2) / SAMPLE / 3)
        if seconds - frames <= self._limit * (1 if was_sampled else UNSEEN):
            return
        facts = {
            "seconds": round(seconds - frames, 3),
            "frames": round(frames, 3),
            "garbage": round(self._garbage, 3),
            "callback": repr(getattr(callback, "__self__", callback))[:500],
            "stack": self._stacks[len(self._stacks) // 2] if self._stacks else "(too short to be seen)",
        }
        with Path(self._file).open("a") as file:
            file.write(json.dumps(facts) + "\n")

    def _sample(self) -> None:
        clock = time.pthread_getcpuclockid(self._thread)
        while True:
            time.sleep(SAMPLE)
            started_at = self._started_at
            if (
                started_at is not None
                and not (self._in_frame or self._importing)
                and time.clock_gettime(clock) - started_at > self._limit / 2
            ):
                current_frame = sys._current_frames().get(self._thread)
                stack = "".join(traceback.format_stack(current_frame, limit=14))
                if current_frame is not None and self._started_at == started_at:
                    self._stacks = [*self._stacks[-100:], stack]


def _measured(watch: Watch, protocol: Any) -> Any:
    """A protocol whose methods are measured when the loop calls them."""
    for name in CALLED_BY_THE_LOOP:
        method = getattr(type(protocol), name, None)
        if method is not None and not hasattr(method, "watched"):

            def call(self: Any, *args: Any, method: Any = method) -> Any:
                return watch.run(method, self, *args)

            call.watched = True  # type: ignore[attr-defined]
            setattr(type(protocol), name, call)
    return protocol


def watched_loop(watch: Watch) -> type:
    """The hub's loop, every callback of which goes through `watch`."""
    import uvloop

    class Watched(uvloop.Loop):
        def run_forever(self) -> None:
            watch.start()
            super().run_forever()

        def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
            return super().call_soon(watch.run, callback, *args, context=context)

        def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
            return super().call_soon_threadsafe(watch.run, callback, *args, context=context)

        def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
            return super().call_later(delay, watch.run, callback, *args, context=context)

        def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
            return super().call_at(when, watch.run, callback, *args, context=context)

        def add_reader(self, fd: Any, callback: Any, *args: Any) -> Any:
            return super().add_reader(fd, watch.run, callback, *args)

        def add_writer(self, fd: Any, callback: Any, *args: Any) -> Any:
            return super().add_writer(fd, watch.run, callback, *args)

        async def create_server(self, factory: Any, *args: Any, **kwargs: Any) -> Any:
            return await super().create_server(lambda: _measured(watch, factory()), *args, **kwargs)

        async def create_unix_server(self, factory: Any, *args: Any, **kwargs: Any) -> Any:
            return await super().create_unix_server(lambda: _measured(watch, factory()), *args, **kwargs)

        async def create_connection(self, factory: Any, *args: Any, **kwargs: Any) -> Any:
            return await super().create_connection(lambda: _measured(watch, factory()), *args, **kwargs)

        async def connect_read_pipe(self, factory: Any, pipe: Any) -> Any:
            return await super().connect_read_pipe(lambda: _measured(watch, factory()), pipe)

        async def connect_write_pipe(self, factory: Any, pipe: Any) -> Any:
            return await super().connect_write_pipe(lambda: _measured(watch, factory()), pipe)

    return Watched


_prepared: list[Watch] = []
"""The watch of this process, once its wrappers are in place."""


def prepare() -> Watch:
    """Wraps what is measured by itself. To be called before anybody has imported it."""
    if not _prepared:
        from mcp_hub.protocol import frames

        watch = Watch()
        _prepared.append(watch)
        frames.decode = watch.frame("decode", frames.decode)
        frames.decode_exactly = watch.frame("decode", frames.decode_exactly)
        frames.encode = watch.frame("encode", frames.encode)
        gc.callbacks.append(watch.collecting)
        builtins.__import__ = watch.imports(builtins.__import__)
        importlib.import_module = watch.imports(importlib.import_module)
    return _prepared[0]


def warm() -> None:
    """Fills the caches that a hub fills when it reads a configuration or checks arguments for the first time."""
    prepare()
    from mcp_hub.hub.composition import config_of
    from mcp_hub.schema.compiled_schemas import CompiledSchema

    config_of({"servers": {"local": {"command": "true"}, "far": {"url": "http://127.0.0.1:9/mcp"}}}, environ={})
    CompiledSchema({"type": "object", "properties": {"text": {"type": "string"}}}, "lenient").errors({})


def main() -> int:
    """`mcp-hub` with the arguments of this program."""
    sys.path[:1] = [str(Path(__file__).resolve().parents[2])]  # in the place of this directory
    file = os.environ.pop("MCP_HUB_STALLS", "")
    if file and sys.platform != "win32":
        watch = prepare()
        watch.report_to(file, float(os.environ.pop("MCP_HUB_STALL", LIMIT)))
        import uvloop

        uvloop.run = functools.partial(uvloop.run, loop_factory=watched_loop(watch))
    from mcp_hub.cli import main as mcp_hub

    return mcp_hub()


if __name__ == "__main__":
    sys.exit(main())
