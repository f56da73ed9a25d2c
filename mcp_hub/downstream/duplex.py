"""A client on one connection that carries messages both ways: every request its own task, answers as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from mcp_hub.downstream.backlog import Share, declined
from mcp_hub.downstream.callers import Caller
from mcp_hub.downstream.dispatcher import Dispatcher
from mcp_hub.downstream.exchange import batch_fault
from mcp_hub.errors import INVALID_REQUEST, PARSE_ERROR
from mcp_hub.protocol.era import BATCHING_REVISION
from mcp_hub.protocol.frames import FrameError, Message, decode_exactly
from mcp_hub.security.principals import ANONYMOUS, Principal

Write = Callable[[Any], None]
"""Sends one message, a list of them as a batch, or the text of one; never blocks."""


class Duplex:
    """One caller, its running requests, and the way its messages are taken apart."""

    def __init__(self, dispatcher: Dispatcher, write: Write, share: Share, principal: Principal = ANONYMOUS) -> None:
        self._dispatcher = dispatcher
        self._write = write
        self._share = share
        self.caller = Caller(principal, write)
        self._running: set[asyncio.Task[None]] = set()
        dispatcher.join(self.caller)

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return len(self._running)

    def received(self, data: bytes) -> None:
        """Take one JSON text of the client's; what is wrong with it is answered, never raised."""
        try:
            value = decode_exactly(data)
        except FrameError as error:
            self.refuse(PARSE_ERROR, f"Parse error: {error}")
            return
        if isinstance(value, dict):
            self._take(value, len(data))
        elif isinstance(value, list) and self.caller.protocol_version == BATCHING_REVISION:
            if (fault := batch_fault(value)) is not None:
                self.refuse(fault.code, fault.message)
            else:
                self._spawn(self._batch(value, len(data)))
        else:
            self.refuse(INVALID_REQUEST, "A message must be one JSON-RPC object.")

    def refuse(self, code: int, message: str) -> None:
        """Answer what has no readable id."""
        self._write(_error(code, message))

    def _take(self, message: Message, size: int) -> None:
        if "method" not in message:
            if "result" not in message and "error" not in message:
                self.refuse(INVALID_REQUEST, "A message has a method, a result or an error.")
            else:
                self.caller.questions.answered(message)
            return
        if "id" in message:
            self._spawn(self._answer(message, size))
        else:
            self._dispatcher.notification(self.caller, message)

    async def _answer(self, message: Message, size: int) -> None:
        if (refusal := self._share.begin(message, size)) is not None:
            self._write(declined(message, refusal))
            return
        try:
            answer = await self._dispatcher.answer(self.caller, message, self._write)
        finally:
            self._share.end(size)
        self._write(self._share.encoded(answer, message))

    async def _batch(self, messages: list[Any], size: int) -> None:
        requests = [m for m in messages if isinstance(m, dict) and "method" in m and "id" in m]
        for message in messages:
            if isinstance(message, dict) and "method" in message and "id" not in message:
                self._dispatcher.notification(self.caller, message)
            elif isinstance(message, dict) and "method" not in message:
                self.caller.questions.answered(message)
        broken = [self._dispatcher.broken(self.caller) for m in messages if not isinstance(m, dict)]
        if (refusal := self._share.begin(requests, size)) is not None:
            self._write([*declined(requests, refusal), *broken])
            return
        try:
            answers = await asyncio.gather(
                *(self._dispatcher.answer(self.caller, request, self._write) for request in requests)
            )
        finally:
            self._share.end(size)
        if answers or broken:
            self._write(self._share.encoded([*answers, *broken], requests))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def drained(self) -> None:
        """Return when no request is running; not bounded in time."""
        while self._running:
            await asyncio.wait(self._running)

    def close(self) -> None:
        """The client is gone: cancel what still runs."""
        self._dispatcher.leave(self.caller)
        for task in self._running:
            task.cancel()


def _error(code: int, message: str) -> Message:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
