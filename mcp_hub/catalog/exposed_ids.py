"""The ids under which callers know the resources and tasks of servers: exposed URIs and sealed task ids."""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from mcp_hub.catalog import Catalog, names
from mcp_hub.catalog.entries import Json, Route
from mcp_hub.errors import INVALID_PARAMS, ProtocolError
from mcp_hub.protocol.frames import FrameError, decode, encode
from mcp_hub.protocol.kinds import RESOURCES, TOOLS
from mcp_hub.security.callers import Caller, CallerSlot
from mcp_hub.text import base64url, base64url_bytes

MAX_ISSUED_URI: Final = 65_536
"""The most characters of a URI that is remembered; a longer one is passed on unchanged and cannot be read."""
MAX_ISSUED: Final = 16 * 2**20
"""The most characters of all remembered URIs; beyond that, the caller with the most loses its oldest ones."""
_OVERHEAD: Final = 256
"""Size of a remembered URI besides its characters."""


_NOTHING: Final = Catalog.build(())


class UriMap:
    """Translates URIs by the catalog that a caller sees, `catalog_of(caller)`, and by those in results it was given.

    By default no caller sees anything, so that URIs stay as they are.
    """

    def __init__(self, catalog_of: Callable[[Caller], Catalog] = lambda caller: _NOTHING) -> None:
        self._catalog_of = catalog_of
        self._issued = IssuedUris()

    def exposed(self, caller: Caller, upstream: str, uri: str) -> str:
        """Returns the URI under which a caller reaches a resource of a server, and remembers an unlisted one."""
        catalog = self._catalog_of(caller)
        exposed = catalog.exposed_uri(upstream, uri)
        if catalog.resolve(RESOURCES, exposed) is not None:
            return exposed
        return self._issued.give(caller, upstream, uri, exposed)

    def give(self, caller: Caller, upstream: str, uri: str, exposed: str) -> None:
        """Remembers that a caller reaches a resource of a server by `exposed`, unless the catalog resolves that."""
        if self._catalog_of(caller).resolve(RESOURCES, exposed) is None:
            self._issued.give(caller, upstream, uri, exposed)

    def original(self, caller: Caller, upstream: str, uri: str) -> str:
        """Returns the server's own URI of a resource that a caller knows as `uri`; `uri` if it is not of `upstream`."""
        route = self._catalog_of(caller).resolve(RESOURCES, uri) or self.route_of(caller, uri)
        if route is not None:
            return route.name if route.upstream == upstream else uri
        prefixed = names.original_uri(uri)  # the hub may have given it out and forgotten it since
        return prefixed[1] if prefixed is not None and prefixed[0] == upstream else uri

    def route_of(self, caller: Caller, uri: str) -> Route | None:
        """Returns the route of an unlisted URI that this caller was given in a result."""
        issued = self._issued.find(caller, uri)
        return Route(issued[0], RESOURCES, issued[1]) if issued is not None else None


class _Issued(OrderedDict[str, tuple[str, str]]):
    """The URIs that one caller was given, each with its upstream and the name there; the oldest come first."""

    size = 0


class IssuedUris:
    """The unlisted URIs that each caller was given in results, so that it can read the linked resources."""

    def __init__(self) -> None:
        self._of: CallerSlot[_Issued] = CallerSlot(_Issued, end=self._ended)
        self._size = 0

    def give(self, caller: Caller, upstream: str, uri: str, preferred: str) -> str:
        """Returns the URI that leads to `uri` of `upstream` from now on: `preferred`, unless that leads elsewhere.

        An http(s) URL never changes: it is the same resource for every server, and a client may fetch it directly.
        """
        if len(preferred) > MAX_ISSUED_URI:
            return preferred
        is_usable = self.find(caller, preferred) in (None, (upstream, uri)) or preferred.startswith(
            ("https://", "http://")
        )
        issued = preferred if is_usable else names.expose_uri(upstream, uri)
        uris = self._of.of(caller)
        if caller not in self._of:
            return issued  # it is gone, so that nothing can be remembered for it
        previous = uris.get(issued)
        uris[issued] = (upstream, uri)
        uris.move_to_end(issued)
        self._add(uris, _size(issued, uri) - (_size(issued, previous[1]) if previous is not None else 0))
        while self._size > MAX_ISSUED:
            largest_caller, largest = max(self._of.items(), key=lambda entry: entry[1].size)
            oldest, (_, original) = largest.popitem(last=False)
            self._add(largest, -_size(oldest, original))
            if not largest:
                self._of.drop(largest_caller)
        return issued

    def _add(self, uris: _Issued, size: int) -> None:
        uris.size += size
        self._size += size

    def _ended(self, caller: Caller, uris: _Issued) -> None:
        self._size -= uris.size

    def find(self, caller: Caller, uri: str) -> tuple[str, str] | None:
        """Returns (upstream, its URI) of a URI that this caller was given."""
        uris = self._of.get(caller)
        return uris.get(uri) if uris is not None else None


def _size(exposed: str, uri: str) -> int:
    return len(exposed) + len(uri) + _OVERHEAD


TASK_GET: Final = "tasks/get"
TASK_UPDATE: Final = "tasks/update"
TASK_CANCEL: Final = "tasks/cancel"
TASK_METHODS: Final = (TASK_GET, TASK_UPDATE, TASK_CANCEL)
TASK_ID: Final = "taskId"
TASK_RESULT_TYPE: Final = "task"

_PREFIX: Final = "hub-task."
_MAX: Final = 8192
_MAC: Final = 16


def unknown_task(sealed: str) -> ProtocolError:
    """Makes the error for a task that does not exist, belongs to another caller, or is of a tool that is refused."""
    return ProtocolError(INVALID_PARAMS, f"Unknown task: {sealed[:200]}")


class TaskIds:
    """Seals task ids: a sealed id holds server, tool and the server's task id, signed with `key` for one caller only.

    Ids sealed with an `older` key open too. `place` names the replica, for a task that only its process may have.
    """

    def __init__(self, key: bytes, *older: bytes, place: str = "") -> None:
        self._keys = (key, *older)
        self._replica = [place] if place else []

    def seal(self, caller: Caller, route: Route, task_id: str) -> str:
        """Returns the id under which `caller` knows a task of the tool at `route`."""
        payload = encode([route.upstream, route.name, task_id, *self._replica])
        return f"{_PREFIX}{base64url(payload)}.{base64url(_mac(self._keys[0], caller, payload))}"

    def open(self, caller: Caller, sealed: str) -> tuple[Route, str]:
        """Returns the tool's route and the server's id. Raises ProtocolError for an id not given to this caller."""
        upstream, tool, task_id, *_ = self._unseal(caller, sealed)
        return Route(upstream, TOOLS, tool), task_id

    def place_of(self, caller: Caller, sealed: str) -> str:
        """Returns the name of the replica that sealed an id, or "". Raises ProtocolError as `open` does."""
        return next(iter(self._unseal(caller, sealed)[3:]), "")

    def _unseal(self, caller: Caller, sealed: str) -> list[str]:
        payload, _, mac = sealed.removeprefix(_PREFIX).partition(".")
        try:
            if not sealed.startswith(_PREFIX) or len(sealed) > _MAX:
                raise ValueError
            data = base64url_bytes(payload)
            signature = base64url_bytes(mac)
            is_authentic = any([hmac.compare_digest(_mac(key, caller, data), signature) for key in self._keys])
            if not is_authentic or sealed != f"{_PREFIX}{payload}.{mac}":
                raise ValueError
            fields: list[str] = decode(data)
        except (ValueError, FrameError):
            raise unknown_task(sealed) from None
        return fields

    def in_result(self, caller: Caller, route: Route, result: Json) -> Json:
        """Returns a server's result with its task id, if any, sealed for the caller."""
        own = result.get(TASK_ID)
        return {**result, TASK_ID: self.seal(caller, route, own)} if isinstance(own, str) else result


class TaskSealer:
    """Holds the TaskIds of a hub: with its own key, `secret()`, or with the keys that its replicas share."""

    def __init__(self, secret: Callable[[], bytes]) -> None:
        self._secret = secret
        self._ids: TaskIds | None = None

    def __call__(self) -> TaskIds:
        """Returns the TaskIds in use now."""
        if self._ids is None:
            self._ids = TaskIds(self._secret())
        return self._ids

    def share(self, keys: Sequence[bytes], place: str) -> None:
        """Uses the keys of the replicas from now on: the first seals, all open. `place`: the name of this replica."""
        self._ids = TaskIds(*keys, place=place)


def _mac(key: bytes, caller: Caller, payload: bytes) -> bytes:
    seal = caller.seal
    return hmac.digest(key, b"mcp-hub task\0%d\0" % len(seal) + seal + payload, hashlib.sha256)[:_MAC]
