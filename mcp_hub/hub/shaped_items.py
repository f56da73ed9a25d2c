"""The items of one upstream as the rules leave them, and whether they are still up to date."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from mcp_hub.catalog import CatalogSource, Item, Route
from mcp_hub.protocol.kinds import KINDS, Kind, name_of
from mcp_hub.security.callers import Caller
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
    """What callers are offered whose own sessions have not listed anything."""
    own: Mapping[Caller, Mapping[Kind, Sequence[Item]]]
    """By caller: what its own session lists, of the kinds that it has listed."""
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
        own_items = (item for by_kind in self.own.values() for items in by_kind.values() for item in items)
        return [*self.items, *own_items, *(wire for wires in self.lists if wires is not None for wire in wires)]

    def source(
        self, is_visible: Callable[[Route], bool], own: Mapping[Kind, Sequence[Item]]
    ) -> Generator[None, None, CatalogSource]:
        """Returns the items in `own`, and everybody's of the other kinds, as far as `is_visible(route)`."""
        visible_items: list[Item] = []
        for items, is_own in ((self.items, False), *((items, True) for items in own.values())):
            for item in items:
                yield
                if (is_own or item.route.kind not in own) and is_visible(item.route):
                    visible_items.append(item)
        return CatalogSource(self.upstream.server.id, self.upstream.server.namespace, tuple(visible_items))


def _lists_of(upstream: Upstream) -> tuple[Any, ...]:
    """Returns an upstream's current lists.

    Lists are replaced and never mutated, so identity tells whether they changed.
    """
    return tuple(
        lists.offered(kind) for lists in (upstream.lists, *upstream.caller_lists.all.values()) for kind in KINDS
    )


def shape_items(upstream: Upstream, shape: Shape) -> Generator[None, None, ShapedItems]:
    """Collects what an upstream offers everybody and single callers, and applies the rules to it, in steps.

    The rules see all definitions of an item at once: what one of them makes them refuse is refused to everybody.
    """
    sources, own_lists = _lists_of(upstream), dict(upstream.caller_lists.all)
    definitions: dict[Route, list[Item]] = {}
    everybodys: list[Item] = []
    for kind in KINDS:
        for item in _items(upstream, upstream.lists, kind):
            yield
            everybodys.append(_defined(item, definitions))
    own: dict[Caller, dict[Kind, list[Item]]] = {}
    for caller, lists in own_lists.items():
        own[caller] = {kind: [] for kind in KINDS if kind in lists.items}
        for kind, items in own[caller].items():
            for item in _items(upstream, lists, kind):
                yield
                shared = next(iter(definitions.get(item.route, ())), None)
                items.append(shared if shared and shared.wire == item.wire else _defined(item, definitions))
    shaped = yield from shape([item for items in definitions.values() for item in items])
    by_definition: dict[tuple[Route, int], Item] = {}
    for item in shaped:
        yield
        by_definition[item.route, item.definition] = item

    def allowed(items: Sequence[Item]) -> Generator[None, None, list[Item]]:
        result: list[Item] = []
        for item in items:
            yield
            if (shaped_item := by_definition.get((item.route, item.definition))) is not None:
                result.append(shaped_item)
        return result

    shaped_own: dict[Caller, dict[Kind, Sequence[Item]]] = {caller: {} for caller in own}
    for caller, by_kind in own.items():
        for kind, items in by_kind.items():
            shaped_own[caller][kind] = yield from allowed(items)
    return ShapedItems(upstream, (yield from allowed(everybodys)), shaped_own, sources)


def _defined(item: Item, definitions: dict[Route, list[Item]]) -> Item:
    """Returns the item as one more definition of its route."""
    known = definitions.setdefault(item.route, [])
    if known:
        item = msgspec.structs.replace(item, definition=len(known))
    known.append(item)
    return item


def _items(upstream: Upstream, lists: RawLists, kind: Kind) -> Iterator[Item]:
    for wire in lists.offered(kind) or ():
        name = name_of(kind, wire)
        yield Item(Route(upstream.server.id, kind, name), name, wire)
