"""A bounded dict drops what was set or used longest ago."""

from __future__ import annotations

from mcp_hub.security.lru import Lru


def lru(*keys: str, bound: int = 3) -> Lru[str, int]:
    entries: Lru[str, int] = Lru(bound)
    for number, key in enumerate(keys):
        entries[key] = number
    return entries


def test_beyond_the_bound_the_entry_that_was_set_first_is_dropped() -> None:
    entries = lru("a", "b", "c", "d", "e")
    assert list(entries) == ["c", "d", "e"]


def test_setting_an_entry_again_makes_it_the_last_and_drops_none() -> None:
    entries = lru("a", "b", "c", "a")
    assert list(entries) == ["b", "c", "a"]
    assert entries["a"] == 3


def test_use_makes_an_entry_the_last_and_reading_does_not() -> None:
    entries = lru("a", "b", "c")
    assert entries.get("a") == entries["a"] == 0
    assert entries.use("b") == 1
    assert entries.use("z") is None
    entries["d"] = 9
    assert list(entries) == ["c", "b", "d"]


def test_the_bound_holds_for_every_way_to_add_an_entry() -> None:
    entries = lru("a", "b", "c")
    entries.setdefault("d", 1)
    entries.update({"e": 2, "f": 3})
    entries |= {"g": 4}
    assert list(entries) == ["e", "f", "g"]
