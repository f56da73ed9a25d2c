"""Many clients over streamable HTTP in one process: each has a connection and a session, and one call in flight."""

from __future__ import annotations

import contextlib
import resource
import select
import time

from bench.client.connection import Connection, Lost, delete, post
from bench.client.flood import Flood
from bench.client.http import IDLE
from bench.client.messages import INITIALIZE, INITIALIZED, INITIALIZED_HEADERS, Era, Request, echo, is_answer
from bench.client.responses import Response

REFUSAL_WAIT = 5.0
"""Seconds that ending all sessions may take."""


def descriptors(count: int) -> None:
    """Raises the limit of descriptors of this process and its children. Raises Lost where the system forbids it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise Lost(f"only {hard} descriptors are allowed (ulimit -Hn), {count} are needed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


class _Member:
    """One client: its session, and its connection, which is made again when it was idle for long."""

    def __init__(self, port: int, epoll: select.epoll, everybody: dict[int, _Member]) -> None:
        self._port = port
        self._epoll = epoll
        self._everybody = everybody
        self.session = b""
        self.last_id = 0
        self.calls = 0
        self.began = 0.0
        self.waits = False
        self._connect()

    def _connect(self) -> None:
        self.connection = Connection(self._port)
        self._epoll.register(self.connection, select.EPOLLIN)
        self._everybody[self.connection.fileno()] = self

    def send(self, data: bytes) -> None:
        """Sends a request that will be answered. Raises Lost."""
        if time.perf_counter() - self.connection.used > IDLE:
            self.connection.close()
            self._connect()
        self.waits = True
        self.connection.send(data)

    def received(self) -> list[Response]:
        """Returns the complete responses. Raises Lost if the connection ends while a response is outstanding."""
        try:
            responses = self.connection.received()
        except Lost:
            if self.waits:
                raise
            self._epoll.unregister(self.connection)
            self.connection.used = 0.0  # so that the next request has another one
            return []
        self.waits = self.waits and not responses
        return responses


class Crowd:
    """`count` clients of one era; all of them use the same ids."""

    def __init__(self, port: int, era: Era, tool: str, count: int) -> None:
        self._port = port
        self._era = era
        self._call = echo(era, tool)
        self._epoll = select.epoll()
        self._members: list[_Member] = []
        self._by_descriptor: dict[int, _Member] = {}
        self._count = count

    def open(self, within: float) -> None:
        """Connect all of them and, in the handshake era, shake hands. Raises Lost, BadAnswer."""
        self._members = [_Member(self._port, self._epoll, self._by_descriptor) for _ in range(self._count)]
        if self._era == "modern":
            return
        for member in self._members:
            self._ask(member, INITIALIZE)
        for response, member in self._gather(within):
            for message in filter(is_answer, response.messages):
                INITIALIZE.check(message)
            member.session = b"Mcp-Session-Id: %b\r\n" % response.session if response.session else b""
        for member in self._members:
            member.send(post(self._port, "/mcp", INITIALIZED_HEADERS + member.session, INITIALIZED))
        self._gather(within)

    def _ask(self, member: _Member, request: Request) -> None:
        member.last_id += 1
        member.began = time.perf_counter()
        member.send(post(self._port, "/mcp", request.headers + member.session, request.body(member.last_id)))

    def _gather(self, within: float) -> list[tuple[Response, _Member]]:
        """Returns a response for each client. Raises Lost."""
        end = time.perf_counter() + within
        responses: list[tuple[Response, _Member]] = []
        while len(responses) < self._count:
            arrived = self._arrived(end)
            if not arrived:
                raise Lost(f"{len(responses)} of {self._count} clients were answered within {within:g} s")
            responses += arrived
        return responses

    def _arrived(self, end: float) -> list[tuple[Response, _Member]]:
        """Returns the responses of one poll; none only after the deadline. Raises Lost."""
        while (remaining := end - time.perf_counter()) > 0:
            responses = []
            for descriptor, _ in self._epoll.poll(remaining):
                member = self._by_descriptor[descriptor]
                for response in member.received():
                    if response.status >= 300:
                        text = b" ".join(response.messages)[:300].decode(errors="replace")
                        raise Lost(f"HTTP status {response.status}: {text}")
                    responses.append((response, member))
            if responses:
                return responses
        return []

    def call(self, calls: int, within: float) -> Flood:
        """Lets each client call `calls` times in a row; late answers are left out. Raises Lost, BadAnswer."""
        start = time.perf_counter()
        latencies: list[float] = []
        for member in self._members:
            member.calls = 1
            self._ask(member, self._call)
        while len(latencies) < calls * self._count:
            arrived = self._arrived(start + within)
            if not arrived:
                break
            now = time.perf_counter()
            for response, member in arrived:
                for message in filter(is_answer, response.messages):
                    if self._call.check(message) != member.last_id:
                        raise Lost("a client was answered what another one had asked")
                latencies.append(now - member.began)
                if member.calls < calls:
                    member.calls += 1
                    self._ask(member, self._call)
        if not latencies:
            raise Lost(f"no call was answered within {within:g} s")
        return Flood(latencies, time.perf_counter() - start)

    def close(self) -> None:
        """End all sessions, and wait a moment for that: sessions count against bounds."""
        closing = []
        for member in self._members:
            if member.session:
                with contextlib.suppress(Lost, OSError):
                    member.send(delete(self._port, "/mcp", INITIALIZED_HEADERS + member.session))
                    closing.append(member)
        with contextlib.suppress(Lost, OSError):
            end, remaining = time.perf_counter() + REFUSAL_WAIT, len(closing)
            while remaining > 0 and (arrived := self._arrived(end)):
                remaining -= len(arrived)
        for member in self._members:
            member.connection.close()
        self._epoll.close()
