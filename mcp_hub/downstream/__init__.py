"""Connected clients of the hub, their running requests, and the hub's own requests to them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from mcp_hub.errors import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    ClientAnswered,
    Overloaded,
    ProtocolError,
    UpstreamAnswered,
    to_wire,
)
from mcp_hub.policy.quotas import LARGE, Share
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.era import (
    LATEST_HANDSHAKE,
    LOG_MESSAGE,
    Envelope,
    Era,
    declared_capabilities,
    declared_info,
    era_of,
    error_for,
    level_passes,
    negotiated_revision,
)
from mcp_hub.protocol.frames import FrameError, Message, encode
from mcp_hub.security.callers import Caller
from mcp_hub.transport import RequestId
from mcp_hub.transport.background import set_within

INITIALIZED_WAIT: Final = 15.0
"""Seconds a client has to complete its handshake before it is asked something anyway; a few never do."""

PROGRAM: Final = "mcp-hub-program"
"""The cookie by which the hub tells apart the programs that are the anonymous principal.

Nothing else says certainly which of them sends a request: they may give the same `clientInfo`, and one program has
several connections. Each request of a program that keeps no cookies counts as a program of its own.
"""
_PROGRAM: Final = re.compile(rf"(?:^|;)\s*{PROGRAM}=([A-Za-z0-9_-]{{16,64}})(?=\s*(?:;|$))")

Send = Callable[[Message], None]
"""Puts a message on one stream to the client. It never blocks.

If the stream is closed or full, it drops a notification and raises ProtocolError for a question.
"""


def not_delivered(message: Message) -> None:
    """Drops a notification that cannot be sent. Raises ProtocolError for a question, whose server waits for it."""
    if "method" in message and "id" in message:
        text = f"{message['method']} cannot be asked: the client takes no questions here, or has not read the others."
        raise ProtocolError(INVALID_REQUEST, text)


def program_of(cookies: Iterable[str]) -> str:
    """Returns the value of PROGRAM in the `Cookie` headers of a request; "" if it was not sent once."""
    values: list[str] = _PROGRAM.findall("; ".join(cookies))
    return values[0] if len(values) == 1 else ""


class Connection:
    """One client that is connected: a handshake session, a stream, or one request of the modern era over HTTP.

    `caller` is who calls, of a modern request its principal. `notify` sends to the client outside of any request in the
    handshake era, and does nothing in the modern era.
    """

    transport = "http"
    """How it is connected: `http`, `sse` or `stdio`."""
    joined = 0.0
    """When it began to get notifications, in seconds since 1970; 0: it gets none."""

    end: Callable[[], Awaitable[None]] | None = None
    """Ends its session at every replica; None if it has no session, or one that only the client can end."""

    def __init__(self, caller: Caller, notify: Send, program: str = "") -> None:
        """`program`: `Envelope.program` of its modern requests."""
        self.caller = caller
        self.principal = caller.principal
        self.program = program
        self.notify = notify
        self.questions = ClientQuestions(notify)
        self.initialized = False
        """Whether the handshake is complete, so that unsolicited notifications may be sent."""
        self._completion: asyncio.Event | None = None
        """What questions outside of requests wait for before it is."""
        self.protocol_version: str | None = None
        """The negotiated handshake revision; None before `initialize` and for callers of the modern era."""
        self.envelope = Envelope(LATEST_HANDSHAKE, client_info={})
        """What the client declared in its handshake, in the form of a modern request's envelope."""
        self.in_flight: dict[RequestId, asyncio.Task[Any]] = {}
        """Running requests by id; the client may cancel them."""
        self.given_up: set[RequestId] = set()
        """Ids of requests that the client has cancelled and that have not ended yet: they get no answer."""

    def __repr__(self) -> str:
        info = self.envelope.client_info or {}
        return f"Connection({info.get('name', '?')!r}, {self.protocol_version or 'no handshake'})"

    def declare(self, requested: object, capabilities: object, client_info: object) -> str:
        """Stores what the client declares in its handshake, bounded; returns the negotiated revision.

        Capabilities and client info that are not objects count as `{}`.

        Args:
            requested: `protocolVersion` of its `initialize`.
            capabilities: `capabilities` of it, an object.
            client_info: `clientInfo` of it, an object.

        Raises:
            ProtocolError: the capabilities are too long to be kept.
        """
        declared = declared_capabilities(capabilities) if isinstance(capabilities, dict) else {}
        info = declared_info(client_info) if isinstance(client_info, dict) else {}
        self.protocol_version = version = negotiated_revision(requested)
        self.envelope = Envelope(version, declared, info, self.envelope.log_level)
        return version

    def complete_handshake(self) -> None:
        """Notes that the client has begun to take what the hub sends outside of requests."""
        self.initialized = True
        if self._completion is not None:
            self._completion.set()

    async def handshake_completed(self) -> None:
        """Waits until the handshake is complete, at most INITIALIZED_WAIT."""
        if not self.initialized:
            self._completion = self._completion or asyncio.Event()
            await set_within(self._completion, INITIALIZED_WAIT)

    def want_log_from(self, level: str) -> None:
        """Sets the lowest level of the log messages that a client of the handshake era gets."""
        self.envelope = replace(self.envelope, log_level=level)

    def cancel(self, request_id: RequestId, reason: Any = None) -> None:
        """Cancels one running request, with the client's reason if that is a text.

        An unknown or finished id is ignored, as the specification says.
        """
        task = self.in_flight.pop(request_id, None)
        if task is not None:
            self.given_up.add(request_id)
            task.add_done_callback(lambda _: self.given_up.discard(request_id))
            task.cancel(eras.CancelReason(reason) if isinstance(reason, str) else None)

    def take_answer(self, message: Message) -> None:
        """Takes the client's answer to a question."""
        self.questions.take_answer(message)

    def cancel_all(self) -> None:
        """Cancels all requests and questions; the client is gone."""
        self.questions.close()
        for task in self.in_flight.values():
            task.cancel()
        self.in_flight.clear()


class Respondent(msgspec.Struct, frozen=True):
    """A handshake client that servers can send requests to: on the stream `send` of a call, or outside of any call.

    It implements `Asker` for the upstreams.
    """

    connection: Connection
    send: Send | None = None

    @property
    def capabilities(self) -> dict[str, Any]:
        """The client capabilities of its handshake."""
        return self.connection.envelope.capabilities

    @property
    def parked(self) -> None:
        """None: a handshake client answers while its call runs, so no call is parked."""

    async def wait_for_turn(self) -> None:
        """Returns at once: calls of a handshake client need no queue."""

    def hear(self, message: dict[str, Any]) -> None:
        """Passes a log message on, on the same stream as a question."""
        if level_passes(message.get("level"), self.connection.envelope.log_level):
            put = self.send or self.connection.notify
            put({"jsonrpc": "2.0", "method": LOG_MESSAGE, "params": message})

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Notifies the client outside of any request."""
        if self.connection.initialized:
            self.connection.notify({"jsonrpc": "2.0", "method": method, "params": params})

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Asks the client and returns its result. Raises ClientAnswered, ProtocolError."""
        if self.send is None:
            await self.connection.handshake_completed()
        return await self.connection.questions.ask(method, params, self.send)


MAX_BATCH: Final = 1000
"""Members of one batch. Each becomes a task, so a longer batch is refused before any member is handled."""


class Exchange(msgspec.Struct, eq=False):
    """One request while it is answered. `send` is the request's own stream."""

    connection: Connection
    caller: Caller
    """Who calls; of a modern request in a handshake session, the principal of that session."""
    id: RequestId
    method: str
    params: dict[str, Any]
    era: Era
    envelope: Envelope
    send: Send


def error_response(
    request_id: RequestId | None, error: BaseException, method: Any = None, params: Any = None, era: Era = "handshake"
) -> Message:
    """Returns the response that reports `error`: on `tools/call` a result with `isError`, elsewhere a JSON-RPC error.

    `method` and `params` are those of the request and may be of any type.
    """
    name = params.get("name") if isinstance(params, dict) else None
    answer = to_wire(error, method if isinstance(method, str) else None, name if isinstance(name, str) else None)
    if isinstance(error, UpstreamAnswered) and isinstance(method, str):
        answer["error"] = error_for(era, method, answer["error"])
    if era == "modern" and "result" in answer:
        answer["result"]["resultType"] = "complete"
    return {"jsonrpc": "2.0", "id": request_id, **answer}


def encode_answer(share: Share, answer: Any, request: Any) -> bytes:
    """Returns the JSON text of the answer to a request or batch, or of a refusal if there is no room for it."""
    try:
        data = encode(answer)
    except FrameError:
        data = encoded(answer)
    if len(data) >= LARGE and (refusal := share.refusal(len(data))) is not None:
        return encoded(declined(request, refusal))
    return data


def declined(request: Any, error: Overloaded) -> Any:
    """Returns the response with which a request is refused; for a batch, the list of them."""
    if isinstance(request, list):
        return [declined(member, error) for member in request if isinstance(member, dict) and "id" in member]
    return error_response(request.get("id"), error, request.get("method"), request.get("params"), era_of(request))


def encoded(message: Any) -> bytes:
    """Returns the JSON text of a message; an answer that JSON cannot express becomes an error with its id."""
    try:
        return encode(message)
    except FrameError:
        request_id = message.get("id") if isinstance(message, dict) else None
        error = {"code": INTERNAL_ERROR, "message": "The answer cannot be written as JSON."}
        return encode({"jsonrpc": "2.0", "id": request_id, "error": error})


def batch_fault(members: list[Any]) -> ProtocolError | None:
    """Returns why a batch is refused as a whole; None if its members may be handled."""
    if not members:
        return ProtocolError(INVALID_REQUEST, "A batch must not be empty.")
    if len(members) > MAX_BATCH:
        text = f"A batch may have at most {MAX_BATCH:,} members; this one has {len(members):,}."
        return ProtocolError(INVALID_REQUEST, text)
    return None


async def unless_given_up(connection: Connection, request: Message, answer: Awaitable[Message]) -> Message | None:
    """Returns the answer to one member of a batch; None if the client has cancelled this member.

    A member that raised CancelledError would take the answers of all others with it.
    """
    try:
        return await answer
    except asyncio.CancelledError:
        if request.get("id") in connection.given_up:
            return None
        raise


MAX_ASKED: Final = 64
"""The most requests of the hub that one client has not answered yet; one more is refused."""

Json = dict[str, Any]


class ClientQuestions:
    """The hub's requests to one client of the handshake era. `send` reaches the client outside of any request."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._pending: dict[str, asyncio.Future[Message]] = {}
        self._last_id = 0
        self.prefix = "hub-"
        """The beginning of the ids of questions; where there are several replicas, it names the one that asks."""

    async def ask(self, method: str, params: Json, send: Send | None = None) -> Json:
        """Asks the client and returns its result; `send` is the stream of the request that caused the question.

        If the task is cancelled, the client is told. Raises ClientAnswered for the client's error, ProtocolError if the
        client goes away, cannot be asked, or has too many open questions.
        """
        if len(self._pending) >= MAX_ASKED:
            raise ProtocolError(INVALID_REQUEST, f"The client has {MAX_ASKED} questions to answer already.")
        self._last_id += 1
        request_id = f"{self.prefix}{self._last_id}"
        put = send or self._send
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = future
        try:
            put({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
            message = await future
        except asyncio.CancelledError as error:
            if not future.cancelled() or request_id in self._pending:
                put({"jsonrpc": "2.0", "method": eras.CANCELLED, "params": eras.cancellation(request_id, error)})
            raise
        finally:
            self._pending.pop(request_id, None)
        if message.get("error") is not None:
            raise ClientAnswered(message["error"])
        result = message.get("result")
        if not isinstance(result, dict):
            raise ProtocolError(INVALID_REQUEST, f"The client answered {method} with an invalid result.")
        return result

    def take_answer(self, message: Message) -> None:
        """Takes the client's answer; ignores one that matches no question."""
        request_id = message.get("id")
        future = self._pending.pop(request_id, None) if isinstance(request_id, str) else None
        if future is not None and not future.done():
            future.set_result(message)

    def close(self) -> None:
        """Fails all open questions; the client is gone."""
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(ProtocolError(INVALID_REQUEST, "The client is gone."))
