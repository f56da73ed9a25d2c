"""A server with a fault switch, over stdio or HTTP: it behaves well until a file names a fault.

    python faulty.py --switch FILE [--effects FILE] [--era handshake|modern] [--http]

The first word of the switch file is the fault, looked up at the start and before every request. Over HTTP the URL is
in the first message on stdout. Every execution of `effect` appends its nonce to the effects file. Nothing but the
standard library: it shares no code with what it tests.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

MODERN = "2026-07-28"
VERSION = "io.modelcontextprotocol/protocolVersion"
SESSION = "mcp-session-id"
HANDSHAKE = "2025-11-25"
Json = dict[str, Any]

if "--http" in sys.argv:
    import asyncio  # its import takes longer than all others

parser = argparse.ArgumentParser()
parser.add_argument("--switch", type=Path, required=True)
parser.add_argument("--effects", type=Path)
parser.add_argument("--era", choices=["handshake", "modern"], default="handshake")
parser.add_argument("--http", action="store_true")
parser.add_argument("--port", type=int, default=0)
options = parser.parse_args()


def fault() -> str:
    try:
        return (options.switch.read_text().split() or [""])[0]
    except OSError:
        return ""


def tool(name: str, schema: Any = None) -> Json:
    return {"name": name, "inputSchema": schema or {"type": "object", "properties": {}}}


TOOLS = [tool("echo"), tool("effect"), tool("slow"), tool("pid")]
more_tools: list[Json] = []


def listed(params: Json, now: str) -> Json:
    if now == "cursor-loop":
        return {"tools": TOOLS, "nextCursor": "again"}
    if now == "sixty-pages":
        page = int(params.get("cursor", "0"))
        tools = TOOLS if page == 0 else [tool(f"page{page}")]
        return {"tools": tools, **({"nextCursor": str(page + 1)} if page < 59 else {})}
    bad = [{"name": "bad", "inputSchema": "no schema"}, "no tool", {"inputSchema": {}}] if now == "bad-schema" else []
    return {"tools": [*bad, *TOOLS, *more_tools]}


def called(name: str, arguments: Json) -> Json:
    nonce = str(arguments.get("nonce", ""))
    if name == "effect" and options.effects is not None:
        with options.effects.open("a") as file:
            file.write(nonce + "\n")
    if name == "slow":
        time.sleep(float(arguments.get("seconds", 1)))
    text = str(os.getpid()) if name == "pid" else nonce
    return {"content": [{"type": "text", "text": text}]}


def answered(message: Json, now: str) -> Json:
    """Returns the answer of a server without a fault."""
    method, params = message["method"], message.get("params") or {}
    modern = VERSION in (params.get("_meta") or {})
    if options.era == "handshake" and (modern or method == "server/discover"):
        return {"error": {"code": -32601, "message": "Method not found"}}
    capabilities = {"tools": {"listChanged": True}}
    if method == "initialize" and options.era == "handshake":
        info = {"name": "faulty", "version": "1"}
        return {"result": {"protocolVersion": HANDSHAKE, "capabilities": capabilities, "serverInfo": info}}
    if method == "initialize":
        return {"error": {"code": -32022, "message": "no", "data": {"supported": [MODERN]}}}
    result: Json | None = None
    if method == "server/discover":
        result = {"supportedVersions": [MODERN], "capabilities": capabilities}
    elif method == "ping":
        result = {}
    elif method == "tools/list":
        result = listed(params, now)
    elif method == "tools/call":
        result = called(params["name"], params.get("arguments") or {})
    if result is None:
        return {"error": {"code": -32601, "message": "Method not found"}}
    extra = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if modern else {}
    return {"result": {**extra, **result}}


# --- over stdio ------------------------------------------------------------------------------------------------

lock = threading.Lock()


def write(data: bytes) -> None:
    with lock:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def line(message: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def wrong(request_id: Any, good: bytes, now: str) -> bytes | None:
    """Returns what a faulty server writes instead of a good answer to a call."""
    prefix = b'{"jsonrpc":"2.0","id":%s,' % json.dumps(request_id).encode()
    text = b'"result":{"content":[{"type":"text","text":"%s"}]}}\n'
    replies = {
        "noise": lambda: b"some noise, no JSON\n" * 2000 + good,
        "invalid-utf8": lambda: prefix + text % b"\xff\xfe\x80",
        "not-json": lambda: prefix + b'"result": what?}\n',
        "deep-nesting": lambda: prefix + b'"result":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}\n",
        "lone-surrogate": lambda: prefix + text % b"\\ud800",
        "nan": lambda: prefix + b'"result":{"content":[],"structuredContent":{"x":NaN}}}\n',
        "null-result": lambda: prefix + b'"result":null}\n',
        "odd-error": lambda: prefix + b'"error":{"code":"E_ODD","message":null}}\n',
        "no-message": lambda: prefix + b'"neither":1}\n',
        "duplicate": lambda: good * 3,
        "stray": lambda: line({"id": 999_999, "result": {}}) + line({"id": "x", "result": {}}) + good,
        "huge": lambda: prefix + text % (b"x" * (32 * 2**20)),
        "too-large": lambda: prefix + text % (b"x" * (65 * 2**20)),
        "batch": lambda: b"[" + good.strip() + b"]\n",
        "blank": lambda: b"\n\n \n" + good,
    }
    return replies[now]() if now in replies else good


def call_wrongly(message: Json, now: str) -> None:
    request_id, good = message["id"], b""
    if now == "hang":
        return
    if now == "crash":
        say("Segmentation fault (not really)")
        os._exit(139)
    if now == "grandchild":
        program = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        import subprocess

        subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
        say("my child outlives me")
        os._exit(3)
    if now == "stderr-flood":
        say("\n".join(f"complaint {n} " + "x" * 200 for n in range(20_000)))
    if now == "asks":
        for n, method in enumerate(("sampling/createMessage", "elicitation/create", "roots/list", "no/such")):
            write(line({"id": f"mine{n}", "method": method, "params": {}}))
    if now == "storm":
        write(line({"method": "notifications/tools/list_changed"}) * 1000)
    if now == "changes":
        more_tools.append(tool(f"more{len(more_tools)}"))
        write(line({"method": "notifications/tools/list_changed"}))
    good = line({"id": request_id, **answered(message, now)})
    if now == "byte-by-byte":
        with lock:
            for at in range(len(good)):
                os.write(1, good[at : at + 1])
        return
    if now == "half-line":
        write(good[: len(good) // 2])
        os._exit(0)
    data = wrong(request_id, good, now)
    if data:
        write(data)


queued: list[Json] = []


def serve_stdio() -> None:
    now = fault()
    if now == "exit-at-start":
        say("API_KEY is not set")
        os._exit(1)
    if now == "silent-at-start":
        time.sleep(3600)
    if now == "slow-start":
        time.sleep(2)
    if now == "closes-stdout":
        os.close(1)
        time.sleep(3600)
    for raw in sys.stdin.buffer:
        message = json.loads(raw)
        now = fault()
        if now == "deaf":
            time.sleep(3600)
        if "id" not in message or "method" not in message:
            continue
        if message["method"] != "tools/call":
            write(line({"id": message["id"], **answered(message, now)}))
        elif now == "out-of-order":
            queued.append(message)
            if len(queued) == 3:
                for request in reversed(queued):
                    write(line({"id": request["id"], **answered(request, now)}))
                queued.clear()
        else:
            threading.Thread(target=call_wrongly, args=(message, now), daemon=True).start()


# --- over HTTP -------------------------------------------------------------------------------------------------

sessions: set[str] = set()
REASONS = {200: "OK", 202: "Accepted", 307: "Temporary Redirect"}


def reply(status: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Odd')}", f"content-length: {len(body)}"]
    lines += [f"content-type: {kind}"] if body else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


async def http_wrongly(message: Json, now: str, writer: asyncio.StreamWriter) -> bool:
    """Answers with the fault, and returns whether there is one; the connection is closed then."""
    text = {
        "http-401": reply(
            401, b"no", "text/plain", www_authenticate='Bearer error="invalid_token"', connection="close"
        ),
        "http-404": reply(404, b"Not Found", "text/plain", connection="close"),
        "http-429": reply(429, b"slow down", "text/plain", retry_after="1", connection="close"),
        "http-500": reply(500, b"Internal Server Error", "text/plain", connection="close"),
        "http-html": reply(200, b"<html><body>Please log in</body></html>", "text/html", connection="close"),
        "http-redirect": reply(307, location="http://127.0.0.1:9/mcp", connection="close"),
        "http-type": reply(200, b'{"jsonrpc":"2.0"}', "text/plain", connection="close"),
        "http-cut": b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {",
        "http-cut-json": b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n{"jso',
        "http-empty": b"",
        "http-garbage": b"what is this\r\n\r\n",
    }.get(now)
    if now in ("http-cut", "http-cut-json", "http-empty"):
        answered(message, now)  # it was executed
    if now == "http-hanging-header":
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-ty")
        await writer.drain()
        await asyncio.sleep(3600)
    if text is None:
        return False
    writer.write(text)
    await writer.drain()
    return True


async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while await one_request(reader, writer):
            pass
    except (OSError, asyncio.IncompleteReadError, ValueError):
        pass
    finally:
        writer.close()


async def one_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    first = (await reader.readline()).split()
    headers: dict[str, str] = {}
    while (raw := (await reader.readline()).strip()) != b"":
        name, _, value = raw.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    if not first:
        return False
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    if first[0] == b"DELETE":
        sessions.discard(headers.get(SESSION, ""))
    if first[0] != b"POST":
        writer.write(reply(200 if first[0] == b"DELETE" else 405))
        return True
    message, now = json.loads(body), fault()
    if "id" not in message:
        writer.write(reply(202))
        return True
    if now == "http-session-lost" and message["method"] == "tools/call":
        sessions.clear()
        options.switch.write_text("")
    has_session = headers.get(SESSION) in sessions or options.era == "modern"
    if message["method"] not in ("initialize", "server/discover") and now != "http-no-session" and not has_session:
        writer.write(reply(404, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}'))
        return True
    is_affected = now in ("http-401", "http-500") or message["method"] == "tools/call"
    if is_affected and now.startswith("http-") and await http_wrongly(message, now, writer):
        return False
    if now == "hang" and message["method"] == "tools/call":
        await asyncio.sleep(3600)
    answer = {"jsonrpc": "2.0", "id": message["id"], **await asyncio.to_thread(answered, message, now)}
    extra_headers = {}
    if message["method"] == "initialize" and now != "http-no-session":
        extra_headers[SESSION] = f"s{os.urandom(8).hex()}"
        sessions.add(extra_headers[SESSION])
    writer.write(reply(200, json.dumps(answer).encode(), **extra_headers))
    await writer.drain()
    return True


async def serve_http() -> None:
    server = await asyncio.start_server(connected, "127.0.0.1", options.port, limit=2**26)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    write(line({"method": "listening", "params": {"url": url}}))
    await server.serve_forever()


if options.http:
    asyncio.run(serve_http())
else:
    serve_stdio()
