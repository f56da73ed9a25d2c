"""The states of an upstream and what moves it from one to the next, as a table."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where one upstream stands."""

    IDLE = "idle"
    """Not started: lazy, or its kept catalog serves until it is needed."""
    CONNECTING = "connecting"
    READY = "ready"
    FAILING = "failing"
    """Connected, but a sign of life is missing."""
    BACKING_OFF = "backing off"
    STOPPED = "stopped"
    DISABLED = "disabled"


class Event(StrEnum):
    """What happens to one upstream."""

    WAKE = "wake"
    CONNECTED = "connected"
    FAILED = "failed"
    LOST = "lost"
    LEFT_OUT = "left out"
    SICK = "sick"
    WELL = "well"
    STOP = "stop"


THERE: Final = frozenset({State.READY, State.FAILING})
"""The states in which there is a connection."""

TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.IDLE, Event.WAKE): State.CONNECTING,
    (State.BACKING_OFF, Event.WAKE): State.CONNECTING,
    (State.CONNECTING, Event.CONNECTED): State.READY,
    (State.CONNECTING, Event.FAILED): State.BACKING_OFF,
    (State.CONNECTING, Event.LEFT_OUT): State.DISABLED,
    (State.READY, Event.LEFT_OUT): State.DISABLED,
    (State.FAILING, Event.LEFT_OUT): State.DISABLED,
    (State.READY, Event.LOST): State.BACKING_OFF,
    (State.READY, Event.SICK): State.FAILING,
    (State.FAILING, Event.WELL): State.READY,
    (State.FAILING, Event.LOST): State.BACKING_OFF,
    (State.FAILING, Event.STOP): State.STOPPED,
    (State.IDLE, Event.STOP): State.STOPPED,
    (State.CONNECTING, Event.STOP): State.STOPPED,
    (State.READY, Event.STOP): State.STOPPED,
    (State.BACKING_OFF, Event.STOP): State.STOPPED,
    (State.STOPPED, Event.STOP): State.STOPPED,
    (State.DISABLED, Event.STOP): State.DISABLED,
}
