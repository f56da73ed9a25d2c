"""The states of a breaker and what moves it from one to another, as a table."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Whether calls go to the upstream."""

    CLOSED = "closed"
    """They do."""
    OPEN = "open"
    """None does until the cool-down is over."""
    HALF_OPEN = "half_open"
    """One does, and what becomes of it decides."""


class Event(StrEnum):
    """What happened."""

    SUCCEEDED = "succeeded"
    """The upstream answered, whatever it said."""
    FAILED = "failed"
    """The transport failed, but not often enough."""
    FAILED_TOO_OFTEN = "failed_too_often"
    COOLED_DOWN = "cooled_down"
    UNDECIDED = "undecided"
    """The probe ended without a word about the upstream: it was cancelled, or the hub itself refused it."""


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.CLOSED, Event.FAILED_TOO_OFTEN): State.OPEN,
    (State.OPEN, Event.COOLED_DOWN): State.HALF_OPEN,
    # A call that was under way when the breaker opened.
    (State.OPEN, Event.SUCCEEDED): State.CLOSED,
    (State.HALF_OPEN, Event.SUCCEEDED): State.CLOSED,
    (State.HALF_OPEN, Event.FAILED): State.OPEN,
    (State.HALF_OPEN, Event.FAILED_TOO_OFTEN): State.OPEN,
    (State.HALF_OPEN, Event.UNDECIDED): State.HALF_OPEN,
}
"""What is not in the table changes nothing."""
