"""What all three transports have in common: requests that are started, answers that are waited for."""

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
        """Messages that have come in where something can be read. Raises Lost."""

    @abstractmethod
    def close(self) -> None:
        """End it; what is in flight is given up."""

    def number(self) -> int:
        """A number no request of this client has had."""
        self._last += 1
        return self._last

    def start(self, request: Request) -> int:
        """Send a request; the number that its answer will have."""
        number = self.number()
        self.post(request.body(number), request.headers)
        return number

    def wait(self, patience: float = PATIENCE) -> list[bytes]:
        """Answers, at least one. Raises Lost after `patience` seconds of silence, or when the other side has gone."""
        end = time.perf_counter() + patience
        while (left := end - time.perf_counter()) > 0:
            answers = []
            for descriptor, _ in self.epoll.poll(left):
                for message in self.arrived(descriptor):
                    if is_answer(message):
                        answers.append(message)
            if answers:
                return answers
        raise Lost(f"no answer within {patience:g} s")

    def ask(self, request: Request, patience: float = PATIENCE) -> bytes:
        """One request and its answer, with nothing else in flight. Raises Lost, BadAnswer."""
        number = self.start(request)
        while True:
            for answer in self.wait(patience):
                if request.check(answer) == number:
                    return answer

    def open(self) -> None:
        """Shake hands, where the era has that. Raises Lost, BadAnswer."""
        if self.era == "handshake":
            self.ask(INITIALIZE)
            self.post(INITIALIZED, INITIALIZED_HEADERS)

    def tools(self, patience: float = PATIENCE) -> list[str]:
        """The names of all tools, page after page."""
        names: list[str] = []
        params: dict[str, Any] | None = None
        while True:
            number = self.start(request(self.era, "tools/list", params))
            message = next(found for found in map(json.loads, self._until(number, patience)) if found["id"] == number)
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
