"""Where messages name resources, and the URIs clients know those by: rewritten there and nowhere else.

Nothing is mutated; what has no such place is given back as it is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final

from mcp_hub import names

Json = dict[str, Any]
Expose = Callable[[str], str]
"""The URI under which clients know a resource of the server a message comes from."""

MAX_GIVEN: Final = 20_000
"""URIs of unlisted resources that clients were given; the oldest are forgotten."""

UI: Final = "ui"
UI_RESOURCE: Final = "resourceUri"
OLD_UI_RESOURCE: Final = "ui/resourceUri"


def in_result(method: str, result: Json, expose: Expose) -> Json:
    """A server's result with the URIs clients know."""
    if not isinstance(result, dict):
        return result
    if method == "resources/read":
        changed: Json = _with(
            result, "contents", lambda value: _each(value, lambda one: _with(one, "uri", _text(expose)))
        )
    elif method == "prompts/get":
        changed = _with(result, "messages", lambda value: _messages(value, expose))
    elif method == "tasks/get":
        changed = _with(result, "result", lambda value: in_result("tools/call", value, expose))
    elif method == "tools/call":
        changed = _with(result, "content", lambda value: _each(value, lambda one: _block(one, expose)))
    else:
        return result
    if "inputRequests" in changed:
        changed = _with(changed, "inputRequests", lambda value: _requests(value, expose))
    return in_meta(changed, expose)


def in_question(method: str, params: Json, expose: Expose) -> Json:
    """The params of a server's request to a client, likewise."""
    if method != "sampling/createMessage":
        return params
    changed: Json = _with(params, "messages", lambda value: _messages(value, expose))
    return changed


def in_meta(item: Json, expose: Expose) -> Json:
    """A tool or a result whose `_meta` says which resource shows it."""
    meta = item.get("_meta")
    if not isinstance(meta, dict) or not (UI in meta or OLD_UI_RESOURCE in meta):
        return item

    def shown(value: Any) -> Any:
        value = _with(value, OLD_UI_RESOURCE, _text(expose))
        return _with(value, UI, lambda ui: _with(ui, UI_RESOURCE, _text(expose)))

    changed: Json = _with(item, "_meta", shown)
    return changed


def _requests(requests: Any, expose: Expose) -> Any:
    if not isinstance(requests, dict):
        return requests
    changed = {key: _request(request, expose) for key, request in requests.items()}
    return changed if any(changed[key] is not request for key, request in requests.items()) else requests


def _request(request: Any, expose: Expose) -> Any:
    method = request.get("method") if isinstance(request, dict) else None
    if not isinstance(method, str):
        return request
    return _with(request, "params", lambda params: in_question(method, params, expose))


def _messages(messages: Any, expose: Expose) -> Any:
    def content(value: Any) -> Any:
        return _each(value, lambda one: _block(one, expose)) if isinstance(value, list) else _block(value, expose)

    return _each(messages, lambda message: _with(message, "content", content))


def _block(block: Any, expose: Expose) -> Any:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "resource_link":
        return _with(block, "uri", _text(expose))
    if kind == "resource":
        return _with(block, "resource", lambda resource: _with(resource, "uri", _text(expose)))
    if kind == "tool_result":
        return _with(block, "content", lambda value: _each(value, lambda one: _block(one, expose)))
    return block


def _text(expose: Expose) -> Callable[[Any], Any]:
    return lambda value: expose(value) if isinstance(value, str) else value


def _with(value: Any, key: str, change: Callable[[Any], Any]) -> Any:
    """`value` with one member changed, if it is an object that has it."""
    if not isinstance(value, dict) or key not in value:
        return value
    changed = change(value[key])
    return value if changed is value[key] or changed == value[key] else {**value, key: changed}


def _each(values: Any, change: Callable[[Any], Any]) -> Any:
    if not isinstance(values, list):
        return values
    changed = [change(value) for value in values]
    return changed if any(new is not old for new, old in zip(changed, values, strict=True)) else values


class GivenUris:
    """Resources that no list has, by the URIs that callers were given in results: what was linked to can be read."""

    def __init__(self) -> None:
        self._upstreams: OrderedDict[tuple[Hashable | None, str], tuple[str, str]] = OrderedDict()

    def give(self, caller: Hashable | None, upstream: str, uri: str, wanted: str) -> str:
        """The URI that is to lead to `uri` of `upstream`: the wanted one, unless it leads elsewhere already.

        An address of the web is that of one thing, whoever names it, and a client may fetch it from there.
        """
        owner = self._upstreams.setdefault((caller, wanted), (upstream, uri))
        mine = owner == (upstream, uri) or wanted.startswith(("https://", "http://"))
        given = wanted if mine else names.expose_uri(upstream, uri)
        self._upstreams[caller, given] = (upstream, uri)
        self._upstreams.move_to_end((caller, given))
        while len(self._upstreams) > MAX_GIVEN:
            self._upstreams.popitem(last=False)
        return given

    def find(self, caller: Hashable | None, uri: str) -> tuple[str, str] | None:
        """(upstream, URI there) of a URI that this caller was given."""
        return self._upstreams.get((caller, uri))

    def forget(self, caller: Hashable) -> None:
        """The caller is gone."""
        for key in [key for key in self._upstreams if key[0] == caller]:
            del self._upstreams[key]
