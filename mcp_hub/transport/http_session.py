"""What the requests of one session over streamable HTTP carry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from mcp_hub.transport.http1.response import HttpResponse
from mcp_hub.transport.link import LinkError

SESSION: Final = "Mcp-Session-Id"
VERSION: Final = "MCP-Protocol-Version"

_ID: Final = re.compile(r"[\x21-\x7e]{1,1024}")


class HttpSession:
    """The id an upstream gave, if it did, and the revision that was agreed on."""

    def __init__(self) -> None:
        self.id: str | None = None
        self._version: str | None = None

    def forget(self) -> None:
        """A new handshake begins."""
        self.id = self._version = None

    def begin(self, response: HttpResponse) -> None:
        """Take what the answer to `initialize` gives. Raises LinkError for an id that is none."""
        given = response.get(SESSION.lower())
        if given is not None and not _ID.fullmatch(given):
            raise LinkError(f"its {SESSION} is not 1 to 1024 visible ASCII characters", status=response.status)
        self.id = given

    def headers(self, given: Mapping[str, str] | None = None) -> dict[str, str]:
        """Those of one request: the given ones, and what its caller leaves out."""
        headers = dict(given or {})
        if VERSION in headers:
            self._version = headers[VERSION]
        elif self._version is not None:
            headers[VERSION] = self._version  # answers, DELETE, resumption
        if self.id is not None:
            headers[SESSION] = self.id
        return headers
