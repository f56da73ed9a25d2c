"""Elicitations by URL: their ids, and the news that one is complete, are for the client that was sent there alone."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final
from urllib.parse import quote

from mcp_hub.errors import URL_ELICITATION_REQUIRED, UpstreamAnswered
from mcp_hub.protocol.asking import COMPLETED, ELICITATION_ID, Asker, Json

MAX_KNOWN: Final = 1000
"""Elicitations of one session whose end is waited for; the oldest are forgotten."""


class Elicitations:
    """Those of one session with a server. Clients know an id with its server's in front: two may choose the same."""

    def __init__(self, upstream: str) -> None:
        self._prefix = quote(upstream, safe="")
        self._known: OrderedDict[str, Asker] = OrderedDict()

    def asked(self, params: Json, asker: Asker) -> Json:
        """The params of an elicitation as `asker` is to see them."""
        original = params.get(ELICITATION_ID)
        if not isinstance(original, str):
            return params
        self._known[original] = asker
        self._known.move_to_end(original)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return {**params, ELICITATION_ID: self._exposed(original)}

    def required(self, error: UpstreamAnswered, asker: Asker | None) -> UpstreamAnswered:
        """An error as the client of its call is to see it: it may say which URLs have to be visited first."""
        data = error.error.get("data")
        data = data if isinstance(data, dict) else {}
        listed = data.get("elicitations")
        if error.code != URL_ELICITATION_REQUIRED or asker is None or not isinstance(listed, list):
            return error
        seen = [self.asked(one, asker) if isinstance(one, dict) else one for one in listed]
        return UpstreamAnswered({**error.error, "data": {**data, "elicitations": seen}})

    def completed(self, params: dict[str, Any]) -> None:
        """The server says that one is complete."""
        original = params.get(ELICITATION_ID)
        asker = self._known.pop(original, None) if isinstance(original, str) else None
        if asker is not None:
            asker.tell(COMPLETED, {**params, ELICITATION_ID: self._exposed(str(original))})

    def _exposed(self, original: str) -> str:
        return f"{self._prefix}/{original}"
