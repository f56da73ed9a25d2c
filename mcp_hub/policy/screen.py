"""Screening of what servers list: reports suspicious text, or hides the item that has it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Generator, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

from mcp_hub.catalog import Item, Route
from mcp_hub.config.field_types import After
from mcp_hub.config.models import Config, Server
from mcp_hub.config.settings import EntryKey, Frozen, RootKey, mode_key
from mcp_hub.observability.stalls import SLICE, run_for
from mcp_hub.policy import PolicyParts
from mcp_hub.policy.patterns import Patterns, ToolRulesTable, alike
from mcp_hub.protocol.kinds import TOOLS
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
    is_distinct,
)

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


SCREEN: Final = RootKey("screen", mode_key(ScreenSettings), ScreenSettings())
SCREEN_OF_SERVER: Final[EntryKey[ScreenSettings | None]] = EntryKey("screen", mode_key(ScreenSettings), None)
"""Settings of the screen for this server. They take precedence over those of the root."""


def screen_of(config: Config, server: Server) -> ScreenSettings:
    """Returns the settings that apply to one server."""
    settings, own = SCREEN.of(config), SCREEN_OF_SERVER.of(server)
    if own is None:
        return settings
    return settings.model_copy(update={field: getattr(own, field) for field in own.model_fields_set})


class _Screened(msgspec.Struct):
    """Findings for one item: in its names, and in all its texts (`rest`; None until these are screened)."""

    wire: Any
    names: tuple[Flag, ...]
    rest: tuple[Flag, ...] | None = None

    @property
    def flags(self) -> tuple[Flag, ...]:
        return self.names if self.rest is None else self.rest


class _Without:
    """The names in one set that are not in another, without building that set."""

    def __init__(self, names: Container[str], own: Container[str]) -> None:
        self._names = names
        self._own = own

    def __contains__(self, name: object) -> bool:
        return name in self._names and name not in self._own


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
        self._own_words = ToolRulesTable(self._servers)
        self._looked: dict[str, dict[Route, list[_Screened]]] = {}
        self._budgets: dict[str, Budget] = {}
        self._held: dict[str, dict[Route, str]] = {}
        self._held_uris: dict[str, dict[str, str]] = {}
        self._pending: list[tuple[str, Route, _Screened]] = []
        self._told: set[tuple[str, str, str]] = set()
        self._working: Generator[None] | None = None
        """The unfinished work of `step`."""
        self._begun: tuple[str, Route, _Screened] | None = None
        """The item that `step` is screening."""
        self._instructions: dict[str, tuple[str, list[Flag]]] = {}
        self.version = 0
        """It grows when `flags` may yield something else."""

    @classmethod
    def of(cls, parts: PolicyParts) -> ScreenReview:
        """Makes the review of a configuration."""
        return cls(parts.config)

    def look(self, upstream: str, items: Sequence[Item]) -> Generator[None]:
        """Screens items that an upstream lists, before other policies change them, in steps."""
        settings = self._settings[upstream]
        if settings.mode == "off":
            return
        before = self._looked.get(upstream, {})
        found: dict[Route, list[_Screened]] = {}
        begun = [self._begun] if self._begun is not None else []
        self._pending = [one for one in (*self._pending, *begun) if one[0] != upstream]
        self._working = self._begun = None
        budget = self._budgets[upstream] = Budget()
        at_once = settings.mode == "quarantine" or bool(settings.quarantine)
        for item in items:
            yield
            looked = found.setdefault(item.route, [])
            # Only the item at the same place among those of one name, as a server may list thousands of one name.
            known = next(iter(before.get(item.route, ())[len(looked) : len(looked) + 1]), None)
            if known is None or not _same(known.wire, item.wire):
                known = _Screened(item.wire, flags_of_names(item.route.kind, item.wire))
            if known.rest is None and at_once:
                yield from self._complete(upstream, item.route, known, budget)
            elif known.rest is None:
                self._pending.append((upstream, item.route, known))
            looked.append(known)
        self._looked[upstream] = found
        self.version += 1
        yield from self._hold(upstream, settings, found)

    def why(self, route: Route) -> str | None:
        """Returns why a route must not be reached, or None if it may be."""
        if not route.kind.by_uri:
            return self._held.get(route.upstream, {}).get(route)
        held = self._held_uris.get(route.upstream)
        if not held:
            return None
        if route.name in held:
            return held[route.name]
        texts = alike(route.name)
        if texts is None:
            return "screen: it may be one that is held back, in another spelling"
        return next((held[one] for one in texts if one in held), None)

    def of_instructions(self, upstream: str, text: str) -> list[Flag]:
        """Returns the findings in a server's instructions."""
        settings = self._settings[upstream]
        if settings.mode == "off":
            return []
        known, flags = self._instructions.get(upstream, (None, []))
        if known != text:
            found = flags_of_instructions(text, max_description=settings.max_description)
            flags = self._wanted(settings, found)
            self._instructions[upstream] = (text, flags)  # every client gets them, and they rarely change
        return flags

    def passes_instructions(self, upstream: str, text: str) -> bool:
        """Returns whether a server's instructions may be passed on to clients."""
        flags = self.of_instructions(upstream, text)
        for flag in flags:
            self._tell(upstream, "its instructions", "instructions", flag)
        return not any(_holds(self._settings[upstream], flag.rule) for flag in flags)

    def step(self) -> bool:
        """Screens some of the remaining items and logs new findings; returns False when none remain."""
        if self._working is None:
            self._working = self._rest()
        done, _ = run_for(self._working, SLICE)
        if done:
            self._working = None
        return not done

    def _rest(self) -> Generator[None]:
        while self._pending:
            yield
            upstream, route, known = self._begun = self._pending.pop()
            yield from self._complete(upstream, route, known, self._budgets[upstream])
            self._begun = None
        for found in self._all():
            yield
            if found is None:
                continue
            for flag in found[2]:
                self._tell(found[0], found[1].kind.unknown, found[1].name, flag)

    def flags(self) -> Iterator[tuple[str, Route, Flag]]:
        """Yields (upstream, route, finding) of everything found so far."""
        return ((one[0], one[1], flag) for one in self._all() if one is not None for flag in one[2])

    def _all(self) -> Iterator[tuple[str, Route, tuple[Flag, ...]] | None]:
        """Yields the findings item by item; None after each step of the preparation."""
        looked_at = dict(self._looked)
        tools: dict[str, set[str]] = {id: set() for id in looked_at}
        distinct: set[str] = set()
        plain: set[str] = set()
        for upstream, found in looked_at.items():
            for route in (route for route in found if route.kind is TOOLS):
                yield None
                tools[upstream].add(route.name)
                (distinct if is_distinct(route.name) else plain).add(route.name)
        for upstream, found in looked_at.items():
            settings, own = self._settings[upstream], tools[upstream]
            others = len(distinct) + len(plain) > len(own)
            for route, one in ((route, one) for route, looked in found.items() for one in looked):
                flags = list(one.flags)
                if others and FOREIGN_TOOLS not in settings.ignore:
                    flags += foreign_names(route.kind, one.wire, _Without(distinct, own), _Without(plain, own))
                yield upstream, route, tuple(self._wanted(settings, flags))

    def _complete(self, upstream: str, route: Route, known: _Screened, budget: Budget) -> Generator[None]:
        rules = self._own_words[route]
        without = [key for key in ("title", "description") if getattr(rules, key) is not None]
        flags: list[Flag] = []
        for flag in flags_in_steps(route.kind, known.wire, without, self._settings[upstream].max_description, budget):
            yield
            if flag is not None:
                flags.append(flag)
        known.rest = tuple(flags)
        self.version += 1

    def _hold(self, upstream: str, settings: ScreenSettings, found: dict[Route, list[_Screened]]) -> Generator[None]:
        held: dict[Route, str] = {}
        uris: dict[str, str] = {}
        allowed = self._allowed[upstream]
        for route, looked in found.items():
            if allowed.match(route.name) or allowed.match(f"{upstream}/{route.name}"):
                yield
                continue
            for one in looked:
                yield
                flag = _holding(settings, one, self._wanted(settings, one.flags))
                if flag is not None:
                    why = f"screen: {flag.rule} in its {flag.where} ({RULE_DESCRIPTIONS[flag.rule]})"
                    held[route] = why
                    if route.kind.by_uri:
                        uris |= dict.fromkeys((route.name, *(alike(route.name) or ())), why)
                    self._tell(upstream, route.kind.unknown, route.name, flag, kept_back=True)
                    break
        self._held[upstream], self._held_uris[upstream] = held, uris

    def _wanted(self, settings: ScreenSettings, flags: Sequence[Flag]) -> list[Flag]:
        return [flag for flag in flags if flag.rule not in settings.ignore]

    def _tell(self, upstream: str, kind: str, name: str, flag: Flag, *, kept_back: bool = False) -> None:
        """Logs a finding once."""
        key = (upstream, f"{kind} {name}", flag.rule)
        if key in self._told or len(self._told) >= MAX_LOGGED:
            return
        self._told.add(key)
        what = "it is kept back" if kept_back else "see `mcp-hub check`"
        log.warning("%s: %s %r: %s in its %s; %s", upstream, kind, name[:200], flag.rule, flag.where[:200], what)


def _same(one: Any, other: Any) -> bool:
    try:
        return one is other or bool(one == other)
    except RecursionError:
        return False


def what_is(flag: Flag) -> str:
    """Returns a finding as text. It quotes the server's own text, so it is not safe to print unchanged."""
    return f"{flag.rule} in its {flag.where}, {RULE_DESCRIPTIONS[flag.rule]}: {flag.excerpt}"


def _holding(settings: ScreenSettings, screened: _Screened, flags: Sequence[Flag]) -> Flag | None:
    """Returns the first of an item's findings that hides it; None if it is served."""
    for flag in flags:
        if (flag.rule in HIDDEN_CHARACTER_RULES and flag in screened.names) or _holds(settings, flag.rule):
            return flag
    return None


def _holds(settings: ScreenSettings, rule: str) -> bool:
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
        self._next: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        """Schedules screening after lists have changed."""
        if self._next is None:
            self._next = asyncio.get_running_loop().call_later(SCREEN_AFTER, self._step)

    def _step(self) -> None:
        more = self._screen().step()
        self._next = asyncio.get_running_loop().call_later(SCREEN_PAUSE, self._step) if more else None

    def close(self) -> None:
        """Stops screening."""
        if self._next is not None:
            self._next.cancel()
