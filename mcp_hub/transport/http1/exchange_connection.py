"""What an HTTP exchange needs from its connection, and from the account of its sender."""

from __future__ import annotations

from typing import Any, Protocol

from mcp_hub.errors import Overloaded
from mcp_hub.transport.http1.peers import Peer
from mcp_hub.transport.http1.send_buffer import UnreadAccount


class ExchangeConnection(Protocol):
    """The connection as its request and reply see it."""

    port: int | None
    """The port of the listening socket; it is never taken from a header."""
    peer: str
    """The client's address."""
    proven: Peer | None
    """What the connection proves about its client; None: nothing."""
    paused: bool
    """Whether the write buffer is full, so that nothing should be added."""
    share: UnreadAccount | None
    """The account of the caller that the current reply is for."""
    stranger: bool
    """Whether no request of the connection has been let in yet."""

    def write(self, data: bytes) -> None:
        """Sends bytes; does nothing if the client is gone."""

    async def writable(self) -> None:
        """Waits until it is not `paused`, or the client is gone."""

    def regulate(self) -> None:
        """Pauses or resumes reading, depending on the room in the buffers."""

    def stream_begun(self) -> None:
        """Called when the head of a reply is written before its body."""

    def answered(self, *, keep: bool) -> None:
        """Called when a reply is complete. `keep` says whether another request may follow on the connection."""

    def abort(self) -> None:
        """Drops the connection and what is in its buffers."""

    def let_in(self) -> None:
        """Called when a request of the connection was authenticated, or needs no authentication."""

    def speaks_for(self, peer: str) -> None:
        """Called when a trusted proxy sends a request of the client with the address `peer`."""


class BodyAccount(Protocol):
    """Counts the bytes of one caller's bodies that are not complete."""

    def begin(self, request: Any, size: int) -> Overloaded | None:
        """Counts `size` more bytes until `end`; returns the reason if there is no room for them."""

    def end(self, size: int) -> None:
        """Ends what `begin` has counted."""
