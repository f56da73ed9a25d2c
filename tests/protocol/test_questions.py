"""The rules that all questions of servers go by, whichever way they come."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.errors import ProtocolError
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
    """The code with which a question is refused."""
    try:
        rules.admit(method, params, able, CallQuestions())
    except ProtocolError as error:
        return error.code
    return None


def test_the_person_reads_which_server_asks_and_the_rest_stays_as_it_is() -> None:
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
def test_only_urls_of_the_web_are_passed_on(params: dict[str, Any], code: int | None) -> None:
    assert refusal(QuestionRules("a"), "elicitation/create", params) == code


@pytest.mark.parametrize("able", [{}, {"elicitation": None}, {"elicitation": {"url": {}}}, {"sampling": {}}])
def test_who_has_not_declared_a_form_is_not_asked_to_fill_one_in(able: dict[str, Any]) -> None:
    assert refusal(QuestionRules("a"), "elicitation/create", FORM, able) == -32601


def test_a_record_names_so_many_questions_and_the_count_goes_on() -> None:
    rules, questions = QuestionRules("a", most=MAX_ENTRIES + 5), CallQuestions()
    for _ in range(MAX_ENTRIES + 5):
        rules.admit("roots/list", {}, ABLE, questions)
    with pytest.raises(ProtocolError):
        rules.admit("roots/list", {}, ABLE, questions)
    assert (questions.asked, len(questions.entries)) == (MAX_ENTRIES + 5, MAX_ENTRIES)


def test_what_is_not_allowed_is_told_to_nobody() -> None:
    rules = QuestionRules("a", allow=("roots",))
    assert rules.everything() == {"roots": {}}
    assert rules.narrowed({**ABLE, "extensions": {"x": {}}}) == {"roots": {}, "extensions": {"x": {}}}


@pytest.mark.parametrize("extra", [0, 1])
def test_the_bound_of_a_question_is_exact(extra: int) -> None:
    params = {"message": ""}
    params["message"] = "x" * (MAX_QUESTION - len(encode(params)) + extra)
    assert is_too_large(params) is bool(extra)


def test_many_small_values_count_by_their_bytes() -> None:
    assert not is_too_large({"values": [1] * 30_000})
    assert is_too_large({"values": [1] * 40_000})


@given(
    state=st.none() | st.text(),
    asked=st.integers(0, 999),
    place=st.sampled_from(["", "0a1b2c"]),
    more=st.dictionaries(st.text(max_size=5), JSON),
)
def test_a_servers_state_comes_back_to_it_as_it_was(
    state: str | None, asked: int, place: str, more: dict[str, Any]
) -> None:
    more.pop("requestState", None)
    given_back = {**more, "requestState": with_count(state, asked, place)}
    assert place_in(given_back["requestState"]) == place
    assert without_count(given_back) == ({**more, **({} if state is None else {"requestState": state})}, asked)


@given(state=st.text())
def test_a_state_of_somebody_else_stays_as_it_is(state: str) -> None:
    params = {"requestState": state}
    expected = (params, 0) if not state.startswith("mcp-hub-asked:") else without_count(params)
    assert without_count(params) == expected
