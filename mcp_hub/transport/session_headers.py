"""Headers of one session's requests: its id, its revision, and the cookies by which load balancers route them."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from mcp_hub.security.lru import Lru
from mcp_hub.transport import LinkError

if TYPE_CHECKING:
    from yarl import URL

    from mcp_hub.transport.http1.client_response import HttpResponse

SESSION: Final = "Mcp-Session-Id"
VERSION: Final = "MCP-Protocol-Version"

_ID: Final = re.compile(r"[\x21-\x7e]{1,1024}")


class SessionHeaders:
    """The headers of one session: the id that the upstream assigned, if any, and the negotiated revision."""

    def __init__(self) -> None:
        self.id: str | None = None
        self._version: str | None = None

    def forget(self) -> None:
        """Forgets both; a new handshake begins."""
        self.id = self._version = None

    def begin(self, response: HttpResponse) -> None:
        """Takes the session id from the answer to `initialize`. Raises LinkError for an invalid one."""
        session_id = response.get(SESSION.lower())
        if session_id is not None and not _ID.fullmatch(session_id):
            raise LinkError(f"its {SESSION} is not 1 to 1024 visible ASCII characters", status=response.status)
        self.id = session_id

    def headers(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Returns the headers of one request: the given ones, and those of the session."""
        headers = dict(extra or {})
        if VERSION in headers:
            self._version = headers[VERSION]
        elif self._version is not None:
            headers[VERSION] = self._version  # responses, the DELETE and resumptions come without one
        if self.id is not None:
            headers[SESSION] = self.id
        return headers


MAX_COOKIES: Final = 50
"""Cookies that are kept; beyond that, the oldest are dropped."""
MAX_COOKIE: Final = 4096
"""Characters of the name and value of one cookie."""
MAX_LINES: Final = 50
"""Set-Cookie headers of one response that are read."""

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r'[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*|"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*"')
_SECONDS: Final = re.compile(r"-?[0-9]{1,12}")


class _Cookie(msgspec.Struct, frozen=True):
    value: str
    path: str
    secure: bool
    until: float | None
    """Expiry in seconds since the epoch; None: at the end of the session."""


class CookieJar:
    """Keeps the cookies of one origin. They are sent to that origin only, whatever domain they name."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._cookies: Lru[tuple[str, str], _Cookie] = Lru(MAX_COOKIES)

    def take(self, url: URL, lines: Sequence[str]) -> None:
        """Takes the Set-Cookie headers of a response from `url`. Malformed and oversized ones are ignored."""
        for line in lines[:MAX_LINES]:
            first, *parts = line.split(";")
            name, equals, value = (part.strip() for part in first.partition("="))
            if not equals or len(name) + len(value) > MAX_COOKIE:
                continue
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                continue
            attributes = {
                key.strip().lower(): text.strip() for key, _, text in (attribute.partition("=") for attribute in parts)
            }
            expires_at = self._expiry(attributes)
            path = attributes.get("path", "")
            path = path if path.startswith("/") else url.raw_path.rpartition("/")[0] or "/"
            self._cookies.pop((name, path), None)
            if expires_at is None or expires_at > self._clock():
                self._cookies[name, path] = _Cookie(value, path, "secure" in attributes, expires_at)

    def _expiry(self, attributes: Mapping[str, str]) -> float | None:
        if _SECONDS.fullmatch(seconds := attributes.get("max-age", "")):
            return self._clock() + int(seconds)
        try:
            return email.utils.parsedate_to_datetime(attributes["expires"].replace("-", " ")).timestamp()
        except (KeyError, ValueError, OverflowError):
            return None

    def added(self, url: URL, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Returns the headers of a request to `url`, with its cookies added."""
        pairs = [
            f"{name}={cookie.value}"
            for (name, _), cookie in self._cookies.items()
            if (cookie.until is None or cookie.until > self._clock())
            and (not cookie.secure or url.scheme == "https")
            and _is_below(url.raw_path, cookie.path)
        ]
        return {**headers, "Cookie": "; ".join(pairs)} if pairs else headers


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder if folder.endswith("/") else f"{folder}/")
