"""Texts are normalised as Unicode says, in bounded time."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.text import json_escaped, normalized, printable, unhidden

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


DEFAULT_IGNORABLE = [
    *(0x00AD, 0x034F, 0x061C, 0x3164, 0xFEFF, 0xFFA0),
    *range(0x115F, 0x1161),
    *range(0x17B4, 0x17B6),
    *range(0x180B, 0x1810),
    *range(0x200B, 0x2010),
    *range(0x202A, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xFE00, 0xFE10),
    *range(0xFFF0, 0xFFF9),
    *range(0x1BCA0, 0x1BCA4),
    *range(0x1D173, 0x1D17B),
    *range(0xE0000, 0xE1000),
]
"""Default_Ignorable_Code_Point of https://www.unicode.org/Public/16.0.0/ucd/DerivedCoreProperties.txt."""


@pytest.mark.parametrize("escaped", [printable, json_escaped, unhidden])
def test_no_character_that_unicode_calls_ignorable_is_shown_as_nothing(escaped: Callable[[str], str]) -> None:
    assert [f"{code:04x}" for code in DEFAULT_IGNORABLE if chr(code) in escaped(f"delete{chr(code)}all")] == []


def test_emoji_and_accents_are_shown_as_they_are() -> None:
    text = "⚠\ufe0f Löschen · e\u0301t\u00e9 漢字 ❤\ufe0f 1\ufe0f\u20e3 ©\ufe0f"
    assert printable(text) == text
