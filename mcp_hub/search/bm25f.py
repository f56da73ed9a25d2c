"""BM25F: ranks documents of several fields by the words of a query."""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterable, Mapping, Sequence
from math import log
from typing import Final

from mcp_hub.search.words import terms_of

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
