"""Hubs behind hubs: which hub in front of this one may be served, and what it is told about the hubs behind."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final

from mcp_hub.config.ancestry import HUB_KEY, Ancestry
from mcp_hub.errors import ProtocolError
from mcp_hub.upstream.upstream import Upstream

log = logging.getLogger("mcp_hub")

Json = dict[str, Any]

MAX_TOLD: Final = 1000
"""Hubs in front of this one that are remembered; modern principals never announce that they are gone."""


class NestedHubs:
    """The place of this hub in a row of hubs, each the client of the next.

    `shown(caller)` returns the ids of the upstreams of which a caller sees anything. `tell(callers)` is called when
    other hubs stand behind the lists of these callers, which then request their lists again.
    """

    def __init__(
        self,
        ancestry: Ancestry,
        upstreams: Callable[[], Mapping[str, Upstream]],
        shown: Callable[[Hashable | None], frozenset[str]],
        tell: Callable[[frozenset[Hashable | None]], None],
    ) -> None:
        self.ancestry = ancestry
        self._upstreams = upstreams
        self._shown = shown
        self._tell = tell
        self._told: dict[Hashable | None, Json] = {}
        """What each hub in front of this one was last told."""
        self._refusal: ProtocolError | None = None

    def admit(self, client_info: Any) -> None:
        """Checks the only client of this hub.

        Raises ProtocolError, now and on every later request, if the client is a hub that must not be served.
        """
        if self._refusal is None and (refusal := self.ancestry.refusal(client_info)) is not None:
            log.error("%s", refusal)
            self._refusal = refusal
        if self._refusal is not None:
            raise self._refusal

    def meta(self, caller: Hashable | None) -> Json:
        """Returns the `_meta` of an answer to a caller that is a hub (`Envelope.from_hub`)."""
        self._told.pop(caller, None)
        self._told[caller] = found = self._of(caller)
        if len(self._told) > MAX_TOLD:
            del self._told[next(iter(self._told))]
        return {HUB_KEY: found}

    def built(self) -> None:
        """Notifies the hubs in front of this one whose lists now come from other hubs."""
        changed = [caller for caller, told in self._told.items() if self._of(caller) != told]
        if changed:
            self._tell(frozenset(changed))

    def forget(self, caller: Hashable) -> None:
        """Forgets a hub that is gone."""
        self._told.pop(caller, None)

    def _of(self, caller: Hashable | None) -> Json:
        shown = self._shown(caller)
        there = [upstream.behind for id, upstream in self._upstreams().items() if id in shown]
        # The names of servers are for the only client, whose configuration started this hub.
        return self.ancestry.describe(there, self._notes() if caller is None else ())

    def _notes(self) -> Iterable[str]:
        for id, upstream in self._upstreams().items():
            if upstream.left_out:
                yield f"{id}: {upstream.error}"
            yield from (f"{id} › {note}" for note in upstream.behind.notes)
