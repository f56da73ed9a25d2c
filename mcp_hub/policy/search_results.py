"""Search results without the links that the guard would refuse to open."""

from __future__ import annotations

from typing import Any, Final

from mcp_hub.protocol.frames import FrameError, decode, encode
from mcp_hub.security.url_rules import UrlRules
from mcp_hub.security.urls import Work

Json = dict[str, Any]

LINK_KEYS: Final = frozenset({"link", "url", "href", "uri", "permalink", "targeturl", "sourceurl", "pageurl", "weburl"})
"""Fields, in any case and with any `_`, in which a search result has its page; those of images are none."""
MAX_WORK: Final = 5_000_000
"""Steps for all links of one result, some 80,000 of them."""
MAX_TEXT: Final = 8 * 1024 * 1024
MAX_DEPTH: Final = 60


def without_guarded(result: Json, rules: UrlRules) -> tuple[Json, int]:
    """(the result of a call without members of lists that lead to a refused URL, how many were dropped).

    JSON in text blocks, `structuredContent` and resource links are looked at. A result of which nothing is dropped
    comes back as the same object. Links that are left when `MAX_WORK` is done are dropped: nobody has read them.
    """
    dropped = 0
    changes: Json = {}
    work = Work(MAX_WORK)
    content = result.get("content")
    if isinstance(content, list):
        kept: list[Any] = []
        for block in content:
            changed, number = _block(block, rules, work)
            dropped += number
            if changed is not None:
                kept.append(changed)
        if len(kept) != len(content) or any(one is not other for one, other in zip(kept, content, strict=True)):
            changes["content"] = kept
    structured = result.get("structuredContent")
    if isinstance(structured, dict | list):
        changed, number = _cleaned(structured, rules, work)
        dropped = max(dropped, number)
        if changed is not structured:
            changes["structuredContent"] = changed
    return ({**result, **changes}, dropped) if changes else (result, 0)


def _block(block: Any, rules: UrlRules, work: Work) -> tuple[Any, int]:
    if not isinstance(block, dict):
        return block, 0
    if block.get("type") == "resource_link":
        uri = block.get("uri")
        return (None, 1) if isinstance(uri, str) and rules.refuses_uri(uri, work) else (block, 0)
    text = block.get("text")
    if block.get("type") != "text" or not isinstance(text, str) or len(text) > MAX_TEXT:
        return block, 0
    if not text.lstrip().startswith(("{", "[")):
        return block, 0
    try:
        value = decode(text.encode("utf-8", "surrogatepass"))
    except FrameError:
        return block, 0
    changed, number = _cleaned(value, rules, work)
    return (block, 0) if changed is value else ({**block, "text": encode(changed).decode()}, number)


def _cleaned(value: Any, rules: UrlRules, work: Work, depth: int = 0) -> tuple[Any, int]:
    if depth > MAX_DEPTH:
        return value, 0
    if isinstance(value, dict):
        members = {key: _cleaned(one, rules, work, depth + 1) for key, one in value.items()}
        if all(changed is value[key] for key, (changed, _) in members.items()):
            return value, 0
        return {key: changed for key, (changed, _) in members.items()}, sum(number for _, number in members.values())
    if isinstance(value, list):
        kept = [_cleaned(one, rules, work, depth + 1) for one in value if not _is_guarded(one, rules, work)]
        number = len(value) - len(kept) + sum(dropped for _, dropped in kept)
        return ([changed for changed, _ in kept], number) if number else (value, 0)
    return value, 0


def _is_guarded(member: Any, rules: UrlRules, work: Work) -> bool:
    if isinstance(member, str):
        return "://" in member and " " not in member and rules.refuses_uri(member, work) is not None
    if not isinstance(member, dict):
        return False
    links = (one for key, one in member.items() if isinstance(one, str) and key.lower().replace("_", "") in LINK_KEYS)
    return any(rules.refuses_uri(link, work) is not None for link in links)
