"""Calls that wait for a place: principals take turns, of each its callers, of each caller its calls in order."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

from mcp_hub.security.principals import Principal, principal_of


class Entry(NamedTuple):
    """A call without a place."""

    caller: Hashable | None
    future: asyncio.Future[None]


class Waiting:
    """Nobody waits for the whole queue of somebody else."""

    def __init__(self) -> None:
        self._principals: OrderedDict[Principal, _Turns] = OrderedDict()
        self.size = 0

    def add(self, caller: Hashable | None) -> Entry:
        """One more, behind the other calls of its caller."""
        entry = Entry(caller, asyncio.get_running_loop().create_future())
        self._principals.setdefault(principal_of(caller), _Turns()).add(entry)
        self.size += 1
        return entry

    def has(self, entry: Entry) -> bool:
        """Whether it still waits."""
        turns = self._principals.get(principal_of(entry.caller))
        return turns is not None and turns.has(entry)

    def remove(self, entry: Entry, *, served: bool = False) -> None:
        """It waits no longer; who was served is behind all others from now on."""
        principal = principal_of(entry.caller)
        turns = self._principals[principal]
        turns.remove(entry, served=served)
        self.size -= 1
        if not turns.size:
            del self._principals[principal]
        elif served:
            self._principals.move_to_end(principal)

    def next(self, free_for: Callable[[Hashable | None], bool], taken: Mapping[Principal, int]) -> Entry | None:
        """Whose turn it is: of the principals with the fewest places `taken` the first. None: nobody may have one."""
        first = [(taken.get(whose, 0), turns.first(free_for)) for whose, turns in self._principals.items()]
        return min(
            ((count, one) for count, one in first if one is not None), key=lambda pair: pair[0], default=(0, None)
        )[1]

    def room_for(self, caller: Hashable | None) -> Entry | None:
        """The last call of whoever has most, where `caller` would have fewer; None: it has to go itself."""
        principal = principal_of(caller)
        most = max(self._principals, key=lambda one: self._principals[one].size, default=principal)
        if most == principal:
            turns = self._principals.get(principal)
            return turns.room_for(caller) if turns is not None else None
        mine = self._principals.get(principal)
        if self._principals[most].size <= (mine.size if mine is not None else 0) + 1:
            return None
        return self._principals[most].last()


class _Turns:
    """The calls of one principal."""

    def __init__(self) -> None:
        self._callers: OrderedDict[Hashable | None, deque[Entry]] = OrderedDict()
        self.size = 0

    def add(self, entry: Entry) -> None:
        self._callers.setdefault(entry.caller, deque()).append(entry)
        self.size += 1

    def has(self, entry: Entry) -> bool:
        return entry in self._callers.get(entry.caller, ())

    def remove(self, entry: Entry, *, served: bool) -> None:
        queue = self._callers[entry.caller]
        queue.remove(entry)
        self.size -= 1
        if not queue:
            del self._callers[entry.caller]
        elif served:
            self._callers.move_to_end(entry.caller)

    def first(self, free_for: Callable[[Hashable | None], bool]) -> Entry | None:
        for caller, queue in self._callers.items():
            if free_for(caller) and (entry := next((one for one in queue if not one.future.done()), None)) is not None:
                return entry
        return None

    def last(self) -> Entry | None:
        """The newest call of the caller that has most."""
        queue = max(self._callers.values(), key=len)
        return next((one for one in reversed(queue) if not one.future.done()), None)

    def room_for(self, caller: Hashable | None) -> Entry | None:
        if self.size == len(self._callers):
            return None  # each has one only
        longest = max(map(len, self._callers.values()))
        return self.last() if longest > len(self._callers.get(caller, ())) + 1 else None
