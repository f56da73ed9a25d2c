"""Search for tools by their names, their words and their meaning.

Only `embedding`, which runs in a separate process, does input and output.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import merge
from math import log
from typing import Any, Final

import msgspec

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


LEAST_SHORTENED: Final = 4
"""The fewest letters by which the beginning of a name finds it."""
LEAST_MISSPELLED: Final = 6
"""The fewest letters of a query in which one may be wrong; in twice as many, two may."""
LEAST_WORD: Final = 7
"""The same for the correction of a word, as shorter words are often similar to others."""
MAX_NAME_WORDS: Final = 6
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
        if not key or len(identifiers) > MAX_NAME_WORDS:
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


WEIGHTS: Final = (3.0, 1.5, 0.8, 0.4)
"""Weight of a word in the name, in the description, in the texts about the server, and in the parameters."""
K1: Final = 2.0
"""How slowly repetitions of a word stop adding to the score. This and `B` are fitted on MetaTool."""
B: Final = 0.3
"""How much the length of a field counts against its words."""
MAX_TERMS: Final = 2000
"""Words of one field that count."""


class Document:
    """The terms of one document, by field: how often each is in it, and how many there are."""

    __slots__ = ("counts", "lengths")

    def __init__(self, texts: Sequence[str]) -> None:
        self.counts: list[Mapping[str, int]] = []
        self.lengths: list[int] = []
        for text in texts:
            terms = terms_of(text)[:MAX_TERMS]
            counts: dict[str, int] = {}
            for term in terms:
                counts[term] = counts.get(term, 0) + 1
            self.counts.append(counts)
            self.lengths.append(len(terms))


class Bm25f:
    """An index of documents, which are identified by their numbers. Immutable."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._postings: dict[str, tuple[array[int], array[float]]] = {}

    @classmethod
    def building(cls, documents: list[Document]) -> Generator[None, None, Bm25f]:
        """Indexes documents, in steps, and empties the list, because freeing all at once takes long."""
        index = cls(len(documents))
        means = [0.0] * len(WEIGHTS)
        for document in documents:
            yield
            for field, length in enumerate(document.lengths):
                means[field] += length / len(documents)
        while documents:
            yield
            document, number = documents.pop(), len(documents)
            for term, frequency in _weighted_frequencies(document, means).items():
                numbers, values = index._postings.setdefault(term, (array("I"), array("f")))
                numbers.append(number)
                values.append(frequency)
        return index

    def __contains__(self, term: str) -> bool:
        return term in self._postings

    def rarity(self, term: str) -> float:
        """Returns the inverse document frequency of a term. An unknown term counts as one that no document has."""
        document_frequency = len(self._postings[term][0]) if term in self._postings else 0
        return log(1 + (self._size - document_frequency + 0.5) / (document_frequency + 0.5))

    def scoring(self, terms: Iterable[str]) -> Generator[None, None, dict[int, float]]:
        """Returns {number: score} of the documents that have a term of the query, in steps of one term.

        A score is a share of the maximum for all terms: near 1, the document has every term many times.
        """
        scores: dict[int, float] = {}
        query_terms = dict.fromkeys(terms)
        total_rarity = sum(map(self.rarity, query_terms))
        for term in query_terms:
            yield
            if term in self._postings:
                rarity = self.rarity(term) / total_rarity
                for number, frequency in zip(*self._postings[term], strict=True):
                    scores[number] = scores.get(number, 0.0) + rarity * frequency / (K1 + frequency)
        return scores


def _weighted_frequencies(document: Document, means: Sequence[float]) -> dict[str, float]:
    """Returns {term: its number in the document, weighted by field}."""
    frequencies: dict[str, float] = {}
    for weight, counts, length, mean in zip(WEIGHTS, document.counts, document.lengths, means, strict=True):
        if length:
            scale = weight / (1 - B + B * length / mean)
            for term, count in counts.items():
                frequencies[term] = frequencies.get(term, 0.0) + scale * count
    return frequencies


Json = Mapping[str, Any]

MAX_TEXT: Final = 4096
"""Characters of a description that are searched."""
MAX_PARAMETERS: Final = 200
"""Parameters of a tool that are searched."""
TOOLS_PER_STEP: Final = 2000
"""Tools that are ranked in one step."""
MAX_WORDS: Final = 40
"""Words of a query that are looked up."""
LIKE_NOTHING: Final = 0.1
"""The likeness of query and tool up to which it has no meaning: a tool that is not more alike, and shares no word with
the query, is not found."""

ONLY_READS: Final = 0.1
"""Subtracted from the score of a tool whose name begins with a verb of reading if the query asks for a change."""


class SearchedTool(msgspec.Struct, frozen=True):
    """One tool of the index. The first of its names is for calls, the last is the original one."""

    names: tuple[str, ...]
    server: str
    description: str
    about_server: str
    parameters: tuple[tuple[str, str], ...]
    """(name, description)"""

    @classmethod
    def of(cls, wire: Json, names: tuple[str, ...], server: str, about_server: str) -> SearchedTool:
        """Makes it from a listed tool, whose members may be missing or of a wrong type."""
        description = " ".join(text for key in ("title", "description") if isinstance(text := wire.get(key), str))
        schema = wire.get("inputSchema")
        properties = schema.get("properties") if isinstance(schema, dict) else None
        parameters = []
        for name, parameter in list(properties.items())[:MAX_PARAMETERS] if isinstance(properties, dict) else ():
            text = parameter.get("description") if isinstance(parameter, dict) else None
            parameters.append((str(name), text[:MAX_TEXT] if isinstance(text, str) else ""))
        return cls(names, server, description[:MAX_TEXT], about_server[:MAX_TEXT], tuple(parameters))

    def only_reads(self) -> bool:
        """Returns whether the name begins with a verb of reading."""
        return next(iter(words_of(self.names[-1])), "") in READING

    def fields(self) -> tuple[str, str, str, str]:
        """Returns the texts of its fields, in the order of `WEIGHTS`."""
        parameters = " ".join(f"{name} {text}" for name, text in self.parameters)
        return self.names[-1], self.description, f"{self.server} {self.about_server}", parameters[: 2 * MAX_TEXT]

    def meaning(self) -> str:
        """Returns the text whose meaning is compared with that of a query."""
        name_text = " ".join(words_of(self.names[-1]))
        return f"{name_text}: {self.description} {' '.join(name for name, _ in self.parameters)}"[:MAX_TEXT]


class SearchIndex:
    """The index of the tools of one catalog. Immutable."""

    def __init__(
        self, tools: Sequence[SearchedTool], read_only: frozenset[int], terms: Bm25f, names: NameIndex
    ) -> None:
        self.tools = tools
        self._read_only = read_only
        self._terms = terms
        self._names = names

    @classmethod
    def building(cls, tools: Iterable[SearchedTool]) -> Generator[None, None, SearchIndex]:
        """Indexes tools, in steps."""
        indexed: list[SearchedTool] = []
        read_only: set[int] = set()
        documents: list[Document] = []
        for tool in tools:
            yield
            if tool.only_reads():
                read_only.add(len(indexed))
            indexed.append(tool)
            documents.append(Document(tool.fields()))
        terms = yield from Bm25f.building(documents)
        names = yield from NameIndex.building([tool.names for tool in indexed])
        return cls(indexed, frozenset(read_only), terms, names)

    def correcting(self, query: str) -> Generator[None, None, str]:
        """Returns the query with words that no tool has replaced by similar words of tools' names, in steps."""
        corrected = query
        for word in dict.fromkeys(words_of(query)[:MAX_WORDS]):
            yield
            if word not in STOP_WORDS and stem(word) not in self._terms:
                replacement = yield from self._names.correcting(word)
                corrected = (
                    corrected if replacement is None else re.sub(rf"(?i)\b{re.escape(word)}\b", replacement, corrected)
                )
        return corrected

    def ranking(
        self, query: str, corrected: str, likeness: Sequence[float] | None = None
    ) -> Generator[None, None, list[int]]:
        """Returns the numbers of the tools found, the best first, in steps.

        Args:
            query: the query as it was given.
            corrected: the query that `correcting` returns.
            likeness: for each tool, its likeness to the query in meaning; None: not known.
        """
        name_ranks = yield from self._names.finding(query)
        scores = yield from self._terms.scoring(terms_of(corrected)[:MAX_WORDS])
        for start in range(0, len(likeness or ()), TOOLS_PER_STEP):
            yield
            for number, similarity in enumerate((likeness or ())[start : start + TOOLS_PER_STEP], start):
                if similarity > LIKE_NOTHING or number in scores:
                    scores[number] = scores.get(number, 0.0) + similarity
        demoted = self._read_only if asks_for_change(words_of(query)[:MAX_WORDS]) else frozenset[int]()
        worst_rank = len(self.tools)
        candidates = list(name_ranks.keys() | scores.keys())
        runs: list[list[tuple[int, float, int]]] = []
        for start in range(0, len(candidates), TOOLS_PER_STEP):
            yield
            batch = candidates[start : start + TOOLS_PER_STEP]
            penalties = (
                (ONLY_READS if candidate in demoted else 0.0) - scores.get(candidate, 0.0) for candidate in batch
            )
            runs.append(
                sorted(
                    (name_ranks.get(candidate, worst_rank), penalty, candidate)
                    for candidate, penalty in zip(batch, penalties, strict=True)
                )
            )
        ranked: list[int] = []
        for _, _, number in merge(*runs):
            yield
            ranked.append(number)
        return ranked
