"""The fallback for scraping: if a server fails to read a page, the hub fetches it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from mcp_hub.catalog.catalog import Item, Route
from mcp_hub.config.root_rules import FailureClass, FallbackSettings
from mcp_hub.errors import (
    CallError,
    CircuitOpen,
    DeadlineExceeded,
    GuardBlocked,
    ServerUnavailable,
    SignInMissing,
    UpstreamAnswered,
)
from mcp_hub.policy import Call, Json, Next
from mcp_hub.policy.patterns import ToolNames
from mcp_hub.protocol.kinds import TOOLS

META_KEY: Final = "mcp-hub/fallback"
URL_ARGUMENTS: Final = ("url", "uri", "link", "href", "webpage", "website")

Scrape = Callable[[str, float], Awaitable[Json]]


class FallbackPolicy:
    """Answers with `scrape(url, seconds)` when a scraping tool fails in one of the configured ways."""

    name = "fallback"

    def __init__(self, fallback: FallbackSettings, scrape: Scrape) -> None:
        self._rules = fallback
        self._tools = ToolNames(fallback.tools)
        self._scrape = scrape

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Returns the items unchanged."""
        return items

    def concerns(self, route: Route) -> bool:
        """Returns whether it is a scraping tool."""
        return route.kind is TOOLS and route in self._tools

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Runs the call, or fetches its page.

        Raises the error of the server's attempt if the hub cannot fetch the page either.
        """
        url = self._url(call)
        if url is None:
            return await call_next(call)
        result: Json | None = None
        failure: Exception | None = None
        scope = asyncio.timeout(self._rules.timeout)
        try:
            async with scope:
                result = await call_next(call)
        except TimeoutError:
            if not scope.expired():
                raise
            text = f"{call.exposed!r} did not answer within {self._rules.timeout:g} s (setting: fallback.timeout)."
            failure = DeadlineExceeded(text, server=call.route.upstream)
        except (CallError, UpstreamAnswered) as error:
            failure = error
        because = _class_of(failure, result)
        if because not in self._rules.on:
            return _outcome(result, failure)
        code = failure.code if isinstance(failure, CallError) else because
        try:
            page = await self._scrape(url, self._rules.timeout)
        except GuardBlocked as error:
            call.refused_by = "guard: a redirect"
            call.notes.append("fallback: refused: the page leads to a guarded URL")
            raise GuardBlocked(error.message, server=call.route.upstream) from None
        except (CallError, UpstreamAnswered, TimeoutError) as error:
            reason = str(error) or "it took too long"
            call.notes.append(f"fallback: failed as well: {reason}")
            if isinstance(failure, CallError):
                said = failure.message.rstrip(".")
                failure.message = f"{said}. The hub could not fetch the page itself either: {reason}"
            return _outcome(result, failure)
        call.fallback = "markitdown"
        call.notes.append(f"fallback: markitdown, because of {code}")
        return _marked(page, code, call.route.upstream)

    def _url(self, call: Call) -> str | None:
        if call.method != TOOLS.act_method or call.route not in self._tools:
            return None
        arguments = call.params.get("arguments")
        if not isinstance(arguments, dict):
            return None
        found = (arguments.get(name) for name in URL_ARGUMENTS)
        return next((url for url in found if isinstance(url, str) and url.strip()), None)


def _class_of(failure: Exception | None, result: Json | None) -> FailureClass | None:
    """Returns the class of a failure; None for a success and for errors that are not the server's."""
    if isinstance(failure, ServerUnavailable | CircuitOpen | SignInMissing):
        return "transport"
    if isinstance(failure, DeadlineExceeded):
        return "timeout"
    if isinstance(failure, UpstreamAnswered) or (result is not None and result.get("isError") is True):
        return "tool_error"
    return None


def _outcome(result: Json | None, failure: Exception | None) -> Json:
    if failure is not None:
        raise failure
    assert result is not None
    return result


def _marked(page: Json, code: str, upstream: str) -> Json:
    """Returns the page with a note that the hub fetched it."""
    content: list[Any] = list(page.get("content") or [])
    content.append({"type": "text", "text": f"(fetched by the hub with MarkItDown: {upstream!r} failed with {code})"})
    meta = {**(page.get("_meta") or {}), META_KEY: {"used": "markitdown", "because": code}}
    return {**page, "content": content, "_meta": meta}
