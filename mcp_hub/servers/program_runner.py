"""Runs one program that a model has written, in pydantic-monty: Python without files, network or environment.

A program cannot call tools itself. It runs until all its tasks wait for tool calls. The hub gets these calls, makes
them in the name of its client, and passes finished ones to `step`. The hub bounds the duration of the whole run, and
ends the program by ending this process. This process bounds the rest: the computing time, the values in the
interpreter, and what leaves it, which is counted while it is written.
"""

from __future__ import annotations

import json
import math
import mmap
import re
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic_monty import (
    CollectString,
    FunctionSnapshot,
    FutureSnapshot,
    Monty,
    MontyClassProxy,
    MontyComplete,
    MontyError,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
    ResourceLimits,
)

from mcp_hub.protocol.frames import encode

START_WAIT: Final = 10.0
"""Seconds to wait for a worker."""
MAX_PRINTED: Final = 64 * 1024
"""Bytes that a program may print."""
MAX_VALUE: Final = 2 * 1024 * 1024
"""Bytes of JSON of what a program returns. The hub allows fewer characters, but they may be escaped."""
MAX_ERROR: Final = 8 * 1024
"""Characters of an error; of a longer one the middle is left out."""
MAX_ARGUMENTS: Final = 16 * 1024 * 1024
"""Bytes of JSON of the arguments of one call: escaped, they still fit into a message to the hub."""
MAX_NAME: Final = 1000
"""Characters of a tool's name."""
MAX_WAITING: Final = 1000
"""Calls and sleeps that may wait at once."""
PER_CALL: Final = 1000
"""Bytes that a call counts besides its arguments."""
MAX_STEP: Final = 4 * 1024 * 1024
"""Bytes of calls after which the others wait for the next step."""
MAX_DEPTH: Final = 100
MAX_BITS: Final = 14_284
"""Bits of an integer: those of 4,300 digits, the most that Python reads."""
MAX_NAMED: Final = 10
"""Calls that an error names."""
MAX_STEPS: Final = 10_000
"""Suspensions of one program; each tool call takes a few."""
MAX_SLEEP: Final = 10.0
"""Seconds that a program may sleep at once."""
MAX_KEPT: Final = 96 * 1024 * 1024
"""Bytes of memory with which the process waits for another program; it begins with 40 MB."""
CALL_TOOL: Final = "call_tool"
PRELUDE: Final = "import asyncio, datetime, json, math, re"
"""The code that runs before every program."""
ASYNC_SLEEP: Final = "system.async_sleep"
SLEEP: Final = "system.sleep"
"""Names of the functions with which `asyncio.sleep` and `time.sleep` suspend a program."""
_SCRIPT: Final = re.compile(r"<python-input-\d+>")
_LIMIT: Final = re.compile(r"(feed time|memory) limit exceeded: [\d.]+(?:s| bytes) > ([\d.]+)(?:s| bytes)")

Names = dict[str, tuple[str, list[str]]]
"""Identifier in the program -> (name of the tool, its parameters in order)."""


class Program:
    """A running program, in a worker process of `workers`. It may make `calls` calls and compute for `seconds`.

    `memory` bounds in bytes the values in the interpreter, and separately the JSON of the calls that wait.
    """

    def __init__(self, workers: Monty, code: str, names: Names, *, seconds: float, memory: int, calls: int) -> None:
        self._names = names
        self._limits: ResourceLimits = {
            "max_memory": memory,
            "max_feed_duration_secs": seconds,
            "max_suspensions": MAX_STEPS,
        }
        self._memory, self._max_calls = memory, calls
        self._printed = CollectString(MAX_PRINTED)
        self._made = 0
        self._queued: list[tuple[str, bytes]] = []
        """Calls that were not returned to the hub yet: the tool, "" for a sleep, and the JSON."""
        self._waiting: dict[int, int] = {}
        """The bytes that each call counts until it is answered, by its number."""
        self._waiting_bytes = 0
        self._steps = self._run(workers, code)

    def step(self, answers: str | None = None) -> str:
        """Begins the program, or continues it with the results of calls; returns the next calls, or its outcome.

        `answers` is a JSON list of `{"number", "value"}` or `{"number", "error"}`; None begins the program. Returns the
        JSON of `{"calls": [{"number", "tool", "arguments", "size"} or {"number", "sleep"}, ...], "more"}`, where `more`
        tells that further calls wait for the next step. At the end it is `{"value", "printed"}`, `{"error", "printed"}`
        or, if the value is too long, `{"too_long", "printed"}`, each with `outgrown`: whether the process keeps so much
        memory that it should run no other program.
        """
        return self._steps.send(answers)

    def _run(self, workers: Monty, code: str) -> Generator[str, str | None, None]:
        try:
            with workers.checkout(limits=self._limits) as session:
                session.feed_run(PRELUDE)
                name, text = yield from self._execute(session, code)
        except (MontySyntaxError, MontyRuntimeError) as error:
            name, text = _error(_LIMIT.sub(_limit_text, _SCRIPT.sub("program", error.display("traceback"))))
        except MontyError as error:
            name, text = _error(f"{type(error).__name__}: {error}")
        except MemoryError:
            name, text = _error("MemoryError: the program and its calls took too much memory (code_mode.memory)")
        ends = f'"printed":{encode(self._printed.output).decode()},"outgrown":{"true" if _outgrown() else "false"}'
        yield f'{{"{name}":{text.decode()},{ends}}}'

    def _execute(self, session: MontySession, code: str) -> Generator[str, str | None, tuple[str, bytes]]:
        functions = dict.fromkeys([*self._names, CALL_TOOL], _tool_placeholder)
        snapshot: Any = session.feed_start(code, external_lookup=functions, print_callback=self._printed)
        while not isinstance(snapshot, MontyComplete):
            if isinstance(snapshot, FutureSnapshot):
                results = self._results((yield self._next_calls()))
                snapshot = snapshot.resume(results) if results else snapshot
            elif isinstance(snapshot, FunctionSnapshot):
                snapshot = self._resume(snapshot)
            else:
                snapshot = snapshot.resume_auto()
        if unawaited := [tool for tool, _ in self._queued if tool]:
            names = ", ".join(list(dict.fromkeys(unawaited))[:MAX_NAMED])
            return _error(f"RuntimeError: the program ended without 'await' of calls, which were not made: {names}")
        try:
            return "value", json_text(snapshot.output, MAX_VALUE)
        except MemoryError:
            return "too_long", b"true"
        except ValueError as error:
            return _error(f"ValueError: {error}")

    def _next_calls(self) -> str:
        """Takes calls that the hub was not told of, up to MAX_STEP bytes of them, and returns them for it."""
        size, number = 0, 0
        while number < len(self._queued) and size < MAX_STEP:
            size += len(self._queued[number][1])
            number += 1
        texts = b",".join(text for _, text in self._queued[:number]).decode()
        del self._queued[:number]
        return f'{{"calls":[{texts}],"more":{"true" if self._queued else "false"}}}'

    def _results(self, answers: str | None) -> dict[int, Any]:
        results = {}
        for answer in json.loads(answers or "[]"):
            size = self._waiting.pop(answer["number"], None)
            if size is not None:
                self._waiting_bytes -= size
                results[answer["number"]] = _future_result(answer)
        return results

    def _resume(self, snapshot: FunctionSnapshot) -> Any:
        """Notes what a program calls, and lets it continue until it needs the result."""
        name = snapshot.function_name
        try:
            if name == SLEEP:
                time.sleep(_seconds(*snapshot.args))
                return snapshot.resume({"return_value": None})
            if name == ASYNC_SLEEP:
                self._add(snapshot.call_id, "", b'"sleep":%r' % _seconds(*snapshot.args))
            elif name == CALL_TOOL:
                self._call(snapshot.call_id, *called_tool(*snapshot.args, **snapshot.kwargs))
            elif name in self._names:
                tool, parameters = self._names[name]
                if len(snapshot.args) > len(parameters):
                    raise TypeError(f"{name}() takes at most {len(parameters)} positional arguments")
                arguments = dict(zip(parameters, snapshot.args, strict=False)) | snapshot.kwargs
                self._call(snapshot.call_id, tool, arguments)
            else:
                return snapshot.resume_auto()
        except (TypeError, ValueError, RuntimeError, MemoryError) as error:
            return snapshot.resume({"exception": error})
        return snapshot.resume({"future": ...})

    def _call(self, number: int, tool: str, arguments: Mapping[str, Any]) -> None:
        if self._made >= self._max_calls:
            raise RuntimeError(f"overloaded: a program makes at most {self._max_calls} calls (code_mode.calls)")
        try:
            text = json_text(arguments, min(MAX_ARGUMENTS, self._memory - self._waiting_bytes - PER_CALL))
        except MemoryError:
            limits = f"{MAX_ARGUMENTS:,} bytes, those of all calls that wait {self._memory:,} (code_mode.memory)"
            raise MemoryError(f"the arguments of one call may have {limits}") from None
        self._add(number, tool, b'"tool":%b,"arguments":%b,"size":%d' % (encode(tool), text, len(text)), len(text))
        self._made += 1

    def _add(self, number: int, tool: str, members: bytes, size: int = 0) -> None:
        """Queues a call or sleep for the hub, and counts it until it is answered."""
        if len(self._waiting) >= MAX_WAITING:
            raise RuntimeError(f"overloaded: a program waits for at most {MAX_WAITING:,} calls and sleeps at once")
        self._queued.append((tool, b'{"number":%d,%b}' % (number, members)))
        self._waiting[number] = size + PER_CALL
        self._waiting_bytes += size + PER_CALL


def _tool_placeholder() -> None:
    """A placeholder for each tool, so that its name is a function in a program."""


def called_tool(name: str, arguments: Mapping[str, Any] | None = None, **named: Any) -> tuple[str, Mapping[str, Any]]:
    """Returns the tool and the arguments that `call_tool(...)` in a program names. Raises TypeError and ValueError."""
    if not isinstance(name, str):
        raise TypeError("the name of a tool is a text")
    if len(name) > MAX_NAME:
        raise ValueError(f"the name of a tool has at most {MAX_NAME:,} characters")
    return name, {**(arguments or {}), **named}


def _seconds(seconds: float) -> float:
    if not seconds >= 0:
        raise ValueError("sleep length must be non-negative")
    return min(float(seconds), MAX_SLEEP)


def _future_result(answer: Mapping[str, Any]) -> Any:
    if "error" in answer:
        return {"exception": RuntimeError(answer["error"])}
    return {"return_value": answer["value"]}


def _outgrown() -> bool:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # not Linux
        return False
    return pages * mmap.PAGESIZE > MAX_KEPT


def _limit_text(limit: re.Match[str]) -> str:
    """Returns what a program is told of a limit, which is also that of the text it printed."""
    if limit[1] == "feed time":
        return f"the program ran longer than {limit[2]} s (code_mode.seconds)"
    if limit[2] == str(MAX_PRINTED):
        return f"a program may print {MAX_PRINTED:,} bytes"
    return f"{limit[0]} (code_mode.memory)"


def _error(text: str) -> tuple[str, bytes]:
    if (left_out := len(text) - MAX_ERROR) > 0:
        text = f"{text[: MAX_ERROR // 2]}\n… {left_out:,} characters left out …\n{text[-MAX_ERROR // 2 :]}"
    return "error", encode(text)


def json_text(value: Any, room: int) -> bytes:
    """Returns a value as JSON: tuples and sets become lists, non-finite numbers and other objects become strings.

    A value that contains another many times is small in a program and large as JSON. So the bytes are counted while
    they are written. Raises MemoryError above `room` bytes, ValueError for an integer that JSON readers refuse.
    """
    text = bytearray()
    _write(value, text, room, 0)
    return bytes(text)


def _write(value: Any, text: bytearray, room: int, depth: int) -> None:
    if depth > MAX_DEPTH:
        text += encode("…")
    elif isinstance(value, str | bytes) and len(value) > room:
        raise MemoryError
    elif isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ValueError("an integer has more than 4,300 digits, which readers of JSON refuse")
    elif value is None or isinstance(value, str | int | float):
        text += encode(value if not isinstance(value, float) or math.isfinite(value) else str(value))
    elif isinstance(value, Mapping | MontyClassProxy):
        members = value if isinstance(value, Mapping) else value.attributes
        text += b"{"
        for number, (key, part) in enumerate(members.items()):
            text += b"," if number else b""
            _write(_key(key, room - len(text)), text, room, depth)
            text += b":"
            _write(part, text, room, depth + 1)
        text += b"}"
    elif isinstance(value, list | tuple | set | frozenset):
        text += b"["
        for number, part in enumerate(value):
            text += b"," if number else b""
            _write(part, text, room, depth + 1)
        text += b"]"
    else:
        text += encode(str(value))
    if len(text) > room:
        raise MemoryError


def _key(key: Any, room: int) -> str:
    if isinstance(key, int | tuple | frozenset):  # `str` refuses or blows up some
        return json_text(key, room).decode()
    return key if isinstance(key, str) else str(key)


def program_tools(memory: int) -> dict[str, Callable[..., str]]:
    """Returns the tools of this process, which run in threads: `start` and then `step`, for one program at a time.

    The values of a program may take `memory` bytes.
    """
    workers = Monty(min_processes=1, max_processes=1, checkout_timeout=START_WAIT, max_checkouts_per_worker=1)
    workers.__enter__()
    programs: list[Program] = []

    def start(code: str, names: dict[str, tuple[str, list[str]]], seconds: float, calls: int) -> str:
        """Starts a program that computes for at most `seconds` and makes `calls` calls, and returns its first calls."""
        programs[:] = [Program(workers, code, names, seconds=seconds, memory=memory, calls=calls)]
        return programs[0].step()

    def step(answers: str) -> str:
        """Gives the program results, a JSON text, and returns its next calls, or how it ended and what it printed."""
        return programs[0].step(answers)

    return {"start": start, "step": step}
