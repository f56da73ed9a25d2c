"""Access to the live page: one-time links, and the sessions that a link or a caller's token begins."""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any, Final

import msgspec

from mcp_hub.security import ANONYMOUS, Principal
from mcp_hub.security.lru import Lru

SECRET_BYTES: Final = 16
"""Random bytes of a link's secret."""
LINK_SECONDS: Final = 60.0
"""Seconds in which a link can be used."""
MAX_LINKS: Final = 16
"""The most links that wait to be used; with one more, the oldest becomes invalid."""
MAX_SESSIONS: Final = 256
"""The most sessions of the page. One more ends another: of the network before local, idle before open, oldest first."""
MAX_OF_ONE: Final = 16
"""The most sessions of one principal, or of the person at the machine. One more ends another, in the same order."""
IDLE_SECONDS: Final = 8 * 3600.0
"""Seconds without a request after which a session ends."""
COOKIE: Final = "mcp_hub_page_"
"""The beginning of a cookie's name. Hubs on other ports share the host's cookies, so each session has its own name."""
_COOKIE: Final = re.compile(rf"(?:^|;)[ \t]*({COOKIE}[0-9a-f]{{8}})=([A-Za-z0-9_-]{{1,64}})[ \t]*(?=;|$)")


class Viewer(msgspec.Struct, frozen=True):
    """A person who looks at the page. An admin sees everything, anybody else what the profile of `principal` shows."""

    principal: Principal
    label: str
    admin: bool
    network: bool
    """Whether the person signed in with a token, and not by a link of this machine."""
    token: str | None = None
    """The bearer token that the person signed in with, which is verified again with each request."""

    @property
    def facts(self) -> dict[str, Any]:
        """What the page shows of its viewer."""
        return {"principal": str(self.principal), "label": self.label, "admin": self.admin, "network": self.network}


AT_THE_MACHINE: Final = Viewer(ANONYMOUS, "you, at this machine", admin=True, network=False)
"""The viewer who uses a one-time link, which is printed for the user of the hub only."""


class OneTimeLinks:
    """The secrets of links that were printed and not used yet. Only their hashes are kept."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._expiry: Lru[bytes, float] = Lru(MAX_LINKS)

    def issue(self) -> str:
        """Returns a new secret."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        self._expiry[_hash(secret)] = self._clock() + LINK_SECONDS
        return secret

    def redeem(self, secret: str) -> bool:
        """Uses up a secret, and returns whether it was valid."""
        until = self._expiry.pop(_hash(secret), None)
        return until is not None and self._clock() <= until

    @property
    def waiting(self) -> bool:
        """Whether a link can still be used."""
        return any(self._clock() <= until for until in self._expiry.values())


class PageSession:
    """One open page: a cookie, which other programs of the machine may see, and a token, which only the page has."""

    def __init__(self, viewer: Viewer, now: float) -> None:
        self.viewer = viewer
        self.token = secrets.token_urlsafe(32)
        self.cookie_name = COOKIE + secrets.token_hex(4)
        self.cookie = secrets.token_urlsafe(32)
        self.used = now
        """When its last request came."""
        self.streams = 0
        """The number of its event streams that are open."""
        self.runs = 0
        """The number of tools that it runs."""
        self.on_end: list[Callable[[], object]] = []
        """Called once when the session ends."""
        self.ended = False

    @property
    def busy(self) -> bool:
        """Whether it has an open event stream or runs a tool."""
        return self.streams > 0 or self.runs > 0

    def end(self) -> None:
        """Ends the session. Idempotent."""
        self.ended = True
        callbacks, self.on_end = self.on_end, []
        for callback in callbacks:
            callback()


class PageSessions:
    """The sessions of the page, at most `MAX_SESSIONS`, and `MAX_OF_ONE` of each viewer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_token: dict[bytes, PageSession] = {}

    def __len__(self) -> int:
        return len(self._by_token)

    def __iter__(self) -> Iterator[PageSession]:
        return iter(tuple(self._by_token.values()))

    def begin(self, viewer: Viewer) -> PageSession:
        """Returns a new session."""
        self._end_idle()
        owner = viewer.principal, viewer.network
        own_sessions = [
            candidate
            for candidate in self._by_token.values()
            if (candidate.viewer.principal, candidate.viewer.network) == owner
        ]
        if len(own_sessions) >= MAX_OF_ONE or len(self._by_token) >= MAX_SESSIONS:
            sessions = own_sessions if len(own_sessions) >= MAX_OF_ONE else self._by_token.values()
            self.end(
                min(
                    sessions,
                    key=lambda candidate: (not candidate.viewer.network, candidate.busy, candidate.used),
                )
            )
        session = PageSession(viewer, self._clock())
        self._by_token[_hash(session.token)] = session
        return session

    def find(self, token: str, cookies: Iterable[str]) -> PageSession | None:
        """Returns the session of a token, if one of the Cookie headers has the cookie that goes with it."""
        session = self._by_token.get(_hash(token))
        if session is None:
            return None
        values = [value for line in cookies for name, value in _COOKIE.findall(line) if name == session.cookie_name]
        if len(values) != 1 or not hmac.compare_digest(values[0], session.cookie):
            return None
        if not session.busy and self._clock() - session.used > IDLE_SECONDS:
            self.end(session)
            return None
        session.used = self._clock()
        return session

    def touch(self, session: PageSession) -> None:
        """Notes that a session was used until now."""
        session.used = self._clock()

    def end(self, session: PageSession) -> None:
        """Ends a session and its open streams and runs."""
        self._by_token.pop(_hash(session.token), None)
        session.end()

    def end_all(self) -> None:
        """Ends every session."""
        for session in list(self._by_token.values()):
            self.end(session)

    def unused_for(self) -> float:
        """Returns for how many seconds no session was used; 0 while one is busy, infinity without a session."""
        if any(session.busy for session in self._by_token.values()):
            return 0.0
        return min((self._clock() - session.used for session in self._by_token.values()), default=float("inf"))

    def _end_idle(self) -> None:
        for session in list(self._by_token.values()):
            if not session.busy and self._clock() - session.used > IDLE_SECONDS:
                self.end(session)


def _hash(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()
