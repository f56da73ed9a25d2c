"""A server of both eras that asks its clients: `python asking_over_http.py PORT`, at http://127.0.0.1:PORT.

At `/mcp` it has both eras; at `/handshake` and `/modern` it refuses the other, as servers do that do not have it;
at `/confused` it answers the handshake in a modern revision. It prints the end of each session.

`ask {method, params, count}` puts a question so often, one after the other, and answers what came back; `aside` does
the same on the stream of no call; `declared` is what the client of the call can be asked; `at_once {count}` asks
several questions in one modern result; `stray` asks as servers of the handshake era do, whatever the era.
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
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

MODERN = "2026-07-28"
TOOLS = ("ask", "aside", "declared", "at_once", "stray", "era")
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


async def ask_client(context: Any, question: Json, *, aside: bool = False) -> Json:
    """The client's answer to one question of the handshake era, on the stream of the call or, `aside`, of no call."""
    kind, params = REQUESTS[question["method"]]
    request = kind(params=params.model_validate(question.get("params", {}))) if params is not None else kind()
    stream = None if aside else ServerMessageMetadata(related_request_id=context.request_id)
    try:
        answer = await context.session.send_request(request, Anything, metadata=stream)
    except MCPError as error:
        return {"error": {"code": error.error.code, "message": error.error.message}}
    return {"result": answer.model_dump(by_alias=True, exclude_none=True)}


def rounds(context: Any, question: Json, count: int) -> Json:
    """One round of the modern era; the state is the number of answers so far."""
    call_params = context.params or {}
    answer_count = int(call_params.get("requestState") or 0) + bool(call_params.get("inputResponses"))
    if answer_count < count:
        return {"resultType": "input_required", "requestState": str(answer_count), "inputRequests": {"key": question}}
    return text(call_params.get("inputResponses", {}))


async def call(context: Any, params: types.CallToolRequestParams) -> Json:
    arguments, modern = params.arguments or {}, context.protocol_version == MODERN
    question = {"method": arguments.get("method", ASK["method"]), "params": arguments.get("params", ASK["params"])}
    count = arguments.get("count", 1)
    if params.name == "declared":
        declared = context.session.client_capabilities
        return text(declared.model_dump(by_alias=True, exclude_none=True) if declared is not None else {})
    if params.name == "era":
        return text(json.dumps("modern" if modern else "handshake"))
    if params.name == "at_once":
        answers = (context.params or {}).get("inputResponses")
        if answers is not None:
            return text(answers)
        return {"resultType": "input_required", "inputRequests": {f"key{n}": question for n in range(count)}}
    if modern:
        return rounds(context, question, count)
    return text([await ask_client(context, question, aside=params.name == "aside") for _ in range(count)])


async def answer_call(context: Any, params: types.CallToolRequestParams) -> Any:
    result = await call(context, params)
    return {"resultType": "complete", **result} if context.protocol_version == MODERN else result


async def list_tools(context: Any, params: Any) -> Any:
    result: Json = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
    if context.protocol_version == MODERN:
        result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    return result


class Paths:
    """The application with what each path does otherwise."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, scope = scope["path"], {**scope, "path": "/mcp", "raw_path": b"/mcp"}
        modern = dict(scope["headers"]).get(b"mcp-protocol-version") == MODERN.encode()
        if scope["method"] == "DELETE":
            print("a session has ended", flush=True)
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = await Request(scope, receive).body()
        message = json.loads(body)
        answer = {"jsonrpc": "2.0", "id": message.get("id")}
        params = message.get("params") or {}
        if path == f"/{'handshake' if modern else 'modern'}":
            error: Json = {"code": -32600, "message": "Bad Request: Unsupported protocol version"}
            if not modern:
                error = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": [MODERN]}}
            await JSONResponse({**answer, "error": error}, 400)(scope, receive, send)
        elif path == "/confused" and message.get("method") == "initialize":
            result = {"protocolVersion": MODERN, "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
            await JSONResponse({**answer, "result": result})(scope, receive, send)
        elif modern and "result" not in message and params.get("name") == "stray":
            complete = {"resultType": "complete", **text("asked and did not wait")}
            events = [{"jsonrpc": "2.0", "id": "stray", **ASK}, {**answer, "result": complete}]
            data = "".join(f"event: message\ndata: {json.dumps(event)}\n\n" for event in events)
            await Response(data, media_type="text/event-stream")(scope, receive, send)
        else:
            await self._app(scope, replay_body(body, receive), send)


def replay_body(body: bytes, receive: Any) -> Any:
    """What receives a body that was read already, and then what comes after it."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Any:
        return messages.pop() if messages else await receive()

    return receive_again


def main(port: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        server: Server[Any] = Server("asking", on_list_tools=list_tools, on_call_tool=answer_call)
    config = uvicorn.Config(Paths(server.streamable_http_app()), host="127.0.0.1", port=port, log_level="error")
    asyncio.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main(int(sys.argv[1]))
