"""Authentication for a hub that is mounted in another application, by the hub's tokens or by the application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from mcp_hub import codes
from mcp_hub.codes import CodedText
from mcp_hub.config.listen import Listen
from mcp_hub.downstream.admission import COME_BACK, Admission, Gate, Headers, Refusal, check_tokens
from mcp_hub.downstream.verifier import ProtectedResource, Verifier
from mcp_hub.security import Principal
from mcp_hub.transport.http1.peers import Peer

log = logging.getLogger("mcp_hub.downstream")

AUTHENTICATE_WITHIN: Final = 10.0
"""Seconds that an application may take to identify the sender of a request; a verifier has as many."""

Authenticate = Callable[[Mapping[str, str]], Awaitable[str | None]]
"""Identifies the sender of a request by its headers: names in lower case, repeated ones joined by commas.

It returns None for an unknown sender. A `Principal` may name a profile; a plain `str` sees all that is served.
"""


class Mount(msgspec.Struct, frozen=True):
    """How an application authenticates the requests to the hub that is mounted in it."""

    authenticate: Authenticate | None = None
    """Is asked about senders that neither the tokens of the configuration nor the verifier know; None: refuses them."""

    def objection(self, listen: Listen) -> CodedText | None:
        """Returns why the hub may not be mounted, as a text for the user; None if it may.

        The addresses of `listen` are not used: the application's own decide who reaches the hub.
        """
        tokens = listen.token is not None or any(settings.token is not None for settings in listen.principals.values())
        if self.authenticate is None and not tokens and listen.verify is None:
            text = (
                "an application that the hub is mounted in lets others in: "
                "give authenticate=, or set listen.token (or listen.principals or listen.verify)"
            )
            return CodedText(text, codes.TOKEN_MISSING)
        if listen.verify is not None and listen.verify.resource is None:
            text = "a mounted hub does not know its URL: set listen.verify.resource to the URL of its /mcp"
            return CodedText(text, codes.RESOURCE_MISSING)
        return check_tokens(listen)

    def gate(self, listen: Listen) -> Gate:
        """Returns the checks of the mounted hub."""
        return Gate(listen, authenticated=True)

    def admission(self, gate: Gate, verifier: Verifier | None, resource: ProtectedResource | None) -> Admission:
        """Returns the object that authenticates requests."""
        by_token = Admission(gate, verifier, resource)
        return by_token if self.authenticate is None else MountedAdmission(by_token, self.authenticate)


class MountedAdmission(Admission):
    """Asks the application about the senders whom `admission` refuses."""

    def __init__(self, admission: Admission, authenticate: Authenticate) -> None:
        self._admission = admission
        self._authenticate = authenticate

    async def admit(self, headers: Headers, port: int | None, peer: Peer | None = None) -> Principal | Refusal:
        """Returns the principal who sends the request, or the refusal."""
        headers = list(headers)
        admitted = await self._admission.admit(headers, port, peer)
        if isinstance(admitted, Principal):
            return admitted
        joined: dict[str, str] = {}
        for key, value in headers:
            name, text = key.decode("latin-1"), value.decode("latin-1")
            joined[name] = f"{joined[name]}, {text}" if name in joined else text
        try:
            async with asyncio.timeout(AUTHENTICATE_WITHIN):
                sender = await self._authenticate(joined)
        except Exception:  # also TimeoutError
            log.exception("authenticate= of the application failed")
            return Refusal(503, "Who sends the request cannot be found out now.", "verifier", retry_after=COME_BACK)
        if not sender:
            return admitted
        profile = sender.profile if isinstance(sender, Principal) else None
        # The prefix keeps these principals apart by profile, and from those of the configuration.
        return Principal(f"application:{profile or ''}:{sender}", profile, label=str(sender))
