"""JSON-RPC in the body of an HTTP request: reading, classifying and refusing it."""

from __future__ import annotations

from typing import Any, Literal

from mcp_hub.downstream.callers import error_response
from mcp_hub.errors import INVALID_REQUEST, ProtocolError
from mcp_hub.transport.http1.exchange import BodyTooLarge, BodyTooSlow, HttpReply, HttpRequest, is_json
from mcp_hub.transport.http1.heads import HeaderLines
from mcp_hub.transport.link import RequestId

Shape = Literal["request", "notification", "response"]


async def read_body(request: HttpRequest, reply: HttpReply, max_body: int) -> bytes | None:
    """Returns the body of a POST of JSON; None if the request has been refused. Raises ClientGone."""
    if not is_json(request.values(b"content-type")):
        await refuse(reply, 415, INVALID_REQUEST, "Content-Type must be application/json.")
        return None
    try:
        return await request.body(max_body)
    except BodyTooLarge:
        await refuse(reply, 413, INVALID_REQUEST, f"The body is larger than {max_body:,} bytes (listen.max_body).")
    except BodyTooSlow:
        close: HeaderLines = [(b"connection", b"close")]
        await refuse_with(reply, 408, ProtocolError(INVALID_REQUEST, "The body took too long."), headers=close)
    return None


def id_of(message: Any) -> RequestId | None:
    """Returns the id with which a message can be answered; None if it has no valid one."""
    found = message.get("id") if isinstance(message, dict) else None
    return found if isinstance(found, int | str) and not isinstance(found, bool) else None


def shape_of(message: Any) -> Shape | None:
    """Returns what a message is; None for invalid JSON-RPC."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return None
    if "method" in message:
        if not isinstance(message["method"], str):
            return None
        if "id" not in message:
            return "notification"
        request_id = message["id"]
        return "request" if isinstance(request_id, int | str) and not isinstance(request_id, bool) else None
    return "response" if "id" in message and ("result" in message or "error" in message) else None


async def refuse(reply: HttpReply, status: int, code: int, text: str, request_id: RequestId | None = None) -> None:
    """Refuses a request with a JSON-RPC error, before it is dispatched."""
    await refuse_with(reply, status, ProtocolError(code, text), request_id)


async def refuse_with(
    reply: HttpReply,
    status: int,
    error: BaseException,
    request_id: RequestId | None = None,
    headers: HeaderLines | None = None,
) -> None:
    """Refuses a request with the JSON-RPC error for an exception, before it is dispatched."""
    await reply.json(status, error_response(request_id, error), headers)
