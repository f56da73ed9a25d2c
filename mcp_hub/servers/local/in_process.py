"""Serves functions of the process in which the hub itself runs, for programs that use the library.

Each conversation is a `LocalServer`, so the hub treats it like any other server, but messages are passed as objects.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import math
import secrets
import threading
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from collections.abc import Set as AnySet
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from enum import Enum
from functools import cached_property
from pathlib import PurePath
from typing import Any, Final, TypeVar
from uuid import UUID

from pydantic import BaseModel

from mcp_hub.observability.tracing import enter_trace
from mcp_hub.protocol.frames import Message
from mcp_hub.servers.local.call_stream import begin_alone
from mcp_hub.servers.local.local_server import LocalServer, PendingRequest, RunningCall, no_chunks
from mcp_hub.servers.local.local_tool import BoundCall, LocalTool
from mcp_hub.servers.local.tool_results import ToolResult, failure_of
from mcp_hub.transport import Link, LinkLost, Receiver
from mcp_hub.transport.background import run_in_thread

T = TypeVar("T")

DIRECT: Final = "mcp-hub/direct"
"""Key in the `_meta` of a call that comes from the same process. Its value is the key of a `DirectCall`."""
_CHANGED: Final = "notifications/tools/list_changed"
_IN_CALL: Final[contextvars.ContextVar[bool]] = contextvars.ContextVar("in_call", default=False)
"""Whether the code runs in a call of a function of this program."""


class NotJson(ValueError):
    """A Python object cannot be written as JSON."""


def as_json(value: Any, fallback: Callable[[Any], Any]) -> Any:
    """Returns a Python object as JSON: the object itself if it is JSON, else a copy.

    Models and dataclasses become objects, tuples and sets become lists, enums their values, and paths, dates and bytes
    strings. `fallback` converts any other object.
    """
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is str:
        return value if value.isascii() else value.encode("utf-8", "replace").decode() if _unencodable(value) else value
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        members = {name: as_json(item, fallback) for name, item in value.items()}
        if kind is dict and all(type(name) is str and item is value[name] for name, item in members.items()):
            return value
        return {str(name): item for name, item in members.items()}
    if isinstance(value, list | tuple | AnySet):
        items = [as_json(item, fallback) for item in value]
        return value if kind is list and all(a is b for a, b in zip(items, value, strict=True)) else items
    return _converted(value, fallback)


def _converted(value: Any, fallback: Callable[[Any], Any]) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, warnings=False, fallback=fallback)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {member.name: as_json(getattr(value, member.name), fallback) for member in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return as_json(value.value, fallback)
    if isinstance(value, str | PurePath | UUID | Decimal):
        return str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return b64encode(value).decode()
    return fallback(value)


def _unencodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _text_of(value: Any) -> str:
    """Returns the text of any object, for rules and records."""
    try:
        return str(value)
    except Exception:  # the user's objects may raise anything
        return f"<{type(value).__name__}>"


def written_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a call as JSON. Raises NotJson for an object that JSON cannot express."""

    def refuse(value: Any) -> Any:
        raise NotJson(f"{type(value).__name__} is not JSON")

    return _as_json_arguments(arguments, refuse)


def _as_json_arguments(arguments: Mapping[str, Any], fallback: Callable[[Any], Any]) -> dict[str, Any]:
    """Returns arguments as JSON. Raises NotJson for a value that is nested too deeply or contains itself."""
    try:
        return {name: as_json(value, fallback) for name, value in arguments.items()}
    except RecursionError:
        raise NotJson("a value is nested too deeply or contains itself") from None


@dataclass
class DirectCall:
    """A call from the same process: where it was made, and its outcome as Python objects instead of JSON."""

    loop: asyncio.AbstractEventLoop | None = None
    """The loop on which an async function runs.

    With None, it gets a new loop, because its caller has none or blocks it.
    """
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    on_chunk: Callable[[Any, bool], None] | None = None
    """Called with every chunk and whether others may follow, on `loop` if there is one."""
    keep_generator: bool = False
    """Whether `value` is the generator that the function returned, instead of its last chunk."""
    nested: bool = field(default_factory=_IN_CALL.get)
    """Whether it was made within a call of a function of this program, which waits for it."""
    objects: bool = False
    """Whether an argument is a Python object and not JSON."""
    value: Any = None
    """What the function returned."""
    raised: list[BaseException] = field(default_factory=list)
    """What it raised."""
    result: dict[str, Any] | None = None
    """The result made from `value`, None until the function has returned.

    A caller that receives this very object unchanged may use `value` instead.
    """
    _arguments: Mapping[str, Any] = field(default_factory=dict)
    _json_arguments: dict[str, Any] = field(default_factory=dict)

    def to_json(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Keeps the arguments of the call, and returns them as JSON for policies and call records. Raises NotJson."""
        self._arguments = arguments
        self._json_arguments = _as_json_arguments(arguments, _text_of)
        self.objects = any(self._json_arguments[name] is not value for name, value in arguments.items())
        return dict(self._json_arguments)

    def with_objects(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments after the policies, with the original objects in place of their unchanged JSON."""
        return {
            name: self._arguments[name]
            if name in self._json_arguments and value is self._json_arguments[name]
            else value
            for name, value in arguments.items()
        }


class FunctionServer:
    """The Python functions of the hub's process, and the event loop of those that have no loop of their own.

    `put` and `remove` may be called at any time, from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.tools: dict[str, LocalTool] = {}
        """The functions by name. The dict is replaced and never changed."""
        self._by_key: dict[str, DirectCall] = {}
        self._sessions: set[FunctionSession] = set()
        """The open conversations with the hub: for a moment two, when the hub replaces one."""
        self._serving = False
        self.checks = True
        """Whether arguments that are JSON are checked."""

    def __iter__(self) -> Iterator[LocalTool]:
        return iter(self.tools.values())

    def get(self, name: str) -> LocalTool | None:
        """Returns the tool with a name; None if there is none."""
        return self.tools.get(name)

    def put(self, tool: LocalTool) -> None:
        """Adds a tool, or replaces the one of the same name."""
        with self._lock:
            self.tools = {**self.tools, tool.name: tool}
        self._announce()

    def remove(self, name: str) -> None:
        """Removes a tool; does nothing if there is none of this name."""
        with self._lock:
            self.tools = {key: tool for key, tool in self.tools.items() if key != name}
        self._announce()

    def _announce(self) -> None:
        for session in tuple(self._sessions):
            session.announce()

    @contextmanager
    def called(self, direct: DirectCall) -> Iterator[str]:
        """Yields a key. A call with this key in its `_meta` within the block is the one that `direct` describes."""
        key = secrets.token_hex(16)
        self._by_key[key] = direct
        try:
            yield key
        finally:
            del self._by_key[key]

    def direct_call(self, params: dict[str, Any]) -> DirectCall | None:
        """Returns the call of this program that a request carries out; None if it is a client's."""
        meta = params.get("_meta")
        return self._by_key.get(str(meta.get(DIRECT))) if isinstance(meta, dict) else None

    def link(self) -> FunctionLink:
        """Returns a new link to this server."""
        return FunctionLink(self)

    def open(self, deliver: Callable[[Message], None]) -> FunctionSession:
        """Begins a conversation. `deliver` receives its messages; it may be called from any thread."""
        session = FunctionSession(self, deliver)
        with self._lock:
            self._sessions = {*self._sessions, session}
        return session

    def leave(self, session: FunctionSession) -> None:
        """Ends a conversation and cancels its calls, as nobody waits for them any more."""
        with self._lock:
            self._sessions = self._sessions - {session}
        session.cancel_all()

    def begin_anew(self) -> None:
        """Resets the server in the child process after a fork, where none of its threads exists."""
        self._lock = threading.Lock()
        self.__dict__.pop("_loop", None)
        self._serving = False
        self._by_key, self._sessions = {}, set()

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.new_event_loop()

    def own_loop(self) -> asyncio.AbstractEventLoop:
        """Returns the loop of the functions, which runs in its own thread."""
        with self._lock:
            if not self._serving:
                self._serving = True
                threading.Thread(
                    target=run_in_thread, args=(self._loop,), name="mcp-hub functions", daemon=True
                ).start()
        return self._loop

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop of the functions and returns its result."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.own_loop()))

    def close(self) -> None:
        """Ends the server's own loop and the functions on it."""
        with self._lock:
            if self._serving:
                self._loop.call_soon_threadsafe(self._loop.stop)


class FunctionSession(LocalServer):
    """One conversation of the hub with a FunctionServer. Its calls and their answers belong to it alone."""

    def __init__(self, server: FunctionServer, deliver: Callable[[Message], None]) -> None:
        super().__init__({}, [], -1, -1, name="mcp-hub functions")
        self._server = server
        self._deliver = deliver
        self._by_call: dict[RunningCall, DirectCall] = {}

    def take(self, message: Message) -> None:
        """Handles one message from the hub."""
        self._tools = self._server.tools
        if "id" not in message:
            self._notification(message)
        elif "method" in message:
            self._request(message)

    def cancel_all(self) -> None:
        """Cancels all running calls."""
        while self._running:
            self._running.popitem()[1].cancel()

    def announce(self) -> None:
        """Tells the hub that the functions have changed."""
        self._send({"method": _CHANGED})

    def _send(self, message: Message) -> None:
        self._deliver({"jsonrpc": "2.0", **message})

    def _log_failure(self, tool: LocalTool, error: BaseException) -> None:
        """Does nothing: the program that called the function gets the exception itself."""

    def _bind(self, tool: LocalTool, id: str, arguments: dict[str, Any], params: dict[str, Any]) -> BoundCall:
        direct, checks = self._server.direct_call(params), self._server.checks
        if direct is not None:
            arguments, checks = direct.with_objects(arguments), checks and not direct.objects
        return tool.bind(arguments, id=id, check=checks)

    def _start(self, running: RunningCall, request: PendingRequest, params: dict[str, Any]) -> None:
        direct = self._server.direct_call(params)
        context = direct.context.copy() if direct is not None else contextvars.copy_context()
        context.run(_IN_CALL.set, True)
        if direct is not None:
            self._by_call[running] = direct
            context.run(enter_trace, params["_meta"])

        def work() -> Coroutine[Any, Any, None]:
            if running.call.refused is not None:
                return self._on_loop(running, request, no_chunks())
            keep = direct is not None and direct.keep_generator
            return self._on_loop(running, request, running.tool.chunks(running.call, keep_generator=keep))

        if direct is not None and direct.loop is None and running.tool.is_async:
            # The caller blocks until the call ends, perhaps on the loop on which other functions run.
            running.set_work(context.run(begin_alone, work(), "function"))
            return
        caller_loop = direct.loop if direct is not None and running.tool.is_async else None
        loop, coroutine = caller_loop or self._server.own_loop(), work()
        try:
            # A loop runs a task in the context in which the task was scheduled.
            running.set_work(context.run(asyncio.run_coroutine_threadsafe, coroutine, loop))
        except RuntimeError as error:  # the loop has ended, so nobody waits for the call
            coroutine.close()
            self._by_call.pop(running, None)
            self._complete(running, request, error, failure_of(running.tool.name, error))

    async def _on_loop(
        self, running: RunningCall, request: PendingRequest, stream: AsyncGenerator[tuple[Any, bool]]
    ) -> None:
        direct = self._by_call.get(running)
        try:
            async with aclosing(stream):
                async for chunk, has_more in stream:
                    running.add_chunk(chunk, has_more)
                    if direct is not None:
                        _deliver_chunk(direct, chunk, has_more)
        except BaseException as error:  # also sys.exit, which would end the loop
            self._complete(running, request, error, await self._failure(running, error))
        else:
            self._complete(running, request, None, await self._refusal(running))
        finally:
            self._by_call.pop(running, None)

    def _outcome(
        self, running: RunningCall, error: BaseException | None, failure: dict[str, Any] | None
    ) -> dict[str, Any]:
        direct = self._by_call.get(running)
        result = super()._outcome(running, error, failure)
        if direct is not None and error is not None:
            direct.raised.append(error)
        if direct is not None and failure is None:
            direct.value = running.last
            if result.get("isError") and not isinstance(direct.value, ToolResult):
                # The value is not JSON, but the caller gets the value itself.
                result = {"content": [{"type": "text", "text": _text_of(direct.value)}]}
            direct.result = result
        return result


def _deliver_chunk(direct: DirectCall, chunk: Any, has_more: bool) -> None:
    if direct.on_chunk is None:
        return
    if direct.loop is None:
        direct.on_chunk(chunk, has_more)
        return
    with suppress(RuntimeError):  # the loop has ended, so nobody waits for chunks
        direct.loop.call_soon_threadsafe(direct.on_chunk, chunk, has_more)


class FunctionLink(Link):
    """A `Link` to a FunctionServer."""

    is_local = True

    def __init__(self, server: FunctionServer) -> None:
        self._server = server
        self._receiver: Receiver | None = None
        self._session: FunctionSession | None = None

    async def open(self, receiver: Receiver) -> None:
        """Connects to the server. Its messages come from any thread and are received on this loop."""
        loop = asyncio.get_running_loop()
        self._receiver = receiver

        def deliver(message: Message) -> None:
            with suppress(RuntimeError):  # the loop has ended, so nobody waits for messages
                loop.call_soon_threadsafe(self._received, message)

        self._session = self._server.open(deliver)

    def _received(self, message: Message) -> None:
        if self._receiver is not None:
            self._receiver.received(message)

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Passes one message to the server. Raises LinkLost after `close`."""
        if self._session is None:
            raise LinkLost("it was closed", executed=False)
        self._session.take(message)

    async def end(self) -> None:
        """Disconnects from the server; later messages are dropped."""
        if self._session is not None:
            self._server.leave(self._session)
            self._receiver = self._session = None
