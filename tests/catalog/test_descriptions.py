"""Descriptions cut to their first sentence, or to a number of tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog.token_estimate import estimate_tokens
from mcp_hub.policy.presentation import LOOKED_AT, first_sentence, shortened_description


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Reads a file.", "Reads a file."),
        ("Reads a file", "Reads a file"),
        ("Reads a file. Then more.", "Reads a file."),
        (
            "Reads a file (e.g. a.txt) of version 3.5 by J. Doe. More.",
            "Reads a file (e.g. a.txt) of version 3.5 by J. Doe.",
        ),
        ('Says "hello." Then more.', 'Says "hello."'),
        ("Is it there? Yes.", "Is it there?"),
        ("Reads a file\nof the user's. More.", "Reads a file of the user's."),
        ("\n    Reads a file\n\n    Args:\n        path: its path\n", "Reads a file"),
        ("Reads a file\nArgs:\n  path: its path", "Reads a file"),
        ("Reads files:\n- one\n- two", "Reads files:"),
        ("Reads a file.\nReturns its text.", "Reads a file."),
        ("读取文件。返回文本。", "读取文件。"),
        ("...", "..."),
        ("", ""),
    ],
)
def test_the_first_sentence_of_a_description_is_cut_at_its_real_end(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence
    assert shortened_description(text, "full") == text


@pytest.mark.parametrize(
    ("text", "tokens", "short"),
    [
        ("Reads a file. Writes another one.", 20, "Reads a file. Writes another one."),
        ("Reads a file. Writes another one.", 6, "Reads a file."),
        ("Reads one file after the other", 4, "Reads one file…"),
        ("  Reads a file.\n\n  Args: a, b, c and d", 5, "Reads a file."),
        ("a" * 500, 1, "…"),
    ],
)
def test_a_token_limit_cuts_a_description_after_a_sentence_or_a_word(text: str, tokens: int, short: str) -> None:
    assert shortened_description(text, tokens) == short


@given(text=st.text(max_size=300) | st.text("aB. \n!", max_size=300), tokens=st.integers(1, 30))
def test_no_shortened_description_exceeds_its_tokens_and_no_first_sentence_is_lost(text: str, tokens: int) -> None:
    short = shortened_description(text, tokens)
    assert estimate_tokens(short.strip()) <= tokens
    sentence = first_sentence(text)
    assert len(sentence) <= len(text)
    assert bool(sentence.strip()) == bool(text.strip())


def test_the_search_for_the_end_of_a_sentence_is_bounded() -> None:
    assert len(first_sentence("word " * 10_000)) <= LOOKED_AT
