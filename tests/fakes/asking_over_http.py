"""A server of both eras at http://127.0.0.1:PORT/mcp that asks its clients: `python asking_over_http.py PORT [ERA]`.

With ERA, `handshake` or `modern`, it refuses the other one, as servers do that do not have it.

`ask {method, params, count}` puts a question so often, one after the other, and answers what came back; `declared` what
the client of the call can be asked; `aside` asks on the stream that belongs to no call; `at_once {count}` asks several
questions in one modern result; `both_ways` asks in the way of the other era; `touch` says that the tools have changed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from typing import Any

import mcp_types as types
import uvicorn
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp.shared.message import ServerMessageMetadata
from starlette.responses import JSONResponse

MODERN = "2026-07-28"
TOOLS = ("ask", "declared", "aside", "at_once", "both_ways", "touch", "echo")
ASK: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}},
}
REQUESTS: dict[str, Any] = {
    "elicitation/create": (types.ElicitRequest, types.ElicitRequestFormParams),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageRequestParams),
    "roots/list": (types.ListRootsRequest, None),
}
Json = dict[str, Any]


class Anything(types.Result, extra="allow"):
    """An answer as it comes."""


def text(value: Any) -> Json:
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


async def put(context: Any, one: Json, *, aside: bool = False) -> Json:
    """The client's answer to one question of the handshake era, on the stream of the call or, `aside`, of no call."""
    kind, params = REQUESTS[one["method"]]
    made = kind(params=params.model_validate(one.get("params", {}))) if params is not None else kind()
    stream = None if aside else ServerMessageMetadata(related_request_id=context.request_id)
    try:
        answer = await context.session.send_request(made, Anything, metadata=stream)
    except MCPError as error:
        return {"error": {"code": error.error.code, "message": error.error.message}}
    return {"result": answer.model_dump(by_alias=True, exclude_none=True)}


def rounds(context: Any, one: Json, count: int) -> Json:
    """One round of the modern era; the state is the number of answers so far."""
    said = context.params or {}
    done = int(said.get("requestState") or 0) + bool(said.get("inputResponses"))
    if done < count:
        return {"resultType": "input_required", "requestState": str(done), "inputRequests": {"key": one}}
    return text(said.get("inputResponses", {}))


async def call(context: Any, params: types.CallToolRequestParams) -> Json:
    arguments, modern = params.arguments or {}, context.protocol_version == MODERN
    one = {"method": arguments.get("method", ASK["method"]), "params": arguments.get("params", ASK["params"])}
    count = arguments.get("count", 1)
    if params.name == "declared":
        declared = context.session.client_capabilities
        return text(declared.model_dump(by_alias=True, exclude_none=True) if declared is not None else {})
    if params.name == "echo":
        return text({"era": "modern" if modern else "handshake"})
    if params.name == "touch":
        await context.session.send_tool_list_changed()
        return text("touched")
    if params.name == "at_once":
        answers = (context.params or {}).get("inputResponses")
        if answers is not None:
            return text(answers)
        return {"resultType": "input_required", "inputRequests": {f"key{n}": one for n in range(count)}}
    if params.name == "both_ways":
        modern = not modern
    if modern:
        return rounds(context, one, count)
    return text([await put(context, one, aside=params.name == "aside") for _ in range(count)])


async def answer_call(context: Any, params: types.CallToolRequestParams) -> Any:
    answered = await call(context, params)
    return {"resultType": "complete", **answered} if context.protocol_version == MODERN else answered


async def list_tools(context: Any, params: Any) -> Any:
    listed: Json = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
    if context.protocol_version == MODERN:
        listed |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    return listed


class OneEra:
    """The application as a server that has one era alone."""

    def __init__(self, app: Any, era: str) -> None:
        self._app = app
        self._era = era

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        modern = headers.get(b"mcp-protocol-version") == MODERN.encode()
        if scope["type"] != "http" or modern == (self._era == "modern"):
            await self._app(scope, receive, send)
            return
        error: Json = {"code": -32600, "message": "Bad Request: Unsupported protocol version"}
        if self._era == "modern":
            error = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": [MODERN]}}
        await JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)(scope, receive, send)


def main(port: int, era: str | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        server: Server[Any] = Server("asking", on_list_tools=list_tools, on_call_tool=answer_call)
    app: Any = server.streamable_http_app()
    config = uvicorn.Config(OneEra(app, era) if era else app, host="127.0.0.1", port=port, log_level="error")
    asyncio.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
