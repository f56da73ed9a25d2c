"""Bytes on a connection: only calls that a strict reader of HTTP finds in them are executed; all answers are HTTP.

The connection is a pair of sockets; the protocol that `serve --http` uses has the server's half.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from functools import partial
from typing import Any

from mcp_hub.transport.http1 import BODY as READING_A_BODY
from mcp_hub.transport.http1.listener import Listener
from mcp_hub.transport.http1.server_connection import ServerConnection
from tests.downstream.raw_http import ENVELOPE
from tests.fuzz import strict_http
from tests.fuzz.front import ARGUMENTS, CALL, front
from tests.fuzz.supply import Supply, split

BODY = json.dumps({**CALL, "params": {**ARGUMENTS, "_meta": ENVELOPE}}, separators=(",", ":")).encode()
HEAD = (
    b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\n"
    b"Mcp-Method: tools/call\r\nMcp-Name: up__echo\r\n"
)
SIZED = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"
LONG = b"X: " + b"x" * 32_760 + b"\r\n"
TOKENS = (
    *(b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"content-length:5\r\n", b"Content-Length : 5\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding:\tchunked\r\n"),
    *(b"transfer-encoding: chunked, chunked\r\n", b"Connection: close\r\n", b"Connection: keep-alive\r\n"),
    *(b"Expect: 100-continue\r\n", b"Upgrade: websocket\r\nConnection: upgrade\r\n", b"Host: evil.example\r\n"),
    *(b" folded\r\n", b"Trailer: x\r\n", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"PRI * HTTP/2.0\r\n"),
    *(b"0\r\n\r\n", b"5\r\n", b"5;x=y\r\n", b"0x5\r\n", b"+5\r\n", b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b"\xff"),
    *(b"Transfer-Encoding: gzip, chunked\r\n", b"gzip, ", b"identity, ", b"identity\r\nTransfer-Encoding: "),
    *(b"http://localhost", b"http://LOCALHOST:80", b"https://evil.example", b"http://localhost:81", LONG),
    *(b"Sec-Fetch-Site: cross-site\r\n",),
    *(b"GET ", b"HTTP/1.0", b"HTTP/1.1", SIZED, CHUNKED, BODY),
)
SEEDS = (
    b"\x00" + SIZED,
    b"\x00" + CHUNKED,
    b"\x02\x00\x30\x01\x10" + SIZED + CHUNKED,
    b"\x00" + HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SIZED,
    b"\x00" + HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n" + SIZED,
    b"\x00" + CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + SIZED,
    b"\x00" + SIZED.replace(b"/mcp", b"http://evil.example/mcp", 1),
    b"\x00" + SIZED.replace(b"/mcp", b"http://localhost/mcp", 1),
    b"\x00" + SIZED.replace(b"Host:", LONG * 2 + b"Host:", 1) + SIZED,
    b"\x02\x00\x30\x01\x10" + SIZED.replace(b"Host:", LONG + b"Host:", 1) + SIZED,
    b"\x01\x00\x20" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n5;x\r\nabcde\r\n0\r\nTrailer: 1\r\n\r\n" + SIZED,
)
PATIENCE = 60.0


def target(data: bytes) -> None:
    supply = Supply(data)
    cuts, text = supply.cuts(4), supply.rest()
    harness = front()
    answers = _answers(harness.runner.run(_exchanged(split(text, cuts))))
    harness.runner.run(harness.settled())
    calls = harness.calls()
    sound = strict_http.requests(text)
    expected_calls = [expected for body in sound if (expected := _call_of(body)) is not None]
    carried_out = iter(expected_calls)
    for call in calls:
        actual = (call["name"], call.get("arguments", {}))
        assert actual in carried_out, f"{actual} is not what a strict reader finds: {text!r}"
    assert all(status in (200, 202, 204) or 400 <= status < 600 or status == 100 for status in answers)


async def _exchanged(pieces: list[bytes]) -> bytes:
    """Sends `pieces`, and returns the server's output once it waits for more or has closed the connection."""
    client, server = socket.socketpair()
    client.setblocking(False)
    server.setblocking(False)
    listener = Listener(front().app, 1)
    try:
        transport, protocol = await asyncio.get_running_loop().connect_accepted_socket(
            partial(ServerConnection, listener), server
        )
        output = b""
        async with asyncio.timeout(PATIENCE):
            for piece in pieces:
                if piece and not transport.is_closing():
                    await _send(client, piece)
            while not transport.is_closing() and _works(protocol):
                await asyncio.sleep(0)
            transport.close()
            while chunk := await _received(client):
                output += chunk
        if listener.tasks:
            await asyncio.wait(listener.tasks, timeout=PATIENCE)
        return output
    finally:
        client.close()


async def _send(ours: socket.socket, piece: bytes) -> None:
    """Sends a piece, and lets the server read it."""
    with contextlib.suppress(OSError):
        ours.sendall(piece)
        for _ in range(3):
            await asyncio.sleep(0)


def _works(connection: ServerConnection) -> bool:
    """Whether the server is answering a request that has been sent completely."""
    waits = connection._machine.theirs is READING_A_BODY and connection._request is connection._active_request
    return connection._reply is not None and not waits


async def _received(client: socket.socket) -> bytes:
    try:
        return await asyncio.get_running_loop().sock_recv(client, 65536)
    except OSError:
        return b""


def _call_of(body: bytes) -> tuple[str, Any] | None:
    """(original name, arguments) of a call in a body."""
    try:
        value = json.loads(body.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return None
    params = value.get("params") if isinstance(value, dict) and value.get("method") == "tools/call" else None
    if not isinstance(params, dict) or not isinstance(params.get("name"), str):
        return None
    return params["name"].removeprefix("up__"), params.get("arguments", {})


def _answers(text: bytes) -> list[int]:
    """The statuses of the responses in a text, each of them whole; the last may be cut by the end of the connection."""
    statuses = []
    at = 0
    while at < len(text):
        line = re.compile(rb"HTTP/1\.1 (\d{3})[^\r\n]*\r\n").match(text, at)
        assert line is not None, f"no answer: {text[at : at + 100]!r}"
        read = strict_http.fields(text, line.end())
        assert read is not None, f"no headers: {text[at : at + 200]!r}"
        head, at = read
        statuses.append(int(line[1]))
        if int(line[1]) in (100, 204):
            continue
        body = strict_http.sized_body(text, at, head)
        if body is None:
            break
        at = body[1]
    return statuses
