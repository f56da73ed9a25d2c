"""A dispatcher that does what the name of the called tool says, and the app served by it on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from mcp_hub.config.listen import UnreadLimits
from mcp_hub.config.models import Listen
from mcp_hub.downstream import Connection, Send
from mcp_hub.downstream.admission import Gate
from mcp_hub.downstream.app import App, serve_network
from mcp_hub.errors import INVALID_REQUEST, METHOD_NOT_FOUND, ClientAnswered, ProtocolError
from mcp_hub.policy.quotas import Backlog
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.frames import Raw
from mcp_hub.security.callers import Callers
from tests.downstream.fronts import FRONTS, HANG_BOUND, serve_by_uvicorn

REGIONAL = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


class ScriptedDispatcher:
    """Keeps the contract of `Dispatcher`: cancellable requests by id, notifications, a close that ends listens."""

    def __init__(self) -> None:
        self.tools_list: Raw | None = None
        """The result of `tools/list`, as catalogs give it."""
        self.connections: list[Connection] = []
        """The connections of the requests that arrived."""
        self.methods: list[str] = []
        """The methods of the requests that arrived."""
        self.notifications: list[str] = []
        self.joined: list[Connection] = []
        self.left: list[Connection] = []
        self.started = asyncio.Event()
        """A `hang` or `wait` has begun."""
        self.cancelled = asyncio.Event()
        self.release = asyncio.Event()
        """Lets every `wait` finish."""
        self.closing = asyncio.Event()
        self.unread = UnreadLimits()
        self.backlog = Backlog(lambda: self.unread)
        tools = {"regional": {"name": "regional", "inputSchema": REGIONAL}}
        self.refusals: list[dict[str, Any]] = []
        """The records of requests that were refused before they had a caller."""
        self.hub = SimpleNamespace(
            callers=Callers(),
            entry=lambda kind, name, caller: tools.get(name),
            listed_schema=self.listed_schema,
            record_stranger=self.refusals.append,
        )

    async def listed_schema(self, tool: str, caller: object, envelope: object) -> dict[str, Any]:
        """Every client is listed the tools as they are."""
        return REGIONAL

    def over_network(self) -> None:
        """There are no servers behind it."""

    def join(self, connection: Connection) -> None:
        self.joined.append(connection)

    def leave(self, connection: Connection) -> None:
        self.left.append(connection)
        connection.cancel_all()

    def close(self) -> None:
        self.closing.set()

    def notification(self, connection: Connection, message: dict[str, Any]) -> None:
        self.notifications.append(message["method"])
        if message["method"] == "notifications/initialized":
            connection.initialized = True
        elif message["method"] == eras.CANCELLED:
            connection.cancel(message["params"]["requestId"])

    async def answer(
        self, connection: Connection, message: dict[str, Any], send: Send, era: eras.Era
    ) -> dict[str, Any]:
        self.methods.append(message["method"])
        self.connections.append(connection)
        task = asyncio.current_task()
        assert task is not None
        connection.in_flight[message["id"]] = task
        try:
            member = await self._member(connection, message, send)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        finally:
            connection.in_flight.pop(message["id"], None)
        return {"jsonrpc": "2.0", "id": message["id"], **member}

    def answer_malformed(self, connection: Connection, request_id: Any = None) -> dict[str, Any]:
        error = {"code": INVALID_REQUEST, "message": "Not a JSON-RPC message."}
        return {"jsonrpc": "2.0", "id": request_id, "error": error}

    async def _member(self, connection: Connection, message: dict[str, Any], send: Send) -> dict[str, Any]:
        method, params = message["method"], message.get("params") or {}
        modern = eras.era_of(message) == "modern"
        complete = {"resultType": "complete"} if modern else {}
        capabilities = {"tools": {"listChanged": True}}
        if method == "initialize":
            connection.protocol_version = eras.negotiated_revision(params.get("protocolVersion"))
            info = {"name": "scripted", "version": "0"}
            version = connection.protocol_version
            return {"result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}}
        if method == eras.DISCOVER:
            versions = [*eras.MODERN_REVISIONS, *eras.HANDSHAKE_REVISIONS]
            facts = {"supportedVersions": versions, "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private"}
            return {"result": {**complete, **facts}}
        if method == eras.LISTEN:
            tag = {"_meta": {eras.SUBSCRIPTION_KEY: message["id"]}}
            send({"jsonrpc": "2.0", "method": eras.ACKNOWLEDGED, "params": {"notifications": {}, **tag}})
            await self.closing.wait()
            return {"result": {**complete, **tag}}
        if method == "tools/list" and self.tools_list is not None:
            return {"result": self.tools_list}
        if method == "tools/list":
            caching = {"ttlMs": 0, "cacheScope": "private"} if modern else {}
            return {"result": {**complete, **caching, "tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}}
        if method == "tools/call":
            text = await self._call(connection, params, send)
            return {"result": {**complete, "content": [{"type": "text", "text": text}]}}
        if method == "ping":
            return {"result": {}}
        return {"error": {"code": METHOD_NOT_FOUND, "message": "Method not found"}}

    async def _call(self, connection: Connection, params: dict[str, Any], send: Send) -> str:
        name, arguments = params["name"], params.get("arguments") or {}
        token = params.get("_meta", {}).get(eras.PROGRESS_TOKEN, "t")
        if name == "progress":
            for step in range(arguments.get("steps", 2)):
                send(progress(step, "." * arguments.get("size", 0), token))
        elif name == "then-wait":
            send(progress(0, token=token))
        elif name == "ask":
            for step in range(arguments.get("steps", 0)):
                send(progress(step, token=token))
            try:
                stream = None if arguments.get("on_standing_stream") else send
                return json.dumps(await connection.questions.ask("roots/list", {}, stream))
            except ProtocolError as error:
                return f"refused: {error.code}"
            except ClientAnswered as error:
                return f"refused: {error.error['code']}"
        elif name == "boom":
            raise RuntimeError("a secret of the hub")
        if name in ("wait", "then-wait"):
            self.started.set()
            await self.release.wait()
        elif name == "hang":
            self.started.set()
            await asyncio.Event().wait()
        elif name == "unwritable":
            return object()  # type: ignore[return-value]
        return str(arguments.get("text", "")) * int(arguments.get("repeated", 1))


def progress(step: int, text: str = "", token: Any = "t") -> dict[str, Any]:
    params = {"progressToken": token, "progress": step, "message": text}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


# --- serving ---------------------------------------------------------------------------------------------------


@dataclass
class Served:
    app: App
    dispatcher: ScriptedDispatcher
    stop: asyncio.Event
    url: str
    task: asyncio.Task[None]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextlib.asynccontextmanager
async def serving(
    listen: Listen | None = None, *, sse: bool = True, gate: Gate | None = None, grace: float = 5.0
) -> AsyncIterator[Served]:
    """The app with a scripted dispatcher on a port of its own; stopped and gone at the end."""
    dispatcher = ScriptedDispatcher()
    listen = listen or Listen(port=0)
    app = App(dispatcher, listen, sse=sse, gate=gate)  # type: ignore[arg-type]
    stop = asyncio.Event()
    urls: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
    serve = serve_network if FRONTS["now"] == "listener" else serve_by_uvicorn
    task = asyncio.create_task(serve(app, listen, stop=stop, grace=grace, ready=urls.set_result))
    try:
        async with asyncio.timeout(HANG_BOUND):
            await asyncio.wait({task, urls}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            served = Served(app, dispatcher, stop, (await urls)[0], task)
        yield served
    finally:
        dispatcher.release.set()
        stop.set()
        await asyncio.wait({task}, timeout=HANG_BOUND)
        assert task.done()
        if not task.cancelled():
            task.result()
