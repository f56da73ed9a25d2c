"""Runs the programs of models in pydantic-monty: Python without files, network, environment, and most imports.

A program has no tool itself. A call of one suspends it: `follow` tells the hub of the call, the hub makes it as its
client's own, and `answer` gives the program the result. The hub bounds the whole run; this process bounds what the
program computes.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from pydantic_monty import AsyncMonty, CollectString, MontyError, MontyRuntimeError, MontySyntaxError, ResourceLimits

MAX_RUNS: Final = 8
"""Programs that run at the same time, each in a worker process."""
START_WAIT: Final = 10.0
"""Seconds to wait for a worker."""
MAX_PRINTED: Final = 64 * 1024
"""Bytes that a program may print."""
MAX_DEPTH: Final = 100
MAX_STEPS: Final = 10_000
"""Suspensions of one program; each call of a tool takes a few."""
CALL_TOOL: Final = "call_tool"
PRELUDE: Final = "import asyncio, datetime, json, math, re"
"""What every program begins with."""
_SCRIPT: Final = re.compile(r"<python-input-\d+>")

Json = dict[str, Any]
Names = dict[str, tuple[str, list[str]]]
"""Identifier in the program -> (name of the tool, its parameters in order)."""


class Program:
    """One program that runs."""

    def __init__(self, pool: AsyncMonty, code: str, names: Names, seconds: float, memory: int) -> None:
        self._names = names
        self._printed = CollectString(MAX_PRINTED)
        self._calls: list[Json] = []
        """Calls that the hub has not been told of."""
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._news = asyncio.Event()
        self._task = asyncio.ensure_future(self._run(pool, code, seconds, memory))
        self._task.add_done_callback(lambda _: self._news.set())

    async def _run(self, pool: AsyncMonty, code: str, seconds: float, memory: int) -> Json:
        limits: ResourceLimits = {"max_memory": memory, "max_feed_duration_secs": seconds, "max_suspensions": MAX_STEPS}
        functions = {one: self._function(one) for one in self._names} | {CALL_TOOL: self._call_tool}
        try:
            async with pool.checkout(limits=limits) as session:
                await session.feed_run(PRELUDE)
                value = await session.feed_run(code, external_lookup=functions, print_callback=self._printed)
                return {"value": plain(value)}
        except (MontySyntaxError, MontyRuntimeError) as error:
            return {"error": _SCRIPT.sub("program", error.display("traceback"))}
        except MontyError as error:
            return {"error": f"{type(error).__name__}: {error}"}
        except TimeoutError:
            return {"busy": True}

    def _function(self, identifier: str) -> Callable[..., Awaitable[Any]]:
        tool, parameters = self._names[identifier]

        async def call(*values: Any, **named: Any) -> Any:
            if len(values) > len(parameters):
                raise TypeError(f"{identifier}() takes at most {len(parameters)} positional arguments")
            return await self._called(tool, dict(zip(parameters, values, strict=False)) | named)

        return call

    async def _call_tool(self, name: str, arguments: Mapping[str, Any] | None = None, **named: Any) -> Any:
        return await self._called(str(name), {**(arguments or {}), **named})

    async def _called(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        self._count += 1
        number = self._count
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._calls.append({"number": number, "tool": tool, "arguments": plain(dict(arguments))})
        self._news.set()
        return await future

    def answer(self, number: int, value: Any, error: str | None) -> None:
        """Gives the program the result of a call, or raises its error there."""
        future = self._waiting.pop(number, None)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(RuntimeError(error))

    async def follow(self) -> Json:
        """Waits until the program calls tools or ends, and returns the calls, or how it ended."""
        while not self._calls and not self._task.done():
            self._news.clear()
            await self._news.wait()
        if self._calls:
            calls, self._calls = self._calls, []
            return {"calls": calls}
        return {**self._task.result(), "printed": self._printed.output}

    async def end(self) -> None:
        """Ends the program, wherever it is."""
        self._task.cancel()
        await asyncio.wait({self._task})


def plain(value: Any, depth: int = 0) -> Any:
    """Returns a value as JSON has it: tuples and sets are lists, other objects their text."""
    if depth > MAX_DEPTH:
        return "…"
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {one if isinstance(one, str) else str(one): plain(part, depth + 1) for one, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(part, depth + 1) for part in value]
    return str(value)


def program_tools() -> dict[str, Callable[..., Any]]:
    """Returns what the process serves: `start`, `follow`, `answer` and `end`. They return JSON texts."""
    programs: dict[str, Program] = {}
    pools: list[AsyncMonty] = []
    opening = asyncio.Lock()

    async def pool() -> AsyncMonty:
        async with opening:
            if not pools:
                made = AsyncMonty(min_processes=1, max_processes=MAX_RUNS, checkout_timeout=START_WAIT)
                pools.append(await made.__aenter__())
            return pools[0]

    async def start(run: str, code: str, names: dict[str, tuple[str, list[str]]], seconds: float, memory: int) -> str:
        """Starts a program of at most `seconds` of computing and `memory` bytes."""
        programs[run] = Program(await pool(), code, names, seconds, memory)
        return ""

    async def follow(run: str) -> str:
        """Returns the next calls of a program, or how it ended: its value or its error, and what it printed."""
        news = await programs[run].follow()
        if "calls" not in news:
            programs.pop(run, None)
        return json.dumps(news)

    async def answer(run: str, number: int, value: Any = None, error: str | None = None) -> str:
        """Gives a program the result of a call."""
        if run in programs:
            programs[run].answer(number, value, error)
        return ""

    async def end(run: str) -> str:
        """Ends a program."""
        if (program := programs.pop(run, None)) is not None:
            await program.end()
        return ""

    return {"start": start, "follow": follow, "answer": answer, "end": end}
