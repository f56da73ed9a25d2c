"""The tables of `mcp_hub.protocol.era` and `mcp_hub.protocol.routing_headers` held against the constants of the SDK."""

from __future__ import annotations

import mcp_types
from mcp.shared import inbound
from mcp_types import jsonrpc, methods, version

from mcp_hub import errors
from mcp_hub.protocol import era, routing_headers


def test_the_revisions_of_both_eras_are_those_of_the_sdk() -> None:
    assert era.HANDSHAKE_REVISIONS == version.HANDSHAKE_PROTOCOL_VERSIONS
    assert era.MODERN_REVISIONS == version.MODERN_PROTOCOL_VERSIONS
    assert era.LATEST_HANDSHAKE == version.LATEST_HANDSHAKE_VERSION
    assert era.LATEST_MODERN == version.LATEST_MODERN_VERSION


def test_the_keys_of_the_envelope_are_those_of_the_sdk() -> None:
    assert mcp_types.PROTOCOL_VERSION_META_KEY == era.VERSION_KEY
    assert mcp_types.CLIENT_CAPABILITIES_META_KEY == era.CAPABILITIES_KEY
    assert mcp_types.CLIENT_INFO_META_KEY == era.CLIENT_INFO_KEY
    assert mcp_types.LOG_LEVEL_META_KEY == era.LOG_LEVEL_KEY
    assert mcp_types.SERVER_INFO_META_KEY == era.SERVER_INFO_KEY


def test_the_http_status_of_every_error_is_that_of_the_sdk() -> None:
    assert dict(era.HTTP_STATUS) == dict(inbound.ERROR_CODE_HTTP_STATUS)


def test_the_codes_of_the_errors_are_those_of_the_sdk() -> None:
    for name in ("PARSE_ERROR", "INVALID_REQUEST", "METHOD_NOT_FOUND", "INVALID_PARAMS", "INTERNAL_ERROR"):
        assert getattr(errors, name) == getattr(jsonrpc, name)
    assert errors.HEADER_MISMATCH == jsonrpc.HEADER_MISMATCH
    assert errors.UNSUPPORTED_PROTOCOL_VERSION == jsonrpc.UNSUPPORTED_PROTOCOL_VERSION
    assert errors.MISSING_CLIENT_CAPABILITY == jsonrpc.MISSING_REQUIRED_CLIENT_CAPABILITY


def test_the_header_names_and_the_name_bearing_methods_are_those_of_the_sdk() -> None:
    tasks = {f"tasks/{verb}": "taskId" for verb in ("get", "update", "cancel")}  # the SDK does not have this extension
    assert dict(routing_headers.NAME_KEYS) == {**inbound.NAME_BEARING_METHODS, **tasks}
    assert routing_headers.PROTOCOL_VERSION == inbound.MCP_PROTOCOL_VERSION_HEADER
    assert routing_headers.METHOD == inbound.MCP_METHOD_HEADER
    assert routing_headers.NAME == inbound.MCP_NAME_HEADER
    assert routing_headers.PARAM_PREFIX == inbound.MCP_PARAM_HEADER_PREFIX
    assert routing_headers.ANNOTATION == inbound.X_MCP_HEADER_KEY


def test_every_method_belongs_to_the_same_eras_as_in_the_sdk() -> None:
    eras: dict[str, set[str]] = {}
    for method, revision in methods.CLIENT_REQUESTS:
        eras.setdefault(method, set()).add("modern" if revision in era.MODERN_REVISIONS else "handshake")
    assert {method for method, eras_of_method in eras.items() if eras_of_method == {"modern"}} == era.MODERN_ONLY
    assert {method for method, eras_of_method in eras.items() if eras_of_method == {"handshake"}} == era.HANDSHAKE_ONLY
