"""The fallback for scraping: if a server is unavailable or too slow to read a page, the hub fetches it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

from mcp_hub.catalog import Item, Route
from mcp_hub.config.extras import missing
from mcp_hub.config.field_types import Duration
from mcp_hub.config.fields import FieldValue
from mcp_hub.config.models import Config, Server
from mcp_hub.config.root_rules import SCRAPE_TOOLS, WEB_KEYS_OF_FALLBACK, not_by_default, warn_if_missing
from mcp_hub.config.settings import Frozen, KeyReading, RootKey, read_model
from mcp_hub.errors import (
    CallError,
    DeadlineExceeded,
    PermissionDenied,
    ServerUnavailable,
    UpstreamAnswered,
)
from mcp_hub.policy import Call, Json, Next, Policy, PolicyParts, without_output_schema
from mcp_hub.policy.breaker import CircuitOpen
from mcp_hub.policy.deadline import DeadlinePolicy, TimeLimit
from mcp_hub.policy.guard import GuardBlocked
from mcp_hub.policy.patterns import WILDCARDS
from mcp_hub.policy.rule_names import RuleNames
from mcp_hub.policy.selection import ToolNames, prefixes_of
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.protocol.questions import suspended

META_KEY: Final = "mcp-hub/fallback"
URL_ARGUMENTS: Final = ("url", "uri", "link", "href", "webpage", "website")

_STAND_IN: Final[Json] = {
    "description": "Read a web page. Returns its text as Markdown.",
    "inputSchema": {
        "type": "object",
        "properties": {"url": {"type": "string", "description": "The address of the page, http or https"}},
        "required": ["url"],
    },
}
"""What is listed of a tool whose server has never been reached."""

Scrape = Callable[[str, float], Awaitable[Json]]
FailureClass = Literal["transport", "timeout", "tool_error"]


class FallbackSettings(Frozen):
    """The fallback: the hub fetches a page itself if an upstream fails to scrape it."""

    OFF: ClassVar[Mapping[str, Any]] = {"tools": []}

    tools: tuple[str, ...] = SCRAPE_TOOLS
    """Tools that scrape pages, written like the members of a tool set."""
    on: tuple[FailureClass, ...] = ("transport", "timeout")
    """Failures after which the hub fetches the page itself."""
    timeout: Duration = 60.0
    """The time limit of the hub's own attempt, and of a call of such a tool that has no `timeout`."""


def _read(field: FieldValue, reading: KeyReading) -> FallbackSettings | None:
    value = field.value
    if isinstance(value, dict):
        value = {key: member for key, member in value.items() if key not in WEB_KEYS_OF_FALLBACK}
    settings = read_model(FallbackSettings, value, field.at, reading.findings)
    if settings is not None and settings.tools:
        warn_if_missing("web", field.at, reading.findings)
    return settings


FALLBACK: Final = RootKey("fallback", _read, FallbackSettings(), spellings=("scrape_fallback",))


def stand_ins(config: Config, server: Server) -> list[Json]:
    """Returns definitions of the tools that `fallback.tools` names with this server: the hub can answer for them."""
    settings = FALLBACK.of(config)
    if not server.enabled or "transport" not in settings.on or missing("web") is not None:
        return []
    heads = [head for head, id in prefixes_of(config.servers) if id == server.id]
    named = [member.removeprefix(head) for member in settings.tools for head in heads if member.startswith(head)]
    return [{"name": name, **_STAND_IN} for name in named if name and WILDCARDS.search(name) is None]


class FallbackPolicy(Policy):
    """Answers with `scrape(url, seconds)` when a scraping tool fails in one of the configured ways."""

    name = "fallback"
    keys = (FALLBACK,)

    def __init__(self, fallback: FallbackSettings, scrape: Scrape, servers: Mapping[str, Server]) -> None:
        self._rules = fallback
        self._tools = ToolNames(fallback.tools, servers)
        self._scrape = scrape
        self._attempt = DeadlinePolicy(servers, fallback.timeout, "fallback.timeout")

    @staticmethod
    def rule_names(config: Config) -> Iterator[RuleNames]:
        """Yields the scraping tools that the configuration names."""
        yield RuleNames("fallback.tools", not_by_default(FALLBACK.of(config).tools), form="member")

    @classmethod
    def of(cls, parts: PolicyParts) -> FallbackPolicy:
        """Makes the policy of a configuration."""
        return cls(FALLBACK.of(parts.config), parts.scrape, parts.servers)

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Removes the output schema of scraping tools, as a page that the hub fetches has no structured content."""
        if not self._rules.on:
            return items
        return [without_output_schema(item) if self.concerns(item.route) else item for item in items]

    def concerns(self, route: Route) -> bool:
        """Returns whether the route is a scraping tool."""
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
        of_attempt = [limit for limit in call.deadlines if isinstance(limit, TimeLimit) and limit.ends_attempt]
        with suspended(of_attempt):  # they must leave time for the page
            try:
                result = await self._attempt(call, call_next)
            except (CallError, UpstreamAnswered) as error:
                failure = error
            return await self._answer(call, url, result, failure)

    async def _answer(self, call: Call, url: str, result: Json | None, failure: Exception | None) -> Json:
        """Returns the server's result, or the page in its place. Raises `failure` if there is none."""
        failure_class = _class_of(failure, result)
        if failure_class not in self._rules.on:
            return _outcome(result, failure)
        code = failure.code if isinstance(failure, CallError) else failure_class
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
                message = failure.message.rstrip(".")
                failure.message = f"{message}. The hub could not fetch the page itself either: {reason}"
            return _outcome(result, failure)
        call.fallback = "markitdown"
        call.notes.append(f"fallback: markitdown, because of {code}")
        return _with_note(page, code, call.route.upstream)

    def _url(self, call: Call) -> str | None:
        if call.method != TOOLS.act_method or call.route not in self._tools:
            return None
        arguments = call.params.get("arguments")
        if not isinstance(arguments, dict):
            return None
        candidates = (arguments.get(name) for name in URL_ARGUMENTS)
        return next((url for url in candidates if isinstance(url, str) and url.strip()), None)


def _class_of(failure: Exception | None, result: Json | None) -> FailureClass | None:
    """Returns the class of a failure; None for a success and for errors that are not the server's."""
    is_unconnected = isinstance(failure, PermissionDenied) and not failure.executed
    if is_unconnected or isinstance(failure, ServerUnavailable | CircuitOpen):
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


def _with_note(page: Json, code: str, upstream: str) -> Json:
    """Returns the page with a note that the hub fetched it."""
    content: list[Any] = list(page.get("content") or [])
    content.append({"type": "text", "text": f"(fetched by the hub with MarkItDown: {upstream!r} failed with {code})"})
    meta = {**(page.get("_meta") or {}), META_KEY: {"used": "markitdown", "because": code}}
    return {**page, "content": content, "_meta": meta}
