"""Security. This module has the principals: the identity of an authenticated caller, and the profile it is bound to.

A principal is a string that identifies callers; principals with different profiles are different strings.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextvars import ContextVar
from typing import Final


class Principal(str):
    """The name of a principal, `""` for the anonymous one, with its profile; None: it may reach everything served."""

    __slots__ = ("label", "profile")

    def __new__(cls, name: str, profile: str | None = None, label: str | None = None) -> Principal:
        """`label` is its name in records, if that differs from `name`."""
        principal = super().__new__(cls, name)
        principal.profile = profile
        principal.label = label
        return principal

    profile: str | None
    label: str | None


ANONYMOUS: Final = Principal("")

PEER: Final[ContextVar[str | None]] = ContextVar("peer", default=None)
"""The network address that the request of this task came from; None over stdio."""


def principal_of(caller: Hashable | None) -> Principal:
    """Returns the principal of a caller's key. None, the only client over stdio, is the anonymous principal.

    Raises:
        AttributeError: the key is no caller's; it must not count as the anonymous principal, which may see everything.
    """
    if caller is None:
        return ANONYMOUS
    if isinstance(caller, Principal):
        return caller
    if isinstance(caller, str):
        return Principal(caller)
    principal: Principal = caller.principal  # type: ignore[attr-defined]
    return principal


def profile_of(caller: Hashable | None) -> str | None:
    """Returns the profile of a caller, None if it has none. Raises AttributeError as `principal_of` does."""
    return None if caller is None else caller.profile  # type: ignore[attr-defined]
