"""Texts are normalised as Unicode says, in bounded time."""

from __future__ import annotations

import unicodedata
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.text import normalized

OF_MANY = "\ufdfa\ufdfb\u3316\u33af\u3300\u3099\u0301\u0f73\u1112\u1161aé"
"""Characters that stand for many, some of which join with the character before or after them."""


@given(st.lists(st.text(max_size=30) | st.text(OF_MANY, max_size=30)), st.sampled_from(("NFC", "NFKC")))
def test_a_text_without_long_runs_of_marks_is_normalised_as_unicode_says(
    parts: list[str], form: Literal["NFC", "NFKC"]
) -> None:
    text = "x".join(parts)
    assert normalized(text, form) == unicodedata.normalize(form, text)


@pytest.mark.parametrize(
    "marks", ["\u0315\u0300", "\u0300", "\u0344", "\u05b0\u0591", "\u302a\u0316", "\u0f73", "\u0f75\u0f81"]
)
def test_a_letter_with_many_marks_is_normalised_in_linear_time(marks: str) -> None:
    """By `unicodedata.normalize` this takes half an hour."""
    text = normalized("a" + marks * 500_000)
    assert "\u034f" in text
    assert normalized("a" + marks * 15) == unicodedata.normalize("NFKC", "a" + marks * 15)
