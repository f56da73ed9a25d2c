"""The words of a text that search compares: names are split, endings and stop words are removed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

_STOP_TEXT: Final = """
    a about above after again all also am an and any are as at be because been before being below between both but
    by can cannot could did do does doing down during each etc few for from further had has have having he her here
    hers him his how i if in into is it its itself just let like me more most my no nor not now of off on once only
    or other our ours out over own please same she should so some such than that the their theirs them then there
    these they this those through to too under until up us using very via want was we were what when where which
    while who whom why will with would you your yours
"""
STOP_WORDS: Final = frozenset(_STOP_TEXT.split())
"""Words that have no meaning for a search."""
_READING_TEXT: Final = """
    browse check count describe fetch find get inspect list look lookup query read retrieve search show view
"""
_CHANGING_TEXT: Final = """
    add append change create delete edit insert make modify move post put remove rename replace save send set store
    update upload write
"""
READING: Final = frozenset(_READING_TEXT.split())
CHANGING: Final = frozenset(_CHANGING_TEXT.split())
"""Verbs for tools that only read, and for tools that change something."""
_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNSPACED: Final = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+")
"""Runs of scripts that have no spaces between words."""
MAX_WORD: Final = 40
"""Characters of a word that count."""


def words_of(text: str) -> list[str]:
    """Returns the words of a text in order, in lower case; `camelCase` and `snake_case` are split.

    In a script without spaces, every two neighbouring characters count as a word.
    """
    words: list[str] = []
    for run in _WORD.findall(text):
        parts = _CAMEL.split(run) if not (run.islower() or run.isupper() or run.isdigit()) else (run,)
        for part in parts:
            word = part.casefold()[:MAX_WORD]
            if not word.isascii() and (unspaced := _UNSPACED.findall(word)):
                for piece in unspaced:
                    words += [piece[start : start + 2] for start in range(max(1, len(piece) - 1))]
                words += _UNSPACED.sub(" ", word).split()
            else:
                words.append(word)
    return words


def asks_for_change(words: Iterable[str]) -> bool:
    """Returns whether the first verb of a query is in CHANGING, not in READING."""
    return next((word in CHANGING for word in words if word in CHANGING or word in READING), False)


def terms_of(text: str) -> list[str]:
    """Returns the terms of a text to index or look up: the stems of its words, without stop words."""
    return [stem(word) for word in words_of(text) if word not in STOP_WORDS]


_C: Final = "[^aeiou][^aeiouy]*"
_V: Final = "[aeiouy][aeiou]*"
_HAS_SYLLABLE: Final = re.compile(f"^({_C})?{_V}{_C}")
_ONE_SYLLABLE: Final = re.compile(f"^({_C})?{_V}{_C}({_V})?$")
_TWO_SYLLABLES: Final = re.compile(f"^({_C})?{_V}{_C}{_V}{_C}")
_HAS_VOWEL: Final = re.compile(f"^({_C})?[aeiouy]")
_SHORT: Final = re.compile(f"^{_C}[aeiouy][^aeiouwxy]$")
_DOUBLE: Final = re.compile(r"([^aeiouylsz])\1$")

_STEP_2: Final = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"), ("logi", "log"),
)  # fmt: skip
_STEP_3: Final = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
_STEP_4: Final = (
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize", "al",
    "er", "ic", "ou",
)  # fmt: skip
"""The longest first."""


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """Returns the stem of an English word by Porter's rules, any other word unchanged."""
    if len(word) < 3 or not word.isascii() or not word.isalpha():
        return word
    first_y = word[0] == "y"
    if first_y:  # a `y` at the beginning is a consonant
        word = "Y" + word[1:]
    word = _step_4(_replace_suffix(_replace_suffix(_without_plural_and_tense(word), _STEP_2), _STEP_3))
    if word.endswith("e"):
        base = word[:-1]
        if _TWO_SYLLABLES.match(base) or (_ONE_SYLLABLE.match(base) and not _SHORT.match(base)):
            word = base
    if word.endswith("ll") and _TWO_SYLLABLES.match(word):
        word = word[:-1]
    return word.lower() if first_y else word


def _without_plural_and_tense(word: str) -> str:
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    if word.endswith("eed"):
        if _HAS_SYLLABLE.match(word[:-3]):
            word = word[:-1]
    else:
        base = word[:-2] if word.endswith("ed") else word[:-3] if word.endswith("ing") else ""
        if base and _HAS_VOWEL.match(base):
            word = base
            if word.endswith(("at", "bl", "iz")) or _SHORT.match(word):
                word += "e"
            elif _DOUBLE.search(word):
                word = word[:-1]
    if word.endswith("y") and _HAS_VOWEL.match(word[:-1]):
        word = word[:-1] + "i"
    return word


def _replace_suffix(word: str, suffixes: tuple[tuple[str, str], ...]) -> str:
    for suffix, replacement in suffixes:
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            return base + replacement if _HAS_SYLLABLE.match(base) else word
    return word


def _step_4(word: str) -> str:
    for suffix in _STEP_4:
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            return base if _TWO_SYLLABLES.match(base) else word
    if word.endswith(("sion", "tion")) and _TWO_SYLLABLES.match(word[:-3]):
        return word[:-3]
    return word
