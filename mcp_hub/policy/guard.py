"""The guard: tools that fetch pages must not be used for the URLs of its rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from mcp_hub.catalog.catalog import Item, Route
from mcp_hub.config import rules
from mcp_hub.errors import GuardBlocked
from mcp_hub.observability.stalls import in_thread
from mcp_hub.policy import Call, Json, Next, unknown_name
from mcp_hub.policy.patterns import Patterns
from mcp_hub.policy.search_results import without_guarded
from mcp_hub.protocol.frames import weighs_more
from mcp_hub.protocol.kinds import RESOURCES, TEMPLATES, TOOLS
from mcp_hub.security.url_rules import UrlRules, strings_in
from mcp_hub.security.urls import QUICK_WORK, Work

META_KEY: Final = "mcp-hub/guard"


def url_rules(guard: rules.Guard) -> UrlRules:
    """The rules about URLs in the configuration."""
    return UrlRules(guard.huggingface, guard.deny_urls, guard.allow_urls, guard.message)


class ToolNames:
    """Tools given as `tool`, of any upstream, or `upstream/tool`; patterns over original names."""

    def __init__(self, written: Iterable[str]) -> None:
        given = tuple(written)
        self._names = Patterns(one for one in given if "/" not in one)
        self._pairs = Patterns(one for one in given if "/" in one)

    def __contains__(self, route: Route) -> bool:
        if self._names.match(route.name):
            return True
        return bool(self._pairs) and self._pairs.match(f"{route.upstream}/{route.name}")


class UrlGuard:
    """Refuses guarded tools a URL of the rules before anybody is asked, and says the rule where they are listed.

    Resources whose URI is such a URL are neither listed nor readable. All tools of `browsers` are guarded.
    """

    def __init__(self, guard: rules.Guard, browsers: Collection[str] = ()) -> None:
        self._rules = url_rules(guard)
        self._tools = ToolNames(guard.tools)
        self._browsers = frozenset(browsers)
        self._message = guard.message

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Guarded tools with the rule in their description and `_meta`; no resource of a refused URL."""
        if not self._rules:
            return items
        return [shown for item in items if (shown := self._shown(item)) is not None]

    def hides(self, route: Route) -> bool:
        """Whether it is a resource of a refused URL."""
        return (
            bool(self._rules)
            and route.kind in (RESOURCES, TEMPLATES)
            and bool(self._rules.refuses_uri(_literal(route)))
        )

    def _shown(self, item: Item) -> Item | None:
        if item.route.kind in (RESOURCES, TEMPLATES):
            return None if self.hides(item.route) else item
        if item.route.kind is not TOOLS or not self._guards(item.route) or not isinstance(item.wire, dict):
            return item
        description, meta = item.wire.get("description"), item.wire.get("_meta")
        said = f"{description}\n\n" if isinstance(description, str) and description else ""
        wire = {
            **item.wire,
            "description": said + self._rule,
            "_meta": {**(meta if isinstance(meta, dict) else {}), META_KEY: self._facts},
        }
        return msgspec.structs.replace(item, wire=wire)

    @property
    def _rule(self) -> str:
        parts = ["Not for datasets and spaces of Hugging Face"] if self._rules.huggingface else []
        if self._rules.deny:
            parts.append(("not for " if parts else "Not for ") + ", ".join(self._rules.deny[:10]))
        return "; ".join(parts) + f': such a URL is refused with "{self._message}"'

    @property
    def _facts(self) -> Json:
        return {"huggingface": self._rules.huggingface, "deny_urls": list(self._rules.deny), "message": self._message}

    def _guards(self, route: Route) -> bool:
        return route.upstream in self._browsers or route in self._tools

    def concerns(self, route: Route) -> bool:
        """Guarded tools, and what clients name by a URI."""
        return bool(self._rules) and (route.kind is not TOOLS or self._guards(route))

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Raises GuardBlocked; UnknownName for a resource, which is then as if it were not there."""
        if not self._rules:
            return await call_next(call)
        if call.method != TOOLS.act_method:
            if call.kind is RESOURCES and (rule := self._rules.refuses_uri(call.route.name)) is not None:
                call.refused_by = f"guard: {rule}"
                raise unknown_name(RESOURCES, call.exposed, call.era)
        elif self._guards(call.route):
            await self._check(call)
        return await call_next(call)

    async def _check(self, call: Call) -> None:
        arguments = call.params.get("arguments")
        if (rule := await self._refused(arguments)) is not None:
            call.refused_by = f"guard: {rule}"
            raise GuardBlocked(self._message, server=call.route.upstream)
        read = self._rules.refused_scheme
        scheme = await in_thread(read, arguments) if weighs_more(arguments) else read(arguments)
        if scheme is not None:
            call.refused_by = f"guard: scheme {scheme}"
            raise GuardBlocked(
                f"{scheme[:30]}: URLs are not opened by this tool: use an http or https URL.",
                server=call.route.upstream,
            )

    async def _refused(self, arguments: Any) -> str | None:
        """The rule that refuses a URL in the arguments; what takes too long for the loop is read in a thread."""
        if not weighs_more(arguments):
            work = Work(QUICK_WORK)
            rule = self._rules.refuses_any(strings_in(arguments), work)
            if not work.over:
                return rule
        return await in_thread(lambda: self._rules.refuses_any(strings_in(arguments)))


def _literal(route: Route) -> str:
    """A URI, of a template what stands before its first expression."""
    return route.name.partition("{")[0] if route.kind is TEMPLATES else route.name


class FilterResults:
    """Drops what the guard would not let be opened from the results of search tools."""

    def __init__(self, guard: rules.Guard) -> None:
        self._rules = url_rules(guard)
        self._tools = ToolNames(guard.filter_results)
        self._active = bool(guard.filter_results) and bool(self._rules)

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Nothing changes in a list."""
        return items

    def concerns(self, route: Route) -> bool:
        """Tools whose results are to be filtered."""
        return self._active and route in self._tools

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """The result without guarded links."""
        result = await call_next(call)
        if not self._active or call.method != TOOLS.act_method or call.route not in self._tools:
            return result
        if weighs_more(result):
            kept, dropped = await in_thread(without_guarded, result, self._rules)
        else:
            kept, dropped = without_guarded(result, self._rules)
        if dropped:
            call.notes.append(f"filter_results: {dropped} guarded links dropped")
        return kept
