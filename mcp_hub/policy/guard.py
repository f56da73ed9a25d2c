"""The guard: refuses calls of guarded tools with forbidden URLs, and drops links to such URLs from search results."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from mcp_hub.catalog import Item, Route
from mcp_hub.config.fields import FieldValue
from mcp_hub.config.models import Config, Server
from mcp_hub.config.root_rules import SCRAPE_TOOLS, not_by_default
from mcp_hub.config.settings import Frozen, KeyReading, RootKey, read_model
from mcp_hub.errors import CallError
from mcp_hub.observability.stalls import in_slices, in_thread
from mcp_hub.policy import Call, Json, Listed, Next, Policy, PolicyParts, unknown_name
from mcp_hub.policy.rule_names import RuleNames
from mcp_hub.policy.selection import ToolNames
from mcp_hub.policy.uri_rules import completed_route, completed_values, decoded, with_values
from mcp_hub.protocol.frames import FrameError, decode, encode, weighs_more
from mcp_hub.protocol.kinds import TEMPLATES, TOOLS
from mcp_hub.schema.argument_readings import AmbiguousArguments, argument_texts
from mcp_hub.security.url_rules import HUGGINGFACE_MESSAGE, UNREADABLE, UrlRules
from mcp_hub.security.urls import QUICK_WORK, WorkBudget, is_url
from mcp_hub.text import with_ends

META_KEY: Final = "mcp-hub/guard"


class GuardSettings(Frozen):
    """The guard: URLs that tools must not be used for."""

    OFF: ClassVar[Mapping[str, Any]] = {"huggingface": False}

    huggingface: bool = True
    """Whether datasets and spaces of Hugging Face are guarded."""
    tools: tuple[str, ...] = SCRAPE_TOOLS
    """Guarded tools, written like the members of a tool set. All tools of a browser are guarded as well."""
    message: str = HUGGINGFACE_MESSAGE
    """What a client reads when a URL is refused. By default, one that `deny_urls` refuses has a text of its own."""
    deny_urls: tuple[str, ...] = ()
    """Further guarded URLs: `host`, `host/path`, `*.host/path*`."""
    allow_urls: tuple[str, ...] = ()
    """URLs that are never refused, in the same form."""
    filter_results: tuple[str, ...] = ()
    """Tools whose JSON results lose guarded links, named in the same way."""


class GuardBlocked(CallError):
    """The guard forbids this URL."""

    code, rpc_code = "guard_blocked", -32014
    policy, refuses = "guard", True


def _read(field: FieldValue, reading: KeyReading) -> GuardSettings | None:
    value = field.value
    if isinstance(value, dict) and isinstance(value.get("huggingface"), dict):
        # `{huggingface: {enabled, tools, ...}}` is another way to write the same.
        inner = dict(value["huggingface"])
        enabled = inner.pop("enabled", True)
        value = {**inner, **value, "huggingface": enabled}
    return read_model(GuardSettings, value, field.at, reading.findings)


GUARD: Final = RootKey("guard", _read, GuardSettings(), restricts=True)


def url_rules(guard: GuardSettings) -> UrlRules:
    """Returns the URL rules of the configuration."""
    return UrlRules(guard.huggingface, guard.deny_urls, guard.allow_urls, guard.message)


class UrlGuard(Policy):
    """Refuses calls of guarded tools with a forbidden URL, and states the rule in the tools' descriptions.

    Resources with a forbidden URI are neither listed nor readable. All tools of `browsers` are guarded.
    """

    name = "guard"
    keys = (GUARD,)

    def __init__(self, guard: GuardSettings, servers: Mapping[str, Server], listed: Listed) -> None:
        self._rules = url_rules(guard)
        self._listed = listed
        self._tools = ToolNames(guard.tools, servers)
        self._browsers = frozenset(server.id for server in servers.values() if server.browser)
        self._message = guard.message

    @staticmethod
    def rule_names(config: Config) -> Iterator[RuleNames]:
        """Yields the guarded tools that the configuration names, and those whose results are filtered."""
        guard = GUARD.of(config)
        yield RuleNames("guard.tools", not_by_default(guard.tools), form="member")
        yield RuleNames("guard.filter_results", guard.filter_results, form="member")

    @classmethod
    def of(cls, parts: PolicyParts) -> UrlGuard:
        """Makes the policy of a configuration."""
        return cls(GUARD.of(parts.config), parts.servers, parts.listed)

    def shape(self, items: Sequence[Item]) -> Sequence[Item]:
        """Adds the rule to guarded tools' descriptions and `_meta`, and removes resources with a forbidden URI."""
        if not self._rules:
            return items
        return [shaped for item in items if (shaped := self._shape_item(item)) is not None]

    def hides(self, route: Route) -> bool:
        """Returns whether the route is a resource with a forbidden URI."""
        return bool(self._rules) and route.kind.by_uri and self._rule_against(_literal(route)) is not None

    def _rule_against(self, uri: str) -> str | None:
        """Returns the rule that refuses a resource's URI, as it is written or as other rules compare it."""
        rule = self._rules.refuses_uri(uri)
        if rule is not None or (text := decoded(uri)) == uri:
            return rule
        return UNREADABLE if text is None else self._rules.refuses_uri(text)

    def _shape_item(self, item: Item) -> Item | None:
        kind = item.route.kind
        if kind.by_uri:
            return None if self.hides(item.route) else item
        if kind is not TOOLS or not self._guards(item.route) or not isinstance(item.wire, dict):
            return item
        description, meta = item.wire.get("description"), item.wire.get("_meta")
        prefix = f"{with_ends(description)}\n\n" if isinstance(description, str) and description else ""
        wire = {
            **item.wire,
            "description": prefix + self._rule,
            "_meta": {**(meta if isinstance(meta, dict) else {}), META_KEY: self._facts},
        }
        return msgspec.structs.replace(item, wire=wire)

    @property
    def _rule(self) -> str:
        parts = ["Not for datasets and spaces of Hugging Face"] if self._rules.huggingface else []
        if self._rules.deny:
            parts.append(("not for " if parts else "Not for ") + ", ".join(self._rules.deny[:10]))
        told = f' with "{self._message}"' if self._rules.huggingface or self._message != HUGGINGFACE_MESSAGE else ""
        return "; ".join(parts) + f": such a URL is refused{told}"

    @property
    def _facts(self) -> Json:
        return {"huggingface": self._rules.huggingface, "deny_urls": list(self._rules.deny), "message": self._message}

    def _guards(self, route: Route) -> bool:
        return route.upstream in self._browsers or route in self._tools

    def concerns(self, route: Route) -> bool:
        """Returns whether the route is a guarded tool, or anything but a tool."""
        return bool(self._rules) and (route.kind is not TOOLS or self._guards(route))

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Runs the call. Raises GuardBlocked, and UnknownName for a resource with a forbidden URI."""
        if not self._rules:
            return await call_next(call)
        if call.method != TOOLS.act_method:
            if call.kind.by_uri and (rule := self._rule_against(_literal(completed_route(call)))) is not None:
                call.refused_by = f"guard: {rule}"
                raise unknown_name(call.kind, call.exposed, call.era)
            if call.route.kind is TEMPLATES:
                result = await call_next(call)
                return with_values(result, await in_slices(self._visible_values(call, result)))
        elif self._guards(call.route):
            await self._check(call)
        return await call_next(call)

    def _visible_values(self, call: Call, result: Json) -> Generator[None, None, list[str]]:
        visible: list[str] = []
        for value, route in completed_values(call, result):
            yield
            if not self.hides(route):
                visible.append(value)
        return visible

    async def _check(self, call: Call) -> None:
        """Raises GuardBlocked if a reading of the arguments has a forbidden URL; large ones are read in a thread."""
        arguments, tool = call.params.get("arguments"), self._listed(call.route, call.caller)
        schema = tool.get("inputSchema") if tool is not None else None
        large, work = weighs_more(arguments), WorkBudget(QUICK_WORK)
        refusal = None if large else self._refusal(arguments, schema, work)
        if large or work.over:
            refusal = await in_thread(self._refusal, arguments, schema, WorkBudget())
        if refusal is not None:
            rule, message = refusal
            call.refused_by = f"guard: {rule}"
            raise GuardBlocked(message, server=call.route.upstream)

    def _refusal(self, arguments: Any, schema: Any, work: WorkBudget) -> tuple[str, str] | None:
        """Returns (the rule that refuses the arguments, what the caller is told), None if none does."""
        try:
            for text, for_url, in_plain_text in argument_texts(arguments, schema):
                counts = not in_plain_text or is_url(text)
                if counts and (rule := self._rules.refuses(text, work)) is not None:
                    return (
                        rule,
                        self._rules.text_of(rule)
                        if rule != UNREADABLE
                        else f"The arguments have {UNREADABLE}: send fewer.",
                    )
                if (scheme := self._rules.refused_scheme(text, for_url=for_url)) is not None:
                    message = f"{scheme[:30]}: URLs are not opened by this tool: use an http or https URL."
                    return f"scheme {scheme}", message
        except AmbiguousArguments as error:
            message = (
                f"The arguments cannot be searched for forbidden URLs: {error}. Send lists and objects, not texts."
            )
            return "ambiguous arguments", message
        return None


def _literal(route: Route) -> str:
    """Returns a URI, or the part of a template before its first expression."""
    return route.name.partition("{")[0] if route.kind is TEMPLATES else route.name


LINK_KEYS: Final = frozenset({"link", "url", "href", "uri", "permalink", "targeturl", "sourceurl", "pageurl", "weburl"})
"""Fields with the page of a search result, compared without case and `_`. Fields of images are not among them."""
MAX_WORK: Final = 5_000_000
"""Units of work for all links of one result; about 80,000 links."""
MAX_TEXT: Final = 8 * 1024 * 1024
MAX_DEPTH: Final = 60


class FilterResults(Policy):
    """Drops links that the guard forbids from the results of search tools."""

    name = "filter-results"

    def __init__(self, guard: GuardSettings, servers: Mapping[str, Server]) -> None:
        self._rules = url_rules(guard)
        self._tools = ToolNames(guard.filter_results, servers)
        self._active = bool(guard.filter_results) and bool(self._rules)

    @classmethod
    def of(cls, parts: PolicyParts) -> FilterResults:
        """Makes the policy of a configuration."""
        return cls(GUARD.of(parts.config), parts.servers)

    def concerns(self, route: Route) -> bool:
        """Returns whether the tool's results are filtered."""
        return self._active and route in self._tools

    async def __call__(self, call: Call, call_next: Next) -> Json:
        """Runs the call and returns its result without forbidden links."""
        result = await call_next(call)
        if not self._active or call.method != TOOLS.act_method or call.route not in self._tools:
            return result
        if weighs_more(result):
            filtered, dropped = await in_thread(without_guarded, result, self._rules)
        else:
            filtered, dropped = without_guarded(result, self._rules)
        if dropped:
            call.notes.append(f"filter_results: {dropped} guarded links dropped")
        return filtered


def without_guarded(result: Json, rules: UrlRules) -> tuple[Json, int]:
    """Returns (the result without list members that link to a forbidden URL, how many were dropped).

    JSON in text blocks, `structuredContent` and resource links are searched. If nothing is dropped, the same object is
    returned. Links beyond `MAX_WORK` are dropped unread.
    """
    dropped = 0
    changes: Json = {}
    work = WorkBudget(MAX_WORK)
    content = result.get("content")
    if isinstance(content, list):
        blocks: list[Any] = []
        for block in content:
            changed, number = _block(block, rules, work)
            dropped += number
            if changed is not None:
                blocks.append(changed)
        if len(blocks) != len(content) or any(new is not old for new, old in zip(blocks, content, strict=True)):
            changes["content"] = blocks
    structured = result.get("structuredContent")
    if isinstance(structured, dict | list):
        changed, number = _without_links(structured, rules, work)
        dropped = max(dropped, number)
        if changed is not structured:
            changes["structuredContent"] = changed
    return ({**result, **changes}, dropped) if changes else (result, 0)


def _block(block: Any, rules: UrlRules, work: WorkBudget) -> tuple[Any, int]:
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
    changed, number = _without_links(value, rules, work)
    return (block, 0) if changed is value else ({**block, "text": encode(changed).decode()}, number)


def _without_links(value: Any, rules: UrlRules, work: WorkBudget, depth: int = 0) -> tuple[Any, int]:
    if depth > MAX_DEPTH:
        return value, 0
    if isinstance(value, dict):
        members = {key: _without_links(member, rules, work, depth + 1) for key, member in value.items()}
        if all(changed is value[key] for key, (changed, _) in members.items()):
            return value, 0
        return {key: changed for key, (changed, _) in members.items()}, sum(number for _, number in members.values())
    if isinstance(value, list):
        remaining = [
            _without_links(member, rules, work, depth + 1) for member in value if not _is_guarded(member, rules, work)
        ]
        number = len(value) - len(remaining) + sum(dropped for _, dropped in remaining)
        return ([changed for changed, _ in remaining], number) if number else (value, 0)
    return value, 0


def _is_guarded(member: Any, rules: UrlRules, work: WorkBudget) -> bool:
    if isinstance(member, str):
        return "://" in member and " " not in member and rules.refuses_uri(member, work) is not None
    if not isinstance(member, dict):
        return False
    links = (
        value for key, value in member.items() if isinstance(value, str) and key.lower().replace("_", "") in LINK_KEYS
    )
    return any(rules.refuses_uri(link, work) is not None for link in links)
