"""What a transport over HTTP asks of whoever has the tokens, and what an upstream says when it takes none."""

from __future__ import annotations

import re
from typing import Final, Protocol

import msgspec

from mcp_hub.transport.link import Unauthorized

MAX_CHALLENGE: Final = 4096
"""Characters of a `WWW-Authenticate` that are looked at."""


class SignInNeeded(Unauthorized):
    """There is no token the upstream takes, and only its user can get one. `str()` says how."""


class Challenge(msgspec.Struct, frozen=True):
    """An answer that says no: its status, 401 or 403, and its `WWW-Authenticate`."""

    status: int
    header: str = ""

    def field(self, name: str) -> str | None:
        """One parameter of the header, such as `scope`."""
        found = re.search(rf'(?:^|[\s,]){name}\s*=\s*(?:"([^"]*)"|([^\s,"]+))', self.header[:MAX_CHALLENGE])
        return None if found is None else (found[1] or found[2])


class Authorization(Protocol):
    """The tokens for one upstream, shared by all its links."""

    async def token(self) -> str | None:
        """The bearer token to send, renewed first if it has expired; None: ask without. Raises LinkError."""

    async def challenged(self, token: str | None, challenge: Challenge, *, again: bool) -> bool:
        """Whether there is another token now, to send the same request with. `again`: it was sent twice already.

        Raises SignInNeeded where only the user can help, LinkError where nobody can at the moment.
        """
