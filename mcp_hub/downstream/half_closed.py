"""A client that has ended its half of a connection and may still read answers, or may have gone."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from mcp_hub.downstream.deadline import Deadline

FIRST_LOOK: Final = 0.01
"""Seconds until the first look, in which most answers are given; from the second on each is twice as long after the one
before."""
LAST_LOOK: Final = 15.0
"""The longest time between two looks. Those, and the first one, write a sign of life, as streams do."""
_SIGN_OF_LIFE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
"""Means nothing in front of an answer, and clients pass over it; the system of a client that has gone objects to it."""


class HalfClosed:
    """Drops `transport` as soon as the system has heard that nobody is there; `deadline` says when to look again.

    Shutting down one half and closing both look the same on the wire, until something is written.
    """

    __slots__ = ("_after", "_deadline", "_transport")

    def __init__(self, transport: asyncio.Transport, deadline: Deadline) -> None:
        self._transport = transport
        self._deadline = deadline
        self._after = FIRST_LOOK
        deadline.set(FIRST_LOOK)

    def look(self, *, unanswered: bool) -> None:
        """`unanswered`: no answer has begun, so that a sign of life can be written."""
        connection: socket.socket | None = self._transport.get_extra_info("socket")
        if connection is not None and connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._transport.abort()
            return
        if unanswered and self._after in (FIRST_LOOK, LAST_LOOK) and not self._transport.is_closing():
            self._transport.write(_SIGN_OF_LIFE)
        self._deadline.set(self._after)
        self._after = min(2 * self._after, LAST_LOOK)
