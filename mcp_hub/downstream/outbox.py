"""What waits to be written to one client's stream: bounded, so that a client that does not read costs only itself."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

from mcp_hub.downstream.backlog import LARGE, Share, encoded
from mcp_hub.transport.sse import encode_event

MAX_WAITING: Final = 256
"""Messages."""
MAX_BYTES: Final = 8 * 1024 * 1024


class Outbox:
    """Messages in order, already encoded. Notifications that find no room are dropped and counted; answers are kept."""

    def __init__(self, share: Share | None = None) -> None:
        """`share` is that of the caller the messages are for."""
        self.dropped = 0
        self.news = asyncio.Event()
        """Set when something was put; whoever takes clears it."""
        self._waiting: deque[tuple[bytes, str | None]] = deque()
        self._bytes = 0
        self._share = share

    def __repr__(self) -> str:
        return f"Outbox({len(self._waiting)} waiting, {self.dropped} dropped)"

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether a notification would be dropped now."""
        if len(self._waiting) >= MAX_WAITING or self._bytes >= MAX_BYTES:
            return True
        return self._bytes > LARGE and self._share is not None and self._share.full

    @property
    def unread(self) -> int:
        """Bytes that wait (Queue)."""
        return self._bytes

    def drop_unread(self) -> bool:
        """What waits goes with the connection that writes it (Queue)."""
        return False

    def clear(self) -> None:
        """Nobody will take what waits."""
        self._waiting.clear()
        self._bytes = 0

    def put(self, message: Any) -> None:
        """Add a message, a list of them as a batch, or the text of one. Never blocks, never raises."""
        method = message.get("method") if isinstance(message, dict) else None
        if method is not None and self.full:
            self.dropped += 1
            return
        data = message if isinstance(message, bytes) else encoded(message)
        self._waiting.append((data, method))
        self._bytes += len(data)
        if self._bytes > LARGE and self._share is not None:
            self._share.watch(self)
        self.news.set()

    def put_once(self, message: Any) -> None:
        """Like `put`, but a second `list_changed` of the same kind says nothing while the first one waits."""
        method = message.get("method")
        repeats = isinstance(method, str) and method.endswith("/list_changed")
        if not (repeats and any(method == waiting for _, waiting in self._waiting)):
            self.put(message)

    def take(self) -> bytes | None:
        """The oldest message, None if none waits."""
        if not self._waiting:
            return None
        data, _ = self._waiting.popleft()
        self._bytes -= len(data)
        return data

    def take_event(self) -> bytes | None:
        """The oldest message as an event, None if none waits."""
        data = self.take()
        return encode_event(data) if data is not None else None
