"""The rules for all requests of servers to clients, over any transport and in any era."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.errors import ProtocolError
from mcp_hub.protocol import questions
from mcp_hub.protocol.frames import encode
from mcp_hub.protocol.questions import (
    MAX_ENTRIES,
    MAX_QUESTION,
    CallQuestions,
    QuestionRules,
    is_too_large,
    place_in,
    with_count,
    without_count,
)

FORM: dict[str, Any] = {"message": "Name?", "requestedSchema": {"type": "object"}}
ABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
)


def refusal(rules: QuestionRules, method: str, params: dict[str, Any], able: Any = ABLE) -> int | None:
    """Returns the error code with which the rules refuse a question, or None."""
    try:
        rules.admit(method, params, able, CallQuestions())
    except ProtocolError as error:
        return error.code
    return None


def test_an_elicitation_names_its_server_and_is_otherwise_unchanged() -> None:
    rules = QuestionRules("git\x1b[2Jhub")
    params, _ = rules.admit("elicitation/create", {**FORM, "future": 1, "_meta": {"x": 1}}, ABLE, CallQuestions())
    assert params["message"] == "git\\x1b[2Jhub asks: Name?"
    assert params["_meta"] == {"x": 1, "mcp-hub/server": "git\x1b[2Jhub"}
    assert (params["requestedSchema"], params["future"]) == (FORM["requestedSchema"], 1)
    messages = {"messages": [], "systemPrompt": "Be brief.", "maxTokens": 5}
    assert rules.admit("sampling/createMessage", messages, ABLE, CallQuestions())[0] == {
        **messages, "_meta": {"mcp-hub/server": "git\x1b[2Jhub"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"mode": "url", "message": "x", "url": "https://example.com"}, None),
        ({"mode": "url", "message": "x", "url": "HTTP://example.com"}, None),
        ({"mode": "url", "message": "x", "url": "file:///etc/passwd"}, -32600),
        ({"mode": "url", "message": "x", "url": "javascript:alert(1)"}, -32600),
        ({"mode": "url", "message": "x", "url": None}, -32600),
    ],
)
def test_only_web_urls_of_elicitations_are_forwarded(params: dict[str, Any], code: int | None) -> None:
    assert refusal(QuestionRules("a"), "elicitation/create", params) == code


@pytest.mark.parametrize("able", [{}, {"elicitation": None}, {"elicitation": {"url": {}}}, {"sampling": {}}])
def test_a_client_without_form_elicitation_gets_no_form(able: dict[str, Any]) -> None:
    assert refusal(QuestionRules("a"), "elicitation/create", FORM, able) == -32601


def test_a_call_record_lists_a_bounded_number_of_server_requests_and_counts_the_rest() -> None:
    rules, questions = QuestionRules("a", limit=MAX_ENTRIES + 5), CallQuestions()
    for _ in range(MAX_ENTRIES + 5):
        rules.admit("roots/list", {}, ABLE, questions)
    with pytest.raises(ProtocolError):
        rules.admit("roots/list", {}, ABLE, questions)
    assert (questions.count, len(questions.entries)) == (MAX_ENTRIES + 5, MAX_ENTRIES)


def test_forbidden_capabilities_are_not_declared_to_a_server() -> None:
    rules = QuestionRules("a", allow=("roots",))
    assert rules.everything() == {"roots": {}}
    assert rules.filter_capabilities({**ABLE, "extensions": {"x": {}}}) == {"roots": {}, "extensions": {"x": {}}}


@pytest.mark.parametrize("extra", [0, 1])
def test_the_size_limit_of_a_server_request_is_exact(extra: int) -> None:
    params = {"message": ""}
    params["message"] = "x" * (MAX_QUESTION - len(encode(params)) + extra)
    assert is_too_large(params) is bool(extra)


def test_many_small_values_of_a_server_request_count_by_their_bytes() -> None:
    assert not is_too_large({"values": [1] * 30_000})
    assert is_too_large({"values": [1] * 40_000})


@given(
    state=st.none() | st.text(),
    asked=st.integers(0, 999),
    place=st.sampled_from(["", "0a1b2c"]),
    more=st.dictionaries(st.text(max_size=5), JSON),
)
def test_a_servers_request_state_returns_to_it_unchanged(
    state: str | None, asked: int, place: str, more: dict[str, Any]
) -> None:
    more.pop("requestState", None)
    given_back = {**more, "requestState": with_count(state, asked, place)}
    assert place_in(given_back["requestState"]) == place
    assert without_count(given_back) == ({**more, **({} if state is None else {"requestState": state})}, asked)


@given(state=st.text())
def test_a_request_state_not_made_by_the_hub_is_passed_unchanged(state: str) -> None:
    params = {"requestState": state}
    expected = (params, 0) if not state.startswith("mcp-hub-asked:") else without_count(params)
    assert without_count(params) == expected


@pytest.mark.anyio
async def test_a_modern_server_may_say_any_number_of_times_that_it_needs_more_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(questions, "_POLL", (0.0,))

    async def resend(params: dict[str, Any]) -> dict[str, Any]:
        rounds = int(params["requestState"])
        return {"resultType": "input_required", "requestState": str(rounds + 1)} if rounds < 200 else {"rounds": rounds}

    first = {"resultType": "input_required", "requestState": "1"}
    rules = QuestionRules("a")
    assert await questions.resolve_input_requests(first, rules, None, CallQuestions(), resend) == {"rounds": 200}
