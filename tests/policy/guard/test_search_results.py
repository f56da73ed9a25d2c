"""Results of search tools lose what leads to guarded pages, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_hub.policy.guard import without_guarded
from mcp_hub.security.url_rules import UrlRules

RULES = UrlRules()
DATASET = "https://huggingface.co/datasets/squad"


def text_result(value: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": json.dumps(value)}]}


@pytest.mark.parametrize("key", ["link", "URL", "href", "uri", "permaLink", "sourceUrl", "target_url", "page_url"])
def test_a_search_result_is_dropped_if_any_url_field_is_guarded(key: str) -> None:
    result, dropped = without_guarded(text_result([{key: DATASET}, {key: "https://example.org"}]), RULES)
    assert json.loads(result["content"][0]["text"]) == [{key: "https://example.org"}]
    assert dropped == 1


@pytest.mark.parametrize(
    "result",
    [
        text_result([{"link": "https://example.org", "imageUrl": DATASET, "snippet": f"as in {DATASET}"}]),
        text_result([{"page": {"title": f"{DATASET} and more"}}, 1, None, [True]]),
        text_result({"link": DATASET}),
        {"content": [{"type": "text", "text": f"[not json] {DATASET}"}]},
        {"content": [{"type": "text", "text": f"{{broken {DATASET}"}]},
        {"content": [{"type": "image", "data": "", "mimeType": "image/png"}, 7], "structuredContent": None},
        {"content": "none", "isError": True},
        {},
    ],
)
def test_a_result_without_guarded_members_is_the_same_object(result: dict[str, Any]) -> None:
    filtered, dropped = without_guarded(result, RULES)
    assert filtered is result
    assert dropped == 0


def test_text_and_structured_content_lose_the_same_members() -> None:
    structured = {"a": [{"b": [{"link": DATASET}, {"link": "https://example.org"}]}, {"link": "hf.co/spaces/x"}]}
    result = {**text_result(structured), "structuredContent": structured, "_meta": {"x": 1}}
    before = json.dumps(result)
    filtered, dropped = without_guarded(result, RULES)
    assert json.dumps(result) == before
    assert filtered["structuredContent"] == {"a": [{"b": [{"link": "https://example.org"}]}]}
    assert json.loads(filtered["content"][0]["text"]) == filtered["structuredContent"]
    assert filtered["_meta"] == {"x": 1}
    assert dropped == 2
