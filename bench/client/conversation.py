"""The base of the clients of all three transports: it starts requests and waits for their answers."""

from __future__ import annotations

import json
import select
import time
from abc import ABC, abstractmethod
from typing import Any

from bench.client.connection import Lost
from bench.client.messages import INITIALIZE, INITIALIZED, INITIALIZED_HEADERS, Era, Request, is_answer, request

PATIENCE = 60.0
"""Seconds of silence after which an answer counts as lost; a bound against hangs."""


class Conversation(ABC):
    """One client. Any number of requests may be in flight; answers come in any order."""

    def __init__(self, era: Era) -> None:
        self.era = era
        self.epoll = select.epoll()
        self._last = 0

    @abstractmethod
    def post(self, body: bytes, headers: bytes) -> None:
        """Send one message."""

    @abstractmethod
    def arrived(self, descriptor: int) -> list[bytes]:
        """Reads from a descriptor that is ready, and returns the complete messages. Raises Lost."""

    @abstractmethod
    def close(self) -> None:
        """Closes the client; requests in flight are abandoned."""

    def number(self) -> int:
        """Returns a request id that this client has not used yet."""
        self._last += 1
        return self._last

    def start(self, request: Request) -> int:
        """Sends a request, and returns its id."""
        number = self.number()
        self.post(request.body(number), request.headers)
        return number

    def wait(self, patience: float = PATIENCE) -> list[bytes]:
        """Returns at least one answer. Raises Lost after `patience` seconds of silence, or when the peer has closed."""
        end = time.perf_counter() + patience
        while (remaining := end - time.perf_counter()) > 0:
            answers = []
            for descriptor, _ in self.epoll.poll(remaining):
                for message in self.arrived(descriptor):
                    if is_answer(message):
                        answers.append(message)
            if answers:
                return answers
        raise Lost(f"no answer within {patience:g} s")

    def ask(self, request: Request, patience: float = PATIENCE) -> bytes:
        """Sends a request and returns its answer, with nothing else in flight. Raises Lost, BadAnswer."""
        number = self.start(request)
        while True:
            for answer in self.wait(patience):
                if request.check(answer) == number:
                    return answer

    def open(self) -> None:
        """Initializes the session, in the handshake era. Raises Lost, BadAnswer."""
        if self.era == "handshake":
            self.ask(INITIALIZE)
            self.post(INITIALIZED, INITIALIZED_HEADERS)

    def tools(self, patience: float = PATIENCE) -> list[str]:
        """Lists the names of all tools, page after page."""
        names: list[str] = []
        params: dict[str, Any] | None = None
        while True:
            number = self.start(request(self.era, "tools/list", params))
            message = next(
                answer for answer in map(json.loads, self._until(number, patience)) if answer["id"] == number
            )
            if "result" not in message:
                raise Lost(f"tools/list was answered {str(message)[:300]}")
            names += [tool["name"] for tool in message["result"]["tools"]]
            cursor = message["result"].get("nextCursor")
            if cursor is None:
                return names
            params = {"cursor": cursor}

    def _until(self, number: int, patience: float) -> list[bytes]:
        while True:
            answers = self.wait(patience)
            if any(json.loads(answer).get("id") == number for answer in answers):
                return answers
