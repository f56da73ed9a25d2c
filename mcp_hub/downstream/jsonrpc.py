"""JSON-RPC as the body of an HTTP request: read, told apart, refused."""

from __future__ import annotations

from typing import Any, Literal

from mcp_hub.downstream.heads import HeaderLines
from mcp_hub.downstream.http import BodyTooLarge, BodyTooSlow, Reply, Request, is_json
from mcp_hub.errors import INVALID_REQUEST, ProtocolError, to_wire
from mcp_hub.protocol.frames import Message
from mcp_hub.transport.link import RequestId

Shape = Literal["request", "notification", "response"]


async def read_body(request: Request, reply: Reply, max_body: int) -> bytes | None:
    """The body of a POST that says it is JSON; None when the request has been refused. Raises ClientGone."""
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
    """The id a message can be answered under, None if it has no such id."""
    found = message.get("id") if isinstance(message, dict) else None
    return found if isinstance(found, int | str) and not isinstance(found, bool) else None


def shape_of(message: Any) -> Shape | None:
    """What a message is; None for what JSON-RPC does not know."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return None
    if "method" in message:
        if not isinstance(message["method"], str) or ("id" in message and id_of(message) is None):
            return None
        return "request" if "id" in message else "notification"
    return "response" if "id" in message and ("result" in message or "error" in message) else None


def failure(error: BaseException, request_id: RequestId | None = None) -> Message:
    """The response that says `error`."""
    return {"jsonrpc": "2.0", "id": request_id, **to_wire(error)}


async def refuse(reply: Reply, status: int, code: int, text: str, request_id: RequestId | None = None) -> None:
    """Answer with a JSON-RPC error, before anything was dispatched."""
    await refuse_with(reply, status, ProtocolError(code, text), request_id)


async def refuse_with(
    reply: Reply,
    status: int,
    error: BaseException,
    request_id: RequestId | None = None,
    headers: HeaderLines | None = None,
) -> None:
    """Like `refuse`, with an error that says more than a code and a text."""
    await reply.json(status, failure(error, request_id), headers)
