"""What is kept of one sign-in, as an object and as JSON."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mcp_hub.transport.authorization import Challenge

Json = dict[str, Any]

FORMAT: Final = 1
SECRET: Final = frozenset({"tokens", "client"})
"""What of it must not be seen by anybody else."""


class SignInFailed(Exception):
    """Nothing but the user's help gets a token. `str()` is for the user."""


class NoTokenNow(Exception):
    """There is no token at the moment; later there may be one. `str()` is for the user."""


class SignIn(msgspec.Struct, frozen=True):
    """The tokens for one server, and what it takes to renew them without asking anybody again."""

    tokens: Json | None = None
    """The token response as it came."""
    expires_at: float | None = None
    """Seconds since the epoch; None: not known."""
    client: Json | None = None
    """The client the hub is to the authorization server."""
    metadata: Json | None = None
    """The authorization server's metadata."""
    resource: Json | None = None
    """The protected resource's metadata."""
    authorization_server: str | None = None
    challenge: Challenge | None = None
    """What the server said when it refused the tokens; the next sign-in begins with it."""

    @property
    def access_token(self) -> str | None:
        """What requests carry."""
        return _text(self.tokens, "access_token")

    @property
    def refresh_token(self) -> str | None:
        """What gets another one."""
        return _text(self.tokens, "refresh_token")

    @property
    def secrets(self) -> tuple[str | None, ...]:
        """What must be shown nowhere."""
        return (self.access_token, self.refresh_token, _text(self.client, "client_secret"))

    def refused(self, challenge: Challenge) -> SignIn:
        """The same with what the server has said."""
        return msgspec.structs.replace(self, challenge=challenge)

    def to_json(self) -> Json:
        """All of it."""
        found: Json = {field: getattr(self, field) for field in self.__struct_fields__}
        if self.challenge is not None:
            found["challenge"] = {"status": self.challenge.status, "header": self.challenge.header}
        return {"format": FORMAT, **found}

    @classmethod
    def from_json(cls, value: Any) -> SignIn | None:
        """The sign-in such an object stands for; None for anything else."""
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            return None
        objects = {name: value.get(name) for name in ("tokens", "client", "metadata", "resource", "challenge")}
        expires, server, said = value.get("expires_at"), value.get("authorization_server"), objects.pop("challenge")
        challenge = None
        if isinstance(said, dict) and isinstance(said.get("status"), int) and isinstance(said.get("header"), str):
            challenge = Challenge(said["status"], said["header"])
        sound = (
            all(one is None or isinstance(one, dict) for one in objects.values())
            and isinstance(expires, int | float | None)
            and isinstance(server, str | None)
        )
        if not sound:
            return None
        return cls(expires_at=expires, authorization_server=server, challenge=challenge, **objects)


def _text(value: Json | None, name: str) -> str | None:
    found = value.get(name) if value is not None else None
    return found if isinstance(found, str) and found else None
