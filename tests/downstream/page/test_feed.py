"""The feed of calls behind the live page: what it keeps, counts and cuts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_hub.downstream.page.feed import MAX_BYTES, MAX_CALLS, Feed, shown
from mcp_hub.policy.call_record import RecordTap
from mcp_hub.security import ANONYMOUS, Principal
from tests.downstream.page.opened import ServedHub

pytestmark = pytest.mark.anyio

EVIL = "<img src=x onerror=alert(1)>\x1b[31m\u202e\u200b\x07"


class Watched:
    """The part of a hub that a feed uses."""

    def __init__(self) -> None:
        self.tap = RecordTap()


def feed_of(records: list[dict[str, Any]], principal: Principal = ANONYMOUS) -> Feed:
    feed = Feed(Watched())  # type: ignore[arg-type]
    for record in records:
        feed.take(record, principal)
    return feed


async def test_the_newest_calls_are_kept_and_dropped_ones_are_counted() -> None:
    feed = feed_of([{"event": "call", "id": str(number)} for number in range(MAX_CALLS + 10)])
    dropped, calls = feed.after(0)
    assert (dropped, len(calls)) == (10, MAX_CALLS)
    assert feed.find("9") is None
    assert feed.find("10") is not None
    assert feed.after(feed.newest) == (0, [])
    assert feed.after(feed.newest - 2)[1][0].id == str(MAX_CALLS + 8)


async def test_kept_calls_are_bounded_in_bytes() -> None:
    feed = feed_of([{"event": "call", "id": str(number), "arguments": "x" * 100_000} for number in range(400)])
    _, calls = feed.after(0)
    assert len(calls) * 100_000 <= MAX_BYTES
    assert calls[-1].id == "399"


async def test_percentiles_are_computed_over_the_newest_calls() -> None:
    records = [{"event": "call", "id": str(n), "upstream": "up", "duration_ms": float(n)} for n in range(101)]
    assert feed_of(records).percentiles("up") == (50.0, 95.0)
    assert feed_of(records).percentiles("other") is None


async def test_no_call_is_kept_once_the_last_viewer_leaves() -> None:
    now = [0.0]
    watched = Watched()
    feed = Feed(watched, clock=lambda: now[0])  # type: ignore[arg-type]
    changed = feed.follow()
    assert watched.tap.sink is not None
    feed.take({"event": "call", "id": "1"}, ANONYMOUS)
    assert changed.is_set()
    feed.unfollow(changed)
    feed.close()
    assert (watched.tap.sink, feed.since, feed.find("1")) == (None, None, None)
    feed.watch()
    assert feed.since is not None
    feed.close()


def test_long_texts_are_cut_and_hidden_characters_escaped_for_display() -> None:
    value = {"a\x1b": ["x" * 5000, "one\ntwo\u202e", 1, None, True], "deep": _nested(100)}
    display = shown(value)
    assert next(iter(display)) == "a\\x1b"
    assert display["a\\x1b"][0].endswith("… (5,000 characters)")
    assert display["a\\x1b"][1:] == ["one\ntwo\\u202e", 1, None, True]
    assert "…" in json.dumps(display["deep"], ensure_ascii=False)


def _nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


__all__ = ["ServedHub"]
