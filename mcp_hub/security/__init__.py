"""Security. This module has the principals: the identity of an authenticated caller, and the profile it is bound to.

A principal is a string that identifies callers; principals with different profiles are different strings.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final


class Principal(str):
    """The name of a principal, `""` for the anonymous one, with its profile; None: it may reach everything served."""

    __slots__ = ("key", "label", "profile")

    def __new__(cls, name: str, profile: str | None = None, label: str | None = None) -> Principal:
        """`label` is its name in records, if that differs from `name`."""
        principal = super().__new__(cls, name)
        principal.profile = profile
        principal.label = label
        principal.key = (name, profile)
        return principal

    profile: str | None
    label: str | None
    key: tuple[str, str | None]
    """What tells principals apart, its name and profile: with another profile it is another principal."""


ANONYMOUS: Final = Principal("")

PEER: Final[ContextVar[str | None]] = ContextVar("peer", default=None)
"""The network address that the request of this task came from; None over stdio."""
