"""Signs of harm in what servers say: told of, or a reason to keep an item back."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from mcp_hub.catalog import Item, Route
from mcp_hub.config.models import Config, Server
from mcp_hub.config.rules import Screen as Settings
from mcp_hub.kinds import RESOURCES, TEMPLATES, TOOLS
from mcp_hub.policy.patterns import Patterns, RulesOfTools
from mcp_hub.policy.uri_rules import alike
from mcp_hub.screening import (
    FOREIGN_TOOLS,
    HIDDEN,
    REPORT_ONLY,
    SAYS,
    Budget,
    Flag,
    flags_of_item,
    flags_of_names,
    flags_of_text,
    foreign_names,
    is_distinct,
)

log = logging.getLogger("mcp_hub.policy")

STEP: Final = 32 * 1024
"""Characters that are looked at in one go, some 10 ms, where nobody waits for the outcome."""
STEP_ITEMS: Final = 100
"""Items that are told of in one go."""
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
        self._held: dict[Route, str] = {}
        self._held_uris: dict[str, dict[str, str]] = {}
        self._pending: list[tuple[str, Route, _Looked]] = []
        self._told: set[tuple[str, str, str]] = set()
        self._telling: Iterator[tuple[str, Route, tuple[Flag, ...]]] | None = None
        """What is left to be told of the present lists; None: all of it."""
        self._instructions: dict[str, tuple[str, list[Flag]]] = {}

    def look(self, upstream: str, items: Sequence[Item]) -> None:
        """Look at what an upstream lists now, all of it and as it lists it."""
        settings = self._settings[upstream]
        if settings.mode == "off":
            return
        before = self._looked.get(upstream, {})
        found: dict[Route, list[_Looked]] = {}
        self._pending = [one for one in self._pending if one[0] != upstream]
        self._telling = None
        budget = self._budgets[upstream] = Budget()
        at_once = settings.mode == "quarantine" or bool(settings.quarantine)
        for item in items:
            known = next((one for one in before.get(item.route, ()) if _same(one.wire, item.wire)), None)
            if known is None:
                known = _Looked(item.wire, flags_of_names(item.route.kind, item.wire))
            if known.rest is None and at_once:
                self._complete(upstream, item.route, known, budget)
            elif known.rest is None:
                self._pending.append((upstream, item.route, known))
            found.setdefault(item.route, []).append(known)
        self._looked[upstream] = found
        self._hold(upstream, settings, found)

    def why(self, route: Route) -> str | None:
        """Why a route must not be reached; None where it may."""
        if route.kind not in (RESOURCES, TEMPLATES):
            return self._held.get(route)
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
        spent = 0
        while self._pending and spent < STEP:
            upstream, route, known = self._pending.pop()
            left = self._budgets[upstream].left
            self._complete(upstream, route, known, self._budgets[upstream])
            spent += left - self._budgets[upstream].left + 1
        if self._pending:
            return True
        if self._telling is None:
            self._telling = self._all()
        some = list(islice(self._telling, STEP_ITEMS))
        for upstream, route, flags in some:
            for flag in flags:
                self._tell(upstream, route.kind.unknown, route.name, flag)
        return len(some) == STEP_ITEMS

    def flags(self) -> Iterator[tuple[str, Route, Flag]]:
        """Everything found so far, of all upstreams."""
        return ((upstream, route, flag) for upstream, route, flags in self._all() for flag in flags)

    def _all(self) -> Iterator[tuple[str, Route, tuple[Flag, ...]]]:
        looked_at = dict(self._looked)
        tools = {id: {route.name for route in found if route.kind is TOOLS} for id, found in looked_at.items()}
        for upstream, found in looked_at.items():
            settings = self._settings[upstream]
            others = set().union(*(names for id, names in tools.items() if id != upstream)) - tools[upstream]
            distinct = {name for name in others if is_distinct(name)}
            for route, looked in found.items():
                flags = [flag for one in looked for flag in one.flags]
                if others and FOREIGN_TOOLS not in settings.ignore:
                    for one in looked:
                        flags += foreign_names(route.kind, one.wire, distinct, others - distinct)
                yield upstream, route, tuple(self._wanted(settings, flags))

    def _complete(self, upstream: str, route: Route, known: _Looked, budget: Budget) -> None:
        rules = self._own_words(route)
        without = [key for key in ("title", "description") if getattr(rules, key) is not None]
        known.rest = flags_of_item(
            route.kind,
            known.wire,
            without=without,
            max_description=self._settings[upstream].max_description,
            budget=budget,
        )

    def _hold(self, upstream: str, settings: Settings, found: dict[Route, list[_Looked]]) -> None:
        self._held = {route: why for route, why in self._held.items() if route.upstream != upstream}
        uris: dict[str, str] = {}
        allowed = self._allowed[upstream]
        for route, looked in found.items():
            if not any(one.flags for one in looked):
                continue
            if allowed.match(route.name) or allowed.match(f"{upstream}/{route.name}"):
                continue
            for flag in (flag for one in looked for flag in self._wanted(settings, one.flags)):
                in_name = flag.rule in HIDDEN and flag in {flag for one in looked for flag in one.names}
                if in_name or _holds(settings, flag.rule):
                    why = f"screen: {flag.rule} in its {flag.where} ({SAYS[flag.rule]})"
                    self._held[route] = why
                    if route.kind in (RESOURCES, TEMPLATES):
                        uris |= dict.fromkeys((route.name, *(alike(route.name) or ())), why)
                    self._tell(upstream, route.kind.unknown, route.name, flag, kept_back=True)
                    break
        self._held_uris[upstream] = uris

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
