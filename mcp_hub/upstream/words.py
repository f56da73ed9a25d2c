"""What the hub says of an upstream that fails: for the user and the model, without its secrets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mcp_hub.config.models import Server
from mcp_hub.config.secret_values import secrets_of_server
from mcp_hub.errors import (
    CallError,
    NotConnected,
    PermissionDenied,
    ResultTooLarge,
    ServerUnavailable,
    SignInMissing,
    StateLost,
    UpstreamAnswered,
)
from mcp_hub.security.redaction import Redaction
from mcp_hub.text import printable
from mcp_hub.transport.authorization import SignInNeeded
from mcp_hub.transport.link import FrameTooLarge, LinkError, Unauthorized

SHOWN_LAST_WORDS: Final = 5


class Words:
    """Texts and errors about one server."""

    def __init__(self, server: Server) -> None:
        self._id = server.id
        self._secrets = frozenset(secrets_of_server(server))
        self._redaction = Redaction(self._secrets)

    def renew(self, server: Server) -> None:
        """Its secrets are those of this entry, and what they were before."""
        self._redaction = Redaction({*self._secrets, *secrets_of_server(server)})

    def explain(self, error: BaseException, last_words: Sequence[str] = ()) -> str:
        """One line: what happened, and the last stderr lines of its process."""
        text = str(error) or type(error).__name__
        if isinstance(error, UpstreamAnswered):
            text = f"it refused the handshake: {printable(error.message)} ({error.code})"
        last_words = last_words or getattr(error, "last_words", ())
        if last_words:
            text += "; its last words: " + " | ".join(last_words[-SHOWN_LAST_WORDS:])
        return self._redaction.text(text)

    def clean(self, text: str) -> str:
        """A text of the server's without the secrets of its entry."""
        return self._redaction.text(text)

    def told(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message of the server's for its clients (Redaction)."""
        return self._redaction.told(message)

    def unavailable(self, reason: str | None) -> NotConnected:
        """The error of a call that finds no connection."""
        text = f"The server {self._id!r} is not available: {reason or 'it is not running'}"
        return NotConnected(text, server=self._id, executed=False)

    def not_connected(self, error: BaseException, reason: str | None) -> CallError:
        """The error of a call that found no connection; a sign-in that is missing comes back by no repeating."""
        if isinstance(error, SignInNeeded):
            return SignInMissing(f"The server {self._id!r} is {reason}", server=self._id, executed=False)
        return self.unavailable(reason)

    def state_lost(self, loss: LinkError | None, last_words: Sequence[str]) -> StateLost:
        """The error of the first call after a session with a state has ended between two calls."""
        reason = "it was not used for a long time" if loss is None else self.explain(loss, last_words)
        text = (
            f"The session with {self._id!r} had ended ({reason}). A new one has begun: pages, tabs and logins of "
            "before are gone. This call was not carried out; begin again."
        )
        return StateLost(text, server=self._id, executed=False)

    def call_error(self, error: LinkError) -> CallError:
        """The error of a call that the transport could not carry out."""
        text = f"The server {self._id!r} failed: {self.explain(error)}"
        if isinstance(error, FrameTooLarge):
            return ResultTooLarge(text, server=self._id)
        if isinstance(error, SignInNeeded):
            return SignInMissing(f"The server {self._id!r} is {self.explain(error)}", server=self._id, executed=False)
        if isinstance(error, Unauthorized):
            return PermissionDenied(text, server=self._id)
        return ServerUnavailable(text, server=self._id, retry_after=error.retry_after, executed=error.executed)
