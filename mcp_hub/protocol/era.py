"""The differences between the two eras of MCP, as tables and pure functions: envelopes, results, log levels.

*handshake*: the revisions to 2025-11-25, which begin with `initialize`. *modern*: 2026-07-28, where every request
carries its own envelope in `params._meta`. The values are the specification's; a test compares them with the SDK.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final, Literal

import msgspec

from mcp_hub import errors
from mcp_hub.errors import INVALID_PARAMS, ProtocolError
from mcp_hub.protocol.frames import encode, weighs_more
from mcp_hub.text import normalized, printable

Era = Literal["handshake", "modern"]
Json = dict[str, Any]

HANDSHAKE_REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_REVISIONS: Final = ("2026-07-28",)
LATEST_HANDSHAKE: Final = HANDSHAKE_REVISIONS[-1]
LATEST_MODERN: Final = MODERN_REVISIONS[-1]
BATCHING_REVISION: Final = "2025-03-26"
"""The one revision whose servers must accept JSON-RPC batches."""

_PREFIX: Final = "io.modelcontextprotocol/"
VERSION_KEY: Final = _PREFIX + "protocolVersion"
CAPABILITIES_KEY: Final = _PREFIX + "clientCapabilities"
CLIENT_INFO_KEY: Final = _PREFIX + "clientInfo"
LOG_LEVEL_KEY: Final = _PREFIX + "logLevel"
SERVER_INFO_KEY: Final = _PREFIX + "serverInfo"
SUBSCRIPTION_KEY: Final = _PREFIX + "subscriptionId"
PROGRESS_TOKEN: Final = "progressToken"
HOP_KEYS: Final = frozenset({PROGRESS_TOKEN, VERSION_KEY, CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY})
"""Members of `params._meta` that belong to one hop and are never passed on."""

DISCOVER: Final = "server/discover"
LISTEN: Final = "subscriptions/listen"
INPUT_REQUIRED: Final = "input_required"
"""`resultType` of a modern result that asks the client for input."""
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
CANCELLED: Final = "notifications/cancelled"
ROOTS_CHANGED: Final = "notifications/roots/list_changed"
PROGRESS: Final = "notifications/progress"
SUBSCRIBE: Final = "resources/subscribe"
UNSUBSCRIBE: Final = "resources/unsubscribe"
UPDATED: Final = "notifications/resources/updated"


class CancelReason(str):
    """Why the other side cancelled a request. It is the message with which the task of the request is cancelled."""


def cancellation(request_id: int | str, cause: BaseException, default: str | None = None) -> dict[str, Any]:
    """Returns the params of `notifications/cancelled`, with the reason in `cause` if there is one, else `default`."""
    reason = next((str(reason) for reason in cause.args if isinstance(reason, CancelReason)), default)
    return {"requestId": request_id, **({} if reason is None else {"reason": reason})}


HANDSHAKE_ONLY: Final = frozenset({"initialize", "ping", "logging/setLevel", SUBSCRIBE, UNSUBSCRIBE})
MODERN_ONLY: Final = frozenset({DISCOVER, LISTEN})

CACHEABLE: Final = frozenset(
    {
        *("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read", DISCOVER),
        *("skills/list", "skills/get"),
    }
)
"""Methods whose modern results carry `ttlMs` and `cacheScope`."""

HTTP_STATUS: Final[Mapping[int, int]] = {
    errors.PARSE_ERROR: 400,
    errors.INVALID_REQUEST: 400,
    errors.INVALID_PARAMS: 400,
    errors.HEADER_MISMATCH: 400,
    errors.MISSING_CLIENT_CAPABILITY: 400,
    errors.UNSUPPORTED_PROTOCOL_VERSION: 400,
    errors.METHOD_NOT_FOUND: 404,
}
"""HTTP status of a modern response by its JSON-RPC error code; 200 for any other code."""


HUB_NAME: Final = "mcp-hub"
"""The name of a hub in its `clientInfo` and `serverInfo`."""


class Envelope(msgspec.Struct, frozen=True, dict=True):
    """Facts about the sender of a request: in the modern era from the request itself, else from the handshake."""

    version: str = LATEST_MODERN
    capabilities: Json = msgspec.field(default_factory=dict)
    client_info: Json | None = None
    log_level: str | None = None
    program: str = ""
    """Tells apart the programs that are anonymous clients; it is not part of the message. "" for all other clients."""

    @cached_property
    def client_name(self) -> str:
        """The name that the sender gives itself; "" if it gives none that could be one."""
        name = self.client_info.get("name") if self.client_info else None
        return name if isinstance(name, str) and len(name) <= MAX_CLIENT_NAME else ""

    @cached_property
    def from_hub(self) -> bool:
        """Whether the sender is a hub, so that the hub adds its own place among hubs to the `_meta` of lists."""
        return is_hub(self.client_info)


MAX_DECLARED: Final = 8 * 1024
"""Weight (`frames.weighs_more`) of a client's capabilities. A session keeps them: at most 80 KB of memory for each."""
MAX_INFO: Final = 200
"""Characters of each text of a `clientInfo` that a session keeps."""
MAX_CLIENT_NAME: Final = 100
"""Characters of a name in `clientInfo` by which the hub knows a client; a longer one is ignored."""
MAX_TOKEN: Final = 1024
"""Characters of a request's id and of its progress token, which are repeated in messages to the client."""


def declared_capabilities(capabilities: Json) -> Json:
    """Returns the capabilities that a client declares. Raises ProtocolError if they are too long to be kept."""
    if capabilities and weighs_more(capabilities, MAX_DECLARED):
        text = f"The client's capabilities are too long: {MAX_DECLARED:,} characters, of which each value counts as 16."
        raise ProtocolError(INVALID_PARAMS, f"{text} Declare less.")
    return capabilities


def declared_info(info: Json) -> Json:
    """Returns what the hub reads of a `clientInfo`, cut. Icons, descriptions and addresses are read by nobody."""
    names = ("name", "title", "version")
    return {name: text[:MAX_INFO] for name in names if isinstance(text := info.get(name), str)}


def is_hub(client_info: object) -> bool:
    """Returns whether a client is a hub, also behind a proxy that adds its name (`mcp-hub (via mcp-remote)`)."""
    name = client_info.get("name") if isinstance(client_info, dict) else None
    return isinstance(name, str) and name.partition(" ")[0] == HUB_NAME


def knows_resource_links(version: str) -> bool:
    """Returns whether clients of a revision can read a `resource_link` block; older ones reject the whole result."""
    return version not in HANDSHAKE_REVISIONS[:2]


def negotiated_revision(requested: object) -> str:
    """Returns the revision to answer `initialize` with: the requested one if it is known, else the newest."""
    return requested if isinstance(requested, str) and requested in HANDSHAKE_REVISIONS else LATEST_HANDSHAKE


def era_of(message: Mapping[str, Any]) -> Era:
    """Returns the era of a request: modern with a modern envelope, valid or not, or a method of that era only."""
    method, params = message.get("method"), message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if (isinstance(meta, dict) and VERSION_KEY in meta) or (isinstance(method, str) and method in MODERN_ONLY):
        return "modern"
    return "handshake"


def unsupported_version(requested: object) -> ProtocolError:
    """Makes the error for a revision that the hub does not support; its `data` lists those it supports."""
    data = {"supported": [*MODERN_REVISIONS, *reversed(HANDSHAKE_REVISIONS)], "requested": requested}
    return ProtocolError(errors.UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)


def read_envelope(params: object, program: str = "") -> Envelope:
    """Reads the envelope of a modern request by `program`. Raises ProtocolError naming what is missing or wrong."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    if not isinstance(meta, dict):
        raise ProtocolError(errors.INVALID_PARAMS, f"params._meta must be an object with {VERSION_KEY!r}")
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise ProtocolError(errors.INVALID_PARAMS, f"params._meta lacks {', '.join(missing)}")
    version, capabilities = meta[VERSION_KEY], meta[CAPABILITIES_KEY]
    client_info, log_level = meta.get(CLIENT_INFO_KEY), meta.get(LOG_LEVEL_KEY)
    if not isinstance(version, str):
        raise ProtocolError(errors.INVALID_PARAMS, f"{VERSION_KEY} must be a text")
    if version not in MODERN_REVISIONS:
        raise unsupported_version(version)
    if not isinstance(capabilities, dict):
        raise ProtocolError(errors.INVALID_PARAMS, f"{CAPABILITIES_KEY} must be an object")
    return Envelope(
        version,
        declared_capabilities(capabilities),
        client_info if isinstance(client_info, dict) else None,
        log_level if log_level in LOG_LEVELS else None,
        program,
    )


def end_to_end(params: Mapping[str, Any]) -> Json:
    """Returns a copy of a request's params without what belongs to this hop: envelope and progress token."""
    forwarded = dict(params)
    meta = forwarded.get("_meta")
    if isinstance(meta, dict):
        remaining_meta = {key: value for key, value in meta.items() if key not in HOP_KEYS}
        if remaining_meta:
            forwarded["_meta"] = remaining_meta
        else:
            del forwarded["_meta"]
    return forwarded


def with_envelope(params: Json, envelope: Envelope) -> Json:
    """Returns a copy of `params` with the modern envelope in its `_meta`."""
    meta: Json = dict(params.get("_meta") or {})
    meta[VERSION_KEY] = envelope.version
    meta[CAPABILITIES_KEY] = envelope.capabilities
    if envelope.client_info is not None:
        meta[CLIENT_INFO_KEY] = envelope.client_info
    if envelope.log_level is not None:
        meta[LOG_LEVEL_KEY] = envelope.log_level
    return {**params, "_meta": meta}


def result_for(caller: Era, upstream: Era, method: str, result: Json) -> Json:
    """Converts an upstream's result to the caller's era; returns the same object if nothing changes.

    Raises ProtocolError for a handshake caller if the result is not complete.
    """
    if caller == upstream:
        return result
    return _to_modern(method, result) if caller == "modern" else _to_handshake(result)


def _to_modern(method: str, result: Json) -> Json:
    changed = {"resultType": "complete", **result}
    if method in CACHEABLE:
        changed.setdefault("ttlMs", 0)
        changed.setdefault("cacheScope", "private")
    return changed


def _to_handshake(result: Json) -> Json:
    kind = result.get("resultType", "complete")
    if kind != "complete":
        raise ProtocolError(
            errors.INVALID_REQUEST, f"The server asks for something this client cannot give (resultType {kind!r})."
        )
    changed = {key: value for key, value in result.items() if key not in ("resultType", "ttlMs", "cacheScope")}
    if "structuredContent" in changed and not isinstance(changed["structuredContent"], dict):
        changed = with_text(changed)
        del changed["structuredContent"]  # other JSON values are modern only; the text content has the same
    return changed


def with_text(result: Json) -> Json:
    """Returns a tool's result with its structured content as JSON text too, if it has no other content."""
    if result.get("content") or result.get("structuredContent") is None:
        return result
    return {**result, "content": [{"type": "text", "text": encode(result["structuredContent"]).decode()}]}


def error_for(caller: Era, method: str, error: Json) -> Json:
    """Converts an upstream's error object to the caller's era."""
    if method == "resources/read" and caller == "modern" and error.get("code") == errors.RESOURCE_NOT_FOUND:
        return {**error, "code": errors.INVALID_PARAMS}
    return error


LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
SET_LEVEL: Final = "logging/setLevel"
LOG_MESSAGE: Final = "notifications/message"
STDERR_WARNING: Final = "mcp-hub warning: "
"""Prefix of a stderr line by which a process of the hub warns its user."""


def level_passes(level: Any, least: str | None) -> bool:
    """Returns whether a log level is at least `least`. An unknown level always passes."""
    if least is None or level not in LOG_LEVELS:
        return True
    return LOG_LEVELS.index(level) >= LOG_LEVELS.index(least)


def is_more_verbose(level: str, other: str | None) -> bool:
    """Returns whether a server logs more at `level` than at `other`; None: no level was set."""
    return other is None or LOG_LEVELS.index(level) < LOG_LEVELS.index(other)


_PARAMS: Final = (
    *("_meta", "argument", "arguments", "cursor", "inputResponses", "level", "name"),
    *("ref", "requestState", "taskId", "uri"),
)
_REFERENCE: Final = ("name", "type", "uri")


_LONGEST_NAME: Final = 256
"""Characters of a name outside ASCII that is folded; those of the protocol have at most 40."""


def folded_name(name: str) -> str:
    """Folds a name so that names that differ only by case or compatibility form become equal."""
    if name.isascii():
        return name.lower()
    return name if len(name) > _LONGEST_NAME else normalized(name).casefold()


def _table(names: Iterable[str]) -> Mapping[str, str]:
    return {folded_name(name): name for name in names}


_READ_PARAMS: Final = _table(_PARAMS)
_READ_REFERENCE: Final = _table(_REFERENCE)
_READ_META: Final = _table(HOP_KEYS)
_SPELLED: Final = frozenset((*_PARAMS, *_REFERENCE, *HOP_KEYS))
"""The exact names, which need no folding."""


MAX_MEMBERS: Final = 10_000
"""Members that `params`, `params.ref` and `params._meta` may have each; checking so many takes a few milliseconds."""


def ambiguous_member(params: Mapping[str, Any]) -> ProtocolError | None:
    """Returns the error for a request with another spelling of a member that the hub checks; None if there is none.

    Some servers ignore the case of members' names and use the last of two. With `{"name": "a", "Name": "b"}` the hub
    would check `a`, and such a server would execute `b`.
    """
    ref, meta = params.get("ref"), params.get("_meta")
    if ref is None and params.keys() <= _SPELLED and (type(meta) is not dict or meta.keys() <= _SPELLED):
        return None
    return (
        _other_spelling(params, _READ_PARAMS, "params")
        or _other_spelling(ref, _READ_REFERENCE, "params.ref")
        or _other_spelling(meta, _READ_META, "params._meta")
    )


def _other_spelling(members: Any, exact_names: Mapping[str, str], location: str) -> ProtocolError | None:
    if not isinstance(members, dict):
        return None
    if len(members) > MAX_MEMBERS:
        return ProtocolError(INVALID_PARAMS, f"{location} has more than {MAX_MEMBERS:,} members.")
    for name in members:
        if name in _SPELLED:
            continue
        exact = exact_names.get(folded_name(name))
        if exact is not None and exact != name:
            text = f"{location} has {printable(name, 80)!r}, which some servers read as {exact!r}; write {exact!r}."
            return ProtocolError(INVALID_PARAMS, text)
    return None
