"""`python -m tests.differential.mirror SEED stdio|http [PORT]`: the server of a seed, in both eras, without any SDK."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from tests.differential.traffic import LISTS, Catalog, Json, answer

MODERN: Final = "2026-07-28"
HOP: Final = ("progressToken",)
CAPABILITIES: Final = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}}


class Mirror:
    """Answers messages of one seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._catalog = Catalog(seed)

    def answer_message(self, message: Json) -> list[Json]:
        """Everything there is to say to a message, its answer last."""
        if "id" not in message or "method" not in message:
            return []
        method, params = message["method"], message.get("params") or {}
        meta = params.get("_meta") or {}
        modern = "io.modelcontextprotocol/protocolVersion" in meta
        notified, member = self._answer(method, params, meta, modern)
        token = meta.get("progressToken")
        notifications = [
            {
                "jsonrpc": "2.0",
                "method": notification["method"],
                "params": {**notification["params"], "progressToken": token},
            }
            for notification in notified
            if token is not None
        ]
        return [*notifications, {"jsonrpc": "2.0", "id": message["id"], **member}]

    def _answer(self, method: str, params: Json, meta: Json, modern: bool) -> tuple[list[Json], Json]:
        for list_method, key, name in LISTS:
            if method == list_method:
                cached = {"resultType": "complete", "ttlMs": 5, "cacheScope": "public"} if modern else {}
                return [], {"result": {key: getattr(self._catalog, name), **cached}}
        if method == "initialize":
            info = {"name": "mirror", "version": "1"}
            version = params["protocolVersion"]
            return [], {"result": {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": info}}
        if method == "server/discover":
            discovery = {
                "supportedVersions": [MODERN],
                "capabilities": CAPABILITIES,
                "ttlMs": 0,
                "cacheScope": "private",
            }
            return [], {"result": {"resultType": "complete", **discovery}}
        if method == "ping":
            return [], {"result": {}}
        if method not in ("tools/call", "resources/read", "prompts/get", "completion/complete"):
            return [], {"error": {"code": -32601, "message": "Method not found"}}
        forwarded_meta = {
            key: value for key, value in meta.items() if key not in HOP and "io.modelcontextprotocol" not in key
        }
        own_params = {key: value for key, value in params.items() if key != "_meta"}
        return answer(
            self._seed, method, {**own_params, **({"_meta": forwarded_meta} if forwarded_meta else {})}, modern
        )


def over_stdio(mirror: Mirror) -> None:
    for line in sys.stdin:
        for message in mirror.answer_message(json.loads(line)):
            sys.stdout.write(json.dumps(message, ensure_ascii=False) + "\n")
        sys.stdout.flush()


def over_http(mirror: Mirror, port: int) -> None:
    from aiohttp import web

    async def post(request: web.Request) -> web.Response:
        message: Any = json.loads(await request.read())
        replies = mirror.answer_message(message)
        headers = {"Mcp-Session-Id": "mirror"} if message.get("method") == "initialize" else {}
        if not replies:
            return web.Response(status=202)
        if len(replies) == 1:
            return web.Response(body=json.dumps(replies[0]).encode(), content_type="application/json", headers=headers)
        events = "".join(f"data: {json.dumps(reply, ensure_ascii=False)}\n\n" for reply in replies)
        return web.Response(body=events.encode(), content_type="text/event-stream", headers=headers)

    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=200 if request.method == "DELETE" else 405)

    app = web.Application()
    app.router.add_post("/mcp", post)
    app.router.add_route("GET", "/mcp", refuse)
    app.router.add_route("DELETE", "/mcp", refuse)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


if __name__ == "__main__":
    server = Mirror(int(sys.argv[1]))
    if sys.argv[2] == "stdio":
        over_stdio(server)
    else:
        over_http(server, int(sys.argv[3]))
