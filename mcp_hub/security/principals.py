"""Who an authenticated caller is, and which profile of the configuration it sees.

Pure. A principal is a text wherever callers are told apart; two that see different things are two different texts.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextvars import ContextVar
from typing import Final


class Principal(str):
    """The name of a principal, `""` for the anonymous one, and its profile; None: all that is served."""

    __slots__ = ("label", "profile")

    def __new__(cls, name: str, profile: str | None = None, label: str | None = None) -> Principal:
        """`label` is how records call it, where its name is not the place for that."""
        made = super().__new__(cls, name)
        made.profile = profile
        made.label = label
        return made

    profile: str | None
    label: str | None


ANONYMOUS: Final = Principal("")

PEER: Final[ContextVar[str | None]] = ContextVar("peer", default=None)
"""The address that the request of this task came from; None where it came over no network."""


def principal_of(caller: Hashable | None) -> Principal:
    """The principal behind the key of a caller; the only client, over stdio, is nobody in particular.

    Raises AttributeError for what is no caller: nobody is taken for one who sees everything by mistake.
    """
    if caller is None:
        return ANONYMOUS
    if isinstance(caller, Principal):
        return caller
    if isinstance(caller, str):
        return Principal(caller)
    found: Principal = caller.principal  # type: ignore[attr-defined]
    return found


def profile_of(caller: Hashable | None) -> str | None:
    """The profile a caller is bound to; None: it sees all that is served. Raises AttributeError."""
    return principal_of(caller).profile
