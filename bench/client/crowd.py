"""Many clients over streamable HTTP in one process: each has a connection and a session, and one call in flight."""

from __future__ import annotations

import resource
import select
import time
from dataclasses import dataclass

from bench.client.connection import Connection, Lost, post
from bench.client.flood import Flood
from bench.client.messages import INITIALIZE, INITIALIZED, INITIALIZED_HEADERS, Era, Request, echo, is_answer
from bench.client.responses import Response


def descriptors(count: int) -> None:
    """Let this process, and what it starts, have so many sockets. Raises Lost where the system does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise Lost(f"only {hard} descriptors are allowed (ulimit -Hn), {count} are needed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


@dataclass(slots=True)
class _Member:
    connection: Connection
    session: bytes = b""
    asked: int = 0
    began: float = 0.0


class Crowd:
    """`count` clients of one era; all of them use the same ids."""

    def __init__(self, port: int, era: Era, tool: str, count: int) -> None:
        self._port = port
        self._era = era
        self._call = echo(era, tool)
        self._epoll = select.epoll()
        self._members: dict[int, _Member] = {}
        self._count = count

    def open(self, within: float) -> None:
        """Connect all of them and, in the handshake era, shake hands. Raises Lost, BadAnswer."""
        for _ in range(self._count):
            connection = Connection(self._port)
            self._members[connection.fileno()] = _Member(connection)
            self._epoll.register(connection, select.EPOLLIN)
        if self._era == "modern":
            return
        for answer, member in self._exchange(INITIALIZE, within):
            member.session = b"Mcp-Session-Id: %b\r\n" % answer.session if answer.session else b""
        for member in self._members.values():
            headers = INITIALIZED_HEADERS + member.session
            member.connection.send(post(self._port, "/mcp", headers, INITIALIZED))
        self._gather(within)

    def _exchange(self, request: Request, within: float) -> list[tuple[Response, _Member]]:
        """One request of everybody, and everybody's answer."""
        for member in self._members.values():
            self._ask(member, request)
        answers = self._gather(within)
        for response, _ in answers:
            for message in filter(is_answer, response.messages):
                request.check(message)
        return answers

    def _ask(self, member: _Member, request: Request) -> None:
        member.asked += 1
        member.began = time.perf_counter()
        body = request.body(member.asked)
        member.connection.send(post(self._port, "/mcp", request.headers + member.session, body))

    def _gather(self, within: float) -> list[tuple[Response, _Member]]:
        """A response for each. Raises Lost."""
        end = time.perf_counter() + within
        found: list[tuple[Response, _Member]] = []
        while len(found) < self._count:
            arrived = self._arrived(end)
            if not arrived:
                raise Lost(f"{len(found)} of {self._count} clients were answered within {within:g} s")
            found += arrived
        return found

    def _arrived(self, end: float) -> list[tuple[Response, _Member]]:
        """Responses, none only when the time is over. Raises Lost."""
        while (left := end - time.perf_counter()) > 0:
            found = []
            for descriptor, _ in self._epoll.poll(left):
                member = self._members[descriptor]
                for response in member.connection.received():
                    if response.status >= 300:
                        said = b" ".join(response.messages)[:300].decode(errors="replace")
                        raise Lost(f"HTTP status {response.status}: {said}")
                    found.append((response, member))
            if found:
                return found
        return []

    def call(self, calls: int, within: float) -> Flood:
        """Everybody calls so many times in a row; what is not answered in time is not there. Raises Lost, BadAnswer."""
        start = time.perf_counter()
        latencies: list[float] = []
        first = {descriptor: member.asked for descriptor, member in self._members.items()}
        for member in self._members.values():
            self._ask(member, self._call)
        while len(latencies) < calls * self._count:
            arrived = self._arrived(start + within)
            if not arrived:
                break
            now = time.perf_counter()
            for response, member in arrived:
                for message in filter(is_answer, response.messages):
                    if self._call.check(message) != member.asked:
                        raise Lost("a client was answered what another one had asked")
                latencies.append(now - member.began)
                if member.asked - first[member.connection.fileno()] < calls:
                    self._ask(member, self._call)
        if not latencies:
            raise Lost(f"no call was answered within {within:g} s")
        return Flood(latencies, time.perf_counter() - start)

    def close(self) -> None:
        for member in self._members.values():
            member.connection.close()
        self._epoll.close()
