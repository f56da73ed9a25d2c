"""A client over the standard streams of a child: one JSON message a line."""

from __future__ import annotations

import os
import select
from subprocess import Popen

from bench.client.connection import READ, Lost
from bench.client.conversation import Conversation
from bench.client.messages import Era


class StdioConversation(Conversation):
    """Talks to `process`, which was started with pipes; whoever started it ends it."""

    def __init__(self, process: Popen[bytes], era: Era) -> None:
        super().__init__(era)
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin.fileno(), process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._unsent = bytearray()
        self._line: list[bytes] = []
        self.epoll.register(self._out, select.EPOLLIN)

    def post(self, body: bytes, headers: bytes) -> None:
        """Queues a message; it is written with all others at the next wait."""
        self._unsent += body + b"\n"

    def wait(self, patience: float = 60.0) -> list[bytes]:
        self._flush()
        return super().wait(patience)

    def _flush(self) -> None:
        while self._unsent:
            try:
                del self._unsent[: os.write(self._in, self._unsent)]
            except BlockingIOError:
                select.select([], [self._in], [], 1.0)
            except OSError as error:
                raise Lost(f"a request could not be written: {error}") from None

    def arrived(self, descriptor: int) -> list[bytes]:
        try:
            data = os.read(self._out, READ)
        except BlockingIOError:
            return []
        if not data:
            raise Lost("stdout has ended")
        if b"\n" not in data:
            self._line.append(data)
            return []
        *lines, remainder = data.split(b"\n")
        if self._line:
            lines[0] = b"".join((*self._line, lines[0]))
        self._line = [remainder] if remainder else []
        return [line for line in lines if line]

    def close(self) -> None:
        self._flush()
        self.epoll.close()
