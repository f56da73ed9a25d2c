"""URIs are rewritten where the protocol names resources, and in no other place; nothing is mutated."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_hub.resource_uris import MAX_GIVEN, GivenUris, in_meta, in_question, in_result

LINK: dict[str, Any] = {"type": "resource_link", "uri": "x:1", "name": "n", "future": 1}
EMBEDDED: dict[str, Any] = {
    "type": "resource",
    "resource": {"uri": "x:2", "text": "x:2"},
    "annotations": {"uri": "x:3"},
}
TEXT: dict[str, Any] = {"type": "text", "text": "x:4", "uri": "x:5"}
RESULT_BLOCK = {"type": "tool_result", "toolUseId": "x:6", "content": [LINK, TEXT, EMBEDDED]}
ASK = {"messages": [{"role": "user", "content": RESULT_BLOCK}, {"role": "user", "content": [LINK]}], "maxTokens": 1}
QUESTIONS = {
    "a": {"method": "sampling/createMessage", "params": ASK},
    "b": {"method": "elicitation/create", "params": {"mode": "url", "url": "x:7", "uri": "x:8"}},
}

PLACES: list[tuple[str, dict[str, Any], set[str]]] = [
    ("tools/call", {"content": [TEXT, LINK, EMBEDDED], "structuredContent": {"uri": "x:9"}}, {"x:1", "x:2"}),
    ("tools/call", {"content": [], "_meta": {"ui": {"resourceUri": "ui:1", "csp": "ui:2"}}}, {"ui:1"}),
    ("tools/call", {"content": [], "_meta": {"ui/resourceUri": "ui:1", "uri": "ui:2"}}, {"ui:1"}),
    ("tools/call", {"resultType": "input_required", "inputRequests": QUESTIONS}, {"x:1", "x:2"}),
    ("prompts/get", {"messages": [{"role": "user", "content": LINK}], "description": "x:1"}, {"x:1"}),
    ("resources/read", {"contents": [{"uri": "x:1", "text": "x:1"}, {"uri": "x:2", "blob": ""}]}, {"x:1", "x:2"}),
    ("completion/complete", {"completion": {"values": ["x:1"]}}, set()),
]


@pytest.mark.parametrize(("method", "result", "expected"), PLACES)
def test_the_places_of_the_protocol_are_rewritten_and_no_others(
    method: str, result: dict[str, Any], expected: set[str]
) -> None:
    asked: set[str] = set()

    def expose(uri: str) -> str:
        asked.add(uri)
        return "hub:" + uri

    before = copy.deepcopy(result)
    changed = in_result(method, result, expose)
    assert asked == expected
    assert result == before
    assert json.dumps(changed).replace("hub:", "") == json.dumps(before)
    assert json.dumps(changed).count("hub:") >= len(expected)


@pytest.mark.parametrize(("method", "result", "expected"), PLACES)
def test_what_keeps_its_uris_is_the_same_object(method: str, result: dict[str, Any], expected: set[str]) -> None:
    assert in_result(method, result, lambda uri: uri) is result


def test_questions_that_are_not_about_sampling_stay_as_they_are() -> None:
    params = {"messages": [{"content": LINK}]}
    assert in_question("elicitation/create", params, lambda uri: "y") is params


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["content", "type", "uri", "resource", "messages", "contents", "_meta", "ui", "params", "method"]
            ),
            inner | st.sampled_from(["resource", "resource_link", "tool_result", "sampling/createMessage"]),
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(derandomize=True, max_examples=500, deadline=None)
@given(st.dictionaries(st.sampled_from(["content", "messages", "contents", "inputRequests", "_meta"]), ODD), ODD)
def test_nothing_of_any_shape_is_lost_or_breaks_it(result: dict[str, Any], params: Any) -> None:
    for method in ("tools/call", "prompts/get", "resources/read"):
        assert in_result(method, result, lambda uri: uri) == result
        json.dumps(in_result(method, result, lambda uri: "hub:" + uri))
    in_meta(result, str.upper)
    if isinstance(params, dict):
        assert in_question("sampling/createMessage", params, lambda uri: uri) == params


def test_equal_uris_that_two_servers_gave_one_caller_lead_to_each() -> None:
    uris = GivenUris()
    first = uris.give("me", "a", "x:1", "x:1")
    second = uris.give("me", "b", "x:1", "x:1")
    assert (first, uris.find("me", first)) == ("x:1", ("a", "x:1"))
    assert (second, uris.find("me", second)) == ("mcp-hub://b/x:1", ("b", "x:1"))
    assert uris.give("me", "b", "x:1", "x:1") == second
    assert uris.find("you", first) is None
    uris.forget("me")
    assert uris.find("me", first) is None


def test_what_is_given_is_bounded_and_the_oldest_goes_first() -> None:
    uris = GivenUris()
    for number in range(MAX_GIVEN + 10):
        uris.give(None, "a", f"x:{number}", f"x:{number}")
    assert uris.find(None, "x:0") is None
    assert uris.find(None, f"x:{MAX_GIVEN + 9}") == ("a", f"x:{MAX_GIVEN + 9}")
