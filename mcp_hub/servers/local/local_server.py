"""A small MCP server of both eras for local tools.

It has three kinds of threads: the main one reads and answers requests, others run sync functions, and one runs the
event loop of the async ones. So a function that blocks does not block the answers to other requests.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import sys
import threading
import traceback
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable
from concurrent.futures import CancelledError, Future
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar

from mcp_hub.errors import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, ProtocolError
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.era import STDERR_WARNING
from mcp_hub.protocol.frames import FrameError, Message, decode, encode
from mcp_hub.protocol.kinds import DUPLICATES_KEY, LEFT_OUT_KEY, PRESETS
from mcp_hub.security.redaction import MAX_HELD, Redactor
from mcp_hub.servers.local import call_stream
from mcp_hub.servers.local.local_tool import BoundCall, LocalTool
from mcp_hub.servers.local.signature import InvalidArguments
from mcp_hub.servers.local.tool_results import (
    ToolRefused,
    ToolResponse,
    error_result,
    failure_of,
    location_of,
    marked_as_json,
    result_of,
)
from mcp_hub.transport import RequestId
from mcp_hub.transport.lines import Line, LineReader, OversizedLine
from mcp_hub.version import VERSION

THREADS: Final = 32
"""Most functions that run at once, apart from those whose calls were given up."""
MAX_GIVEN_UP: Final = 256
"""Most threads with functions of given-up calls; beyond that, such a function keeps its place among the 32."""

Work = Callable[[], object]


class CallThreads:
    """Runs functions in up to 32 threads; the rest wait. What a function raises is printed.

    A function cannot be stopped. So when its call is given up its thread no longer counts, or functions that never end
    would block the calls after them.
    """

    def __init__(self) -> None:
        self._queued: queue.SimpleQueue[tuple[Hashable, Work]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running: set[Hashable] = set()
        self._threads = 0
        self._idle = 0
        self._given_up = 0

    def run(self, call: Hashable, work: Work) -> None:
        """Runs `work` as soon as a thread is free. `call` identifies it for `give_up`."""
        with self._lock:
            self._queued.put((call, work))
            if self._idle:
                self._idle -= 1
            elif self._threads < THREADS:
                self._add_thread()

    def give_up(self, call: Hashable) -> None:
        """Gives the place of a running function to others. Does nothing if the function has ended or waits."""
        with self._lock:
            if call in self._running and self._given_up < MAX_GIVEN_UP:
                self._running.remove(call)
                self._given_up += 1
                self._threads -= 1
                if self._queued.qsize() > self._idle:
                    self._add_thread()

    def _add_thread(self) -> None:
        self._threads += 1
        threading.Thread(target=self._work_loop, name="tool", daemon=True).start()

    def _work_loop(self) -> None:
        while True:
            call, work = self._queued.get()
            with self._lock:
                self._running.add(call)
            try:
                work()
            except BaseException:  # also sys.exit, which would end the thread
                traceback.print_exc()
            with self._lock:
                if call not in self._running:
                    self._given_up -= 1
                    return
                self._running.remove(call)
                if self._queued.empty():
                    self._idle += 1


T = TypeVar("T")

CHUNK_KEY: Final = "mcp-hub/chunk"
"""Key in the `_meta` of a progress notification: the chunk as a result, if it is more than one text."""
MAX_CHUNK: Final = 256 * 1024
"""Most bytes of a chunk that is sent as progress.

For a longer one, only its arrival is reported; the result has all of it.
"""

Notify = Callable[[dict[str, Any]], None]


class RunningCall:
    """A running call. Its chunks are sent as progress as soon as they come, and the last one is the result.

    A chunk with `is_last` is sent as progress only if another one follows.
    """

    def __init__(self, tool: LocalTool, call: BoundCall, params: dict[str, Any], notify: Notify) -> None:
        meta = params.get("_meta")
        self._token = meta.get(eras.PROGRESS_TOKEN) if isinstance(meta, dict) else None
        self._notify = notify
        self._progress_count = 0
        self._deferred: Any = None
        self._work: Future[Any] | None = None
        self.tool = tool
        self.call = call
        self.last: Any = None
        self.cancelled = False

    def add_chunk(self, chunk: Any, has_more: bool) -> None:
        """Takes the next chunk. `has_more` says whether others may follow."""
        self.last = chunk
        if not has_more or self._token is None:
            return
        deferred, self._deferred = self._deferred, None
        if deferred is not None:
            self._progress(deferred)
        if isinstance(chunk, ToolResponse) and chunk.is_last:
            self._deferred = chunk
        else:
            self._progress(chunk)

    def set_work(self, work: Future[Any]) -> None:
        """Sets the future of the running function, which `cancel` cancels."""
        self._work = work
        if self.cancelled:
            work.cancel()

    def cancel(self) -> None:
        """Cancels the call: a coroutine at once, a sync generator at its next chunk.

        Other sync functions run to their end, and their results are dropped.
        """
        self.cancelled = True
        if self._work is not None:
            self._work.cancel()

    def _progress(self, chunk: Any) -> None:
        self._progress_count += 1
        params: dict[str, Any] = {"progressToken": self._token, "progress": self._progress_count}
        result = result_of(self.tool.name, chunk)
        texts = [block["text"] for block in result["content"] if block.get("type") == "text"]
        if len(encode(result)) <= MAX_CHUNK:
            if texts:
                params["message"] = "\n".join(texts)
            if len(texts) != 1 or set(result) != {"content"} or len(result["content"]) != 1:
                params["_meta"] = {CHUNK_KEY: result}
        self._notify({"method": eras.PROGRESS, "params": params})


MAX_LINE: Final = 64 * 1024 * 1024
_CHUNK: Final = 256 * 1024
_CAPABILITIES: Final[dict[str, Any]] = {"tools": {}}


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """The request to answer, and whether its era is the modern one."""

    id: RequestId
    modern: bool


class LocalServer:
    """Serves `tools` on two file descriptors until the input ends. `redaction` removes secrets from errors."""

    def __init__(
        self,
        tools: dict[str, LocalTool],
        left_out: list[str],
        stdin: int,
        stdout: int,
        *,
        name: str = "mcp-hub local tools",
        duplicates: list[dict[str, str]] | None = None,
        redaction: Redactor | None = None,
    ) -> None:
        self._info = {"name": name, "version": VERSION}
        self._tools = tools
        meta = {LEFT_OUT_KEY: left_out, DUPLICATES_KEY: duplicates}
        self._redaction = redaction
        self._meta = {key: value for key, value in meta.items() if value}
        self._stdin = stdin
        self._stdout = stdout
        self._write_lock = threading.Lock()
        self._threads = CallThreads()
        self._running: dict[RequestId, RunningCall] = {}
        self._methods: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "initialize": self._initialize,
            "ping": lambda params: {},
            eras.DISCOVER: self._discover,
            "tools/list": self._list,
        }

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """Returns the event loop of the async functions."""
        return asyncio.new_event_loop()

    def serve(self) -> None:
        """Reads messages until the input ends. Functions that still run then end with the process."""
        threading.Thread(target=self._loop.run_forever, name="async tools", daemon=True).start()
        reader = LineReader(MAX_LINE)
        while data := os.read(self._stdin, _CHUNK):
            for line in reader.feed(data):
                self._receive(line)

    def _log_failure(self, tool: LocalTool, error: BaseException) -> None:
        """Logs the exception of a function and where it was raised; the caller gets only the exception."""
        sys.stdout.flush()
        print(f"{STDERR_WARNING}{tool.name} failed: {location_of(error)}", file=sys.stderr, flush=True)

    def tell_presets(self, values: list[str]) -> None:
        """Sends the preset values of functions to the hub, so that it can redact them."""
        if values:
            self._send({"method": PRESETS, "params": {"values": values[-MAX_HELD:]}})

    def finish(self, closing: Coroutine[Any, Any, None], seconds: float) -> None:
        """Runs `closing` on the loop of the async functions for up to `seconds`, after `serve`. Errors are printed."""
        try:
            asyncio.run_coroutine_threadsafe(closing, self._loop).result(seconds)
        except Exception as error:
            print(f"closing: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    def _receive(self, line: Line | OversizedLine) -> None:
        try:
            message = None if isinstance(line, OversizedLine) else decode(line)
        except FrameError:
            self._send_error(None, ProtocolError(PARSE_ERROR, "Parse error"))
            return
        if not isinstance(message, dict):
            self._send_error(None, ProtocolError(INVALID_REQUEST, "A message is one JSON-RPC object."))
        elif "id" not in message:
            self._notification(message)
        elif "method" in message:
            self._request(message)

    def _notification(self, message: Message) -> None:
        params = message.get("params")
        if message.get("method") == eras.CANCELLED and isinstance(params, dict):
            running = self._running.pop(params.get("requestId", ""), None)
            if running is not None:
                running.cancel()
                self._threads.give_up(running)

    def _request(self, message: Message) -> None:
        request_id, method = message["id"], message.get("method")
        params = message.get("params") or {}
        modern = eras.era_of(message) == "modern"
        try:
            if not isinstance(params, dict):
                raise ProtocolError(INVALID_PARAMS, "params must be an object.")
            if modern:
                eras.read_envelope(params)
            if method == "tools/call":
                self._call(request_id, params, modern)
                return
            if method == eras.LISTEN:
                self._acknowledge(request_id, params)
                return
            handler = self._methods.get(method) if isinstance(method, str) else None
            if handler is None or (modern and method in eras.HANDSHAKE_ONLY):
                raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {method}")
            self._answer(request_id, str(method), handler(params), modern)
        except ProtocolError as error:
            self._send_error(request_id, error)

    def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        version = eras.negotiated_revision(params.get("protocolVersion"))
        return {"protocolVersion": version, "capabilities": _CAPABILITIES, "serverInfo": self._info}

    def _discover(self, params: dict[str, Any]) -> dict[str, Any]:
        versions = [*eras.MODERN_REVISIONS, *reversed(eras.HANDSHAKE_REVISIONS)]
        return {"supportedVersions": versions, "capabilities": _CAPABILITIES}

    def _list(self, params: dict[str, Any]) -> dict[str, Any]:
        listed: dict[str, Any] = {"tools": [tool.listed for tool in self._tools.values()]}
        if self._meta:
            listed["_meta"] = self._meta
        return listed

    def _acknowledge(self, request_id: RequestId, params: dict[str, Any]) -> None:
        """Acknowledges a subscription. The tools of a process never change, so nothing follows."""
        tag = {eras.SUBSCRIPTION_KEY: request_id}
        self._send({"method": eras.ACKNOWLEDGED, "params": {"notifications": {}, "_meta": tag}})

    def _call(self, request_id: RequestId, params: dict[str, Any], modern: bool) -> None:
        name, arguments = params.get("name"), params.get("arguments", {})
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise ProtocolError(INVALID_PARAMS, f"Unknown tool: {name}")
        if not isinstance(arguments, dict):
            raise ProtocolError(INVALID_PARAMS, "params.arguments must be an object.")
        try:
            bound = self._bind(tool, str(request_id), arguments, params)
        except (InvalidArguments, FrameError) as error:  # arguments from a program may not be JSON
            bound = BoundCall(
                str(request_id), arguments, [], {}, refused=error_result("invalid_parameters", tool.name, str(error))
            )
        running = self._running[request_id] = RunningCall(tool, bound, params, self._send)
        self._start(running, PendingRequest(request_id, modern), params)

    def _bind(self, tool: LocalTool, id: str, arguments: dict[str, Any], params: dict[str, Any]) -> BoundCall:
        """Binds the arguments of a call. Raises InvalidArguments."""
        return tool.bind(arguments, id=id)

    def _start(self, running: RunningCall, request: PendingRequest, params: dict[str, Any]) -> None:
        """Starts a call. `params` are those of the request."""
        tool, bound = running.tool, running.call
        if bound.refused is not None:
            self._schedule(running, request, no_chunks())
        elif tool.is_async:
            self._schedule(running, request, call_stream.chunks(lambda: tool.start(bound), asynchronous=True))
        else:
            context = contextvars.copy_context()
            self._threads.run(running, lambda: context.run(self._in_thread, running, request))

    def _in_thread(self, running: RunningCall, request: PendingRequest) -> None:
        """Runs a sync function in this thread. An awaitable that it returns continues on the loop."""
        if running.cancelled:
            return  # while all threads were busy: its caller was told that it ended
        tool, call = running.tool, running.call

        def emit(chunk: Any, has_more: bool) -> None:
            if running.cancelled:
                raise CancelledError
            if tool.mark.postprocess is not None:
                chunk = _run_alone(running, tool.finished(call, chunk))
            running.add_chunk(chunk, has_more)

        try:
            continuation = call_stream.run_in_thread(lambda: tool.start(call), emit)
        except BaseException as error:  # also sys.exit, which must end the call and not only the thread
            failure = failure_of(tool.name, error)
            if tool.mark.postprocess is not None and not running.cancelled:
                failure = _run_alone(running, self._failure(running, error))
            self._complete(running, request, error, failure)
            return
        if continuation is None:
            self._complete(running, request)
        else:
            self._schedule(running, request, call_stream.run_on_loop(continuation))

    def _schedule(
        self, running: RunningCall, request: PendingRequest, stream: AsyncGenerator[tuple[Any, bool]]
    ) -> None:
        running.set_work(asyncio.run_coroutine_threadsafe(self._on_loop(running, request, stream), self._loop))

    async def _on_loop(
        self, running: RunningCall, request: PendingRequest, stream: AsyncGenerator[tuple[Any, bool]]
    ) -> None:
        try:
            async with aclosing(stream):
                async for chunk, has_more in stream:
                    running.add_chunk(await running.tool.finished(running.call, chunk), has_more)
        except BaseException as error:  # also sys.exit, which would end the loop of all async functions
            self._complete(running, request, error, await self._failure(running, error))
        else:
            self._complete(running, request, None, await self._refusal(running))

    async def _failure(self, running: RunningCall, error: BaseException) -> dict[str, Any]:
        """Returns the error result of an exception that a function raised."""
        if running.cancelled:
            return failure_of(running.tool.name, error)  # cancelled: nobody will see it
        return await running.tool.failed(running.call, error)

    async def _refusal(self, running: RunningCall) -> dict[str, Any] | None:
        """Returns the error result of arguments that do not fit, or None if they do."""
        refused = running.call.refused
        return None if refused is None else await running.tool.failed(running.call, refused)

    def _complete(
        self,
        running: RunningCall,
        request: PendingRequest,
        error: BaseException | None = None,
        failure: dict[str, Any] | None = None,
    ) -> None:
        """Answers a call with `failure`, the error result made from `error`, or with the last chunk."""
        if self._running.get(request.id) is not running or self._running.pop(request.id, None) is None:
            return  # cancelled: nobody waits for an answer
        if error is not None and not isinstance(error, ToolRefused | InvalidArguments):
            self._log_failure(running.tool, error)
        if failure is not None and self._redaction is not None:
            failure = self._redaction.redact_known(failure)
        self._answer(request.id, "tools/call", self._outcome(running, error, failure), request.modern)

    def _outcome(
        self, running: RunningCall, error: BaseException | None, failure: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Returns the result of a call that has ended."""
        if failure is not None:
            return failure
        return marked_as_json(result_of(running.tool.name, running.last), running.last)

    def _answer(self, request_id: RequestId, method: str, result: dict[str, Any], modern: bool) -> None:
        shaped = eras.result_for("modern" if modern else "handshake", "handshake", method, result)
        self._send({"id": request_id, "result": shaped})

    def _send_error(self, request_id: RequestId | None, error: ProtocolError) -> None:
        fields = {"code": error.code, "message": error.message}
        if error.data is not None:
            fields["data"] = error.data
        self._send({"id": request_id, "error": fields})

    def _send(self, message: Message) -> None:
        data = memoryview(encode({"jsonrpc": "2.0", **message}) + b"\n")
        with self._write_lock:
            while data:
                try:
                    data = data[os.write(self._stdout, data) :]
                except OSError:
                    return  # the hub is gone; the end of the input follows


def _run_alone(running: RunningCall, work: Coroutine[Any, Any, T]) -> T:
    """Runs a part of a call on a new loop in this thread. Cancelling the call cancels it: raises CancelledError."""
    loop = asyncio.new_event_loop()
    future = asyncio.run_coroutine_threadsafe(work, loop)
    running.set_work(future)
    call_stream.run_until(loop, future)
    return future.result()


async def no_chunks() -> AsyncGenerator[tuple[Any, bool]]:
    """Yields nothing: the chunks of a call that is not carried out."""
    return
    yield
