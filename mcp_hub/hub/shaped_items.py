"""The items of one upstream as the rules leave them, and whether they are still up to date."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import msgspec

from mcp_hub.catalog import CatalogSource, Item, Route
from mcp_hub.protocol.kinds import KINDS
from mcp_hub.upstream import Upstream
from mcp_hub.upstream.list_store import RawLists

Shape = Callable[[Sequence[Item]], Generator[None, None, Sequence[Item]]]
"""Applies the rules to the items of one upstream, in steps."""


def as_they_are(items: Sequence[Item]) -> Generator[None, None, Sequence[Item]]:
    """Applies no rules."""
    yield
    return items


class ShapedItems(msgspec.Struct, frozen=True):
    """The items of one upstream as the rules leave them."""

    upstream: Upstream
    items: Sequence[Item]
    everybodys: frozenset[Route]
    lists: tuple[Any, ...]
    """The upstream's lists it was made from."""

    def is_of(self, upstream: Upstream) -> bool:
        """Returns whether it was made from the lists that the upstream has now."""
        now = _lists_of(upstream)
        return len(now) == len(self.lists) and all(
            current is former for current, former in zip(now, self.lists, strict=True)
        )

    def parts(self) -> list[Any]:
        """Returns the objects it consists of, each of which may be large."""
        return [*self.items, *(wire for wires in self.lists if wires is not None for wire in wires)]

    def source(
        self, is_visible: Callable[[Route], bool], offered: RawLists | None = None
    ) -> Generator[None, None, CatalogSource]:
        """Returns the items that everybody is offered and those in `offered`, as far as `is_visible(route)`."""
        caller_routes = _routes(self.upstream, offered) if offered is not None else frozenset()
        visible_items: list[Item] = []
        for item in self.items:
            yield
            if (item.route in self.everybodys or item.route in caller_routes) and is_visible(item.route):
                visible_items.append(item)
        items = tuple(visible_items)
        return CatalogSource(self.upstream.server.id, self.upstream.server.namespace, items)


def _lists_of(upstream: Upstream) -> tuple[Any, ...]:
    """Returns an upstream's current lists.

    Lists are replaced and never mutated, so identity tells whether they changed.
    """
    return tuple(
        lists.items.get(kind) for lists in (upstream.lists, *upstream.caller_lists.all.values()) for kind in KINDS
    )


def shape_items(upstream: Upstream, shape: Shape) -> Generator[None, None, ShapedItems]:
    """Collects what an upstream offers everybody and single callers, and applies the rules to it, in steps."""
    sources = _lists_of(upstream)
    caller_lists = list(upstream.caller_lists.all.values())
    listed: list[Item] = []
    for item in _items(upstream, upstream.lists):
        yield
        listed.append(item)
    everybodys = frozenset(item.route for item in listed)
    caller_items: dict[Route, Item] = {}
    for lists in caller_lists:
        for item in _items(upstream, lists):
            yield
            if item.route not in everybodys:
                caller_items.setdefault(item.route, item)
    items = yield from shape([*listed, *caller_items.values()])
    return ShapedItems(upstream, items, everybodys, sources)


def _items(upstream: Upstream, lists: RawLists) -> Iterator[Item]:
    for kind in KINDS:
        for wire in lists.items.get(kind, ()):
            name = wire.get(kind.name_key) if isinstance(wire, dict) else None
            text = name if isinstance(name, str) else ""
            yield Item(Route(upstream.server.id, kind, text), text, wire)


def _routes(upstream: Upstream, lists: RawLists) -> frozenset[Route]:
    return frozenset(item.route for item in _items(upstream, lists))
