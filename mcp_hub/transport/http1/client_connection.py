"""One HTTP connection of the client: sends one request at a time, and passes its response to the caller."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, Protocol

from mcp_hub.transport.http1 import BODY, DONE, HEAD, IDLE, ResponseMachine
from mcp_hub.transport.http1.client_response import (
    EmptyReply,
    HttpFailure,
    HttpResponse,
    IncompleteBody,
    NotHttp,
    broken_by,
)
from mcp_hub.transport.http1.heads import HeaderLines

WRITE_SIZE: Final = 256 * 1024
"""Bytes that are handed to the asyncio transport in one piece."""
SMALL: Final = 64 * 1024
"""Bytes of a successful JSON response up to which it is reported only once its whole body has arrived."""

ResponseCallback = Callable[[HttpResponse | HttpFailure], None]
"""Called once, on the event loop, with a failure or the response: once its head has arrived, or all of a small one."""


class ConnectionOwner(Protocol):
    """The pool that a connection belongs to."""

    def released(self, connection: ClientConnection) -> None:
        """Takes back a connection whose exchange is over and that can carry another."""

    def lost(self, connection: ClientConnection) -> None:
        """Forgets a connection that is closed."""


class ClientConnection(asyncio.Protocol):
    """The asyncio protocol of one connection. Any fault of the server closes the connection, not only the exchange."""

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._machine = ResponseMachine(self)
        self._callback: ResponseCallback | None = None
        self._unreported: HttpResponse | None = None
        """The response to report once the current bytes are parsed."""
        self._response: HttpResponse | None = None
        self._paused = False
        self._full: asyncio.Future[None] | None = None
        """Pending while the transport's write buffer is full."""
        self.used = False
        """Whether it has carried an exchange before."""
        self.idle_since = 0.0
        """Event loop time in seconds."""
        self.socket: socket.socket | None = None
        """The socket below the asyncio transport."""

    @property
    def alive(self) -> bool:
        """Whether it can carry a request, as far as the asyncio transport knows."""
        return self._machine.theirs is IDLE and self._transport is not None and not self._transport.is_closing()

    @property
    def transport(self) -> asyncio.Transport | None:
        """The asyncio transport; None once the connection is closed."""
        return self._transport

    def begin(self, data: bytes, callback: ResponseCallback) -> None:
        """Sends a request of at most WRITE_SIZE bytes; `callback` may be called until `cancel`."""
        assert self._transport is not None
        self._machine.ask(whole=True)
        self._callback = callback
        self._transport.write(data)

    async def exchange(self, head: bytes, body: bytes | None) -> HttpResponse:
        """Sends a request and returns the response once its head has arrived. Cancelling closes the connection.

        Raises HttpFailure.
        """
        transport = self._transport
        assert transport is not None
        waiter: asyncio.Future[HttpResponse | HttpFailure] = self._loop.create_future()

        def on_response(outcome: HttpResponse | HttpFailure) -> None:
            if not waiter.done():
                waiter.set_result(outcome)

        try:
            if body is None or len(body) <= WRITE_SIZE:
                self.begin(head if body is None else head + body, on_response)
            else:
                self._machine.ask(whole=False)
                self._callback = on_response
                transport.write(head)
                await self._send(transport, memoryview(body), waiter)
            outcome: HttpResponse | HttpFailure = await waiter
        except BaseException:
            if not waiter.done() or waiter.cancelled():
                self.cancel()
            elif isinstance(response := waiter.result(), HttpResponse):
                response.close()  # the connection may carry another exchange by now
            raise
        if isinstance(outcome, HttpFailure):
            raise outcome
        return outcome

    def cancel(self) -> None:
        """Gives up the request under way and closes the connection; the callback is not called any more."""
        self._callback = None
        self.abort()

    async def _send(
        self, transport: asyncio.Transport, remainder: memoryview, waiter: asyncio.Future[HttpResponse | HttpFailure]
    ) -> None:
        """Sends a large body in pieces as the server reads them; stops if the server answers before the end."""
        while remainder and not waiter.done():
            transport.write(bytes(remainder[:WRITE_SIZE]))
            remainder = remainder[WRITE_SIZE:]
            if self._full is not None:
                await asyncio.wait((self._full, waiter), return_when=asyncio.FIRST_COMPLETED)
        if not remainder:
            self._machine.note_body_written()

    def abort(self) -> None:
        """Closes the connection at once, whatever it is doing."""
        self._machine.stop()
        self._fail(EmptyReply() if self._response is None else IncompleteBody())
        self._response = self._unreported = None
        if self._transport is not None:
            self._transport.abort()

    def done(self) -> None:
        """Returns the connection to its pool, if it can be used again. Called once the response was read completely."""
        if self._transport is not None and not self._transport.is_closing() and self._machine.start_next_cycle():
            self.used = True
            self._owner.released(self)

    def close(self) -> None:
        """Closes an idle connection, with a TLS shutdown where there is TLS."""
        self._machine.stop()
        if self._transport is not None:
            self._transport.close()

    def pause(self) -> None:
        """Pauses reading from the socket."""
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Resumes reading from the socket."""
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    # --- callbacks of the event loop -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the asyncio transport (asyncio.Protocol)."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are not subclasses of it

    def data_received(self, data: bytes) -> None:
        """Reads what the server sent (asyncio.Protocol)."""
        machine = self._machine
        try:
            machine.receive(data)
        except NotHttp as failure:
            self._fail(failure)
            self.abort()
            return
        response, self._unreported = self._unreported, None
        theirs = machine.theirs
        if theirs is HEAD or theirs is BODY:
            if response is not None:
                self._report(response)
            return
        self.resume()
        reusable = theirs is DONE and machine.ours is DONE
        if response is not None:
            self._report(response)
        if not reusable:
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Fails or ends the response that was being received (asyncio.Protocol)."""
        theirs = self._machine.theirs
        self._machine.close()
        self._transport = None
        if theirs is HEAD:
            self._fail(EmptyReply() if error is None else broken_by(error))
        elif theirs is BODY and self._response is not None:
            if self._machine.to_the_end and error is None:
                self._response.end()
            else:
                self._fail(IncompleteBody())
        self.resume_writing()
        self._owner.lost(self)

    def pause_writing(self) -> None:
        """Makes writers wait, as the send buffer is full (asyncio.Protocol)."""
        self._full = self._loop.create_future()

    def resume_writing(self) -> None:
        """Wakes writers that wait for the send buffer (asyncio.Protocol)."""
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)

    def _fail(self, failure: HttpFailure) -> None:
        if self._response is None:
            self._report(failure)
            return
        self._response.fail(failure if isinstance(failure, IncompleteBody) else IncompleteBody(str(failure)))
        self._report(self._response)

    def _report(self, outcome: HttpResponse | HttpFailure) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(outcome)

    # --- called by the machine -----------------------------------------------------------------------------------

    def response_begun(self, status: int, fields: HeaderLines, first: dict[bytes, bytes]) -> None:
        """Creates the response. A small one is reported once its body is complete."""
        self._response = response = HttpResponse(status, fields, first, self)
        length = first.get(b"content-length")
        small = length is not None and len(length) < 10 and int(length) <= SMALL
        if not small or not 200 <= status < 300 or b"json" not in first.get(b"content-type", b""):
            self._unreported = response

    def body_received(self, piece: bytes) -> None:
        """Passes a piece of the body to the response."""
        if self._response is not None:
            self._response.feed(piece)

    def message_ended(self) -> None:
        """Ends the response."""
        response, self._response = self._response, None
        if response is not None:
            response.end()
            self._unreported = response
