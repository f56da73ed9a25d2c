"""Runs programs that models write, in pydantic-monty: Python without files, network, environment, and most imports.

A program cannot call tools itself. It runs until all its tasks wait for tool calls. The hub gets these calls, makes
them in the name of its client, and passes finished ones to `step`. The hub bounds the duration of the whole run; this
process bounds the computing time and the memory of the program.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final

from pydantic_monty import (
    CollectString,
    FunctionSnapshot,
    FutureSnapshot,
    Monty,
    MontyComplete,
    MontyError,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
    ResourceLimits,
)

MAX_RUNS: Final = 8
"""Programs that run at the same time, each in a worker process."""
START_WAIT: Final = 10.0
"""Seconds to wait for a worker."""
MAX_PRINTED: Final = 64 * 1024
"""Bytes that a program may print."""
MAX_DEPTH: Final = 100
MAX_NAMED: Final = 10
"""Calls that an error names."""
MAX_STEPS: Final = 10_000
"""Suspensions of one program; each tool call takes a few."""
MAX_SLEEP: Final = 10.0
"""Seconds that a program may sleep at once."""
KILL_AGAIN: Final = 0.05
"""Seconds that `end` waits before it kills the worker, and between attempts, as the worker may still be starting."""
CALL_TOOL: Final = "call_tool"
PRELUDE: Final = "import asyncio, datetime, json, math, re"
"""The code that runs before every program."""
ASYNC_SLEEP: Final = "system.async_sleep"
SLEEP: Final = "system.sleep"
"""Names of the functions with which `asyncio.sleep` and `time.sleep` suspend a program."""
_KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)
_SCRIPT: Final = re.compile(r"<python-input-\d+>")

Json = dict[str, Any]
Names = dict[str, tuple[str, list[str]]]
"""Identifier in the program -> (name of the tool, its parameters in order)."""


class Program:
    """One running program, in a worker process. One thread at a time can `step`; `end` may be called meanwhile."""

    def __init__(self, pool: Callable[[], Monty], code: str, names: Names, seconds: float, memory: int) -> None:
        """`pool` returns the workers, which may take long at the first call; the first `step` calls it."""
        self._names = names
        self._limits: ResourceLimits = {
            "max_memory": memory,
            "max_feed_duration_secs": seconds,
            "max_suspensions": MAX_STEPS,
        }
        self._printed = CollectString(MAX_PRINTED)
        self._calls: list[Json] = []
        """Calls that were not returned to the hub yet."""
        self._steps = self._run(pool, code)
        self._step_lock = threading.Lock()
        self._stopped = threading.Event()
        self._worker: int | None = None
        """The id of the process that runs this program; None before and after that."""
        self._worker_lock = threading.Lock()

    def step(self, answers: Sequence[Json] | None = None) -> Json:
        """Begins the program, or continues it with the results of calls; returns the next calls, or its outcome.

        Each of `answers` is `{"number", "value"}` or `{"number", "error"}`; None begins the program. Returns
        `{"calls": [{"number", "tool", "arguments"} or {"number", "sleep"}, ...]}`, at the end `{"value", "printed"}`,
        `{"error", "printed"}` or, without a free worker, `{"busy", "printed"}`.
        """
        with self._step_lock:
            return self._steps.send(answers)

    def end(self) -> None:
        """Ends the program, even while it computes."""
        self._stopped.set()
        while not self._step_lock.acquire(timeout=KILL_AGAIN):
            with self._worker_lock:
                if self._worker is not None:
                    os.kill(self._worker, _KILL)
        self._steps.close()
        self._step_lock.release()

    def _run(self, pool: Callable[[], Monty], code: str) -> Generator[Json, Sequence[Json] | None, None]:
        try:
            with pool().checkout(limits=self._limits) as session:
                self._set_worker(session.worker_pid)
                try:
                    session.feed_run(PRELUDE)
                    outcome = yield from self._execute(session, code)
                finally:
                    self._set_worker(None)  # before the next program may get the worker
        except (MontySyntaxError, MontyRuntimeError) as error:
            outcome = {"error": _SCRIPT.sub("program", error.display("traceback"))}
        except MontyError as error:
            outcome = {"error": f"{type(error).__name__}: {error}"}
        except TimeoutError:
            outcome = {"busy": True}
        yield {**outcome, "printed": self._printed.output}

    def _set_worker(self, worker: int | None) -> None:
        with self._worker_lock:
            self._worker = worker

    def _execute(self, session: MontySession, code: str) -> Generator[Json, Sequence[Json] | None, Json]:
        functions = dict.fromkeys([*self._names, CALL_TOOL], _tool_placeholder)
        snapshot: Any = session.feed_start(code, external_lookup=functions, print_callback=self._printed)
        while not isinstance(snapshot, MontyComplete):
            if isinstance(snapshot, FutureSnapshot):
                calls, self._calls = self._calls, []
                answers = {answer["number"]: answer for answer in (yield {"calls": calls}) or ()}
                results = {
                    number: _future_result(answers[number]) for number in snapshot.pending_call_ids if number in answers
                }
                snapshot = snapshot.resume(results) if results else snapshot
            elif isinstance(snapshot, FunctionSnapshot):
                snapshot = self._resume(snapshot)
            else:
                snapshot = snapshot.resume_auto()
        if unawaited := [call["tool"] for call in self._calls if "tool" in call]:
            names = ", ".join(list(dict.fromkeys(unawaited))[:MAX_NAMED])
            return {"error": f"RuntimeError: the program ended without 'await' of calls, which were not made: {names}"}
        return {"value": plain(snapshot.output)}

    def _resume(self, snapshot: FunctionSnapshot) -> Any:
        """Notes what a program calls, and lets it continue until it needs the result."""
        name = snapshot.function_name
        try:
            if name == SLEEP:
                self._stopped.wait(_seconds(*snapshot.args))
                return snapshot.resume({"return_value": None})
            if name == ASYNC_SLEEP:
                call: Json = {"sleep": _seconds(*snapshot.args)}
            elif name == CALL_TOOL:
                call = call_tool(*snapshot.args, **snapshot.kwargs)
            elif name in self._names:
                call = self._call(name, snapshot.args, snapshot.kwargs)
            else:
                return snapshot.resume_auto()
        except (TypeError, ValueError) as error:
            return snapshot.resume({"exception": error})
        self._calls.append({"number": snapshot.call_id, **call})
        return snapshot.resume({"future": ...})

    def _call(self, identifier: str, values: Sequence[Any], named: Mapping[str, Any]) -> Json:
        tool, parameters = self._names[identifier]
        if len(values) > len(parameters):
            raise TypeError(f"{identifier}() takes at most {len(parameters)} positional arguments")
        return {"tool": tool, "arguments": plain(dict(zip(parameters, values, strict=False)) | dict(named))}


def _tool_placeholder() -> None:
    """A placeholder for each tool, so that its name is a function in a program."""


def call_tool(name: str, arguments: Mapping[str, Any] | None = None, **named: Any) -> Json:
    """Returns what `call_tool(...)` in a program requests: `{"tool", "arguments"}`."""
    return {"tool": str(name), "arguments": plain({**(arguments or {}), **named})}


def _seconds(seconds: float) -> float:
    if not seconds >= 0:
        raise ValueError("sleep length must be non-negative")
    return min(float(seconds), MAX_SLEEP)


def _future_result(answer: Json) -> Any:
    if "error" in answer:
        return {"exception": RuntimeError(answer["error"])}
    return {"return_value": answer["value"]}


def plain(value: Any, depth: int = 0) -> Any:
    """Converts a value to JSON: tuples and sets become lists, non-finite numbers and other objects become strings."""
    if depth > MAX_DEPTH:
        return "…"
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): plain(part, depth + 1) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(part, depth + 1) for part in value]
    return str(value)


def program_tools() -> dict[str, Callable[..., str]]:
    """Returns the tools of this process: `start`, `step` and `end`. They return JSON texts, and run in threads."""
    programs: dict[str, Program] = {}
    pools: list[Monty] = []
    lock = threading.Lock()

    def pool() -> Monty:
        with lock:
            if not pools:
                workers = Monty(min_processes=1, max_processes=MAX_RUNS, checkout_timeout=START_WAIT)
                pools.append(workers.__enter__())
            return pools[0]

    def start(run: str, code: str, names: dict[str, tuple[str, list[str]]], seconds: float, memory: int) -> str:
        """Starts a program of at most `seconds` of computing and `memory` bytes, and returns its first calls."""
        programs[run] = Program(pool, code, names, seconds, memory)  # at once, so that `end` finds it
        return step(run)

    def step(run: str, answers: str | None = None) -> str:
        """Gives a program results, a JSON text, and returns its next calls, or how it ended and what it printed."""
        outcome = programs[run].step(json.loads(answers) if answers is not None else None)
        if "calls" not in outcome:
            programs.pop(run, None)
        return json.dumps(outcome)

    def end(run: str) -> str:
        """Ends a program."""
        if (program := programs.pop(run, None)) is not None:
            program.end()
        return ""

    return {"start": start, "step": step, "end": end}
