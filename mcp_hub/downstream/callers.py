"""Who calls the hub: one handshake session, one connection, or one principal of the modern era."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from mcp_hub.downstream.asking import Questions
from mcp_hub.protocol.era import LATEST_HANDSHAKE, Envelope, Era
from mcp_hub.protocol.frames import Message
from mcp_hub.protocol.log_levels import MESSAGE, passes
from mcp_hub.security.principals import Principal
from mcp_hub.transport.link import RequestId

MAX_IN_FLIGHT = 1024
"""Requests of one caller at the same time; one more is answered `overloaded`."""

Send = Callable[[Message], None]
"""Puts a message on one stream towards the client; never blocks, drops when the stream is gone or full."""


class Caller:
    """One client as the hub sees it.

    `principal` is the authenticated identity, `""` for the anonymous one. `notify` reaches the client outside of
    any request (handshake era) and does nothing where the era has no such way.
    """

    def __init__(self, principal: str, notify: Send) -> None:
        self.principal = principal if isinstance(principal, Principal) else Principal(principal)
        self.notify = notify
        self.questions = Questions(notify)
        self.initialized = False
        """Whether the handshake is complete, so that unasked notifications may be sent."""
        self.protocol_version: str | None = None
        """The handshake revision agreed on; None before `initialize` and for modern-only callers."""
        self.capabilities: dict[str, Any] = {}
        self.client_info: dict[str, Any] = {}
        self.log_level: str | None = None
        """Log messages below it are not for this client of the handshake era; None: it has not said."""
        self.in_flight: dict[RequestId, asyncio.Task[Any]] = {}
        """Running requests that the client may cancel by id."""
        self.given_up: set[RequestId] = set()
        """Requests the client has cancelled and that are still ending: it wants no answer to them."""
        self._envelope = Envelope()
        self.sole = False
        """Whether there is no other caller, as on stdio."""

    def __repr__(self) -> str:
        return f"Caller({self.client_info.get('name', '?')!r}, {self.protocol_version or 'no handshake'})"

    @property
    def envelope(self) -> Envelope:
        """What its handshake said, as a request of the modern era would."""
        version, known = self.protocol_version or LATEST_HANDSHAKE, self._envelope
        if (
            known.version != version
            or known.capabilities is not self.capabilities
            or known.client_info is not self.client_info
            or known.log_level != self.log_level
        ):
            self._envelope = known = Envelope(version, self.capabilities, self.client_info, self.log_level)
        return known

    def key(self, era: Era) -> Hashable | None:
        """What a session of its own is kept under: None for the sole caller, the principal in the modern era."""
        if self.sole:
            return None
        return self.principal if era == "modern" else self

    def cancel(self, request_id: RequestId) -> None:
        """Cancel one running request; an unknown or finished id is ignored, as the specification says."""
        task = self.in_flight.pop(request_id, None)
        if task is not None:
            self.given_up.add(request_id)
            task.add_done_callback(lambda _: self.given_up.discard(request_id))
            task.cancel()

    def cancel_all(self) -> None:
        """The client is gone: nobody waits for any answer."""
        self.questions.close()
        for task in self.in_flight.values():
            task.cancel()
        self.in_flight.clear()


class Respondent(msgspec.Struct, frozen=True):
    """A client of the handshake era as servers may ask it: on the stream of one of its calls, or outside of any."""

    caller: Caller
    send: Send | None = None

    @property
    def capabilities(self) -> dict[str, Any]:
        """As declared in its handshake."""
        return self.caller.capabilities

    @property
    def parked(self) -> None:
        """It is asked while its call runs."""

    async def turn(self) -> None:
        """Any call may be sent at any time."""

    def hear(self, message: dict[str, Any]) -> None:
        """Pass on a log message, on the same way as a question."""
        if passes(message.get("level"), self.caller.log_level):
            put = self.send or self.caller.notify
            put({"jsonrpc": "2.0", "method": MESSAGE, "params": message})

    def tell(self, method: str, params: dict[str, Any]) -> None:
        """Notify the client outside of any request."""
        if self.caller.initialized:
            self.caller.notify({"jsonrpc": "2.0", "method": method, "params": params})

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Raises ProtocolError."""
        return await self.caller.questions.ask(method, params, self.send)
