"""Code mode: a model's program calls tools, and only what it returns and prints reaches the model.

Each call that the program makes is an ordinary call of the same caller, with all rules and its own record. The program
itself runs in another process (`servers/program_runner.py`).
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from mcp_hub.catalog import OWN, RUN, SEARCH, Catalog, Route
from mcp_hub.config.extras import missing
from mcp_hub.errors import (
    CallError,
    DeadlineExceeded,
    InvalidParameters,
    Overloaded,
    ProtocolError,
    ResultTooLarge,
    ServerUnavailable,
    drop_frames,
    error_facts,
)
from mcp_hub.hub.internal_servers import InternalServers
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy import Call, Json
from mcp_hub.policy.call_record import approximate_size
from mcp_hub.policy.confirm import CodeModeSettings
from mcp_hub.policy.deadline import TimeLimit
from mcp_hub.policy.long_results import without_lone_surrogates
from mcp_hub.policy.quotas import LARGE, QueuedAnswer, Share
from mcp_hub.protocol.frames import FrameError, encode, weighs_more
from mcp_hub.protocol.kinds import JSON_KEY, TOOLS
from mcp_hub.protocol.questions import CallQuestions
from mcp_hub.search.signatures import identifier_of
from mcp_hub.security import Principal
from mcp_hub.security.counters import InFlight
from mcp_hub.text import printable
from mcp_hub.transport.background import TaskSet
from mcp_hub.upstream import Upstream
from mcp_hub.upstream.session import UpstreamSession

MAX_CODE: Final = 100_000
"""Characters of a program."""
MAX_ANSWER: Final = 256 * 1024
"""The most characters of what a program returns."""
MAX_RUNS: Final = 16
"""Programs that run at the same time. Each principal may take half of the places that others leave."""
ENDED: Final = "The process of the program has ended; the program and its calls may have needed too much memory."
MAX_STEP: Final = 4 * 1024 * 1024
"""Characters of answers after which the others wait for the next step."""
MAX_RESULT: Final = 30 * 1024 * 1024
"""Bytes of a result as JSON: escaped, it still fits into a line to the process."""
MAX_ERROR: Final = 4000
"""Characters of the error of a call."""
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
        self._running = InFlight[Principal]()
        self._stopping = TaskSet()
        self._identifiers: WeakKeyDictionary[Catalog, dict[str, str]] = WeakKeyDictionary()

    async def run(
        self,
        call: Call,
        settings: CodeModeSettings,
        catalog: Catalog,
        internal: InternalServers,
        local: Collection[str],
        share: Share,
        find: Find,
        act: Act,
    ) -> Json:
        """Runs a program, and returns what it returned and printed as the result of `call`.

        Args:
            call: The call of `hub_run`.
            settings: The bounds of a program.
            catalog: The tools that its caller may see.
            internal: Has the processes that run programs.
            local: The ids of the hub's own servers, whose results say whether they are JSON.
            share: Counts the bytes of calls and results that wait.
            find: Finds a tool by its name.
            act: Executes one call of a tool.

        Raises:
            CallError: The program cannot be run, or did not end in time.
        """
        code = _code_in(call)
        if (problem := missing("code_mode")) is not None:
            raise ServerUnavailable(f"{RUN}: {problem}", executed=False)
        principal = call.caller.principal
        if (own := self._running[principal]) >= MAX_RUNS - self._running.total():
            text = f"{own} programs of this principal run already, {self._running.total()} of all; try again later."
            raise Overloaded(text, retry_after=1.0, executed=False)
        call.label = call.label or self._next_label()
        process = internal.take_process()
        self._running[principal] += 1
        run: _Run | None = None
        try:
            session = await process.connected()  # the start of a process is no time of the program
            limit = TimeLimit(settings.seconds)
            run = _Run(process, act, call, settings, local, share, find, limit)
            with limit:
                call.deadlines.append(limit)
                return await run.result(code, self._names(code, catalog), session)
        except TimeoutError:
            if run is None or not limit.expired:
                raise
            if run.lost:
                raise ServerUnavailable(ENDED) from None
            text = f"The program did not end within {settings.seconds:g} s (setting: code_mode.seconds)."
            raise DeadlineExceeded(text) from None
        finally:
            if run is not None and run.reusable and internal.keep(process):
                self._running.leave(principal)
            else:
                self._stopping.start(self._stop(internal, process, principal))

    async def _stop(self, internal: InternalServers, process: Upstream, principal: Principal) -> None:
        """Stops a process and the program in it, which keeps its place until then."""
        try:
            await internal.stop(process)
        finally:
            self._running.leave(principal)

    def _names(self, code: str, catalog: Catalog) -> dict[str, tuple[str, list[str]]]:
        """Returns the tools whose names are in a program, by identifier: (name, parameters, required first)."""
        identifiers = self._identifiers.get(catalog)
        if identifiers is None:
            identifiers = self._identifiers[catalog] = {}
            for name in (entry.exposed for entry in catalog.tools_of_models()):
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
        self,
        process: Upstream,
        act: Act,
        call: Call,
        settings: CodeModeSettings,
        local: Collection[str],
        share: Share,
        find: Find,
        limit: TimeLimit,
    ) -> None:
        self._share = share
        self._process = process
        self._act = act
        self._call = call
        self._settings = settings
        self._local = local
        self._find = find
        self._limit = limit
        self._id = str(call.label)
        self._call_count = 0
        self._finished_count = 0
        self._calls: set[asyncio.Task[_Answer]] = set()
        """The calls that run."""
        self._answered: deque[asyncio.Task[_Answer]] = deque()
        """The calls that have ended, and whose answers the program has not got yet."""
        self._taken: list[QueuedAnswer] = []
        """What the program has got with the last step."""
        self._blocks: dict[int, Json] = {}
        """Images and the like by their numbers, which no server can guess."""
        self._kept = QueuedAnswer(0)
        """The bytes of these, which stay until the program ends."""
        self.lost = False
        """Whether the process ended while calls were made."""
        self.reusable = False
        """Whether the program has ended, so that its process can run another one."""

    async def result(self, code: str, names: Mapping[str, tuple[str, list[str]]], session: UpstreamSession) -> Json:
        watch = asyncio.ensure_future(self._watch(session))
        try:
            limits = {"seconds": self._settings.seconds, "calls": self._settings.calls}
            report = await self._request("start", code=code, names=names, **limits)
            while "calls" in report:
                self._calls |= {asyncio.ensure_future(self._answer(request)) for request in report["calls"]}
                report = await self._request("step", answers=await self._next_answers(wait=not report["more"]))
            self.reusable = not report["outgrown"]
            return await self._final_result(report)
        finally:
            # No call of a program must outlive it.
            for task in (*self._calls, watch):
                task.cancel()
            self._kept.unread = 0

    async def _next_answers(self, *, wait: bool) -> str:
        """Returns answers as a JSON list of about MAX_STEP bytes; with `wait` at least one, the first to come."""
        for queued in self._taken:
            queued.unread = 0
        self._taken.clear()
        if wait and not self._answered:
            done, self._calls = await asyncio.wait(self._calls, return_when=asyncio.FIRST_COMPLETED)
            self._answered += done
        texts: list[str] = []
        size = 0
        while self._answered and size < MAX_STEP:
            answer = self._answered.popleft().result()
            texts.append(answer.text)
            self._taken.append(answer.queued)
            size += len(answer.text)
        return f"[{','.join(texts)}]"

    async def _watch(self, session: UpstreamSession) -> None:
        """Ends the run when the process has ended, which no request would notice while calls are made."""
        await session.lost.wait()
        if not self._limit.expired:
            self.lost = True
            self._limit.expire()

    async def _request(self, tool: str, **arguments: Any) -> Json:
        params = {"name": tool, "arguments": arguments}
        response = await self._process.request(TOOLS.act_method, params)
        content = response.result.get("content") or [{}]
        text = str(content[0].get("text", ""))
        if response.result.get("isError"):
            raise ServerUnavailable("The process that runs programs has failed; its log says why.")
        report: Json = await in_thread(json.loads, text) if len(text) > LARGE else json.loads(text)
        return report

    # --- calls of the program ----------------------------------------------------------------------------------

    async def _answer(self, request: Json) -> _Answer:
        """Makes one call of the program, or lets it sleep, and returns the answer for it."""
        number = request["number"]
        if "sleep" in request:
            await asyncio.sleep(request["sleep"])
            return _Answer(_answer_text({"number": number, "value": None}))
        try:
            result, is_local = await self._call_tool(request["tool"], request["arguments"], request["size"])
            self._count_blocks(result)
            text = (
                await in_thread(self._value_text, number, result, is_local)
                if weighs_more(result)
                else self._value_text(number, result, is_local)
            )
        except _ToolError as error:
            drop_frames(error)
            text = _answer_text({"number": number, "error": str(error)[:MAX_ERROR]})
        except FrameError:
            text = _answer_text({"number": number, "error": "tool_error: the result is nested too deeply"})
        answer = _Answer(text)
        if len(text) >= LARGE:
            if (refusal := self._share.refusal(len(text))) is not None:
                answer = _Answer(_answer_text({"number": number, "error": f"{refusal.code}: {refusal.message}"}))
            else:
                self._share.watch(answer.queued)
        self._finished_count += 1
        if self._call.on_progress is not None:
            self._call.on_progress({"progress": self._finished_count, "message": printable(request["tool"], 200)})
        return answer

    def _count_blocks(self, result: Json) -> None:
        """Counts the images and the like of a result until the program ends. Raises _ToolError if there is no room."""
        size = approximate_size([block for block in _blocks_of(result) if block.get("type") != "text"])
        if size < LARGE:
            return
        if (refusal := self._share.refusal(size)) is not None:
            raise _ToolError(f"{refusal.code}: {refusal.message}")
        self._kept.unread += size
        self._share.watch(self._kept)

    def _value_text(self, number: int, result: Json, is_local: bool) -> str:
        return _answer_text({"number": number, "value": self._value(result, is_local)})

    async def _call_tool(self, name: str, arguments: Json, size: int) -> tuple[Json, bool]:
        """Makes one call of the program, with `size` bytes of arguments. Raises _ToolError.

        Returns its result, and whether it is the hub's own server's.
        """
        self._call_count += 1
        call = self._call
        if (refusal := self._share.begin({"method": call.method}, size)) is not None:
            raise _ToolError(f"{refusal.code}: {refusal.message}")
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
                has_token=False,
                deadlines=deadlines,
                questions=CallQuestions(deadlines),
                label=f"{self._id}.{self._call_count}",
                within=RUN,
                confirmed="",
            )
            result = await self._act(inner)
        except CallError as error:
            raise _ToolError(f"{error.code}: {error.message}") from None
        except ProtocolError as error:
            raise _ToolError(f"{error.code}: {error.message}") from None
        except TimeoutError:
            raise _ToolError("timeout: the call took longer than its deadline") from None
        finally:
            self._share.end(size)
        if result.get("isError") is True:
            raise _ToolError(f"{_code_of(result)}: {_texts(result)}")
        return result, route.upstream in self._local

    def _value(self, result: Json, is_local: bool) -> Any:
        """Returns the result of a tool as a program sees it.

        That is `structuredContent`; else the value of a single JSON text; else the text. The hub's own servers mark
        JSON; of others, a text that looks like a list or an object is parsed. Each other block is represented by an
        object, which a program can return.
        """
        structured = result.get("structuredContent")
        blocks = _blocks_of(result)
        handles = [self._handle(block) for block in blocks if block.get("type") != "text"]
        if structured is not None:
            wrapped = not is_local and isinstance(structured, dict) and structured.keys() == {"result"}
            value = structured["result"] if wrapped else structured
        else:
            texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
            value = "\n".join(texts) if texts else None
            meta = result.get("_meta")
            is_json = isinstance(meta, dict) and meta.get(JSON_KEY) is True
            if len(texts) == 1 and (is_json or (not is_local and texts[0][:1] in ("{", "["))):
                value = _parsed(texts[0])
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
        printed = str(outcome.get("printed") or "")
        texts = [printed.rstrip("\n")] if printed.strip() else []
        if "error" in outcome:
            call_note = f"Calls of tools until then: {self._call_count}."
            return {"content": [_text("\n".join([*texts, str(outcome["error"]).rstrip(), call_note]))], "isError": True}
        value, blocks, value_text = outcome.get("value"), list[Json](), ""
        if value is not None:
            value_text = await in_thread(_as_text, value) if weighs_more(value) else _as_text(value)
            texts.append(value_text)
            returned = _handles(value)
            blocks = [block for number, block in self._blocks.items() if number in returned]
        if outcome.get("too_long") or len(value_text) > MAX_ANSWER:
            text = f"The program returned more than the {MAX_ANSWER:,} characters that it may."
            raise ResultTooLarge(f"{text} Return less of it.")
        return {"content": [_text("\n".join(texts) or "The program returned nothing."), *blocks]}


class _Answer:
    """The answer for one call of a program as JSON, and the bytes of it that wait for the program."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.queued = QueuedAnswer(len(text))


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
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _code_of(result: Json) -> str:
    code = error_facts(result).get("code")
    return code if isinstance(code, str) else "tool_error"


def _blocks_of(result: Json) -> list[Json]:
    blocks = result.get("content")
    return [block for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []


def _texts(result: Json) -> str:
    return "\n".join(str(block["text"]) for block in _blocks_of(result) if "text" in block)


def _answer_text(answer: Json) -> str:
    """Returns an answer for the program as JSON. Raises FrameError and _ToolError."""
    data = encode(answer)
    if len(data) > MAX_RESULT:
        raise _ToolError(f"result_too_large: a program takes results of at most {MAX_RESULT:,} bytes")
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
