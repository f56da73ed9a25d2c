"""The exceptions of the hub. The name of each class says whose fault the error is.

`to_wire` is the only place where an exception becomes a wire answer; no message text is ever inspected.
Codes: JSON-RPC 2.0, MCP 2026-07-28 (-32020..-32022) and the hub's own range -32010..-32019.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from mcp_hub.codes import with_code

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
"""Used in handshake revisions only; the modern revision uses INVALID_PARAMS."""
URL_ELICITATION_REQUIRED = -32042
"""Used in revision 2025-11-25: the user has to visit the URLs in `data` first."""
HEADER_MISMATCH = -32020
MISSING_CLIENT_CAPABILITY = -32021
UNSUPPORTED_PROTOCOL_VERSION = -32022

ERROR_KEY: Final = "mcp-hub/error"
"""Key in the `_meta` of an error result, with what `error_facts` returns."""


class HubError(Exception):
    """Base of every error the hub raises on purpose. A policy's errors are in the module of the policy."""

    policy: ClassVar[str | None] = None
    """The name of the policy that raises this error, for the record of the call."""
    refuses: ClassVar[bool] = False
    """Whether the hub refused the call, which then counts as `refused` and not as `error`."""

    def __init__(self, message: str = "", *codes: str) -> None:
        """Makes the error. `codes`: one of `codes.py` for the whole message, or one for each of its lines."""
        super().__init__(message)
        self.codes = codes

    @property
    def hub_code(self) -> str | None:
        """The first of `codes`; None if the error has none."""
        return self.codes[0] if self.codes else None

    def for_user(self) -> str:
        """Returns the message with its codes."""
        text = str(self)
        lines = text.split("\n")
        if len(self.codes) == len(lines):
            return "\n".join(with_code(line, code) for line, code in zip(lines, self.codes, strict=True))
        return with_code(text, self.hub_code)


class ConfigError(HubError):
    """The configuration file cannot be used. `str()` is for the user: every finding on its own line."""


class LeftOut(HubError):
    """A server must not be served: it is this hub itself, or too many hubs would be chained. `str()` says which."""


class ProtocolError(HubError):
    """A peer sent something that the protocol forbids. It becomes a JSON-RPC error with `code`."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code}, {self.message!r})"


class CarrierEnded(HubError):
    """The call that carried a server's question ended before the client answered; another call may carry it."""


class UpstreamAnswered(ProtocolError):
    """The upstream itself answered with a JSON-RPC error, which is passed on unchanged.

    `error` is the whole error object, unknown fields included. A malformed one is sent as `data` of an INTERNAL_ERROR.
    """

    def __init__(self, error: Any) -> None:
        self.is_sound = _is_sound(error)
        fields = error if self.is_sound else {"code": INTERNAL_ERROR, "message": _ODD_ERROR, "data": error}
        super().__init__(fields["code"], fields["message"], fields.get("data"))
        self.error: dict[str, Any] = fields


_ODD_ERROR = "The server answered with a malformed JSON-RPC error; 'data' has it."


class ClientAnswered(UpstreamAnswered):
    """The client answered a server's request with a JSON-RPC error, which the server gets unchanged."""


def _is_sound(error: Any) -> bool:
    """Returns whether a client can read an error object: an integer code and a text."""
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return False
    return isinstance(error.get("code"), int) and not isinstance(error["code"], bool)


class UnknownName(ProtocolError):
    """No such tool, prompt or resource for this caller: absent, hidden and refused look the same."""

    policy, refuses = "access", True


class CallError(HubError):
    """The hub decided that a call ends here.

    `tools/call` gets a result with `isError` and the code in `_meta`; any other method gets a JSON-RPC error.
    """

    code: ClassVar[str]
    rpc_code: ClassVar[int]
    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, *, server: str | None = None, retry_after: float | None = None, executed: bool = True
    ) -> None:
        super().__init__(message)
        self.message = message
        self.server = server
        self.retry_after = retry_after
        self.executed = executed
        """False only if it is certain that the upstream did not execute the call."""

    def data(self, tool: str | None = None) -> dict[str, Any]:
        """Returns the machine-readable part: `{code, server, tool, retryable, retry_after?}`."""
        facts: dict[str, Any] = {
            "code": self.code,
            "server": self.server,
            "tool": tool,
            "retryable": self.retryable,
        }
        if self.retry_after is not None:
            facts["retry_after"] = self.retry_after
        return facts


class ServerUnavailable(CallError):
    """The upstream is not available: it died, cannot be reached, or fails to start."""

    code, rpc_code, retryable = "server_unavailable", -32010, True


class NotConnected(ServerUnavailable):
    """There is no connection to the upstream, and the last attempt to connect failed; no request was sent."""


class RequestRejected(ServerUnavailable):
    """The upstream's HTTP server answered a request with a status 4xx: it is alive, but does not serve this request."""


class StateLost(CallError):
    """The upstream is available, but the state that earlier calls set up in it is lost; no request was sent."""

    code, rpc_code, retryable = "server_unavailable", -32010, True


class DeadlineExceeded(CallError):
    """A wait ended at its deadline."""

    code, rpc_code, retryable = "timeout", -32011, True
    policy = "deadline"


class ResultTooLarge(CallError):
    """The upstream's answer is larger than the configured limit."""

    code, rpc_code = "result_too_large", -32012
    policy = "shape-result"


class Overloaded(CallError):
    """A limit of the hub is reached. The call can be retried later."""

    code, rpc_code, retryable = "overloaded", -32013, True
    policy, refuses = "limits", True


class PermissionDenied(CallError):
    """The upstream refused the hub's credentials."""

    code, rpc_code = "permission_denied", -32015


class SignInMissing(PermissionDenied):
    """The upstream needs a sign-in that is missing or does not cover this call. The call was not executed."""


class InvalidParameters(CallError):
    """The arguments do not fit the tool."""

    code, rpc_code = "invalid_parameters", -32017
    policy, refuses = "validate", True


class ToolFailed(CallError):
    """A function of the user's that takes part in the call raised an exception."""

    code, rpc_code = "tool_error", -32019
    policy = "shape-result"


class CallCancelled(CallError):
    """The call was cancelled before it was answered."""

    code, rpc_code = "cancelled", -32018


class InternalError(CallError):
    """The hub itself failed."""

    code, rpc_code = "internal", -32019


def to_wire(error: BaseException, method: str | None = None, name: str | None = None) -> dict[str, Any]:
    """Returns the member of a JSON-RPC response that reports `error`: `{"error": ...}` or `{"result": ...}`."""
    if isinstance(error, UpstreamAnswered):
        return {"error": error.error}
    if isinstance(error, ProtocolError):
        fields: dict[str, Any] = {"code": error.code, "message": error.message}
        if error.data is not None:
            fields["data"] = error.data
        return {"error": fields}
    if isinstance(error, TimeoutError):
        error = DeadlineExceeded("The call took longer than its deadline.")
    if not isinstance(error, CallError):
        error = InternalError("The hub failed to carry out the request; its log says why.")
    facts = error.data(name)
    if method == "tools/call":
        content = [{"type": "text", "text": error.message}]
        return {"result": {"content": content, "isError": True, "_meta": {ERROR_KEY: facts}}}
    return {"error": {"code": error.rpc_code, "message": error.message, "data": facts}}


def error_facts(result: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the hub says of an error in its result: `{"code", "server", "tool", "retryable"}`; else {}."""
    meta = result.get("_meta")
    facts = meta.get(ERROR_KEY) if isinstance(meta, dict) else None
    return facts if isinstance(facts, dict) else {}


def drop_frames(error: BaseException | None) -> None:
    """Drops the tracebacks of an error that was handled, and of those that it followed from.

    Frames that still have an error, which has them in its traceback, would keep each other, and the arguments of the
    call, until garbage is collected.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__context__
