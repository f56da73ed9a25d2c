"""A server of the handshake era that answers oddly, over stdio, SSE or streamable HTTP.

The habits: `{"supports": [revisions], "code": code of the refusal, "status": its HTTP status, "id": form of ids in
answers, "unnamed": errors of calls without an id, "says": lines on stdout, "cursors": the cursors of its list}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

FORMS: dict[str, Any] = {"text": str, "float": float, "foreign": lambda id: 999, "none": lambda id: None}


class OddServer:
    """The server without its transport; `asked` is what it was asked."""

    def __init__(self, habits: dict[str, Any]) -> None:
        self.habits = habits
        self.asked: list[dict[str, Any]] = []

    def answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Returns the answer to a message; None if it needs none."""
        self.asked.append(message)
        if "id" not in message:
            return None
        outcome = self._outcome(message["method"], message.get("params") or {})
        is_unnamed = message["method"] == "tools/call" and "error" in outcome and self.habits.get("unnamed")
        form = "none" if is_unnamed else self.habits.get("id")
        return {"jsonrpc": "2.0", "id": FORMS[form](message["id"]) if form else message["id"], **outcome}

    def _outcome(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        supported = self.habits.get("supports")
        if method == "initialize":
            version = params["protocolVersion"]
            if supported and version not in supported:
                data = {"supported": supported, "requested": version}
                return {"error": {"code": self.habits["code"], "message": "Unsupported protocol version", "data": data}}
            info = {"name": "odd", "version": "1"}
            return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
        if method == "tools/list":
            return {"result": self._page(params.get("cursor"))}
        if method == "tools/call" and params["name"] == "t":
            return {"result": {"content": [{"type": "text", "text": "done"}]}}
        return {"error": {"code": -32603, "message": "odd"}}

    def _page(self, cursor: Any) -> dict[str, Any]:
        cursors = self.habits.get("cursors", [])
        page = 0 if cursor is None else cursors.index(cursor) + 1
        tools = [{"name": "t" if page == 0 else f"t{page}", "inputSchema": {"type": "object"}}]
        return {"tools": tools, **({"nextCursor": cursors[page]} if page < len(cursors) else {})}


@contextlib.asynccontextmanager
async def odd_entry(transport: str, habits: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The entry of a running odd server."""
    if transport == "stdio":
        yield {"command": sys.executable, "args": [str(Path(__file__)), json.dumps(habits)]}
        return
    from aiohttp.test_utils import TestServer

    application = _over_sse if transport == "sse" else _over_http
    async with TestServer(application(OddServer(habits))) as server:
        yield {"url": str(server.make_url("/mcp")), "transport": transport}


def _over_http(odd: OddServer) -> Any:
    from aiohttp import web

    async def post(request: web.Request) -> web.Response:
        answer = odd.answer(await request.json())
        if answer is None:
            return web.Response(status=202)
        return web.json_response(answer, status=odd.habits.get("status", 200) if "error" in answer else 200)

    app = web.Application()
    app.add_routes([web.post("/mcp", post)])
    return app


def _over_sse(odd: OddServer) -> Any:
    from aiohttp import web

    streams: list[web.StreamResponse] = []

    async def get(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        streams.append(response)
        await response.write(b"event: endpoint\ndata: /messages\n\n")
        await asyncio.Event().wait()
        return response

    async def post(request: web.Request) -> web.Response:
        if (answer := odd.answer(await request.json())) is not None:
            await streams[-1].write(b"data: " + json.dumps(answer).encode() + b"\n\n")
        return web.Response(status=202)

    app = web.Application()
    app.add_routes([web.get("/mcp", get), web.post("/messages", post)])
    return app


def main() -> None:
    odd = OddServer(json.loads(sys.argv[1]))
    for line in odd.habits.get("says", []):
        print(line, flush=True)
    for line in sys.stdin:
        if (answer := odd.answer(json.loads(line))) is not None:
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
