"""Signs of harm in what servers say: told of, or a reason to keep an item back."""

from __future__ import annotations

import logging
from collections.abc import Container, Generator, Iterator, Sequence
from typing import Any, Final

import msgspec

from mcp_hub.catalog.catalog import Item, Route
from mcp_hub.config.models import Config, Server
from mcp_hub.config.rules import Screen as Settings
from mcp_hub.observability.stalls import SLICE, at_once
from mcp_hub.policy.patterns import Patterns, RulesOfTools
from mcp_hub.policy.uri_rules import alike
from mcp_hub.protocol.kinds import RESOURCES, TEMPLATES, TOOLS
from mcp_hub.security.screening import (
    FOREIGN_TOOLS,
    HIDDEN,
    REPORT_ONLY,
    SAYS,
    Budget,
    Flag,
    flags_in_steps,
    flags_of_names,
    flags_of_text,
    foreign_names,
    is_distinct,
)

log = logging.getLogger("mcp_hub.policy")

MAX_TOLD: Final = 10_000
"""Flags that are remembered as told."""


class _Looked(msgspec.Struct):
    """What is known of one item; `rest` None: only its names were looked at so far."""

    wire: Any
    names: tuple[Flag, ...]
    rest: tuple[Flag, ...] | None = None

    @property
    def flags(self) -> tuple[Flag, ...]:
        return self.names if self.rest is None else self.rest


class _Without:
    """The names of one set that are not in another, which need not be put together for that."""

    def __init__(self, names: Container[str], own: Container[str]) -> None:
        self._names = names
        self._own = own

    def __contains__(self, name: object) -> bool:
        return name in self._names and name not in self._own


class Screen:
    """One of Access's reviews. Names are looked at before anything is listed, the rest only if it could hide an item;
    else `step` does it when there is time. Items that have not changed are not looked at again."""

    def __init__(self, config: Config) -> None:
        self._servers: dict[str, Server] = {server.id: server for server in config.servers}
        self._settings = {server.id: config.screen_of(server) for server in config.servers}
        self._allowed = {id: Patterns(settings.allow) for id, settings in self._settings.items()}
        self._own_words = RulesOfTools(self._servers)
        self._looked: dict[str, dict[Route, list[_Looked]]] = {}
        self._budgets: dict[str, Budget] = {}
        self._held: dict[str, dict[Route, str]] = {}
        self._held_uris: dict[str, dict[str, str]] = {}
        self._pending: list[tuple[str, Route, _Looked]] = []
        self._told: set[tuple[str, str, str]] = set()
        self._working: Generator[None] | None = None
        """What `step` is in the middle of."""
        self._begun: tuple[str, Route, _Looked] | None = None
        """The item that it has begun with."""
        self._instructions: dict[str, tuple[str, list[Flag]]] = {}

    def look(self, upstream: str, items: Sequence[Item]) -> Generator[None]:
        """Look at what an upstream lists now, all of it and as it lists it, in steps."""
        settings = self._settings[upstream]
        if settings.mode == "off":
            return
        before = self._looked.get(upstream, {})
        found: dict[Route, list[_Looked]] = {}
        begun = [self._begun] if self._begun is not None else []
        self._pending = [one for one in (*self._pending, *begun) if one[0] != upstream]
        self._working = self._begun = None
        budget = self._budgets[upstream] = Budget()
        at_once = settings.mode == "quarantine" or bool(settings.quarantine)
        for item in items:
            yield
            known = next((one for one in before.get(item.route, ()) if _same(one.wire, item.wire)), None)
            if known is None:
                known = _Looked(item.wire, flags_of_names(item.route.kind, item.wire))
            if known.rest is None and at_once:
                yield from self._complete(upstream, item.route, known, budget)
            elif known.rest is None:
                self._pending.append((upstream, item.route, known))
            found.setdefault(item.route, []).append(known)
        self._looked[upstream] = found
        yield from self._hold(upstream, settings, found)

    def why(self, route: Route) -> str | None:
        """Why a route must not be reached; None where it may."""
        if route.kind not in (RESOURCES, TEMPLATES):
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

    def note(self, route: Route) -> str | None:
        """Nothing: what is only flagged is for the log and `check`."""
        return None

    def of_instructions(self, upstream: str, text: str) -> list[Flag]:
        """What is found in what a server says of itself."""
        settings = self._settings[upstream]
        if settings.mode == "off":
            return []
        known, flags = self._instructions.get(upstream, (None, []))
        if known != text:
            found = flags_of_text("instructions", text, max_description=settings.max_description)
            flags = self._wanted(settings, found)
            self._instructions[upstream] = (text, flags)  # every client is told them, they change once in a while
        return flags

    def passes_instructions(self, upstream: str, text: str) -> bool:
        """Whether what a server says of itself may be passed on."""
        flags = self.of_instructions(upstream, text)
        for flag in flags:
            self._tell(upstream, "what it says of itself", "instructions", flag)
        return not any(_holds(self._settings[upstream], flag.rule) for flag in flags)

    def step(self) -> bool:
        """Look at some of what was not looked at yet; False when there is nothing left. New flags are logged."""
        if self._working is None:
            self._working = self._rest()
        done, _ = at_once(self._working, SLICE)
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
        """Everything found so far, of all upstreams."""
        return ((one[0], one[1], flag) for one in self._all() if one is not None for flag in one[2])

    def _all(self) -> Iterator[tuple[str, Route, tuple[Flag, ...]] | None]:
        """What was found, item by item; None: there is more."""
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
            for route, looked in found.items():
                flags = [flag for one in looked for flag in one.flags]
                if others and FOREIGN_TOOLS not in settings.ignore:
                    for one in looked:
                        flags += foreign_names(route.kind, one.wire, _Without(distinct, own), _Without(plain, own))
                yield upstream, route, tuple(self._wanted(settings, flags))

    def _complete(self, upstream: str, route: Route, known: _Looked, budget: Budget) -> Generator[None]:
        rules = self._own_words(route)
        without = [key for key in ("title", "description") if getattr(rules, key) is not None]
        flags: list[Flag] = []
        for flag in flags_in_steps(route.kind, known.wire, without, self._settings[upstream].max_description, budget):
            yield
            if flag is not None:
                flags.append(flag)
        known.rest = tuple(flags)

    def _hold(self, upstream: str, settings: Settings, found: dict[Route, list[_Looked]]) -> Generator[None]:
        held: dict[Route, str] = {}
        uris: dict[str, str] = {}
        allowed = self._allowed[upstream]
        for route, looked in found.items():
            yield
            if not any(one.flags for one in looked):
                continue
            if allowed.match(route.name) or allowed.match(f"{upstream}/{route.name}"):
                continue
            for flag in (flag for one in looked for flag in self._wanted(settings, one.flags)):
                in_name = flag.rule in HIDDEN and flag in {flag for one in looked for flag in one.names}
                if in_name or _holds(settings, flag.rule):
                    why = f"screen: {flag.rule} in its {flag.where} ({SAYS[flag.rule]})"
                    held[route] = why
                    if route.kind in (RESOURCES, TEMPLATES):
                        uris |= dict.fromkeys((route.name, *(alike(route.name) or ())), why)
                    self._tell(upstream, route.kind.unknown, route.name, flag, kept_back=True)
                    break
        self._held[upstream], self._held_uris[upstream] = held, uris

    def _wanted(self, settings: Settings, flags: Sequence[Flag]) -> list[Flag]:
        return [flag for flag in flags if flag.rule not in settings.ignore]

    def _tell(self, upstream: str, kind: str, name: str, flag: Flag, *, kept_back: bool = False) -> None:
        """Once, for the log."""
        key = (upstream, f"{kind} {name}", flag.rule)
        if key in self._told or len(self._told) >= MAX_TOLD:
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
    """A flag in words; with the server's own text, which is not safe to print as it is."""
    return f"{flag.rule} in its {flag.where}, {SAYS[flag.rule]}: {flag.excerpt}"


def _holds(settings: Settings, rule: str) -> bool:
    if rule in REPORT_ONLY:
        return False
    return settings.mode == "quarantine" or rule in settings.quarantine
