"""The attempt to connect that calls wait for, and what the last one came to."""

from __future__ import annotations

import asyncio
import copy

from mcp_hub.errors import CallError
from mcp_hub.upstream.session import Session


class Attempt:
    """One after the other: whoever asks while none is going on waits for the next."""

    def __init__(self) -> None:
        self._pending: asyncio.Future[Session] | None = None
        self._refusal: CallError | None = None

    def begin(self) -> asyncio.Future[Session]:
        """The one that is going on, or about to."""
        if self._pending is None or self._pending.done():
            self._pending = asyncio.get_running_loop().create_future()
        return self._pending

    async def outcome(self) -> Session:
        """What it comes to. Raises CallError; being cancelled ends nobody else's waiting."""
        return await asyncio.shield(self.begin())

    def succeeded(self, session: Session) -> None:
        """It came to a session."""
        self.begin().set_result(session)

    def failed(self, refusal: CallError) -> None:
        """It came to nothing; every call that waits is told so."""
        self._refusal = refusal
        pending = self.begin()
        pending.set_exception(refusal)
        pending.exception()  # seen, even if no call waits for it

    @property
    def refusal(self) -> CallError | None:
        """The error of the last one that failed, to be raised once more."""
        return copy.copy(self._refusal)
