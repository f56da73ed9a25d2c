"""A dispatcher that does what the name of the called tool says, and the app served by it on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from mcp_hub.config.listen import UnreadLimits
from mcp_hub.config.models import Listen
from mcp_hub.downstream import Caller, Send
from mcp_hub.downstream.admission import Gate
from mcp_hub.downstream.app import App, serve_network
from mcp_hub.downstream.quotas import Backlog
from mcp_hub.errors import INVALID_REQUEST, METHOD_NOT_FOUND
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.frames import Raw
from tests.downstream.fronts import FRONTS, HANG_BOUND, serve_by_uvicorn

REGIONAL = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


class ScriptedDispatcher:
    """Keeps the contract of `Dispatcher`: cancellable requests by id, notifications, a close that ends listens."""

    def __init__(self) -> None:
        self.listed: Raw | None = None
        """The result of `tools/list`, as catalogs give it."""
        self.callers: list[Caller] = []
        """Who sent them."""
        self.asked: list[str] = []
        """Methods of the requests that arrived."""
        self.noted: list[str] = []
        self.joined: list[Caller] = []
        self.left: list[Caller] = []
        self.started = asyncio.Event()
        """A `hang` or `wait` has begun."""
        self.cancelled = asyncio.Event()
        self.release = asyncio.Event()
        """Lets every `wait` finish."""
        self.closing = asyncio.Event()
        self.unread = UnreadLimits()
        self.backlog = Backlog(lambda: self.unread)
        tools = {"regional": {"name": "regional", "inputSchema": REGIONAL}}
        self.refused: list[dict[str, Any]] = []
        """Facts of the records about requests that nobody was let in with."""
        self.hub = SimpleNamespace(
            entry=lambda kind, name, caller: tools.get(name), record_stranger=self.refused.append
        )

    def over_network(self) -> None:
        """There are no servers behind it."""

    def join(self, caller: Caller) -> None:
        self.joined.append(caller)

    def leave(self, caller: Caller) -> None:
        self.left.append(caller)
        caller.cancel_all()

    def close(self) -> None:
        self.closing.set()

    def notification(self, caller: Caller, message: dict[str, Any]) -> None:
        self.noted.append(message["method"])
        if message["method"] == "notifications/initialized":
            caller.initialized = True
        elif message["method"] == eras.CANCELLED:
            caller.cancel(message["params"]["requestId"])

    async def answer(self, caller: Caller, message: dict[str, Any], send: Send, era: eras.Era) -> dict[str, Any]:
        self.asked.append(message["method"])
        self.callers.append(caller)
        task = asyncio.current_task()
        assert task is not None
        caller.in_flight[message["id"]] = task
        try:
            member = await self._member(caller, message, send)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        finally:
            caller.in_flight.pop(message["id"], None)
        return {"jsonrpc": "2.0", "id": message["id"], **member}

    def broken(self, caller: Caller, request_id: Any = None) -> dict[str, Any]:
        error = {"code": INVALID_REQUEST, "message": "Not a JSON-RPC message."}
        return {"jsonrpc": "2.0", "id": request_id, "error": error}

    async def _member(self, caller: Caller, message: dict[str, Any], send: Send) -> dict[str, Any]:
        method, params = message["method"], message.get("params") or {}
        modern = eras.era_of(message) == "modern"
        complete = {"resultType": "complete"} if modern else {}
        capabilities = {"tools": {"listChanged": True}}
        if method == "initialize":
            caller.protocol_version = eras.negotiated_revision(params.get("protocolVersion"))
            info = {"name": "scripted", "version": "0"}
            version = caller.protocol_version
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
        if method == "tools/list" and self.listed is not None:
            return {"result": self.listed}
        if method == "tools/list":
            caching = {"ttlMs": 0, "cacheScope": "private"} if modern else {}
            return {"result": {**complete, **caching, "tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}}
        if method == "tools/call":
            text = await self._call(params, send)
            return {"result": {**complete, "content": [{"type": "text", "text": text}]}}
        if method == "ping":
            return {"result": {}}
        return {"error": {"code": METHOD_NOT_FOUND, "message": "Method not found"}}

    async def _call(self, params: dict[str, Any], send: Send) -> str:
        name, arguments = params["name"], params.get("arguments") or {}
        token = params.get("_meta", {}).get(eras.PROGRESS_TOKEN, "t")
        if name == "progress":
            for step in range(arguments.get("steps", 2)):
                send(progress(step, "." * arguments.get("size", 0), token))
        elif name == "then-wait":
            send(progress(0, token=token))
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


# --- a client of raw bytes -------------------------------------------------------------------------------------


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        return self.json["error"]["code"]


@dataclass
class Connection:
    """One connection; every wait is bounded."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    buffer: bytearray = field(default_factory=bytearray)
    last_id: str = ""

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def response(self) -> Response:
        """A complete response, chunked or with a length."""
        response = await self.head()
        async with asyncio.timeout(HANG_BOUND):
            if response.headers.get("transfer-encoding") == "chunked":
                while chunk := await self.chunk():
                    response.body += chunk
            else:
                response.body = await self.reader.readexactly(int(response.headers.get("content-length", 0)))
        return response

    async def head(self) -> Response:
        async with asyncio.timeout(HANG_BOUND):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in head[1:] if line)
        return Response(int(head[0].split()[1]), {name.lower(): value.strip() for name, _, value in pairs})

    async def chunk(self) -> bytes:
        async with asyncio.timeout(HANG_BOUND):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def event(self) -> tuple[str, Any]:
        """The next event of a stream: its name and data, decoded if it is JSON; comments have the name `comment`.

        `last_id` is that of the last event, also of those without a message, which are passed over.
        """
        while True:
            name, data = await self._event()
            if (name, data) != ("message", ""):
                return name, json.loads(data) if name == "message" else data

    async def _event(self) -> tuple[str, Any]:
        end = self.buffer.find(b"\n\n")
        while end < 0:
            chunk = await self.chunk()
            if not chunk:
                return "end", None
            seen = max(0, len(self.buffer) - 1)
            self.buffer += chunk
            end = self.buffer.find(b"\n\n", seen)
        block = bytes(self.buffer[:end])
        del self.buffer[: end + 2]
        if block.startswith(b":"):
            return "comment", None
        fields = dict(line.split(": ", 1) for line in block.decode().split("\n"))
        self.last_id = fields.get("id", self.last_id)
        return fields.get("event", "message"), fields["data"]

    async def ended(self) -> bool:
        """True once the server has ended the connection, however it did."""
        async with asyncio.timeout(HANG_BOUND):
            with contextlib.suppress(ConnectionError):
                await self.reader.read()
        return True


@contextlib.asynccontextmanager
async def connected(served: Served) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


Lines = Iterable[tuple[str, str]]

BOTH = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")]


def request(
    served: Served, method: str, path: str, headers: Lines = (), body: bytes = b"", *, host: str | None = "own"
) -> bytes:
    """The bytes of a request; `host` None leaves the header out."""
    lines = [f"{method} {path} HTTP/1.1"]
    if host is not None:
        lines.append(f"Host: {f'127.0.0.1:{served.port}' if host == 'own' else host}")
    lines += [f"{name}: {value}" for name, value in headers]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


async def fetch(
    served: Served, method: str, path: str, headers: Lines = (), body: bytes = b"", **more: Any
) -> Response:
    async with connected(served) as connection:
        connection.send(request(served, method, path, headers, body, **more))
        return await connection.response()


def message(method: str, params: Any = None, request_id: Any = 1) -> bytes:
    """JSON text of a request, or of a notification with an id of None."""
    value: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        value["params"] = params
    if request_id is not None:
        value["id"] = request_id
    return json.dumps(value).encode()


# --- the handshake era -----------------------------------------------------------------------------------------


async def initialized(
    served: Served, headers: Lines = (), version: str = eras.LATEST_HANDSHAKE
) -> list[tuple[str, str]]:
    """The headers of a session that is ready."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}
    answer = await fetch(served, "POST", "/mcp", [*BOTH, *headers], message("initialize", params))
    assert answer.status == 200, answer
    lines = [*BOTH, *headers, ("Mcp-Session-Id", answer.headers["mcp-session-id"])]
    noted = await fetch(served, "POST", "/mcp", lines, message("notifications/initialized", request_id=None))
    assert noted.status == 202
    return lines


def call(name: str, arguments: dict[str, Any] | None = None, request_id: Any = 1) -> bytes:
    return message("tools/call", {"name": name, "arguments": arguments or {}}, request_id)


# --- the modern era --------------------------------------------------------------------------------------------

ENVELOPE = {eras.VERSION_KEY: eras.LATEST_MODERN, eras.CAPABILITIES_KEY: {}}


def modern(
    method: str, params: dict[str, Any] | None = None, request_id: Any = 1
) -> tuple[list[tuple[str, str]], bytes]:
    """Headers and body of a sound modern request."""
    params = {**(params or {}), "_meta": ENVELOPE}
    lines = [*BOTH, ("MCP-Protocol-Version", eras.LATEST_MODERN), ("Mcp-Method", method)]
    if "name" in params:
        lines.append(("Mcp-Name", params["name"]))
    return lines, message(method, params, request_id)


def get(path: str = "/healthz", head: str = "", version: str = "1.1") -> bytes:
    return f"GET {path} HTTP/{version}\r\nHost: localhost\r\n{head}\r\n".encode()


async def rest(connection: Connection) -> bytes:
    """Everything up to the end of the connection."""
    async with asyncio.timeout(HANG_BOUND):
        return await connection.reader.read()


class Line(asyncio.Transport):
    """The other side of a connection, in the hands of a test."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = True
        self.said = b""
        self.closed = False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def write(self, data: Any) -> None:
        self.said += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
