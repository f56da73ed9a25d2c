"""Whether a caller's call finds the session its calls before had; where that had a state, the caller has to know."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from mcp_hub.config.models import Server
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.upstream.session import Session
from mcp_hub.upstream.words import Words

MAX_CALLERS: Final = 1000


class Continuity:
    """Of a browser, the session of each caller's last call; of other servers nothing is remembered."""

    def __init__(self, server: Server, words: Words) -> None:
        self._browser = server.browser
        self._words = words
        self._last: dict[Hashable | None, Session] = {}

    def check(self, caller: Hashable | None, session: Session, method: str) -> None:
        """Raises StateLost, once, where pages and cookies went with the session of the calls before."""
        if not self._browser or method != TOOLS.act_method:
            return
        before = self._last.pop(caller, None)
        self._last[caller] = session
        while len(self._last) > MAX_CALLERS:
            del self._last[next(iter(self._last))]
        if before is not None and before is not session:
            raise self._words.state_lost(before.loss, before.last_words)

    def inherit(self, former: Continuity) -> None:
        """Callers of the upstream that was here before are told as well."""
        if self._browser:
            self._last = dict(former._last)

    def forget(self, caller: Hashable | None) -> None:
        """The caller has been told, or is gone."""
        self._last.pop(caller, None)
