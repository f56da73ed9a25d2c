"""Takes the messages of every client, and answers each request once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from mcp_hub.downstream import (
    Connection,
    Exchange,
    Send,
    batch_fault,
    declined,
    encode_answer,
    error_response,
    unless_given_up,
)
from mcp_hub.downstream.methods import Handler, Methods
from mcp_hub.downstream.parked_calls import ParkedCalls, UnreachableRespondent
from mcp_hub.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    CallCancelled,
    CallError,
    Overloaded,
    ProtocolError,
    drop_frames,
)
from mcp_hub.hub import Engine
from mcp_hub.hub.catalogs import CallerFilter
from mcp_hub.policy.quotas import LARGE, MAX_IN_FLIGHT, Backlog, Quotas, Share, uncounted
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.era import BATCHING_REVISION, Era, ambiguous_member, era_of
from mcp_hub.protocol.frames import FrameError, Message, decode_exactly
from mcp_hub.protocol.kinds import Kind
from mcp_hub.security.callers import SOLE, Caller
from mcp_hub.transport import RequestId
from mcp_hub.transport.background import TaskSet

log = logging.getLogger("mcp_hub.downstream")

Write = Callable[[Any], None]
"""Sends one message, a list of them as a batch, or the JSON text of one; never blocks."""

_NULLABLE: Final = ("_meta", "arguments")
"""Members of params that may be absent, and that the hub itself reads."""


class Dispatcher:
    """Answers requests and takes notifications of every client of one hub, within their `quotas`."""

    def __init__(self, hub: Engine, quotas: Quotas | None = None) -> None:
        self.hub = hub
        self._quotas = quotas or Quotas()
        self._sharing = hub.sharing
        self.backlog = Backlog(lambda: hub.config.unread)
        self.connections: set[Connection] = set()
        self._background = TaskSet()
        self._loop: asyncio.AbstractEventLoop | None = None
        """Cached: `get_running_loop` and `current_task` without a loop cost a system call."""
        self._methods = Methods(hub, self.backlog, self._quotas)
        self._handlers = self._methods.handlers
        if hub.waits:
            admitting_handlers = {name: partial(self._admit_first, handler) for name, handler in self._handlers.items()}
            self._handlers = {**admitting_handlers, "ping": self._methods.ping}
        hub.catalogs.watch(self._catalog_changed)

    @property
    def parked_calls(self) -> ParkedCalls:
        """The calls that wait for their client's answers."""
        return self._methods.parked_calls

    def over_network(self) -> None:
        """Declares that callers are on a network. Raises ConfigError if the hub has servers that must not be there."""
        self.hub.over_network()

    def join(self, connection: Connection) -> None:
        """Adds a client; from now on it gets notifications."""
        self.connections.add(connection)
        connection.joined = time.time()

    def leave(self, connection: Connection) -> None:
        """Removes a client that is gone, cancels its running requests, and ends its caller."""
        self.connections.discard(connection)
        connection.cancel_all()
        connection.caller.end()

    def unsubscribe(self, caller: Caller) -> None:
        """Ends the subscriptions of a caller whose session another replica has taken over."""
        self._methods.subscriptions.drop(caller)

    def end_listening(self, caller: Caller) -> None:
        """Ends a principal's `subscriptions/listen`, so that its client listens again at the replica that owns it."""
        self._methods.subscriptions.end_listening(caller)

    def close(self) -> None:
        """Ends every subscription gracefully. Requests in flight are left to the transports."""
        self._methods.close()

    async def answer(self, connection: Connection, message: Message, send: Send, era: Era) -> Message:
        """Returns the response to one request, well-formed or not. Raises nothing but CancelledError.

        `send` puts notifications that belong to this request on its stream. While the request runs, it can be
        cancelled through `connection.cancel(id)`.
        """
        request_id, method, params = message.get("id"), message.get("method"), message.get("params")
        running = connection.in_flight
        if type(request_id) is not int and not (type(request_id) is str and len(request_id) <= eras.MAX_TOKEN):
            text = f"A request's id must be an integer, or a text of at most {eras.MAX_TOKEN:,} characters."
            return error_response(None, ProtocolError(INVALID_REQUEST, text))
        if request_id in running:
            fault = ProtocolError(INVALID_REQUEST, "This id is in use by a running request.")
            return error_response(request_id, fault)
        if len(running) >= MAX_IN_FLIGHT and not self._quotas.has_room(connection.principal, len(running)):
            overload = Overloaded(f"{len(running)} requests are running already.", retry_after=1.0)
            return error_response(request_id, overload, method, params, era)
        self._loop = self._loop or asyncio.get_running_loop()
        task = asyncio.current_task(self._loop)
        assert task is not None  # this coroutine runs in a task
        running[request_id] = task
        exchange, leave = None, uncounted
        try:
            exchange = self._exchange(connection, request_id, method, params, era, send)
            exchange.caller.active += 1
            handler = self._handlers.get(exchange.method)
            if handler is None or (era == "modern" and exchange.method in eras.HANDSHAKE_ONLY):
                raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
            try:
                if self._sharing.bucket is not None:
                    await self._quotas.check_shared(connection.principal, exchange.method)
                leave = self._quotas.enter(connection.principal, exchange.method)
            except Overloaded as error:
                self._record_refusal(exchange, error)
                raise
            return {"jsonrpc": "2.0", "id": request_id, "result": await handler(exchange)}
        except (ProtocolError, CallError, TimeoutError) as error:
            drop_frames(error)
            return error_response(request_id, error, method, params if exchange is None else exchange.params, era)
        except Exception as error:
            log.exception("a %s request failed inside the hub", method)
            return error_response(request_id, error, method, params, era)
        finally:
            if exchange is not None:
                exchange.caller.active -= 1
            if leave is not uncounted:
                leave()
            if running.get(request_id) is task:
                del running[request_id]

    def answer_malformed(self, connection: Connection, request_id: RequestId | None = None) -> Message:
        """Returns the answer to a member of a batch that is not a JSON-RPC message. It counts against the rate."""
        try:
            self._quotas.enter(connection.principal, "")()
        except Overloaded as error:
            return error_response(request_id, error)
        return error_response(request_id, ProtocolError(INVALID_REQUEST, "Not a JSON-RPC message."))

    def _record_refusal(self, exchange: Exchange, error: Overloaded) -> None:
        name = str(exchange.params.get("name") or exchange.params.get("uri") or "")
        self.hub.record_refusal(exchange.method, name, exchange.era, exchange.caller, error, exchange.envelope)

    def _exchange(
        self, connection: Connection, request_id: RequestId, method: Any, params: Any, era: Era, send: Send
    ) -> Exchange:
        if not isinstance(method, str):
            raise ProtocolError(INVALID_REQUEST, "A request's method must be a text.")
        if params is not None and not isinstance(params, dict):
            raise ProtocolError(INVALID_PARAMS, "params must be an object.")
        if params is not None and None in (params.get("_meta", ""), params.get("arguments", "")):
            # Some clients write null in place of no arguments.
            params = {key: value for key, value in params.items() if value is not None or key not in _NULLABLE}
        if params is not None and not isinstance(params.get("_meta", {}), dict):
            raise ProtocolError(INVALID_PARAMS, "params._meta must be an object.")
        if params and (fault := ambiguous_member(params)) is not None:
            raise fault
        caller = connection.caller
        if caller.is_ended:
            raise CallCancelled("This client is gone, or what it may do has changed.", executed=False)
        if era == "handshake":
            envelope = connection.envelope
        else:
            if caller is SOLE:
                self._introduce_sole(params)
            elif not caller.is_principal:
                caller = self.hub.callers.of(connection.principal)
            envelope = eras.read_envelope(params, connection.program)
        return Exchange(connection, caller, request_id, method, params or {}, era, envelope, send)

    def notification(self, connection: Connection, message: Message) -> None:
        """Takes one notification; ignores what is unknown or malformed, as JSON-RPC demands."""
        method, params = message.get("method"), message.get("params")
        if method == "notifications/initialized":
            connection.complete_handshake()
        elif method == eras.ROOTS_CHANGED and connection.initialized:
            self._background.start(self.hub.forward_notification(connection.caller, method))
        elif method == eras.CANCELLED and isinstance(params, dict):
            request_id = params.get("requestId")
            if isinstance(request_id, int | str):
                connection.cancel(request_id, params.get("reason"))

    async def _admit_first(self, handler: Handler, exchange: Exchange) -> Any:
        """Admits the client with its first request, for a hub that starts no server before it knows its client.

        Raises ProtocolError if the client must not be served.
        """
        params, initializes = exchange.params, exchange.method == "initialize"
        self.hub.admit(params.get("clientInfo") if initializes else exchange.envelope.client_info)
        self._handlers = self._methods.handlers
        return await handler(exchange)

    def _introduce_sole(self, params: Any) -> None:
        """Tells the hub what the sole client declares, so that it can pass this to servers before the first call."""
        meta = params.get("_meta") if isinstance(params, dict) else None
        declared = meta.get(eras.CAPABILITIES_KEY) if isinstance(meta, dict) else None
        respondent = UnreachableRespondent(declared) if isinstance(declared, dict) else None
        self.hub.clients.introduce(SOLE, respondent, "modern")

    def _catalog_changed(self, kinds: frozenset[Kind], caller_filter: CallerFilter) -> None:
        """Notifies every client whose view has changed: for whose caller `caller_filter(caller)` is true."""
        handshake_methods = {kind.changed for kind in kinds if kind.extension is None}
        for method in sorted({kind.changed for kind in kinds}):
            for connection in self.connections if method in handshake_methods else ():
                if connection.initialized and caller_filter(connection.caller):
                    with contextlib.suppress(Exception):
                        connection.notify({"jsonrpc": "2.0", "method": method})
            self._methods.subscriptions.changed(method, caller_filter)


class Duplex:
    """One client on a bidirectional connection: every request is a task, whose response is written when it is ready."""

    def __init__(self, dispatcher: Dispatcher, write: Write, share: Share, caller: Caller) -> None:
        self._dispatcher = dispatcher
        self._write = write
        self._share = share
        self._loop = asyncio.get_running_loop()
        self.connection = Connection(caller, write, secrets.token_urlsafe(12))
        self._running = TaskSet()
        dispatcher.join(self.connection)

    def received(self, data: bytes | memoryview) -> None:
        """Takes one JSON text of the client. A fault in it is answered, never raised."""
        try:
            value = decode_exactly(data)
        except FrameError as error:
            self.refuse(PARSE_ERROR, f"Parse error: {error}")
            return
        if isinstance(value, dict):
            if "method" not in value:
                self._take_answer(value)
            elif "id" in value:
                self._running.start(self._answer(value, len(data)))
            else:
                self._dispatcher.notification(self.connection, value)
        elif isinstance(value, list) and self.connection.protocol_version == BATCHING_REVISION:
            if (fault := batch_fault(value)) is not None:
                self.refuse(fault.code, fault.message)
            else:
                self._running.start(self._batch(value, len(data)))
        else:
            self.refuse(INVALID_REQUEST, "A message must be one JSON-RPC object.")

    def refuse(self, code: int, message: str, id: RequestId | None = None) -> None:
        """Answers a message that cannot be read with an error. None: its id cannot be read either."""
        self._write(error_response(id, ProtocolError(code, message)))

    def _take_answer(self, message: Message) -> None:
        if "result" not in message and "error" not in message:
            self.refuse(INVALID_REQUEST, "A message has a method, a result or an error.")
        else:
            self.connection.take_answer(message)

    async def _answer(self, message: Message, size: int) -> None:
        if (refusal := self._share.begin(message, size)) is not None:
            self._write(declined(message, refusal))
            return
        try:
            answer = await self._dispatcher.answer(self.connection, message, self._write, era_of(message))
        finally:
            if size >= LARGE:
                self._share.end(size)
        self._write(encode_answer(self._share, answer, message))

    async def _batch(self, messages: list[Any], size: int) -> None:
        requests = [member for member in messages if isinstance(member, dict) and "method" in member and "id" in member]
        for message in messages:
            if isinstance(message, dict) and "method" in message and "id" not in message:
                self._dispatcher.notification(self.connection, message)
            elif isinstance(message, dict) and "method" not in message:
                self.connection.take_answer(message)
        broken = [
            self._dispatcher.answer_malformed(self.connection) for member in messages if not isinstance(member, dict)
        ]
        if (refusal := self._share.begin(requests, size)) is not None:
            self._write([*declined(requests, refusal), *broken])
            return
        try:
            answers = await asyncio.gather(
                *(unless_given_up(self.connection, request, self._dispatch(request)) for request in requests)
            )
        finally:
            self._share.end(size)
        responses = [*(answer for answer in answers if answer is not None), *broken]
        if responses:
            self._write(encode_answer(self._share, responses, requests))

    def _dispatch(self, request: Message) -> Coroutine[Any, Any, Message]:
        return self._dispatcher.answer(self.connection, request, self._write, era_of(request))

    async def drained(self) -> None:
        """Returns when no request is running; not bounded in time."""
        while self._running:
            await asyncio.wait(self._running)

    def cancel_all(self) -> None:
        """Cancels all requests and questions of the client."""
        self.connection.cancel_all()

    def close(self) -> None:
        """Cancels what still runs; the client is gone."""
        self._dispatcher.leave(self.connection)
        for task in self._running:
            task.cancel()
