"""Requests of the hub to a client of the handshake era, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from mcp_hub.errors import INVALID_REQUEST, ClientAnswered, ProtocolError
from mcp_hub.protocol import era as eras
from mcp_hub.protocol.frames import Message

MAX_ASKED: Final = 64
"""Questions one client has not answered yet; one more is refused."""

Json = dict[str, Any]
Send = Callable[[Message], None]


class Questions:
    """What one client is being asked. `send` reaches it outside of any request of its own."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._last = 0

    async def ask(self, method: str, params: Json, send: Send | None = None) -> Json:
        """The client's result; `send` puts the question on the stream of the request that caused it.

        Raises ClientAnswered for an error of the client's, ProtocolError if it goes away or has too many questions.
        A question that is given up is cancelled at the client too.
        """
        if len(self._waiting) >= MAX_ASKED:
            raise ProtocolError(INVALID_REQUEST, f"The client has {MAX_ASKED} questions to answer already.")
        self._last += 1
        request_id = f"hub-{self._last}"
        reach = send or self._send
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        try:
            reach({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
            message = await future
        except asyncio.CancelledError:
            if not future.cancelled() or request_id in self._waiting:
                reach({"jsonrpc": "2.0", "method": eras.CANCELLED, "params": {"requestId": request_id}})
            raise
        finally:
            self._waiting.pop(request_id, None)
        if message.get("error") is not None:
            raise ClientAnswered(message["error"])
        result = message.get("result")
        if not isinstance(result, dict):
            raise ProtocolError(INVALID_REQUEST, f"The client answered {method} with something that is no result.")
        return result

    def answered(self, message: Message) -> None:
        """Take an answer; one to nothing that was asked is ignored."""
        request_id = message.get("id")
        future = self._waiting.pop(request_id, None) if isinstance(request_id, str) else None
        if future is not None and not future.done():
            future.set_result(message)

    def close(self) -> None:
        """The client is gone: nothing will be answered."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ProtocolError(INVALID_REQUEST, "The client is gone."))
