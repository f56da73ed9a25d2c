"""Transports carry JSON-RPC as bytes. This module defines the interface of the transports to upstream servers.

It has `Link`, `Receiver`, the errors of links, and `Authorization`. A link carries messages; it knows neither methods
nor which response belongs to which request. `Peer` does.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, Self

import msgspec

from mcp_hub import codes
from mcp_hub.protocol.era import Era
from mcp_hub.protocol.frames import Message

if TYPE_CHECKING:
    from mcp_hub.config.models import Server
    from mcp_hub.transport.children import Children
    from mcp_hub.transport.egress import Egress

RequestId = int | str

log = logging.getLogger("mcp_hub.transport")

MAX_BATCH: Final = 5_000
"""The most messages of an upstream's batch that are taken, in about 10 ms; far more than the hub ever asks at once."""


class LinkError(Exception):
    """A transport failed. `str()` is one line for the user: what happened and, where known, what to do.

    `executed` is False only where the upstream certainly never acted on the request. `retry_after` (seconds) and
    `status` (HTTP) are set where the upstream sent them.
    """

    hub_code: str | None = None
    """The code of its cure (`codes.py`); None if none is known."""
    answered = False
    """Whether an answer to the request came that cannot be read, so that the upstream no longer works on it."""

    def __init__(
        self,
        message: str,
        *,
        executed: bool = True,
        status: int | None = None,
        retry_after: float | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        if (hub_code := code or codes.code_of(message)) is not None:
            self.hub_code = hub_code
        self.executed = executed
        self.status = status
        self.retry_after = retry_after
        self.last_words: tuple[str, ...] = ()
        """The last stderr lines of the child process that failed; empty for other transports."""


class LinkLost(LinkError):
    """The whole connection is gone: the process exited, the stream ended, the host is unreachable."""


class SessionLost(LinkLost):
    """The upstream no longer knows the hub's session."""


class Unauthorized(LinkError):
    """The upstream answered 401 or 403."""

    hub_code = codes.CREDENTIALS_REFUSED


class Unwritable(LinkError):
    """The hub's message cannot be encoded as JSON, because a program passed another kind of value. Nothing was sent."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"the message cannot be written as JSON: {error}", executed=False)


class FrameTooLarge(LinkError):
    """A message exceeded `max_frame`."""

    answered = True

    hub_code = codes.MESSAGE_TOO_LARGE


class RedirectNotFollowed(LinkError):
    """The server redirects to another origin, or a POST to a GET, which is not followed. `target` is the new URL."""

    hub_code = codes.REDIRECTED

    def __init__(self, message: str, target: str, status: int) -> None:
        super().__init__(message, status=status)
        self.target = target


class Receiver(Protocol):
    """Gets what a link receives. All methods are synchronous and cheap, and never raise."""

    def received(self, message: Message, stream: RequestId | None = None) -> None:
        """Takes one message (request, notification or response); batches are already split.

        `stream`: the id of the request on whose own stream it came; None where all messages share one stream.
        """

    def failed(self, request_id: RequestId | None, error: LinkError) -> None:
        """Takes the failure of one request; the link goes on. `request_id` is None where it could not be read."""

    def lost(self, error: LinkLost) -> None:
        """Takes the loss of the link. Called once; nothing follows."""


def messages_of_batch(value: Any) -> Sequence[Any]:
    """Returns at most MAX_BATCH members of a decoded batch; a value that is no list is the only member."""
    if not isinstance(value, list):
        return (value,)
    if len(value) > MAX_BATCH:
        log.warning("only the first %s of %s messages of a batch were taken", f"{MAX_BATCH:,}", f"{len(value):,}")
    return value[:MAX_BATCH]


class Link:
    """One connection to an upstream.

    Each transport is a subclass that overrides `open`, `send`, `end` and what else it has. Callers use these; they
    never compare transport names.
    """

    is_local: ClassVar[bool] = False
    """Whether both ends run on this machine. Then the end of either is always noticed; a network may fall silent."""
    repeats_params: ClassVar[bool] = False
    """Whether modern requests repeat their method, name and annotated arguments in headers."""
    sole_era: ClassVar[Era | None] = None
    """The only era that the specification allows on this transport; None: both. Some servers use the other anyway."""

    _ending: asyncio.Task[None] | None = None
    """The task of `end`, as soon as the link is being closed."""

    @classmethod
    def of(cls, server: Server, parts: LinkParts, clean: Callable[[str], str]) -> Self:
        """Makes an unopened link to a server; `clean` redacts what its process says. Raises LinkError.

        Only the link of a transport that the configuration can name has it.
        """
        raise NotImplementedError

    @property
    def noise(self) -> str:
        """What a process wrote to its stdout first that is no message, for the user; `""` for nothing."""
        return ""

    @property
    def pid(self) -> int | None:
        """The id of the server's process; None if it has none."""
        return None

    @property
    def signing_in(self) -> bool:
        """Whether requests wait for a token, and not for the upstream."""
        return False

    def open_standing_stream(self, headers: Mapping[str, str]) -> None:
        """Keeps a stream open for messages that belong to no request, if the transport has one; sends `headers`."""
        return

    async def standing_stream(self) -> None:
        """Waits until the standing stream is open, or could not be opened. Not bounded in time."""
        return

    async def open(self, receiver: Receiver) -> None:
        """Starts the process or opens the stream. Not bounded in time; the caller does that. Raises LinkError."""
        raise NotImplementedError

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Sends one message; returns once it is written, or its POST is under way. Raises LinkError.

        `headers` are those of the era (`MCP-Protocol-Version`, `Mcp-Method`, ...); only HTTP uses them.
        """
        raise NotImplementedError

    def abandon(self, request_id: RequestId) -> None:
        """Gives up a request whose answer nobody waits for. HTTP closes its stream, others drop a late response."""

    async def close(self) -> None:
        """Closes the link, in bounded time. Idempotent; never raises."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self.end())
        await asyncio.shield(self._ending)

    async def end(self) -> None:
        """Ends what `open` has begun, in bounded time; `close` calls it once. Never raises."""

    @property
    def last_words(self) -> tuple[str, ...]:
        """The last stderr lines of a child process, escaped for display; empty for other transports."""
        return ()


class LinkParts(Protocol):
    """Supplies what a link needs besides the configuration entry of its server."""

    @property
    def children(self) -> Children:
        """The child processes of the hub."""
        ...

    def authorization(self, server: Server) -> Authorization | None:
        """Returns the tokens for a server; None if it has no sign-in."""
        ...

    def egress(self, server: Server) -> Egress:
        """Returns the Egress that makes the network connections to a server."""
        ...

    def process(self, server: Server) -> tuple[Sequence[str], Mapping[str, str]]:
        """Returns (command line, environment) of a server with a process. Raises CommandNotFound."""
        ...


MAX_CHALLENGE: Final = 4096
"""Characters of a `WWW-Authenticate` that are examined."""


class SignInNeeded(Unauthorized):
    """There is no token that the upstream accepts, and only the user can get one. `str()` says how."""

    hub_code = codes.SIGN_IN_NEEDED


class Challenge(msgspec.Struct, frozen=True):
    """A response of status 401 or 403, and its `WWW-Authenticate`."""

    status: int
    header: str = ""

    def field(self, name: str) -> str | None:
        """Returns one parameter of the header, such as `scope`; None if it is missing or empty."""
        match = re.search(rf'(?:^|[\s,]){name}\s*=\s*(?:"([^"]*)"|([^\s,"]+))', self.header[:MAX_CHALLENGE])
        return None if match is None else (match[1] or match[2])


class Authorization(Protocol):
    """The tokens for one upstream, shared by all its links."""

    async def token(self) -> str | None:
        """Returns the bearer token to send, renewed if it has expired; None to send none. Raises LinkError."""

    async def challenged(self, token: str | None, challenge: Challenge, *, again: bool) -> bool:
        """Tries to get another token after a refusal; returns whether the request should be sent again with it.

        `again`: the request was sent twice already. Raises SignInNeeded where the user has to sign in, LinkError where
        there is no token at the moment.
        """
