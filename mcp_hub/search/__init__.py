"""Search for tools by their names, their words and their meaning.

Only `embedding`, which runs in a separate process, does input and output.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from heapq import merge
from typing import Any, Final

import msgspec

from mcp_hub.search.bm25f import Bm25f, Document
from mcp_hub.search.name_search import NameIndex
from mcp_hub.search.words import READING, STOP_WORDS, asks_for_change, stem, terms_of, words_of

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
        """Returns the texts of its fields, in the order of `bm25f.WEIGHTS`."""
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
