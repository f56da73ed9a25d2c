"""The callers that watch resources of one upstream, which has one subscription for each resource."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

Json = dict[str, Any]
OnUpdate = Callable[[Json], None]
"""Takes the params of `notifications/resources/updated`."""

SUBSCRIBE: Final = "resources/subscribe"
UNSUBSCRIBE: Final = "resources/unsubscribe"
UPDATED: Final = "notifications/resources/updated"


class ResourceWatchers:
    """The watchers of each URI and the callback that notifies each of them."""

    def __init__(self) -> None:
        self._watchers: dict[str, dict[Hashable, OnUpdate]] = {}

    @property
    def uris(self) -> list[str]:
        """The watched URIs, as the upstream names them."""
        return list(self._watchers)

    @property
    def watchers(self) -> set[Hashable]:
        """All callers that watch at least one resource."""
        return {who for watchers in self._watchers.values() for who in watchers}

    def add(self, uri: str, who: Hashable, on_update: OnUpdate) -> bool:
        """Adds a watcher; returns whether it is the first one of this URI."""
        watchers = self._watchers.setdefault(uri, {})
        watchers[who] = on_update
        return len(watchers) == 1

    def remove(self, uri: str, who: Hashable) -> bool:
        """Removes a watcher; returns whether it was the last one. False if `who` did not watch this URI."""
        watchers = self._watchers.get(uri, {})
        if watchers.pop(who, None) is None or watchers:
            return False
        del self._watchers[uri]
        return True

    def forget(self, who: Hashable) -> list[str]:
        """Removes `who` everywhere; returns the URIs that nobody watches any more."""
        return [uri for uri in self.uris if self.remove(uri, who)]

    def updated(self, params: Json) -> None:
        """Notifies the watchers of the resource and of every resource that it is a part of."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            return
        for watched, watchers in list(self._watchers.items()):
            if uri == watched or uri.startswith(watched.rstrip("/") + "/"):
                for on_update in list(watchers.values()):
                    on_update(params)
