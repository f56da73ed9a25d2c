"""Tools that are not what they were when somebody looked at them: told of, or hidden and refused until pinned again."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final

from mcp_hub.catalog.catalog import Item, Route
from mcp_hub.config.models import Config
from mcp_hub.security.pinning import PARTS, Difference, Pinned, differences_in_steps, instructions_differ
from mcp_hub.text import printable

log = logging.getLogger("mcp_hub.policy")

MAX_TOLD: Final = 10_000
"""Problems that are remembered as told."""


class Pins:
    """One of Access's reviews. `recorded` is what was pinned, by the id of the server; a missing one has nothing."""

    def __init__(self, config: Config, recorded: Mapping[str, Pinned]) -> None:
        self._modes = {server.id: config.pins_of(server) for server in config.servers}
        self._recorded = recorded
        self._found: dict[str, dict[Route, str]] = {}
        """What is not as it was, by upstream."""
        self._listed: dict[str, frozenset[Route]] = {}
        self._gone: dict[str, list[Difference]] = {}
        self._told: set[tuple[str, str, str]] = set()
        self._compared: dict[str, tuple[Pinned | None, list[Any]]] = {}
        """What was compared last, with what."""

    def take(self, recorded: Mapping[str, Pinned]) -> None:
        """Hold everything against this from now on; counts for an upstream when it is looked at again."""
        self._recorded = recorded

    def look(self, upstream: str, items: Sequence[Item]) -> Generator[None]:
        """Compare what an upstream lists now, all of it and as it lists it, in steps."""
        if self._modes[upstream] == "off":
            return
        own = [item for item in items if item.route.kind in PARTS]
        recorded, wires = self._recorded.get(upstream), [item.wire for item in own]
        if _is_same(self._compared.get(upstream), recorded, wires):
            return  # it was another server whose lists have changed
        found: list[Difference] = []
        for one in differences_in_steps(recorded, ((item.route.kind, item.wire) for item in own)):
            yield
            if one is not None:
                found.append(one)
        self._compared[upstream] = (recorded, wires)
        self._listed[upstream] = frozenset(item.route for item in own)
        self._gone[upstream] = [one for one in found if one.gone]
        self._found[upstream] = {
            Route(upstream, one.kind, one.name): f"pins: it {one.problem}"
            for one in found
            if one.kind is not None and not one.gone
        }
        for one in found:
            yield
            self._tell(upstream, one)

    def why(self, route: Route) -> str | None:
        """Why a route must not be reached; None where it may."""
        if self._modes[route.upstream] != "enforce" or route.kind not in PARTS:
            return None
        if route not in self._listed.get(route.upstream, ()):
            return "pins: its server does not list it"
        found = self._found[route.upstream].get(route)
        return f"{found}; `mcp-hub pin {printable(route.upstream, 100)}` accepts it" if found is not None else None

    def note(self, route: Route) -> str | None:
        """What the user should know of a route that may be reached."""
        return self._found.get(route.upstream, {}).get(route) if self._modes[route.upstream] == "warn" else None

    def of_instructions(self, upstream: str, text: str) -> str | None:
        """How what a server says of itself differs from what was pinned."""
        if self._modes[upstream] == "off":
            return None
        difference = instructions_differ(self._recorded.get(upstream), text)
        if difference is not None:
            self._tell(upstream, difference)
        return f"pins: they {difference.problem}" if difference is not None else None

    def passes_instructions(self, upstream: str, text: str) -> bool:
        """Whether what a server says of itself may be passed on."""
        return self.of_instructions(upstream, text) is None or self._modes[upstream] == "warn"

    def problems(self, upstream: str) -> list[tuple[str, str, str]]:
        """(kind, name, what is the matter) of everything of an upstream that is not as it was."""
        enforced = self._modes[upstream] == "enforce"
        end = "; it is hidden until `mcp-hub pin`" if enforced else ""
        found = [(route.kind.unknown, route.name, text + end) for route, text in self._found.get(upstream, {}).items()]
        gone = self._gone.get(upstream, [])
        return found + [(one.kind.unknown, one.name, f"pins: it {one.problem}") for one in gone if one.kind is not None]

    def _tell(self, upstream: str, one: Difference) -> None:
        """Once, for the log."""
        key = (upstream, one.name, one.problem)
        if key in self._told or len(self._told) >= MAX_TOLD:
            return
        self._told.add(key)
        word = one.kind.unknown if one.kind is not None else "what it says of itself:"
        hidden = self._modes[upstream] == "enforce" and not one.gone
        end = "; it is hidden until `mcp-hub pin`" if hidden else ""
        log.warning("%s: %s %r %s%s", upstream, word, one.name[:200], one.problem, end)


def _is_same(before: tuple[Pinned | None, list[Any]] | None, recorded: Pinned | None, wires: list[Any]) -> bool:
    if before is None or before[0] is not recorded or len(before[1]) != len(wires):
        return False
    return all(one is other for one, other in zip(before[1], wires, strict=True))
