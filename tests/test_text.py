"""Texts are normalised as Unicode says, in bounded time."""

from __future__ import annotations

import unicodedata
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.text import normalized


@given(st.text(max_size=200), st.sampled_from(("NFC", "NFKC")))
def test_a_text_is_normalised_as_unicode_says(text: str, form: Literal["NFC", "NFKC"]) -> None:
    assert normalized(text, form) == unicodedata.normalize(form, text)


@given(st.text("\ufdfa\ufdfb\u3316\u33af\u3300\u3099\u0301\u0f73\u1112\u1161aé", min_size=31, max_size=60))
def test_characters_that_stand_for_many_are_normalised_as_unicode_says(text: str) -> None:
    shortened = "x".join(text[at : at + 20] for at in range(0, len(text), 20))  # no more than 20 marks in a row
    assert normalized(shortened) == unicodedata.normalize("NFKC", shortened)


@pytest.mark.parametrize(
    "marks", ["\u0315\u0300", "\u0300", "\u0344", "\u05b0\u0591", "\u302a\u0316", "\u0f73", "\u0f75\u0f81"]
)
def test_a_letter_with_many_marks_is_normalised_in_linear_time(marks: str) -> None:
    """By `unicodedata.normalize` this takes half an hour."""
    text = normalized("a" + marks * 500_000)
    assert "\u034f" in text
    assert normalized("a" + marks * 15) == unicodedata.normalize("NFKC", "a" + marks * 15)
