"""Finds tools by their names: exact, shortened or misspelled; and corrects misspelled words of a query."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import Final

from mcp_hub.search.words import words_of

LEAST_SHORTENED: Final = 4
"""The fewest letters by which the beginning of a name finds it."""
LEAST_MISSPELLED: Final = 6
"""The fewest letters of a query in which one may be wrong; in twice as many, two may."""
LEAST_WORD: Final = 7
"""The same for the correction of a word, as shorter words are often similar to others."""
MAX_WORDS: Final = 6
"""The most words of a query that may be a name as a whole."""
_IDENTIFIER: Final = re.compile(r"[\w./:-]+")
_NO_LETTER: Final = re.compile(r"[\W_]+")

EXACT, SAME_LETTERS, SHORTENED, MISSPELLED = range(4)


class NameIndex:
    """The names of documents. Each has several: with and without the name of its server. Immutable."""

    def __init__(self) -> None:
        self._exact: dict[str, int] = {}
        self._keys: dict[str, list[int]] = {}
        """Documents by the letters and digits of their names."""
        self._words: dict[str, str] = {}
        """Words of names that are long enough to be misspelled, without a plural's `s`."""

    @classmethod
    def building(cls, names: Sequence[tuple[str, ...]]) -> Generator[None, None, NameIndex]:
        """Indexes the names of documents, in steps. The first name of each is for calls."""
        index = cls()
        for number, spellings in enumerate(names):
            yield
            index._exact[spellings[0]] = number
            for key in dict.fromkeys(map(_key, spellings)):
                index._keys.setdefault(key, []).append(number)
            for word in words_of(spellings[-1]):
                if len(word) >= LEAST_MISSPELLED and word.isalpha():
                    index._words.setdefault(word.rstrip("s"), word)
        return index

    def finding(self, query: str) -> Generator[None, None, dict[int, int]]:
        """Returns {number: how well its name matches the query, from EXACT to MISSPELLED}, in steps."""
        matches: dict[int, int] = {}

        def add_matches(numbers: Sequence[int], rank: int) -> None:
            for number in numbers:
                matches[number] = min(rank, matches.get(number, rank))

        identifiers = _IDENTIFIER.findall(query)
        for identifier in identifiers:
            if identifier in self._exact:
                add_matches([self._exact[identifier]], EXACT)
            elif "_" in identifier or len(identifiers) == 1:
                add_matches(self._keys.get(_key(identifier), ()), SAME_LETTERS)
        key = _key(query)
        if not key or len(identifiers) > MAX_WORDS:
            return matches
        add_matches(self._keys.get(key, ()), SAME_LETTERS)
        if matches:
            return matches
        is_single = len(identifiers) == 1
        for name_key, numbers in self._keys.items():
            yield
            if is_single and len(key) >= LEAST_SHORTENED and name_key.startswith(key):
                add_matches(numbers, SHORTENED)
            elif len(key) >= LEAST_MISSPELLED and is_near(key, name_key, 1 + (len(key) >= 2 * LEAST_MISSPELLED)):
                add_matches(numbers, MISSPELLED)
        return matches

    def correcting(self, word: str) -> Generator[None, None, str | None]:
        """Returns the word of a name that is similar to a misspelled word, None if there is none, in steps."""
        bare = word.rstrip("s")
        if len(bare) >= LEAST_WORD and bare.isalpha():
            for name_word, spelling in self._words.items():
                yield
                if is_near(bare, name_word, 1):
                    return spelling
        return None


def _key(name: str) -> str:
    return _NO_LETTER.sub("", name).casefold()


def is_near(first: str, second: str, errors: int) -> bool:
    """Returns whether at most `errors` letters are missing, wrong, extra or swapped. The first must be right."""
    if abs(len(first) - len(second)) > errors or first[:1] != second[:1]:
        return False
    previous: list[int] = []
    row = list(range(len(second) + 1))
    for i, first_letter in enumerate(first, 1):
        before_previous, previous = previous, row
        row = [i]
        for j, second_letter in enumerate(second, 1):
            best = min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (first_letter != second_letter))
            if i > 1 and j > 1 and first_letter == second[j - 2] and first[i - 2] == second_letter:
                best = min(best, before_previous[j - 2] + 1)
            row.append(best)
        if min(row) > errors:
            return False
    return row[-1] <= errors
