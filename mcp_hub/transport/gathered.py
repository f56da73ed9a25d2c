"""Writes of one round of the loop made one: each costs a system call, and wakes whoever reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

LARGE: Final = 256 * 1024
"""Bytes that are not gathered: to copy them costs more than to write them."""


class Gathered:
    """The first piece of a round is written at once, so that nobody waits; those after it together, at its end."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []
        self.gathers = False
        """Whether something was written in this round."""
        self.size = 0
        """Bytes that are not written yet."""

    def put(self, piece: bytes) -> None:
        """Write a piece, in this round of the loop it was made in."""
        if not self.gathers:
            self.gathers = True
            self._loop.call_soon(self._end)
            self._write(piece)
            return
        self._pieces.append(piece)
        self.size += len(piece)
        if self.size > LARGE:
            self.flush()

    def _end(self) -> None:
        self.gathers = False
        self.flush()

    def flush(self) -> None:
        """Write what was gathered."""
        pieces, self._pieces, self.size = self._pieces, [], 0
        if pieces:
            self._write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
