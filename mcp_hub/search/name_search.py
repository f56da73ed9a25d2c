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
        made = cls()
        for number, spellings in enumerate(names):
            yield
            made._exact[spellings[0]] = number
            for key in dict.fromkeys(map(_key, spellings)):
                made._keys.setdefault(key, []).append(number)
            for word in words_of(spellings[-1]):
                if len(word) >= LEAST_MISSPELLED and word.isalpha():
                    made._words.setdefault(word.rstrip("s"), word)
        return made

    def finding(self, query: str) -> Generator[None, None, dict[int, int]]:
        """Returns {number: how well its name matches the query, from EXACT to MISSPELLED}, in steps."""
        found: dict[int, int] = {}

        def take(numbers: Sequence[int], how: int) -> None:
            for number in numbers:
                found[number] = min(how, found.get(number, how))

        said = _IDENTIFIER.findall(query)
        for word in said:
            if word in self._exact:
                take([self._exact[word]], EXACT)
            elif "_" in word or len(said) == 1:
                take(self._keys.get(_key(word), ()), SAME_LETTERS)
        key = _key(query)
        if not key or len(said) > MAX_WORDS:
            return found
        take(self._keys.get(key, ()), SAME_LETTERS)
        if found:
            return found
        one = len(said) == 1
        for other, numbers in self._keys.items():
            yield
            if one and len(key) >= LEAST_SHORTENED and other.startswith(key):
                take(numbers, SHORTENED)
            elif len(key) >= LEAST_MISSPELLED and is_near(key, other, 1 + (len(key) >= 2 * LEAST_MISSPELLED)):
                take(numbers, MISSPELLED)
        return found

    def correcting(self, word: str) -> Generator[None, None, str | None]:
        """Returns the word of a name that is similar to a misspelled word, None if there is none, in steps."""
        bare = word.rstrip("s")
        if len(bare) >= LEAST_WORD and bare.isalpha():
            for known, spelled in self._words.items():
                yield
                if is_near(bare, known, 1):
                    return spelled
        return None


def _key(name: str) -> str:
    return _NO_LETTER.sub("", name).casefold()


def is_near(one: str, other: str, errors: int) -> bool:
    """Returns whether at most `errors` letters are missing, wrong, extra or swapped. The first must be right."""
    if abs(len(one) - len(other)) > errors or one[:1] != other[:1]:
        return False
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        earlier, before = before, row
        row = [at]
        for there, same in enumerate(other, 1):
            best = min(before[there] + 1, row[-1] + 1, before[there - 1] + (letter != same))
            if at > 1 and there > 1 and letter == other[there - 2] and one[at - 2] == same:
                best = min(best, earlier[there - 2] + 1)
            row.append(best)
        if min(row) > errors:
            return False
    return row[-1] <= errors
