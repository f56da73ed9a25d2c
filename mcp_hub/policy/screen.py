"""Screening of what servers list: reports suspicious text, or hides the item that has it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

from mcp_hub.catalog import Item, Route
from mcp_hub.config.field_types import After
from mcp_hub.config.models import Config, Server
from mcp_hub.config.settings import EntryKey, Frozen, RootKey, model_key
from mcp_hub.observability.stalls import SLICE, run_for
from mcp_hub.policy import PolicyParts
from mcp_hub.policy.patterns import Patterns, ToolRulesTable
from mcp_hub.policy.uri_rules import keys_of
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.security.counters import InFlight
from mcp_hub.security.screening import (
    FOREIGN_TOOLS,
    HIDDEN_CHARACTER_RULES,
    MAX_DESCRIPTION,
    REPORT_ONLY,
    RULE_DESCRIPTIONS,
    Budget,
    Flag,
    flags_in_steps,
    flags_of_instructions,
    flags_of_names,
    foreign_names,
)
from mcp_hub.transport.background import BACKGROUND

log = logging.getLogger("mcp_hub.policy")

MAX_LOGGED: Final = 10_000
"""Logged findings that are remembered, so that each is logged once."""

ScreenMode = Literal["off", "flag", "quarantine"]


def _check_rule_names(rules: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [rule for rule in rules if rule not in RULE_DESCRIPTIONS]
    if unknown:
        raise ValueError(f"must be names of rules: {', '.join(RULE_DESCRIPTIONS)}")
    return rules


class ScreenSettings(Frozen):
    """The screen: signs of harm in the texts of servers."""

    OFF: ClassVar[Mapping[str, Any]] = {"mode": "off"}
    SHORT: ClassVar[Mapping[type, str]] = {str: "mode"}

    mode: ScreenMode = "flag"
    """`flag`: findings are reported, and only names with hidden characters are hidden. `quarantine`: all are hidden."""
    quarantine: Annotated[tuple[str, ...], After(_check_rule_names)] = ()
    """Rules that hide an item with `flag` as well."""
    ignore: Annotated[tuple[str, ...], After(_check_rule_names)] = ()
    """Rules that are switched off."""
    allow: tuple[str, ...] = ()
    """Items, as original name or `server/name`, that the hub serves even if it finds something in them."""
    max_description: Annotated[int, Meta(ge=1)] = MAX_DESCRIPTION
    """The hub reports a description that has more characters than this."""


SCREEN: Final = RootKey("screen", model_key(ScreenSettings), ScreenSettings(), restricts=True)
SCREEN_OF_SERVER: Final[EntryKey[ScreenSettings | None]] = EntryKey(
    "screen", model_key(ScreenSettings), None, restricts=True
)
"""Settings of the screen for this server. They take precedence over those of the root."""


def screen_of(config: Config, server: Server) -> ScreenSettings:
    """Returns the settings that apply to one server."""
    settings, server_settings = SCREEN.of(config), SCREEN_OF_SERVER.of(server)
    if server_settings is None:
        return settings
    return settings.model_copy(
        update={field: getattr(server_settings, field) for field in server_settings.model_fields_set}
    )


class _Screened(msgspec.Struct):
    """Findings for one item: in its names, and in all its texts (`texts`; None until these are screened)."""

    wire: Any
    names: tuple[Flag, ...]
    texts: tuple[Flag, ...] | None = None

    @property
    def flags(self) -> tuple[Flag, ...]:
        return self.names if self.texts is None else self.texts


class ScreenReview:
    """The review of `Access` that screens what servers list for suspicious text.

    Names are screened before an item is listed. Other texts are too if a finding in them hides the item, else `step`
    screens them later. Items that have not changed are not screened again.
    """

    notes: Mapping[Route, str] = MappingProxyType({})
    """Empty: findings are for the log and `check`."""

    def __init__(self, config: Config) -> None:
        self._servers: dict[str, Server] = {server.id: server for server in config.servers}
        self._settings = {server.id: screen_of(config, server) for server in config.servers}
        self._allowed = {id: Patterns(settings.allow) for id, settings in self._settings.items()}
        self._tool_rules = ToolRulesTable(self._servers)
        self._screened: dict[str, dict[Route, list[_Screened]]] = {}
        self._tools: dict[str, set[str]] = {}
        """The names of the tools of each server."""
        self._tool_names = InFlight[str]()
        """How many servers have a tool of a name."""
        self._budgets: dict[str, Budget] = {}
        self._hidden: dict[str, dict[Route, str]] = {}
        self._hidden_uris: dict[str, dict[str, str]] = {}
        self._pending: list[tuple[str, Route, _Screened]] = []
        self._logged: set[tuple[str, str, str]] = set()
        self._work: Generator[None] | None = None
        """The unfinished work of `step`."""
        self._current: tuple[str, Route, _Screened] | None = None
        """The item that `step` is screening."""
        self._instructions: dict[str, tuple[str, list[Flag]]] = {}
        self.version = 0
        """It grows when `flags` may yield something else."""

    @classmethod
    def of(cls, parts: PolicyParts) -> ScreenReview:
        """Makes the review of a configuration."""
        return cls(parts.config)

    def review(self, upstream: str, items: Sequence[Item]) -> Generator[None]:
        """Screens items that an upstream lists, before other policies change them, in steps."""
        settings = self._settings[upstream]
        if settings.mode == "off":
            return
        previous = self._screened.get(upstream, {})
        screened: dict[Route, list[_Screened]] = {}
        current = [self._current] if self._current is not None else []
        self._pending = [queued for queued in (*self._pending, *current) if queued[0] != upstream]
        self._work = self._current = None
        budget = self._budgets[upstream] = Budget()
        at_once = settings.mode == "quarantine" or bool(settings.quarantine)
        for item in items:
            yield
            entries = screened.setdefault(item.route, [])
            # Only the item at the same place among those of one name, as a server may list thousands of one name.
            entry = next(iter(previous.get(item.route, ())[len(entries) : len(entries) + 1]), None)
            if entry is None or not _same(entry.wire, item.wire):
                entry = _Screened(item.wire, flags_of_names(item.route.kind, item.wire))
            if entry.texts is None and at_once:
                yield from self._screen_texts(upstream, item.route, entry, budget)
            elif entry.texts is None:
                self._pending.append((upstream, item.route, entry))
            entries.append(entry)
        self._screened[upstream] = screened
        former, own = self._tools.get(upstream, set()), {route.name for route in screened if route.kind is TOOLS}
        self._tools[upstream] = own
        self._tool_names.update(own - former)
        for name in former - own:
            self._tool_names.leave(name)
        self.version += 1
        yield from self._hide_flagged(upstream, settings, screened)

    def why(self, route: Route) -> str | None:
        """Returns why a route must not be reached, or None if it may be."""
        if not route.kind.by_uri:
            return self._hidden.get(route.upstream, {}).get(route)
        hidden = self._hidden_uris.get(route.upstream)
        if not hidden:
            return None
        if route.name in hidden:
            return hidden[route.name]
        keys = keys_of(route.name)
        if keys is None:
            return "screen: it may be one that is held back, in another spelling"
        return next((hidden[key] for key in keys if key in hidden), None)

    def of_instructions(self, upstream: str, text: str) -> list[Flag]:
        """Returns the findings in a server's instructions."""
        settings = self._settings[upstream]
        if settings.mode == "off":
            return []
        known_text, flags = self._instructions.get(upstream, (None, []))
        if known_text != text:
            findings = flags_of_instructions(text, max_description=settings.max_description)
            flags = self._not_ignored(settings, findings)
            self._instructions[upstream] = (text, flags)  # every client gets them, and they rarely change
        return flags

    def passes_instructions(self, upstream: str, text: str) -> bool:
        """Returns whether a server's instructions may be passed on to clients."""
        flags = self.of_instructions(upstream, text)
        for flag in flags:
            self._log_once(upstream, "its instructions", "instructions", flag)
        return not any(_hides(self._settings[upstream], flag.rule) for flag in flags)

    def step(self) -> bool:
        """Screens some of the remaining items and logs new findings; returns False when none remain."""
        if self._work is None:
            self._work = self._remaining_work()
        done, _ = run_for(self._work, SLICE)
        if done:
            self._work = None
        return not done

    def _remaining_work(self) -> Generator[None]:
        while self._pending:
            yield
            upstream, route, entry = self._current = self._pending.pop()
            yield from self._screen_texts(upstream, route, entry, self._budgets[upstream])
            self._current = None
        for route, flags in self._findings():
            yield
            for flag in flags:
                self._log_once(route.upstream, route.kind.unknown, route.name, flag)

    def finding(self, route: Route) -> Generator[None, None, Flag | None]:
        """Returns the first finding in an item, in steps, which is screened now if it has not been; None without one.

        Items that the configuration allows have none.
        """
        upstream = route.upstream
        if self._is_allowed(route):
            return None
        for entry in self._screened.get(upstream, {}).get(route, ()):
            if entry.texts is None:
                yield from self._screen_texts(upstream, route, entry, self._budgets[upstream])
            yield
            if flags := self._flags_of(route, entry):
                return flags[0]
        return None

    def _is_allowed(self, route: Route) -> bool:
        allowed = self._allowed[route.upstream]
        return allowed.match(route.name) or allowed.match(f"{route.upstream}/{route.name}")

    def flags(self) -> Iterator[tuple[str, Route, Flag]]:
        """Yields (upstream, route, finding) of everything found so far."""
        return ((route.upstream, route, flag) for route, flags in self._findings() for flag in flags)

    def _findings(self) -> Iterator[tuple[Route, list[Flag]]]:
        """Yields the findings item by item."""
        for by_route in list(self._screened.values()):
            for route, entries in by_route.items():
                yield from ((route, self._flags_of(route, entry)) for entry in entries)

    def _flags_of(self, route: Route, entry: _Screened) -> list[Flag]:
        settings, own, flags = self._settings[route.upstream], self._tools[route.upstream], entry.flags
        if len(self._tool_names) > len(own) and FOREIGN_TOOLS not in settings.ignore:
            flags += foreign_names(route.kind, entry.wire, self._tool_names, own)
        return self._not_ignored(settings, flags)

    def _screen_texts(self, upstream: str, route: Route, entry: _Screened, budget: Budget) -> Generator[None]:
        rules = self._tool_rules[route]
        omitted = [key for key in ("title", "description") if getattr(rules, key) is not None]
        flags: list[Flag] = []
        for flag in flags_in_steps(route.kind, entry.wire, omitted, self._settings[upstream].max_description, budget):
            yield
            if flag is not None:
                flags.append(flag)
        entry.texts = tuple(flags)
        self.version += 1

    def _hide_flagged(
        self, upstream: str, settings: ScreenSettings, screened: dict[Route, list[_Screened]]
    ) -> Generator[None]:
        hidden: dict[Route, str] = {}
        uris: dict[str, str] = {}
        for route, entries in screened.items():
            if self._is_allowed(route):
                yield
                continue
            for entry in entries:
                yield
                flag = _hiding_flag(settings, entry, self._not_ignored(settings, entry.flags))
                if flag is not None:
                    reason = f"screen: {flag.rule} in its {flag.where} ({RULE_DESCRIPTIONS[flag.rule]})"
                    hidden[route] = reason
                    if route.kind.by_uri:
                        uris |= dict.fromkeys((route.name, *(keys_of(route.name) or ())[:2]), reason)
                    self._log_once(upstream, route.kind.unknown, route.name, flag, is_hidden=True)
                    break
        self._hidden[upstream], self._hidden_uris[upstream] = hidden, uris

    def _not_ignored(self, settings: ScreenSettings, flags: Sequence[Flag]) -> list[Flag]:
        return [flag for flag in flags if flag.rule not in settings.ignore]

    def _log_once(self, upstream: str, kind: str, name: str, flag: Flag, *, is_hidden: bool = False) -> None:
        """Logs a finding once."""
        key = (upstream, f"{kind} {name}", flag.rule)
        if key in self._logged or len(self._logged) >= MAX_LOGGED:
            return
        self._logged.add(key)
        hint = "it is kept back" if is_hidden else "see `mcp-hub check`"
        log.warning("%s: %s %r: %s in its %s; %s", upstream, kind, name[:200], flag.rule, flag.where[:200], hint)


def _same(first: Any, second: Any) -> bool:
    try:
        return first is second or bool(first == second)
    except RecursionError:
        return False


def what_is(flag: Flag) -> str:
    """Returns a finding as text. It quotes the server's own text, so it is not safe to print unchanged."""
    return f"{flag.rule} in its {flag.where}, {RULE_DESCRIPTIONS[flag.rule]}: {flag.excerpt}"


def _hiding_flag(settings: ScreenSettings, entry: _Screened, flags: Sequence[Flag]) -> Flag | None:
    """Returns the first of an item's findings that hides it; None if it is served."""
    for flag in flags:
        if (flag.rule in HIDDEN_CHARACTER_RULES and flag in entry.names) or _hides(settings, flag.rule):
            return flag
    return None


def _hides(settings: ScreenSettings, rule: str) -> bool:
    if rule in REPORT_ONLY:
        return False
    return settings.mode == "quarantine" or rule in settings.quarantine


SCREEN_AFTER: Final = 1.0
"""Seconds from a change of the lists until screening begins."""
SCREEN_PAUSE: Final = 0.01
"""Seconds between two steps, in which calls can run."""


class BackgroundScreening:
    """Screens items in the background, when no client waits. `screen()` returns the review in force."""

    def __init__(self, screen: Callable[[], ScreenReview]) -> None:
        self._screen = screen
        self._task: asyncio.Task[None] | None = None

    def soon(self) -> None:
        """Schedules screening after lists have changed."""
        if self._task is None or self._task.done():
            self._task = BACKGROUND.keep("screening", self._run)

    async def _run(self) -> None:
        pause = SCREEN_AFTER
        while True:
            await asyncio.sleep(pause)
            if not self._screen().step():
                return
            pause = SCREEN_PAUSE

    def close(self) -> None:
        """Stops screening."""
        if self._task is not None:
            self._task.cancel()
