"""A dict of at most so many entries: what is set or used longest ago is dropped first."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Lru(OrderedDict[K, V]):
    """A dict of at most `bound` entries, the one that was set or used last at the end. Beyond that the first goes.

    Reading by `[]` or `get` does not count as use.
    """

    def __init__(self, bound: int) -> None:
        super().__init__()
        self.bound = bound

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self.bound:
            self.popitem(last=False)

    def use(self, key: K) -> V | None:
        """Returns the value of a key, which counts as used now; None if there is none."""
        if key not in self:
            return None
        self.move_to_end(key)
        return self[key]
