"""What each era adds to an envelope and takes away from it; pure tables and functions.

*handshake*: the revisions to 2025-11-25, which begin with `initialize`. *modern*: 2026-07-28, where every request
carries its own envelope in `params._meta`. The values are the specification's; a test holds them against the SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from mcp_hub import errors
from mcp_hub.errors import ProtocolError
from mcp_hub.protocol.log_levels import LEVELS

Era = Literal["handshake", "modern"]
Json = dict[str, Any]

HANDSHAKE_REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_REVISIONS: Final = ("2026-07-28",)
LATEST_HANDSHAKE: Final = HANDSHAKE_REVISIONS[-1]
LATEST_MODERN: Final = MODERN_REVISIONS[-1]
BATCHING_REVISION: Final = "2025-03-26"
"""The one revision whose servers must accept JSON-RPC batches."""
ASSUMED_HTTP_REVISION: Final = "2025-03-26"
"""What a request without `MCP-Protocol-Version` speaks, says the specification."""

_PREFIX: Final = "io.modelcontextprotocol/"
VERSION_KEY: Final = _PREFIX + "protocolVersion"
CAPABILITIES_KEY: Final = _PREFIX + "clientCapabilities"
CLIENT_INFO_KEY: Final = _PREFIX + "clientInfo"
LOG_LEVEL_KEY: Final = _PREFIX + "logLevel"
SERVER_INFO_KEY: Final = _PREFIX + "serverInfo"
SUBSCRIPTION_KEY: Final = _PREFIX + "subscriptionId"
PROGRESS_TOKEN: Final = "progressToken"
HOP_KEYS: Final = frozenset({PROGRESS_TOKEN, VERSION_KEY, CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY})
"""Members of `params._meta` that are between two neighbours and never passed on."""

DISCOVER: Final = "server/discover"
LISTEN: Final = "subscriptions/listen"
INPUT_REQUIRED: Final = "input_required"
"""`resultType` of a modern result that is a question."""
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
CANCELLED: Final = "notifications/cancelled"
ROOTS_CHANGED: Final = "notifications/roots/list_changed"
PROGRESS: Final = "notifications/progress"

HANDSHAKE_ONLY: Final = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
MODERN_ONLY: Final = frozenset({DISCOVER, LISTEN})

CACHEABLE: Final = frozenset(
    {"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read", DISCOVER}
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
"""Status of a modern HTTP answer by the code of its error; every other code is 200."""


class Envelope(msgspec.Struct, frozen=True):
    """What one modern request says about its sender; of the handshake era, what its handshake said."""

    version: str = LATEST_MODERN
    capabilities: Json = msgspec.field(default_factory=dict)
    client_info: Json | None = None
    log_level: str | None = None


def knows_resource_links(version: str) -> bool:
    """Whether a client of this revision can read a `resource_link` block: older ones lose the whole result to it."""
    return version not in HANDSHAKE_REVISIONS[:2]


def negotiated(requested: object) -> str:
    """The handshake revision to answer `initialize` with: the one asked for if it is known, else the newest."""
    return requested if isinstance(requested, str) and requested in HANDSHAKE_REVISIONS else LATEST_HANDSHAKE


def is_modern(params: object) -> bool:
    """Whether a request's params carry the modern envelope, sound or not."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and VERSION_KEY in meta


def unsupported_version(requested: object) -> ProtocolError:
    """The error for a revision the hub does not speak; `data` names those it does."""
    data = {"supported": [*MODERN_REVISIONS, *reversed(HANDSHAKE_REVISIONS)], "requested": requested}
    return ProtocolError(errors.UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)


def read_envelope(params: object) -> Envelope:
    """The envelope of a modern request. Raises ProtocolError naming what is missing or wrong."""
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
        capabilities,
        client_info if isinstance(client_info, dict) else None,
        log_level if log_level in LEVELS else None,
    )


def end_to_end(params: Mapping[str, Any]) -> Json:
    """A copy of a request's params without what belongs to this hop: envelope and progress token."""
    kept = dict(params)
    meta = kept.get("_meta")
    if isinstance(meta, dict):
        rest = {key: value for key, value in meta.items() if key not in HOP_KEYS}
        if rest:
            kept["_meta"] = rest
        else:
            del kept["_meta"]
    return kept


def stamped(params: Json, envelope: Envelope) -> Json:
    """`params` with the modern envelope put into its `_meta`; both are new objects."""
    meta: Json = dict(params.get("_meta") or {})
    meta[VERSION_KEY] = envelope.version
    meta[CAPABILITIES_KEY] = envelope.capabilities
    if envelope.client_info is not None:
        meta[CLIENT_INFO_KEY] = envelope.client_info
    if envelope.log_level is not None:
        meta[LOG_LEVEL_KEY] = envelope.log_level
    return {**params, "_meta": meta}


def result_for(caller: Era, upstream: Era, method: str, result: Json) -> Json:
    """An upstream's result as a caller of another era must see it; the same object where nothing changes."""
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
        del changed["structuredContent"]  # any JSON value is modern only; the text content says the same
    return changed


def error_for(caller: Era, method: str, error: Json) -> Json:
    """An upstream's error object in the words of the caller's era."""
    if method == "resources/read" and caller == "modern" and error.get("code") == errors.RESOURCE_NOT_FOUND:
        return {**error, "code": errors.INVALID_PARAMS}
    return error
