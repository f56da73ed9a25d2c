"""Kept results: that the pages hold all of them, for whom, and for how long."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.policy.long_results import KEPT_SECONDS, MAX_BYTES, MAX_RESULTS, LongResults, head, pages_of
from mcp_hub.protocol.frames import encode
from mcp_hub.security.callers import SOLE, Caller

TEXTS = st.text(max_size=4000) | st.text("ab \n\u00e9\U0001f600", max_size=4000)
BLOCKS = (
    st.builds(lambda text: {"type": "text", "text": text}, TEXTS)
    | st.builds(lambda size: {"type": "image", "mimeType": "image/png", "data": "A" * size}, st.integers(0, 4000))
    | st.builds(lambda text: {"type": "resource", "resource": {"uri": "x:y", "text": text}}, TEXTS)
)


def written(text: str) -> int:
    return len(encode(text)) - 2


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(blocks=st.lists(BLOCKS, max_size=5), size=st.integers(1024, 3000))
def test_the_pages_together_are_the_whole_result(blocks: list[dict[str, Any]], size: int) -> None:
    pages = list(pages_of({"content": blocks}, size).all)
    texts = [block["text"] if "text" in block else block["resource"]["text"] for block in blocks if "data" not in block]
    assert "".join(page.text or "" for page in pages) == "".join(texts)
    assert [page.blob for page in pages if page.blob is not None] == [b["data"] for b in blocks if "data" in b]
    for page in pages:
        if page.text is not None:
            assert len(json.dumps(page.text, ensure_ascii=False).encode()) <= size + 2


@given(text=st.text(max_size=300) | st.text('a\n"\u00e9\u6f22\U0001f600', max_size=300), size=st.integers(1, 400))
def test_a_text_is_cut_between_characters_and_as_late_as_possible(text: str, size: int) -> None:
    part = head(text, size)
    assert text.startswith(part)
    part.encode()
    assert written(part) <= size or len(part) == 1
    assert part == text or (part and written(text[: len(part) + 1]) > size)


def test_results_of_a_caller_that_is_gone_are_dropped_and_late_ones_not_stored() -> None:
    store, gone, other = LongResults(Clock()), Caller(), Caller()
    blob = {"content": [{"type": "image", "data": "x" * (MAX_BYTES // 4), "mimeType": "a/b"}]}
    uris = [store.keep(blob, other, 1024)[0], store.keep(blob, gone, 1024)[0]]
    gone.end()
    uris.append(store.keep(blob, gone, 1024)[0])
    uris += [store.keep(blob, other, 1024)[0] for _ in range(2)]  # all of `other` have room
    assert [store.read(uri, other) is not None for uri in uris] == [True, False, False, True, True]
    assert [store.read(uri, gone) for uri in uris[1:3]] == [None, None]


def test_a_page_is_readable_only_by_its_caller_until_it_expires() -> None:
    clock = Clock()
    store = LongResults(clock)
    one = Caller()
    uri, pages = store.keep({"content": [{"type": "text", "text": "x" * 3000}]}, one, 1024)
    assert pages == 3
    first = store.read(uri, one)
    assert first is not None
    assert first == {**(store.read(f"{uri}/1", one) or {}), "contents": first["contents"]}
    assert first["_meta"]["mcp-hub/long-result"]["next"] == f"{uri}/2"
    last = store.read(f"{uri}/3", one)
    assert last is not None
    assert "next" not in last["_meta"]["mcp-hub/long-result"]
    for unknown_uri in (f"{uri}/0", f"{uri}/4", f"{uri}/x", f"{uri}/1/1", uri[:-1], f"{uri}/\u0661"):
        assert store.read(unknown_uri, one) is None
    assert store.read(uri, Caller()) is None
    assert store.read(uri, SOLE) is None
    clock.now = KEPT_SECONDS + 1
    assert store.read(uri, one) is None


def test_the_oldest_result_is_dropped_when_there_are_too_many() -> None:
    store = LongResults(Clock())
    uris = [store.keep({"content": []}, SOLE, 1024)[0] for _ in range(MAX_RESULTS + 1)]
    assert store.read(uris[0], SOLE) is None
    assert store.read(uris[1], SOLE) is not None


def test_the_oldest_result_is_dropped_when_all_are_too_large() -> None:
    store = LongResults(Clock())
    blob = {"content": [{"type": "image", "mimeType": "image/png", "data": "A" * (MAX_BYTES // 3)}]}
    uris = [store.keep(blob, SOLE, 1024)[0] for _ in range(4)]
    assert [store.read(uri, SOLE) is not None for uri in uris] == [False, False, True, True]


def test_expired_results_are_dropped_when_a_new_one_is_stored() -> None:
    clock = Clock()
    store = LongResults(clock)
    blob = {"content": [{"type": "image", "mimeType": "image/png", "data": "A" * (MAX_BYTES * 2 // 3)}]}
    small = {"content": [{"type": "text", "text": "x"}]}
    store.keep(blob, SOLE, 1024)
    clock.now = KEPT_SECONDS / 2
    earlier_uri, _ = store.keep(small, SOLE, 1024)
    clock.now = KEPT_SECONDS + 1
    new_uri, _ = store.keep(blob, SOLE, 1024)
    assert store.read(earlier_uri, SOLE) is not None, "only what is too old has made room"
    assert store.read(new_uri, SOLE) is not None


def test_structured_content_and_other_members_have_a_page_of_json_each() -> None:
    result = {
        "content": [{"type": "text", "text": "x"}],
        "structuredContent": {"rows": ["y" * 5000]},
        "_meta": {"z": "z" * 5000},
    }
    text, structured, members = pages_of(result, 1024).all
    assert text.mime_type == "text/plain"
    assert json.loads(structured.text or "") == result["structuredContent"]
    assert json.loads(members.text or "") == {"_meta": result["_meta"]}
    assert {structured.mime_type, members.mime_type} == {"application/json"}


@pytest.mark.parametrize("block", [{"type": "future", "x": 1}, "no block", {"type": "text", "text": None}])
def test_blocks_of_unknown_form_are_kept_as_json(block: Any) -> None:
    (page,) = pages_of({"content": [block]}, 1024).all
    assert json.loads(page.text or "") == block
