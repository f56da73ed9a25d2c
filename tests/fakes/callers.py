"""Callers for tests that need no hub."""

from __future__ import annotations

from mcp_hub.security import Principal
from mcp_hub.security.callers import Caller


def a_principal(name: str, profile: str | None = None) -> Caller:
    """Returns a caller that is a principal; each call returns another one."""
    return Caller(Principal(name, profile), is_principal=True)
