"""Results above the limit: what is passed on, and that the pages hold all of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_hub.long_results import KEPT_SECONDS, MAX_RESULTS, LongResults, head, pages_of
from mcp_hub.policy.shape_result import NOTE, _cut

TEXTS = st.text(max_size=4000) | st.text("ab \n\u00e9\U0001f600", max_size=4000)
BLOCKS = (
    st.builds(lambda text: {"type": "text", "text": text}, TEXTS)
    | st.builds(lambda size: {"type": "image", "mimeType": "image/png", "data": "A" * size}, st.integers(0, 4000))
    | st.builds(lambda text: {"type": "resource", "resource": {"uri": "x:y", "text": text}}, TEXTS)
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(blocks=st.lists(BLOCKS, max_size=5), size=st.integers(1024, 3000))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_the_pages_together_are_the_whole_result(blocks: list[dict[str, Any]], size: int) -> None:
    pages = list(pages_of({"content": blocks}, size))
    texts = [block["text"] if "text" in block else block["resource"]["text"] for block in blocks if "data" not in block]
    assert "".join(page.text or "" for page in pages) == "".join(texts)
    assert [page.blob for page in pages if page.blob is not None] == [b["data"] for b in blocks if "data" in b]
    for page in pages:
        if page.text is not None:
            assert len(json.dumps(page.text, ensure_ascii=False).encode()) <= size + 2


@given(blocks=st.lists(BLOCKS, max_size=5), limit=st.integers(1, 6000))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_what_is_passed_on_is_never_longer_than_the_limit(blocks: list[dict[str, Any]], limit: int) -> None:
    kept, shown = _cut(blocks, limit)
    assert shown <= limit
    assert len(json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode()) <= limit + NOTE
    whole = {json.dumps(block) for block in blocks}
    assert all(json.dumps(block) in whole for block in kept if block["type"] != "text"), "only texts are ever cut"


@given(text=st.text(max_size=300), size=st.integers(1, 200))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_a_text_is_cut_between_characters(text: str, size: int) -> None:
    part = head(text, size)
    assert text.startswith(part)
    assert part or not text
    part.encode()


def test_a_page_belongs_to_its_caller_and_to_its_time() -> None:
    clock = Clock()
    store = LongResults(clock)
    uri, pages = store.keep({"content": [{"type": "text", "text": "x" * 3000}]}, "one", 1024)
    assert pages == 3
    first = store.read(uri, "one")
    assert first is not None
    assert first == {**(store.read(f"{uri}/1", "one") or {}), "contents": first["contents"]}
    assert first["_meta"]["mcp-hub/long-result"]["next"] == f"{uri}/2"
    last = store.read(f"{uri}/3", "one")
    assert last is not None
    assert "next" not in last["_meta"]["mcp-hub/long-result"]
    for other in (f"{uri}/0", f"{uri}/4", f"{uri}/x", f"{uri}/1/1", uri[:-1], f"{uri}/\u0661"):
        assert store.read(other, "one") is None
    assert store.read(uri, "two") is None
    assert store.read(uri, None) is None
    clock.now = KEPT_SECONDS + 1
    assert store.read(uri, "one") is None


def test_the_oldest_goes_when_there_are_too_many() -> None:
    store = LongResults(Clock())
    uris = [store.keep({"content": []}, None, 1024)[0] for _ in range(MAX_RESULTS + 1)]
    assert store.read(uris[0], None) is None
    assert store.read(uris[1], None) is not None


def test_the_oldest_goes_when_they_are_too_large() -> None:
    store = LongResults(Clock())
    blob = {"content": [{"type": "image", "mimeType": "image/png", "data": "A" * (40 * 1024 * 1024)}]}
    first, _ = store.keep(blob, None, 1024)
    second, _ = store.keep(blob, None, 1024)
    assert store.read(first, None) is None
    assert store.read(second, None) is not None


@pytest.mark.parametrize("block", [{"type": "future", "x": 1}, "no block", {"type": "text", "text": None}])
def test_blocks_of_unknown_form_are_kept_as_json(block: Any) -> None:
    (page,) = pages_of({"content": [block]}, 1024)
    assert json.loads(page.text or "") == block
