"""Which URI leads to which resource for each caller: those of the catalog, and those it was given in results."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Protocol

from mcp_hub.catalog import names
from mcp_hub.catalog.catalog import Catalog, Route
from mcp_hub.protocol.kinds import RESOURCES

MAX_URI: Final = 65_536
"""Characters of a URI that is remembered; a longer one stays as it is and leads nowhere."""
MAX_GIVEN: Final = 16 * 2**20
"""Characters of all remembered URIs; of the caller that has most, the oldest are forgotten."""
_OVERHEAD: Final = 256
"""What remembering one takes besides its characters."""


class Uris(Protocol):
    """The two directions of a URI between a caller and a server."""

    def exposed(self, caller: Hashable | None, upstream: str, uri: str) -> str:
        """The URI under which a caller gets to a resource of a server, listed or not."""
        ...

    def original(self, caller: Hashable | None, upstream: str, uri: str) -> str:
        """The server's own URI of what a caller knows as `uri`; as it is if that is no resource of this server."""
        ...


class Unchanged:
    """For servers no client sees."""

    def exposed(self, caller: Hashable | None, upstream: str, uri: str) -> str:
        """The same (Uris)."""
        return uri

    def original(self, caller: Hashable | None, upstream: str, uri: str) -> str:
        """The same (Uris)."""
        return uri


class KnownUris:
    """Uris by the catalog that `catalog_of(caller)` is now."""

    def __init__(self, catalog_of: Callable[[Hashable | None], Catalog]) -> None:
        self._catalog_of = catalog_of
        self._given = GivenUris()

    def exposed(self, caller: Hashable | None, upstream: str, uri: str) -> str:
        """The URI under which a caller gets to a resource of a server, listed or not (Uris)."""
        catalog = self._catalog_of(caller)
        known = catalog.exposed_uri(upstream, uri)
        if catalog.resolve(RESOURCES, known) is not None:
            return known
        return self._given.give(caller, upstream, uri, known)

    def original(self, caller: Hashable | None, upstream: str, uri: str) -> str:
        """The server's own URI of what a caller knows as `uri` (Uris)."""
        route = self._catalog_of(caller).resolve(RESOURCES, uri) or self.given(caller, uri)
        if route is not None:
            return route.name if route.upstream == upstream else uri
        said = names.original_uri(uri)  # given, and forgotten since
        return said[1] if said is not None and said[0] == upstream else uri

    def given(self, caller: Hashable | None, uri: str) -> Route | None:
        """Where a URI leads that no list has and that this caller was given."""
        found = self._given.find(caller, uri)
        return Route(found[0], RESOURCES, found[1]) if found is not None else None

    def forget(self, caller: Hashable) -> None:
        """The caller is gone."""
        self._given.forget(caller)


class GivenUris:
    """Resources that no list has, by the URIs that callers were given in results: what was linked to can be read."""

    def __init__(self) -> None:
        self._of: dict[Hashable | None, OrderedDict[str, tuple[str, str]]] = {}
        self._sizes: dict[Hashable | None, int] = {}
        self._size = 0

    def give(self, caller: Hashable | None, upstream: str, uri: str, wanted: str) -> str:
        """The URI that is to lead to `uri` of `upstream`: the wanted one, unless it leads elsewhere already.

        An address of the web is that of one thing, whoever names it, and a client may fetch it from there.
        """
        if len(wanted) > MAX_URI:
            return wanted
        mine = self.find(caller, wanted) in (None, (upstream, uri)) or wanted.startswith(("https://", "http://"))
        given = wanted if mine else names.expose_uri(upstream, uri)
        known = self._of.setdefault(caller, OrderedDict())
        before = known.get(given)
        known[given] = (upstream, uri)
        known.move_to_end(given)
        self._add(caller, _size(given, uri) - (_size(given, before[1]) if before is not None else 0))
        while self._size > MAX_GIVEN:
            largest = max(self._sizes, key=lambda one: self._sizes[one])
            oldest, (_, there) = self._of[largest].popitem(last=False)
            self._add(largest, -_size(oldest, there))
        return given

    def _add(self, caller: Hashable | None, size: int) -> None:
        self._sizes[caller] = self._sizes.get(caller, 0) + size
        self._size += size

    def find(self, caller: Hashable | None, uri: str) -> tuple[str, str] | None:
        """(upstream, URI there) of a URI that this caller was given."""
        known = self._of.get(caller)
        return known.get(uri) if known is not None else None

    def forget(self, caller: Hashable) -> None:
        """The caller is gone."""
        self._of.pop(caller, None)
        self._size -= self._sizes.pop(caller, 0)


def _size(given: str, uri: str) -> int:
    return len(given) + len(uri) + _OVERHEAD
