"""What every transport to an upstream looks like from above: messages out, messages in, and how it ends.

A `Link` knows nothing of methods or correlation; `peer.py` sits on top of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mcp_hub.protocol.frames import Message

RequestId = int | str


class LinkError(Exception):
    """A transport failed. `str()` is one line for the user: what happened and, where known, what to do.

    `executed` is False only where it is certain that the upstream never acted on the request.
    `retry_after` (seconds) and `status` (HTTP) are given where the upstream gave them.
    """

    def __init__(
        self, message: str, *, executed: bool = True, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.executed = executed
        self.status = status
        self.retry_after = retry_after
        self.last_words: tuple[str, ...] = ()
        """The last stderr lines of the process that failed, where there is one."""


class LinkLost(LinkError):
    """The whole connection is gone: the process exited, the stream ended, the host is unreachable."""


class SessionLost(LinkError):
    """The upstream no longer knows our session (404 with `Mcp-Session-Id`): the request was not executed."""


class Unauthorized(LinkError):
    """The upstream answered 401 or 403."""


class FrameTooLarge(LinkError):
    """A message exceeded `max_frame`."""


class Receiver(Protocol):
    """Who sits on top of a link. All of these are synchronous, cheap and never raise."""

    def received(self, message: Message, stream: RequestId | None = None) -> None:
        """A decoded JSON object arrived (request, notification or response; batches are already taken apart).

        `stream` is the request on whose own stream it came; None where all messages share one way.
        """

    def failed(self, request_id: RequestId | None, error: LinkError) -> None:
        """One request cannot be answered; the link lives on. None: the id could not be read."""

    def lost(self, error: LinkLost) -> None:
        """The link is dead; told once, and nothing follows."""


class Link(Protocol):
    """One connection to an upstream."""

    async def open(self, receiver: Receiver) -> None:
        """Start the process or open the stream. Raises LinkError. Not bounded in time: the caller does that."""

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Hand one message over; returns once it is written (or its POST is under way). Raises LinkError.

        `headers` are the era's own (`MCP-Protocol-Version`, `Mcp-Method`, ...) and mean something to HTTP only.
        """

    def abandon(self, request_id: RequestId) -> None:
        """Nobody waits for this answer any more; HTTP closes the request's stream, others do nothing."""

    async def close(self) -> None:
        """End it, within the transport's own bounded ladder. Idempotent; never raises."""

    @property
    def last_words(self) -> tuple[str, ...]:
        """The last stderr lines of a child process, escaped for display; empty elsewhere."""
