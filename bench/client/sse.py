"""A client over the older transport: requests are posted, answers come on one stream."""

from __future__ import annotations

import select
import time
from urllib.parse import urlsplit

from bench.client.connection import Connection, Lost, get
from bench.client.conversation import PATIENCE
from bench.client.http import HttpConversation
from bench.client.messages import Era


class SseConversation(HttpConversation):
    """One stream, at `/sse` of a port."""

    def __init__(self, port: int, era: Era) -> None:
        super().__init__(port, era)
        self._stream = Connection(port, endless=True)
        self.epoll.register(self._stream, select.EPOLLIN)

    def open(self) -> None:
        """Opens the stream, reads the endpoint for requests, and initializes the session."""
        self._stream.send(get(self.port, "/sse"))
        end = time.perf_counter() + PATIENCE
        self.path = ""
        while not self.path:
            if not self.epoll.poll(max(0.0, end - time.perf_counter())):
                raise Lost("no stream")
            for name, data in self._stream.responses.stream(self._stream.read()):
                if name == b"endpoint":
                    endpoint = urlsplit(data.decode())
                    self.path = endpoint.path + (f"?{endpoint.query}" if endpoint.query else "")
            if self._stream.responses.status not in (0, 200):
                raise Lost(f"HTTP status {self._stream.responses.status} for the stream")
        self._head.cache_clear()
        super().open()

    def arrived(self, descriptor: int) -> list[bytes]:
        if descriptor == self._stream.fileno():
            return [data for name, data in self._stream.responses.stream(self._stream.read()) if name == b"message"]
        super().arrived(descriptor)
        return []  # the response to a POST itself holds no message

    def close(self) -> None:
        self._stream.close()
        super().close()
