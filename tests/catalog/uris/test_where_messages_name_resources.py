"""URIs are rewritten where the protocol names resources, and in no other place; nothing is mutated."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog.resource_uris import in_answer, in_error, in_meta, in_question, in_request, in_result

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

CASES: list[tuple[str, dict[str, Any], set[str]]] = [
    ("tools/call", {"content": [TEXT, LINK, EMBEDDED], "structuredContent": {"uri": "x:9"}}, {"x:1", "x:2"}),
    ("tools/call", {"content": [], "_meta": {"ui": {"resourceUri": "ui:1", "csp": "ui:2"}}}, {"ui:1"}),
    ("tools/call", {"content": [], "_meta": {"ui/resourceUri": "ui:1", "uri": "ui:2"}}, {"ui:1"}),
    ("tools/call", {"resultType": "input_required", "inputRequests": QUESTIONS}, {"x:1", "x:2"}),
    ("prompts/get", {"messages": [{"role": "user", "content": LINK}], "description": "x:1"}, {"x:1"}),
    ("resources/read", {"contents": [{"uri": "x:1", "text": "x:1"}, {"uri": "x:2", "blob": ""}]}, {"x:1", "x:2"}),
    ("completion/complete", {"completion": {"values": ["x:1"]}}, set()),
]


@pytest.mark.parametrize(("method", "result", "expected"), CASES)
def test_only_members_that_name_resources_are_rewritten(
    method: str, result: dict[str, Any], expected: set[str]
) -> None:
    uris: set[str] = set()

    def expose(uri: str) -> str:
        uris.add(uri)
        return "hub:" + uri

    before = copy.deepcopy(result)
    changed = in_result(method, result, expose)
    assert uris == expected
    assert result == before
    assert json.dumps(changed).replace("hub:", "") == json.dumps(before)
    assert json.dumps(changed).count("hub:") >= len(expected)


@pytest.mark.parametrize(("method", "result", "expected"), CASES)
def test_a_message_without_changed_uris_is_the_same_object(
    method: str, result: dict[str, Any], expected: set[str]
) -> None:
    assert in_result(method, result, lambda uri: uri) is result


def test_server_requests_other_than_sampling_are_not_rewritten() -> None:
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


@given(st.dictionaries(st.sampled_from(["content", "messages", "contents", "inputRequests", "_meta"]), ODD), ODD)
def test_messages_of_any_shape_are_rewritten_without_loss(result: dict[str, Any], params: Any) -> None:
    for method in ("tools/call", "prompts/get", "resources/read"):
        assert in_result(method, result, lambda uri: uri) == result
        json.dumps(in_result(method, result, lambda uri: "hub:" + uri))
    in_meta(result, str.upper)
    if isinstance(params, dict):
        assert in_question("sampling/createMessage", params, lambda uri: uri) == params
        assert in_request({"inputResponses": params}, lambda uri: uri) == {"inputResponses": params}
        json.dumps(in_answer({"role": "user", **params}, lambda uri: "own:" + uri))


ANSWER = {"role": "assistant", "model": "m", "content": [RESULT_BLOCK, EMBEDDED, TEXT], "uri": "x:9"}
SAMPLING_ANSWER = {"role": "assistant", "model": "m", "content": LINK}
FORM = {"action": "accept", "content": LINK}
ROOTS = {"roots": [{"uri": "x:1"}]}
WAY_BACK: list[tuple[dict[str, Any], set[str]]] = [
    ({"inputResponses": {"a": ANSWER, "b": FORM, "c": ROOTS}}, {"x:1", "x:2"}),
    ({"inputResponses": {"a": SAMPLING_ANSWER}, "arguments": {"inputResponses": {"b": SAMPLING_ANSWER}}}, {"x:1"}),
    ({"inputResponses": {"b": FORM, "c": ROOTS, "d": None, "e": [LINK]}}, set()),
    ({"inputResponses": [ANSWER], "arguments": {"uri": "x:1"}}, set()),
]


@pytest.mark.parametrize(("params", "expected"), WAY_BACK)
def test_in_input_responses_only_sampling_content_is_rewritten(params: dict[str, Any], expected: set[str]) -> None:
    uris: set[str] = set()

    def original(uri: str) -> str:
        uris.add(uri)
        return "own:" + uri

    before = copy.deepcopy(params)
    changed = in_request(params, original)
    assert uris == expected
    assert params == before
    assert json.dumps(changed).replace("own:", "") == json.dumps(before)
    assert in_request(params, lambda uri: uri) is params


def test_an_answer_of_a_client_is_rewritten() -> None:
    assert in_answer(SAMPLING_ANSWER, lambda uri: "own:" + uri) == {
        **SAMPLING_ANSWER,
        "content": {**LINK, "uri": "own:x:1"},
    }
    for answer in (FORM, ROOTS):
        assert in_answer(answer, lambda uri: "own:" + uri) is answer


def test_an_error_about_a_resource_names_it_as_the_client_does() -> None:
    error = {"code": -32002, "message": "x:1", "data": {"uri": "x:1", "future": 1}}
    assert in_error("resources/read", error, lambda uri: "y")["data"] == {"uri": "y", "future": 1}
    assert in_error("tools/call", error, lambda uri: "y") is error
    for variant in ({"code": 1, "message": "m", "data": "x:1"}, {"code": 1, "message": "m"}):
        assert in_error("resources/read", variant, lambda uri: "y") is variant


def test_deeply_nested_blocks_do_not_fail_the_rewriting() -> None:
    deep: Any = LINK
    for _ in range(400):
        deep = {"type": "tool_result", "toolUseId": "x", "content": [deep]}
    assert in_result("tools/call", {"content": [deep]}, lambda uri: "y") == {"content": [deep]}
