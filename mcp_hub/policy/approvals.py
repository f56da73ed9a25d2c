"""The tools that people have allowed for callers, and the calls that wait for a person's answer."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from mcp_hub.catalog import Route
from mcp_hub.security.callers import Caller, CallerSlot

if TYPE_CHECKING:
    from mcp_hub.policy import Call

MAX_APPROVED: Final = 1000
"""Tools whose approval is remembered for one caller; for others the person is asked each time."""
MAX_PENDING: Final = 1000
"""Calls that can be allowed on the live page; for others, only their own clients are asked."""
MAX_QUESTION: Final = 16 * 1024
"""Bytes of arguments that a client's question shows; longer ones are shown on the live page only."""
IDLE: Final = 3600.0
"""Seconds without an approved call after which a principal of the modern era, which has no sessions, is asked again."""

ONCE, SESSION, NO = "once", "for this session", "no"


class ConfirmationQuestion(msgspec.Struct, frozen=True):
    """What a person decides on: one tool and all of its arguments."""

    tool: str
    """The whole names of the tool and its server."""
    setting: str
    """The key of the configuration that requires the confirmation."""
    arguments: str
    """All arguments, with nothing invisible; without preset ones and secrets of the configuration."""
    size: int
    """Bytes of `arguments`."""
    digest: str
    """SHA-256 of tool and arguments, in hexadecimal; an approval counts for these only."""
    choices: Sequence[str]

    @property
    def too_long(self) -> bool:
        """Whether a client's question cannot show the arguments."""
        return self.size > MAX_QUESTION


class PendingConfirmation(msgspec.Struct, eq=False):
    """A call that waits for a person."""

    call: Call
    question: ConfirmationQuestion
    answer: asyncio.Future[str]
    """Gets one of the choices; the first answer counts."""
    id: str = msgspec.field(default_factory=lambda: secrets.token_urlsafe(16))
    since: float = msgspec.field(default_factory=time.time)

    def give(self, choice: str) -> bool:
        """Answers for the person. Returns whether this answer counts."""
        if choice not in self.question.choices or self.answer.done():
            return False
        self.answer.set_result(choice)
        return True


class ConfirmationWatcher(msgspec.Struct, frozen=True, eq=False):
    """A live page, on which a person can answer instead of in the client."""

    sees: Callable[[Call], bool]
    """Returns whether the page may answer for a call."""
    notify: Callable[[], object]
    """Called when a confirmation starts or stops waiting."""


class PendingConfirmations:
    """The calls that wait for a person, and the live pages that can answer instead of their clients."""

    def __init__(self) -> None:
        self._waiting: dict[str, PendingConfirmation] = {}
        self._watchers: list[ConfirmationWatcher] = []

    def __iter__(self) -> Iterator[PendingConfirmation]:
        return iter(tuple(self._waiting.values()))

    def find(self, id: str) -> PendingConfirmation | None:
        """Returns a waiting confirmation; None if it no longer waits."""
        return self._waiting.get(id)

    def can_ask(self, call: Call) -> bool:
        """Returns whether a person can answer for a call on an open live page."""
        return len(self._waiting) < MAX_PENDING and any(watcher.sees(call) for watcher in self._watchers)

    @contextlib.contextmanager
    def open(self, call: Call, question: ConfirmationQuestion) -> Iterator[PendingConfirmation]:
        """Adds a call that waits for an answer within the `with` block."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        pending = PendingConfirmation(call, question, future)
        if len(self._waiting) < MAX_PENDING:
            self._waiting[pending.id] = pending
            self._notify()
        try:
            yield pending
        finally:
            if self._waiting.pop(pending.id, None) is not None:
                self._notify()

    @contextlib.contextmanager
    def watched(self, watcher: ConfirmationWatcher) -> Iterator[None]:
        """Adds a live page that can answer within the `with` block."""
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    def _notify(self) -> None:
        for watcher in self._watchers:
            watcher.notify()


class Approvals:
    """The tools that each caller has allowed for its session. They outlive configurations."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of = CallerSlot[tuple[float, frozenset[Route]]]()
        self.pending = PendingConfirmations()

    def has(self, caller: Caller, route: Route) -> bool:
        """Returns whether a caller has allowed a tool, and marks the approvals of the caller as used."""
        self._drop_idle(caller)
        entry = self._of.get(caller)
        if entry is None or route not in entry[1]:
            return False
        self._of[caller] = self._clock(), entry[1]
        return True

    def add(self, caller: Caller, route: Route) -> None:
        """Remembers that a caller has allowed a tool."""
        self._drop_idle(caller)  # else this approval would renew them
        _, routes = self._of.get(caller, (0.0, frozenset[Route]()))
        if len(routes) < MAX_APPROVED:
            self._of[caller] = self._clock(), routes | {route}

    def _drop_idle(self, caller: Caller) -> None:
        entry = self._of.get(caller)
        if entry is not None and caller.is_principal and self._clock() - entry[0] > IDLE:
            self._of.drop(caller)
