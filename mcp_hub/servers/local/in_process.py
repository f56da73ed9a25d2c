"""Functions of the process that the hub runs in, as a server without bytes: for programs that use the library.

It speaks the protocol as `server.py` does, so that the hub knows it as any other server; messages pass as objects.
"""

from __future__ import annotations

import asyncio
import contextvars
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from mcp_hub.protocol.frames import Message
from mcp_hub.servers.local.local_server import Answer, LocalServer, RunningCall, no_chunks
from mcp_hub.servers.local.local_tool import LocalTool
from mcp_hub.servers.local.tool_results import ToolResult, failure_of
from mcp_hub.transport.link import Link, LinkLost, Receiver, RequestId

T = TypeVar("T")

DIRECT: Final = "mcp-hub/direct"
"""In `_meta` of a call: it comes from the same process, whose `Direct` has this key."""
_CHANGED: Final = "notifications/tools/list_changed"


@dataclass
class DirectCall:
    """A call from the same process: where it was made, and its outcome as Python objects instead of JSON."""

    loop: asyncio.AbstractEventLoop | None = None
    """On which an async function runs; None: on one of its own, as its caller's is blocked or has none."""
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    on_chunk: Callable[[Any, bool], None] | None = None
    """Gets every chunk and whether others may follow, on `loop` if there is one."""
    value: Any = None
    """What the function returned."""
    error: BaseException | None = None
    """What it raised."""
    result: dict[str, Any] | None = None
    """What was made of it, None until it has returned: whoever gets this very one may take `value` for it."""


class FunctionServer(LocalServer):
    """`put` and `remove` may be called at any time, from any thread."""

    def __init__(self) -> None:
        super().__init__({}, [], -1, -1, name="mcp-hub functions")
        self._changing = threading.Lock()
        self._direct: dict[str, DirectCall] = {}
        self._of: dict[RunningCall, DirectCall] = {}
        self._deliver: Callable[[Message], None] | None = None
        self._serving = False

    def __iter__(self) -> Iterator[LocalTool]:
        return iter(self._tools.values())

    def get(self, name: str) -> LocalTool | None:
        """Returns the function of a name; None if there is none."""
        return self._tools.get(name)

    def put(self, tool: LocalTool) -> None:
        """Offer a tool, in the place of one of the same name."""
        with self._changing:
            self._tools = {**self._tools, tool.name: tool}
        self._announce()

    def remove(self, name: str) -> None:
        """Offer it no longer; nothing if it is not there."""
        with self._changing:
            self._tools = {key: tool for key, tool in self._tools.items() if key != name}
        self._announce()

    @contextmanager
    def called(self, direct: DirectCall) -> Iterator[str]:
        """While the block runs, a call with this key in its `_meta` is the one that `direct` tells of."""
        key = secrets.token_hex(16)
        self._direct[key] = direct
        try:
            yield key
        finally:
            del self._direct[key]

    def link(self) -> FunctionLink:
        """A way to it."""
        return FunctionLink(self)

    def begin_anew(self) -> None:
        """After a fork, where no thread of it is left."""
        self._changing = threading.Lock()
        self.__dict__.pop("_loop", None)
        self._serving = False
        self._running, self._direct, self._of, self._deliver = {}, {}, {}, None

    def attach(self, deliver: Callable[[Message], None] | None) -> None:
        """Where its messages go, from any thread."""
        self._deliver = deliver

    def take(self, message: Message) -> None:
        """A message of the hub's."""
        if "id" not in message:
            self._note(message)
        elif "method" in message:
            self._request(message)

    def _announce(self) -> None:
        self._send({"method": _CHANGED})

    def _send(self, message: Message) -> None:
        deliver = self._deliver
        if deliver is not None:
            deliver({"jsonrpc": "2.0", **message})

    def _begin(self, running: RunningCall, answer: Answer, params: dict[str, Any]) -> None:
        meta = params.get("_meta")
        direct = self._direct.get(str(meta.get(DIRECT))) if isinstance(meta, dict) else None
        context = direct.context.copy() if direct is not None else contextvars.copy_context()
        if direct is not None:
            self._of[running] = direct

        def work() -> Coroutine[Any, Any, None]:
            refused = running.call.refused is not None
            return self._on_loop(running, answer, no_chunks() if refused else running.tool.chunks(running.call))

        if direct is not None and direct.loop is None and running.tool.is_async:
            # Its caller waits for it: perhaps in the very loop that other functions run on.
            threading.Thread(target=context.run, args=(asyncio.run, work()), name="function", daemon=True).start()
            return
        theirs = direct.loop if direct is not None and running.tool.is_async else None
        loop, working = theirs or self._own_loop(), work()
        try:
            # A loop runs what it is told in the context it is told it in.
            running.works(context.run(asyncio.run_coroutine_threadsafe, working, loop))
        except RuntimeError as error:  # the loop has ended, and with it whoever waited
            working.close()
            self._of.pop(running, None)
            self._finished(running, answer, error, failure_of(running.tool.name, error))

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        with self._changing:
            if not self._serving:
                self._serving = True
                threading.Thread(target=_live, args=(self._loop,), name="mcp-hub functions", daemon=True).start()
        return self._loop

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives on the loop of the functions."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._own_loop()))

    def close(self) -> None:
        """End the async functions that run on a loop of its own; what runs elsewhere is its caller's."""
        with self._changing:
            if self._serving:
                self._loop.call_soon_threadsafe(self._loop.stop)

    async def _on_loop(self, running: RunningCall, answer: Answer, stream: AsyncGenerator[tuple[Any, bool]]) -> None:
        direct = self._of.get(running)
        try:
            async with aclosing(stream):
                async for chunk, more in stream:
                    running.heard(chunk, more)
                    if direct is not None:
                        _tell(direct, chunk, more)
        except BaseException as error:  # also sys.exit, which would end the loop
            self._finished(running, answer, error, await self._failure(running, error))
        else:
            self._finished(running, answer, None, await self._refusal(running))
        finally:
            self._of.pop(running, None)

    def _outcome(
        self, running: RunningCall, error: BaseException | None, failure: dict[str, Any] | None
    ) -> dict[str, Any]:
        direct = self._of.get(running)
        result = super()._outcome(running, error, failure)
        if direct is not None:
            direct.error = error
        if direct is not None and failure is None:
            direct.value = running.last
            if result.get("isError") and not isinstance(direct.value, ToolResult):
                # Nothing JSON can say, but its caller gets the value itself.
                result = {"content": [{"type": "text", "text": str(direct.value)}]}
            direct.result = result
        return result


def _live(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.close()


def _tell(direct: DirectCall, chunk: Any, more: bool) -> None:
    if direct.on_chunk is None:
        return
    if direct.loop is None:
        direct.on_chunk(chunk, more)
        return
    with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
        direct.loop.call_soon_threadsafe(direct.on_chunk, chunk, more)


class FunctionLink(Link):
    """A `Link` to a FunctionServer."""

    is_local = True

    def __init__(self, server: FunctionServer) -> None:
        self._server = server
        self._receiver: Receiver | None = None

    async def open(self, receiver: Receiver) -> None:
        """Messages come from any thread, and are received on this loop."""
        loop = asyncio.get_running_loop()
        self._receiver = receiver

        def deliver(message: Message) -> None:
            with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
                loop.call_soon_threadsafe(self._received, message)

        self._server.attach(deliver)

    def _received(self, message: Message) -> None:
        if self._receiver is not None:
            self._receiver.received(message)

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Hand one message over. Raises LinkLost once it is closed."""
        if self._receiver is None:
            raise LinkLost("it was closed", executed=False)
        self._server.take(message)

    def abandon(self, request_id: RequestId) -> None:
        """The server is told by a notification."""

    async def close(self) -> None:
        """Nothing more is received."""
        if self._receiver is not None:
            self._receiver = None
            self._server.attach(None)

    @property
    def last_words(self) -> tuple[str, ...]:
        """What functions print is the program's own."""
        return ()
