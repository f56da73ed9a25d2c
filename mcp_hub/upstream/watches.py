"""Resources of one upstream that somebody wants to hear of, each asked for once however many want it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

Json = dict[str, Any]
Heard = Callable[[Json], None]
"""Takes the params of `notifications/resources/updated`."""

SUBSCRIBE: Final = "resources/subscribe"
UNSUBSCRIBE: Final = "resources/unsubscribe"
UPDATED: Final = "notifications/resources/updated"


class Watches:
    """URI -> who watches it, and the way to tell them."""

    def __init__(self) -> None:
        self._watchers: dict[str, dict[Hashable, Heard]] = {}

    @property
    def uris(self) -> list[str]:
        """What is watched, under the upstream's own URIs."""
        return list(self._watchers)

    @property
    def watchers(self) -> set[Hashable]:
        """Everybody who watches something."""
        return {who for watchers in self._watchers.values() for who in watchers}

    def add(self, uri: str, who: Hashable, heard: Heard) -> bool:
        """Whether nobody watched it before."""
        watchers = self._watchers.setdefault(uri, {})
        watchers[who] = heard
        return len(watchers) == 1

    def remove(self, uri: str, who: Hashable) -> bool:
        """Whether nobody watches it any more; False where `who` did not."""
        watchers = self._watchers.get(uri, {})
        if watchers.pop(who, None) is None or watchers:
            return False
        del self._watchers[uri]
        return True

    def forget(self, who: Hashable) -> list[str]:
        """`who` is gone; the URIs nobody watches any more."""
        return [uri for uri in self.uris if self.remove(uri, who)]

    def updated(self, params: Json) -> None:
        """Tell those that watch the resource, or one it is a part of."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            return
        for watched, watchers in list(self._watchers.items()):
            if uri == watched or uri.startswith(watched.rstrip("/") + "/"):
                for heard in list(watchers.values()):
                    heard(params)
