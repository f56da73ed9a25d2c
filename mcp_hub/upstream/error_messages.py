"""The error messages about one upstream, for the user and the model, with its secrets redacted."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Final

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.inherited import missed_variables
from mcp_hub.config.models import Server
from mcp_hub.config.secret_values import secrets_of_server
from mcp_hub.errors import (
    CallError,
    InternalError,
    InvalidParameters,
    NotConnected,
    PermissionDenied,
    RequestRejected,
    ResultTooLarge,
    ServerUnavailable,
    SignInMissing,
    StateLost,
    UpstreamAnswered,
)
from mcp_hub.security.redaction import Redactor
from mcp_hub.text import printable
from mcp_hub.transport import FrameTooLarge, LinkError, SessionLost, SignInNeeded, Unauthorized, Unwritable

SHOWN_LAST_WORDS: Final = 5
"""Lines of stderr that an error message quotes."""
_NETWORK: Final = "ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH"
_LAUNCHERS: Final = (
    (re.compile(r"npm (?:error|ERR!) code EBADENGINE"), codes.NODE_TOO_OLD),
    (re.compile(r"npm (?:error|ERR!) code (?:E404|ETARGET)"), codes.PACKAGE_UNKNOWN),
    (re.compile(rf"npm (?:error|ERR!) code (?:{_NETWORK})"), codes.PACKAGES_UNREACHABLE),
    (re.compile(r"(?:connect|trying to connect) to the [Dd]ocker (?:daemon|API)"), codes.DOCKER_UNAVAILABLE),
)
"""What npm and docker print on stderr when they cannot start a server -> the code of its cure."""

_STACK: Final = re.compile(r"\s+at \S|\s*\^+$|Node\.js v\d")
"""Matches lines that Node.js prints behind the message of an error, which is what a person needs."""


class ErrorMessages:
    """Makes the errors that callers get about one server."""

    def __init__(self, server: Server) -> None:
        self._id = server.id
        self._server = server
        self._secrets = frozenset(secrets_of_server(server))
        self._redaction = Redactor(self._secrets)

    def renew(self, server: Server) -> None:
        """Redacts the secrets of the new configuration entry from now on, in addition to those of the former one."""
        self._server = server
        self._redaction = Redactor({*self._secrets, *secrets_of_server(server)})

    def explain(self, error: BaseException, last_words: Sequence[str] = ()) -> str:
        """Returns one line: what happened, the last stderr lines of the server's process, and what it lacks."""
        text = str(error) or type(error).__name__
        code = getattr(error, "hub_code", None)
        if isinstance(error, UpstreamAnswered):
            text = f"it refused the handshake: {printable(error.message)} ({error.code})"
            code = codes.HANDSHAKE_REFUSED
        last_words = last_words or getattr(error, "last_words", ())
        printed = "\n".join((text, *last_words))
        if last_words:
            code = _code_of_launcher(last_words) or code
            shown = [line for line in last_words if _STACK.match(line) is None][-SHOWN_LAST_WORDS:]
            text += "; its last words: " + " | ".join(shown or last_words[-SHOWN_LAST_WORDS:])
        redacted = self._redaction.text(text)
        if self._server.command and (missed := missed_variables(self._server, printed, os.environ)):
            pairs = ", ".join(f"{name}: ${{{name}}}" for name in missed)
            redacted += f"; it does not inherit what is set here: if it needs that, write env: {{{pairs}}} in its entry"
            code = codes.VARIABLE_NOT_PASSED
        return CodedText(redacted, code) if code is not None else redacted

    def clean(self, text: str) -> str:
        """Returns a text from the server with the secrets of its entry redacted."""
        return self._redaction.text(text)

    def clean_message(self, message: dict[str, Any]) -> dict[str, Any]:
        """Returns a message from the server with the secrets of its entry redacted."""
        return self._redaction.notification(message)

    def unavailable(self, reason: str | None) -> NotConnected:
        """Makes the error of a call that finds no connection."""
        text = f"The server {self._id!r} is not available: {reason or 'it is not running'}"
        return NotConnected(text, server=self._id, executed=False)

    def not_connected(self, error: BaseException, reason: str | None) -> CallError:
        """Makes the error of a call whose connection attempt failed. `error` decides its class, `reason` its text."""
        if isinstance(error, SignInNeeded):
            return SignInMissing(str(self.unavailable(reason)), server=self._id, executed=False)
        if isinstance(error, Unauthorized):
            text = f"The server {self._id!r} does not accept the credentials of its entry: {reason}"
            return PermissionDenied(text, server=self._id, executed=False)
        unavailable = self.unavailable(reason)
        unavailable.retry_after = getattr(error, "retry_after", None)
        return unavailable

    def state_lost(self, loss: LinkError | None, last_words: Sequence[str]) -> StateLost:
        """Makes the error of the first call after a stateful session has ended between two calls."""
        reason = "it was not used for a long time" if loss is None else self.explain(loss, last_words)
        text = (
            f"The session with {self._id!r} had ended ({reason}). A new one has begun: pages, tabs and logins of "
            "before are gone. This call was not carried out; begin again."
        )
        return StateLost(text, server=self._id, executed=False)

    def call_error(self, error: LinkError) -> CallError:
        """Makes the error of a call that failed in the transport."""
        text = f"The server {self._id!r} failed: {self.explain(error)}"
        if isinstance(error, Unwritable):
            return InvalidParameters(f"Nothing was sent to {self._id!r}: {error}", server=self._id, executed=False)
        if isinstance(error, FrameTooLarge):
            return ResultTooLarge(text, server=self._id)
        if isinstance(error, SignInNeeded):
            return SignInMissing(str(self.unavailable(self.explain(error))), server=self._id, executed=False)
        if isinstance(error, Unauthorized):
            return PermissionDenied(text, server=self._id)
        is_rejected = error.status is not None and 400 <= error.status < 500 and not isinstance(error, SessionLost)
        kind = RequestRejected if is_rejected else ServerUnavailable
        return kind(text, server=self._id, retry_after=error.retry_after, executed=error.executed)

    def not_an_object(self, method: str) -> CallError:
        """Makes the error of a call whose result is not an object."""
        return InternalError(f"{self._id!r} answered {method} with a result that is not an object.", server=self._id)


def _code_of_launcher(last_words: Sequence[str]) -> str | None:
    return next((code for sign, code in _LAUNCHERS if any(map(sign.search, last_words))), None)
