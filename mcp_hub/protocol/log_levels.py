"""The levels of log messages, from the one that says most to the one that says least."""

from __future__ import annotations

from typing import Any, Final

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
SET_LEVEL: Final = "logging/setLevel"
MESSAGE: Final = "notifications/message"
WARNING: Final = "mcp-hub warning: "
"""How a line of stderr begins by which a process of the hub's own warns its user."""


def passes(level: Any, least: str | None) -> bool:
    """Whether a message of a level is for somebody who wants `least` and above; an unknown level always is."""
    if least is None or level not in LEVELS:
        return True
    return LEVELS.index(level) >= LEVELS.index(least)


def says_more(level: str, other: str | None) -> bool:
    """Whether a server set to `level` says more than one set to `other`; None: never set."""
    return other is None or LEVELS.index(level) < LEVELS.index(other)
