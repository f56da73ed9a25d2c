"""What of a text is compared: its words, without endings and words that say nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.search import MAX_WORD, stem, terms_of, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("createPullRequest", ["create", "pull", "request"]),
        ("get_weather-data.v2", ["get", "weather", "data", "v2"]),
        ("HTTPServer JSON", ["http", "server", "json"]),
        ("必应搜索", ["必应", "应搜", "搜索"]),
        ("搜", ["搜"]),
        ("", []),
    ],
)
def test_names_and_scripts_without_spaces_are_split_into_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("listing", "lists"),
        ("repositories", "repository"),
        ("generation", "generate"),
        ("conditional", "conditioned"),
        ("happily", "happily"),
        ("deleted", "deletes"),
    ],
)
def test_forms_of_one_word_have_one_stem(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@pytest.mark.parametrize(
    ("word", "stemmed"),
    [
        ("caresses", "caress"), ("ponies", "poni"), ("agreed", "agre"), ("plastered", "plaster"), ("motoring", "motor"),
        ("sing", "sing"), ("hopping", "hop"), ("filing", "file"), ("happy", "happi"), ("sky", "sky"),
        ("relational", "relat"), ("vietnamization", "vietnam"), ("triplicate", "triplic"), ("hopefulness", "hope"),
        ("revival", "reviv"), ("adjustment", "adjust"), ("controlling", "control"), ("rate", "rate"), ("yes", "ye"),
    ],
)  # fmt: skip
def test_stems_are_those_of_the_published_rules(word: str, stemmed: str) -> None:
    assert stem(word) == stemmed


def test_stop_words_are_not_terms() -> None:
    assert terms_of("Please find me the weather of the day") == ["find", "weather", "dai"]


@given(st.text(max_size=300))
def test_every_text_has_terms_of_bounded_length(text: str) -> None:
    assert all(0 < len(term) <= 3 * MAX_WORD for term in terms_of(text))
