"""One HTTP connection on a socket that never blocks."""

from __future__ import annotations

import contextlib
import socket
import time

from bench.client.responses import Response, Responses

READ = 1 << 18


class Lost(Exception):
    """The peer closed the connection, or sent nothing for too long."""


class Connection:
    """A keep-alive connection to a port of this machine; `host` is the line of that name."""

    def __init__(self, port: int, endless: bool = False) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.responses = Responses(endless)
        self.used = time.perf_counter()

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, data: bytes) -> None:
        """Sends a request. It is small, so the socket takes all of it unless the peer is gone. Raises Lost."""
        self.used = time.perf_counter()
        try:
            sent = self.socket.send(data)
        except OSError as error:
            raise Lost(f"a request could not be sent: {error}") from None
        if sent < len(data):
            raise Lost(f"only {sent} of {len(data)} bytes of a request were taken")

    def read(self) -> bytes:
        """Returns the bytes that have arrived, possibly none. Raises Lost at the end of the stream."""
        try:
            data = self.socket.recv(READ)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise Lost(f"the connection broke: {error}") from None
        if not data:
            raise Lost("the connection was closed")
        return data

    def received(self) -> list[Response]:
        return self.responses.feed(self.read())

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()


def post(port: int, path: str, headers: bytes, body: bytes) -> bytes:
    """A POST as bytes."""
    return (
        b"POST %b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
        b"Accept: application/json, text/event-stream\r\n%bContent-Length: %d\r\n\r\n%b"
        % (path.encode(), port, headers, len(body), body)
    )


def delete(port: int, path: str, headers: bytes) -> bytes:
    """A DELETE of a session as bytes."""
    return b"DELETE %b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%b\r\n" % (path.encode(), port, headers)


def get(port: int, path: str) -> bytes:
    """A GET of an event stream as bytes."""
    return b"GET %b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: text/event-stream\r\n\r\n" % (path.encode(), port)
