"""The place of this hub in a row of hubs: what hubs in front of it are told, and whether one is served."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final

from mcp_hub.config.ancestry import HUB_KEY, Ancestry, is_hub
from mcp_hub.errors import ProtocolError
from mcp_hub.upstream.connection import Upstream

log = logging.getLogger("mcp_hub")

Json = dict[str, Any]

MAX_TOLD: Final = 1000
"""Hubs in front of this one that are told of changes; principals of the modern era never say that they are gone."""


class Place:
    """`shown(caller)` are the ids of the upstreams of which a caller sees something.

    `tell(callers)` is called when what stands behind the lists of these hubs has changed: they ask for them again.
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
        """What each hub in front of this one was told last."""
        self._refusal: ProtocolError | None = None

    def admit(self, client_info: Any) -> None:
        """Raises ProtocolError for the only client of a hub that must not serve it, now and from then on."""
        if self._refusal is None and (refusal := self.ancestry.refusal(client_info)) is not None:
            log.error("%s", refusal)
            self._refusal = refusal
        if self._refusal is not None:
            raise self._refusal

    def meta(self, client_info: Any, caller: Hashable | None) -> Json | None:
        """What a client that is a hub finds in the `_meta` of an answer; None for any other client."""
        if not is_hub(client_info):
            return None
        self._told.pop(caller, None)
        self._told[caller] = found = self._of(caller)
        if len(self._told) > MAX_TOLD:
            del self._told[next(iter(self._told))]
        return {HUB_KEY: found}

    def built(self) -> None:
        """The lists have been merged anew."""
        changed = [caller for caller, told in self._told.items() if self._of(caller) != told]
        if changed:
            self._tell(frozenset(changed))

    def forget(self, caller: Hashable) -> None:
        """`caller` is gone."""
        self._told.pop(caller, None)

    def _of(self, caller: Hashable | None) -> Json:
        shown = self._shown(caller)
        there = [upstream.behind for id, upstream in self._upstreams().items() if id in shown]
        # The names of servers are for the only client, whose configuration started this hub.
        return self.ancestry.told(there, self._notes() if caller is None else ())

    def _notes(self) -> Iterable[str]:
        for id, upstream in self._upstreams().items():
            if upstream.left_out:
                yield f"{id}: {upstream.error}"
            yield from (f"{id} › {note}" for note in upstream.behind.notes)
