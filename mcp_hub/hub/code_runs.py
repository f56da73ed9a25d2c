"""Code mode: a model's program calls tools, and only what it returns and prints reaches the model.

Each call that the program makes is an ordinary call of the same caller, with all rules and its own record. The program
itself runs in another process (`servers/program_runner.py`).
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from mcp_hub.catalog import OWN, Catalog, Route
from mcp_hub.config.extras import missing
from mcp_hub.errors import (
    CallError,
    DeadlineExceeded,
    InvalidParameters,
    Overloaded,
    ProtocolError,
    ResultTooLarge,
    ServerUnavailable,
)
from mcp_hub.hub.groups.active_groups import RUN, SEARCH
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy import Call, Json
from mcp_hub.policy.confirm import CodeModeSettings
from mcp_hub.policy.deadline import TimeLimit
from mcp_hub.policy.long_results import without_lone_surrogates
from mcp_hub.protocol.frames import FrameError, encode, weighs_more
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.protocol.questions import CallQuestions
from mcp_hub.search.signatures import identifier_of
from mcp_hub.text import printable
from mcp_hub.upstream import Upstream
from mcp_hub.upstream.session import UpstreamSession

MAX_CODE: Final = 100_000
"""Characters of a program."""
MAX_ANSWER: Final = 256 * 1024
"""The most characters of what a program returns."""
MAX_RUNS: Final = 8
"""Programs that run at the same time."""
END_WAIT: Final = 5.0
"""Seconds for a program to end after its run has."""
BLOCK: Final = "mcp-hub/block"
"""Key of the object that represents an image, a sound or a resource in a program; its value is a number."""
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Find = Callable[[str], Awaitable[Route]]
"""Returns the route of a tool for the caller of a run. Raises UnknownName."""
Act = Callable[[Call], Awaitable[Json]]


class CodeRuns:
    """The programs of one hub.

    Args:
        next_label: Returns the id of a run in the records.
    """

    def __init__(self, next_label: Callable[[], str]) -> None:
        self._next_label = next_label
        self._running = 0
        self._identifiers: WeakKeyDictionary[Catalog, dict[str, str]] = WeakKeyDictionary()

    async def run(
        self,
        call: Call,
        settings: CodeModeSettings,
        catalog: Catalog,
        start: Callable[[], Upstream],
        find: Find,
        act: Act,
    ) -> Json:
        """Runs a program, and returns what it returned and printed as the result of `call`.

        Args:
            call: The call of `hub_run`.
            settings: The bounds of a program.
            catalog: The tools that its caller may see.
            start: Returns the process that runs programs, started with its first use.
            find: Finds a tool by its name.
            act: Executes one call of a tool.

        Raises:
            CallError: The program cannot be run, or did not end in time.
        """
        code = _code_in(call)
        if (problem := missing("code_mode")) is not None:
            raise ServerUnavailable(f"{RUN}: {problem}", executed=False)
        if self._running >= MAX_RUNS:
            raise Overloaded(f"{MAX_RUNS} programs run already; try again later.", retry_after=1.0, executed=False)
        call.label = call.label or self._next_label()
        process = start()
        limit = TimeLimit(settings.seconds)
        run = _Run(process, act, call, settings, find, limit)
        self._running += 1
        try:
            with limit:
                call.deadlines.append(limit)
                return await run.result(code, self._names(code, catalog))
        except TimeoutError:
            if not limit.expired:
                raise
            if run.lost:
                raise ServerUnavailable("The process that runs programs has ended, and the program with it.") from None
            text = f"The program did not end within {settings.seconds:g} s (setting: code_mode.seconds)."
            raise DeadlineExceeded(text) from None
        finally:
            self._running -= 1

    def _names(self, code: str, catalog: Catalog) -> dict[str, tuple[str, list[str]]]:
        """Returns the tools whose names are in a program, by identifier: (name, parameters, required first)."""
        identifiers = self._identifiers.get(catalog)
        if identifiers is None:
            identifiers = self._identifiers[catalog] = {}
            for name in catalog.names(TOOLS):
                if (identifier := identifier_of(name)) not in identifiers or identifier == name:
                    identifiers[identifier] = name
        tools = {}
        for identifier in dict.fromkeys(_IDENTIFIER.findall(code)):
            tool = SEARCH if identifier == SEARCH else identifiers.get(identifier)
            if tool is not None:
                tools[identifier] = (
                    tool,
                    ["query"] if identifier == SEARCH else _parameters(catalog.entry(TOOLS, tool) or {}),
                )
        return tools


class _Run:
    """One program."""

    def __init__(
        self, process: Upstream, act: Act, call: Call, settings: CodeModeSettings, find: Find, limit: TimeLimit
    ) -> None:
        self._process = process
        self._act = act
        self._call = call
        self._settings = settings
        self._find = find
        self._limit = limit
        self._id = str(call.label)
        self._call_count = 0
        self._finished_count = 0
        self._blocks: dict[int, Json] = {}
        """Images and the like by their numbers, which no server can guess."""
        self.lost = False
        """Whether the process ended while calls were made."""

    async def result(self, code: str, names: Mapping[str, tuple[str, list[str]]]) -> Json:
        calls: set[asyncio.Task[str]] = set()
        watch: asyncio.Task[None] | None = None
        report: Json = {"calls": []}
        try:
            limits = {"seconds": self._settings.seconds, "memory": self._settings.memory}
            report = await self._request("start", code=code, names=names, **limits)
            if "calls" in report and (session := self._process.session) is not None:
                watch = asyncio.ensure_future(self._watch(session))
            while "calls" in report:
                requests = report["calls"]
                if len(requests) == 1 and not calls:
                    answers = [await self._answer(requests[0])]
                else:
                    calls |= {asyncio.ensure_future(self._answer(request)) for request in requests}
                    done, calls = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
                    answers = [task.result() for task in done]
                report = await self._request("step", answers=f"[{','.join(answers)}]")
            return await self._final_result(report)
        finally:
            # A program must not outlive its call, and no call in it the program.
            for task in (*calls, *([watch] if watch is not None else [])):
                task.cancel()
            if "calls" in report and not self.lost:
                await asyncio.shield(self._end())

    async def _watch(self, session: UpstreamSession) -> None:
        """Ends the run when the process has ended, which no request would notice while calls are made."""
        await session.lost.wait()
        if not self._limit.expired:
            self.lost = True
            self._limit.expire()

    async def _end(self) -> None:
        try:
            async with asyncio.timeout(END_WAIT):
                await self._request("end")
        except (CallError, ProtocolError, TimeoutError):
            pass  # the process is gone, and the program with it

    async def _request(self, tool: str, **arguments: Any) -> Json:
        params = {"name": tool, "arguments": {"run": self._id, **arguments}}
        response = await self._process.request(TOOLS.act_method, params)
        content = response.result.get("content") or [{}]
        text = str(content[0].get("text", ""))
        if response.result.get("isError"):
            raise ServerUnavailable("The process that runs programs has failed; its log says why.")
        return json.loads(text) if text else {}

    # --- calls of the program ----------------------------------------------------------------------------------

    async def _answer(self, request: Json) -> str:
        """Makes one call of the program, or lets it sleep, and returns the answer for it as JSON."""
        number = request["number"]
        if "sleep" in request:
            await asyncio.sleep(request["sleep"])
            return _answer_text({"number": number, "value": None})
        try:
            result = await self._call_tool(request["tool"], request["arguments"])
            text = (
                await in_thread(self._value_text, number, result)
                if weighs_more(result)
                else self._value_text(number, result)
            )
        except _ToolError as error:
            text = _answer_text({"number": number, "error": str(error)})
        except FrameError:
            text = _answer_text({"number": number, "error": "tool_error: the result is nested too deeply"})
        self._finished_count += 1
        if self._call.on_progress is not None:
            self._call.on_progress({"progress": self._finished_count, "message": printable(request["tool"], 200)})
        return text

    def _value_text(self, number: int, result: Json) -> str:
        return _answer_text({"number": number, "value": self._value(result)})

    async def _call_tool(self, name: str, arguments: Json) -> Json:
        """Returns the result of one call of the program. Raises _ToolError."""
        self._call_count += 1
        if self._call_count > self._settings.calls:
            raise _ToolError(f"overloaded: a program makes at most {self._settings.calls} calls (code_mode.calls)")
        call = self._call
        try:
            route = await self._find(name)
            if route.upstream == OWN and route.name != SEARCH:
                raise _ToolError(f"invalid_parameters: a program calls tools by their names, not by {name}")
            deadlines = [*call.deadlines]
            inner = replace(
                call,
                exposed=name,
                route=route,
                params={"name": route.name, "arguments": arguments},
                on_progress=None,
                notes=[],
                attempts=0,
                deadlines=deadlines,
                questions=CallQuestions(deadlines),
                label=f"{self._id}.{self._call_count}",
                within=RUN,
                confirmed=False,
            )
            result = await self._act(inner)
        except CallError as error:
            raise _ToolError(f"{error.code}: {error.message}") from None
        except ProtocolError as error:
            raise _ToolError(f"{error.code}: {error.message}") from None
        except TimeoutError:
            raise _ToolError("timeout: the call took longer than its deadline") from None
        if result.get("isError") is True:
            raise _ToolError(f"{_code_of(result)}: {_texts(result)}")
        return result

    def _value(self, result: Json) -> Any:
        """Returns the result of a tool as a program sees it.

        That is `structuredContent`; else the value of a single JSON text; else the text. Each other block is
        represented by an object, which a program can return.
        """
        structured = result.get("structuredContent")
        blocks = result.get("content")
        blocks = [block for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
        handles = [self._handle(block) for block in blocks if block.get("type") != "text"]
        if structured is not None:
            wrapped = isinstance(structured, dict) and structured.keys() == {"result"}
            value = structured["result"] if wrapped else structured
        else:
            texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
            value = _parsed(texts[0]) if len(texts) == 1 else "\n".join(texts) if texts else None
        if not handles:
            return value
        return (
            handles[0] if value is None and len(handles) == 1 else [*([value] if value is not None else []), *handles]
        )

    def _handle(self, block: Json) -> Json:
        number = secrets.randbits(48)
        self._blocks[number] = block
        fields = {key: block[key] for key in ("type", "mimeType", "uri", "name") if isinstance(block.get(key), str)}
        return {BLOCK: number, **fields}

    # --- the end -----------------------------------------------------------------------------------------------

    async def _final_result(self, outcome: Json) -> Json:
        if outcome.get("busy"):
            raise Overloaded("All workers for programs are busy; try again later.", retry_after=1.0, executed=False)
        printed = str(outcome.get("printed") or "")
        texts = [printed.rstrip("\n")] if printed.strip() else []
        if "error" in outcome:
            call_note = f"Calls of tools until then: {self._call_count}."
            return {"content": [_text("\n".join([*texts, str(outcome["error"]).rstrip(), call_note]))], "isError": True}
        value, blocks = outcome.get("value"), []
        if value is not None:
            value_text = await in_thread(_as_text, value) if weighs_more(value) else _as_text(value)
            if len(value_text) > MAX_ANSWER:
                text = f"The program returned {len(value_text):,} characters; it may return {MAX_ANSWER:,}."
                raise ResultTooLarge(f"{text} Return less of it.")
            texts.append(value_text)
            returned = _handles(value)
            blocks = [block for number, block in self._blocks.items() if number in returned]
        return {"content": [_text("\n".join(texts) or "The program returned nothing."), *blocks]}


class _ToolError(Exception):
    """A call of a program failed; the text is what the program catches."""


def _code_in(call: Call) -> str:
    arguments = call.params.get("arguments") or {}
    code = arguments.get("code")
    if not isinstance(code, str) or not code.strip() or len(code) > MAX_CODE or set(arguments) - {"code"}:
        raise InvalidParameters(f"{RUN} needs 'code' alone, a program of at most {MAX_CODE:,} characters.")
    return code


def _parameters(wire: Json) -> list[str]:
    schema = wire.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    required = schema.get("required") if isinstance(schema, dict) else None
    first = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    return list(dict.fromkeys([*first, *(properties if isinstance(properties, dict) else ())]))


def _parsed(text: str) -> Any:
    """Returns the value of a JSON text, or the text."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _code_of(result: Json) -> str:
    meta = result.get("_meta")
    facts = meta.get("mcp-hub/error") if isinstance(meta, dict) else None
    code = facts.get("code") if isinstance(facts, dict) else None
    return code if isinstance(code, str) else "tool_error"


def _texts(result: Json) -> str:
    blocks = result.get("content")
    blocks = [block for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    return "\n".join(str(block["text"]) for block in blocks if "text" in block)[:4000]


def _answer_text(answer: Json) -> str:
    """Returns an answer for the program as JSON. Raises FrameError."""
    data = encode(answer)
    return (encode(without_lone_surrogates(answer)) if rb"\ud" in data else data).decode()


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode("utf-8", "replace")


def _handles(value: Any) -> set[int]:
    """Returns the numbers of the blocks that a value has."""
    numbers: set[int] = set()
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            if isinstance(number := item.get(BLOCK), int):
                numbers.add(number)
            pending += item.values()
        elif isinstance(item, list):
            pending += item
    return numbers
