"""Rewrites URIs in messages, in the members that name resources and nowhere else.

Nothing is mutated; a message without such a member is returned unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mcp_hub.protocol.apps import OLD_UI_RESOURCE, UI, UI_RESOURCE
from mcp_hub.protocol.skill_entries import READ_DIRECTORY

Json = dict[str, Any]
Expose = Callable[[str], str]
"""Maps a server's URI to the one that clients know; for messages to the server, the reverse."""

_WITHOUT_URIS: Final = frozenset({"text", "image", "audio"})
"""Types of blocks that name no resource."""


_RESOURCES_IN: Final = {"resources/read": "contents", READ_DIRECTORY: "resources"}
"""By method: the member of its result that is a list of resources."""


def names_no_uri(method: str, result: Any) -> bool:
    """Returns whether this is a tool result that certainly names no resource, so that it needs no rewriting.

    Nearly all tool results are such, and this check is much cheaper than rewriting.
    """
    if method != "tools/call" or type(result) is not dict or "inputRequests" in result:
        return False
    content, meta = result.get("content"), result.get("_meta")
    if type(content) is not list or (type(meta) is dict and (UI in meta or OLD_UI_RESOURCE in meta)):
        return False
    for block in content:  # noqa: SIM110 - a generator would be resumed for each block
        if type(block) is not dict or block.get("type") not in _WITHOUT_URIS:
            return False
    return True


def in_result(method: str, result: Json, expose: Expose) -> Json:
    """Rewrites the URIs in a server's result."""
    if not isinstance(result, dict):
        return result
    if method in _RESOURCES_IN:
        changed: Json = _with(
            result,
            _RESOURCES_IN[method],
            lambda value: _each(value, lambda member: _with(member, "uri", _text(expose))),
        )
    elif method == "prompts/get":
        changed = _with(result, "messages", lambda value: _messages(value, expose))
    elif method == "tasks/get":
        changed = _with(result, "result", lambda value: in_result("tools/call", value, expose))
    elif method == "tools/call":
        changed = _with(result, "content", lambda value: _each(value, lambda member: _block(member, expose)))
    else:
        return result
    if "inputRequests" in changed:
        changed = _with(
            changed, "inputRequests", lambda value: _members(value, lambda member: _request(member, expose))
        )
    return in_meta(changed, expose)


def in_question(method: str, params: Json, expose: Expose) -> Json:
    """Rewrites the URIs in the params of a server's request to a client."""
    if method != "sampling/createMessage":
        return params
    changed: Json = _with(params, "messages", lambda value: _messages(value, expose))
    return changed


def in_error(method: str, error: Json, expose: Expose) -> Json:
    """Rewrites the URI in a server's error object, which may name a missing resource."""
    if not method.startswith("resources/"):
        return error
    changed: Json = _with(error, "data", lambda data: _with(data, "uri", _text(expose)))
    return changed


def in_answer(result: Json, original: Expose) -> Json:
    """Rewrites the URIs in a client's result for a server's request to the server's own URIs.

    The content of an elicitation is the user's input, and is never changed.
    """
    if not isinstance(result, dict) or "action" in result or "role" not in result:
        return result
    changed: Json = _with(result, "content", lambda value: _content(value, original))
    return changed


def in_request(params: Json, original: Expose) -> Json:
    """Rewrites the URIs in `inputResponses`, the results for server requests that a client's request carries."""
    changed: Json = _with(
        params,
        "inputResponses",
        lambda answers: _members(answers, lambda answer: in_answer(answer, original)),
    )
    return changed


def in_meta(item: Json, expose: Expose) -> Json:
    """Rewrites the URI of the UI resource in the `_meta` of a tool or a result."""
    meta = item.get("_meta")
    if not isinstance(meta, dict) or not (UI in meta or OLD_UI_RESOURCE in meta):
        return item

    def with_exposed_uris(value: Any) -> Any:
        value = _with(value, OLD_UI_RESOURCE, _text(expose))
        return _with(value, UI, lambda ui: _with(ui, UI_RESOURCE, _text(expose)))

    changed: Json = _with(item, "_meta", with_exposed_uris)
    return changed


def _request(request: Any, expose: Expose) -> Any:
    method = request.get("method") if isinstance(request, dict) else None
    if not isinstance(method, str):
        return request
    return _with(request, "params", lambda params: in_question(method, params, expose))


def _messages(messages: Any, expose: Expose) -> Any:
    return _each(messages, lambda message: _with(message, "content", lambda value: _content(value, expose)))


def _content(value: Any, expose: Expose) -> Any:
    return _each(value, lambda block: _block(block, expose)) if isinstance(value, list) else _block(value, expose)


def _block(block: Any, expose: Expose) -> Any:
    if isinstance(block, dict) and block.get("type") == "tool_result":  # it cannot contain another tool_result
        return _with(block, "content", lambda value: _each(value, lambda inner: _resource(inner, expose)))
    return _resource(block, expose)


def _resource(block: Any, expose: Expose) -> Any:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "resource_link":
        return _with(block, "uri", _text(expose))
    if kind == "resource":
        return _with(block, "resource", lambda resource: _with(resource, "uri", _text(expose)))
    return block


def _text(expose: Expose) -> Callable[[Any], Any]:
    return lambda value: expose(value) if isinstance(value, str) else value


def _with(value: Any, key: str, change: Callable[[Any], Any]) -> Any:
    """Returns a copy of `value` with one member changed; `value` itself if it is no object or lacks the member."""
    if not isinstance(value, dict) or key not in value:
        return value
    changed = change(value[key])
    return value if changed is value[key] or changed == value[key] else {**value, key: changed}


def _each(values: Any, change: Callable[[Any], Any]) -> Any:
    if not isinstance(values, list):
        return values
    changed = [change(value) for value in values]
    return changed if any(new is not old for new, old in zip(changed, values, strict=True)) else values


def _members(value: Any, change: Callable[[Any], Any]) -> Any:
    if not isinstance(value, dict):
        return value
    changed = {key: change(member) for key, member in value.items()}
    return changed if any(changed[key] is not member for key, member in value.items()) else value
