"""The trivial server over HTTP: any path is an endpoint of streamable HTTP, `/sse` and `/messages` the older one."""

from __future__ import annotations

import asyncio
import re

import uvloop
from answers import Answers

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
EMPTY = b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Page(asyncio.Protocol):
    """One connection. `streams` has the open ones of the older transport by their number."""

    def __init__(self, answers: Answers, streams: dict[int, asyncio.Transport]) -> None:
        self._answers = answers
        self._streams = streams
        self._buffer = b""
        self._stream = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._streams.pop(self._stream, None)

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data if self._buffer else data
        while (end := data.find(b"\r\n\r\n")) >= 0:
            length = LENGTH.search(data, 0, end + 1)
            request_end = end + 4 + (int(length[1]) if length else 0)
            if len(data) < request_end:
                break
            method, path, _ = data[: data.index(b"\r\n")].split(b" ")
            self._take(method, path, data[end + 4 : request_end])
            data = data[request_end:]
        self._buffer = data

    def _take(self, method: bytes, path: bytes, body: bytes) -> None:
        if method == b"GET" and path == b"/sse":
            self._stream = id(self)
            self._streams[self._stream] = self._transport
            event = b"event: endpoint\ndata: /messages?session_id=%d\n\n" % self._stream
            self._transport.write(STREAM + chunk(event))
            return
        if method != b"POST":
            self._transport.write(EMPTY % b"405 Method Not Allowed")
            return
        answer, wait = self._answers.answer(body)
        write = self._write_response
        if path.startswith(b"/messages"):
            self._transport.write(EMPTY % b"202 Accepted")
            stream = self._streams.get(int(path.rpartition(b"=")[2]))
            if stream is None or not answer:
                return
            target = stream

            def write(answer: bytes) -> None:
                target.write(chunk(b"event: message\ndata: " + answer + b"\n\n"))

        elif not answer:
            self._transport.write(EMPTY % b"202 Accepted")
            return
        if wait:
            asyncio.get_running_loop().call_later(wait, write, answer)
        else:
            write(answer)

    def _write_response(self, answer: bytes) -> None:
        self._transport.writelines((ANSWER % len(answer), answer))


def serve(answers: Answers, port: int) -> None:
    """Answer until it is ended; the port is printed as soon as it listens."""

    async def run() -> None:
        streams: dict[int, asyncio.Transport] = {}
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Page(answers, streams), "127.0.0.1", port, backlog=4096)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    uvloop.run(run())
