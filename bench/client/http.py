"""A client over streamable HTTP: as many connections as it has requests in flight, kept alive."""

from __future__ import annotations

import select
import time
from functools import lru_cache

from bench.client.connection import Connection, Lost, post
from bench.client.conversation import Conversation
from bench.client.messages import Era

IDLE = 2.0
"""Seconds after which an idle connection is not used again, before the server closes it."""


class HttpConversation(Conversation):
    """One session, at `/mcp` of a port."""

    path = "/mcp"

    def __init__(self, port: int, era: Era) -> None:
        super().__init__(era)
        self.port = port
        self.session = b""
        self._free: list[Connection] = []
        self._all: dict[int, Connection] = {}
        self._head = lru_cache(64)(self._make_head)

    def _make_head(self, headers: bytes, session: bytes) -> tuple[bytes, bytes]:
        """Returns the head before and after the value of Content-Length."""
        before, mark, behind = post(self.port, self.path, headers + session, b"").partition(b"Content-Length: 0")
        return before + mark[:-1], behind

    def post(self, body: bytes, headers: bytes) -> None:
        before, behind = self._head(headers, self.session)
        self.connection().send(b"%b%d%b%b" % (before, len(body), behind, body))

    def connection(self) -> Connection:
        """Returns a connection that no request is in flight on."""
        while self._free:
            connection = self._free.pop()
            if time.perf_counter() - connection.used < IDLE:
                return connection
            self._drop(connection)
        connection = Connection(self.port)
        self._all[connection.fileno()] = connection
        self.epoll.register(connection, select.EPOLLIN)
        return connection

    def _drop(self, connection: Connection) -> None:
        self._free = [candidate for candidate in self._free if candidate is not connection]
        del self._all[connection.fileno()]
        self.epoll.unregister(connection)
        connection.close()

    def arrived(self, descriptor: int) -> list[bytes]:
        connection = self._all.get(descriptor)
        if connection is None:
            return []
        try:
            responses = connection.received()
        except Lost:
            if connection not in self._free:
                raise
            self._drop(connection)
            return []
        messages = []
        for response in responses:
            if response.status >= 300:
                text = b" ".join(response.messages)[:300].decode(errors="replace")
                raise Lost(f"HTTP status {response.status}: {text}")
            if response.session is not None:
                self.session = b"Mcp-Session-Id: %b\r\n" % response.session
            messages += response.messages
            self._free.append(connection)
        return messages

    def close(self) -> None:
        for connection in self._all.values():
            connection.close()
        self.epoll.close()
