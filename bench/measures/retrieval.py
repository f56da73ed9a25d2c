"""How well the hub finds tools: its search over sets of queries with known answers, beside plainer ones."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from statistics import fmean
from typing import Any

from bench.plan import Cast
from bench.retrieval.scores import FIGURES, scores
from bench.retrieval.sets import SETS, Query, QuerySet
from bench.rows import HUB
from bench.table import Table
from mcp_hub.catalog import Catalog
from mcp_hub.catalog.token_estimate import estimate_tokens
from mcp_hub.config.models import Config
from mcp_hub.hub import Engine
from mcp_hub.hub.groups.tool_search import ToolSearch
from mcp_hub.protocol.kinds import TOOLS
from mcp_hub.search.signatures import FoundTool, answer

FEW = 25
"""Queries of a set in the short form."""
Find = Callable[[Catalog, str], Awaitable[Sequence[str]]]

TABLE = Table.named(
    title="Finding tools",
    what="The queries of public sets (`--data`), over all tools of its set. `hub` is the hub's search; `words` the "
    "same without the process that compares meanings; `BM25` one field, no stems, no stop words; `meaning` the static "
    "embedding alone, by cosine. Tokens: the estimate of a brief answer. ms: one query, the median. "
    "Index: from the catalog to the first query, of `hub` once its process has started.",
    columns=(
        *((figure, figure, 3) for figure in FIGURES),
        ("tokens", "tokens", 0),
        ("ms", "ms", 2),
        ("p99 ms", "p99", 2),
        ("index, ms", "index", 0),
    ),
    era="modern",
)


def measure(cast: Cast) -> None:
    """All figures of all sets that are there."""
    if cast.plan.data is None:
        cast.sheet.fail(cast.scene, HUB, "it needs --data DIR, the directory of the sets: see bench/README.md")
        return
    for name, read in SETS.items():
        row = f"{name}: hub"
        with cast.noting(row):
            asyncio.run(_measured(cast, name, read(cast.plan.data)))


async def _measured(cast: Cast, name: str, query_set: QuerySet) -> None:
    queries = query_set.queries[:: max(1, len(query_set.queries) // FEW)] if cast.plan.small else query_set.queries
    async with Engine(Config(servers=())) as hub:
        process = hub.generation.internal_servers.meaning()
        search = ToolSearch(lambda: process, None, lambda route: False)
        lexical = ToolSearch(lambda: None, None, lambda route: False)
        if process is not None:
            await process.connected()
        compares, seconds = await _warmed(search, query_set.catalog)
        if not compares:
            raise ValueError("meanings cannot be compared: the extra 'search' is not installed")
        cast.add(f"{name}: hub", "index", seconds * 1000)
        cast.add(f"{name}: words", "index", (await _warmed(lexical, query_set.catalog))[1] * 1000)
        methods: dict[str, Find] = {"hub": search.find, "words": lexical.find, "BM25": Bm25(query_set.catalog).find}
        methods["meaning"] = Meaning(query_set.catalog).find
        for method, find in methods.items():
            figures: dict[str, list[float]] = {}
            for query in queries:
                for figure, value in (await _query_figures(query_set, query, find, method in ("hub", "words"))).items():
                    figures.setdefault(figure, []).append(value)
            for figure, values in figures.items():
                # A figure is of all queries: half of them are found or not, so a median would say nothing.
                cast.add(
                    f"{name}: {method}", figure, sorted(values)[len(values) // 2] if figure == "ms" else fmean(values)
                )
            cast.add(f"{name}: {method}", "p99", sorted(figures["ms"])[int(len(queries) * 0.99)])
        await search.close()


async def _warmed(search: ToolSearch, catalog: Catalog) -> tuple[bool, float]:
    """Indexes a catalog, and returns whether meanings can be compared, and the seconds that it took."""
    began = time.perf_counter()
    return await search.warm(catalog), time.perf_counter() - began


async def _query_figures(query_set: QuerySet, query: Query, find: Find, tokens: bool) -> dict[str, float]:
    began = time.perf_counter()
    names = await find(query_set.catalog, query.text)
    figures = {"ms": (time.perf_counter() - began) * 1000}
    figures |= scores(list(dict.fromkeys(query_set.labels[name] for name in names)), query.right)
    if tokens:
        tools = [FoundTool(query_set.catalog.entry(TOOLS, name) or {}) for name in names[:20]]
        figures["tokens"] = estimate_tokens(answer(f"{len(tools)} of {len(names)} tools found:", tools, 3, 1200))
    return figures


def _texts(catalog: Catalog) -> tuple[tuple[str, ...], list[str]]:
    names = catalog.names(TOOLS)
    entries = [catalog.entry(TOOLS, name) or {} for name in names]
    originals = [route.name for name in names if (route := catalog.resolve(TOOLS, name)) is not None]
    described = [entry.get("description") or "" for entry in entries]
    return names, [f"{name} {text}" for name, text in zip(originals, described, strict=True)]


class Bm25:
    """Plain BM25 (k1 1.2, b 0.75) over names and descriptions."""

    def __init__(self, catalog: Catalog) -> None:
        self._names, texts = _texts(catalog)
        self._counts = [Counter(_terms(text)) for text in texts]
        self._mean = sum(counts.total() for counts in self._counts) / len(self._counts)
        self._documents = Counter(term for counts in self._counts for term in counts)

    async def find(self, _: Catalog, query: str) -> Sequence[str]:
        terms = set(_terms(query))
        scored = [(-self._score(terms, counts), number) for number, counts in enumerate(self._counts)]
        return [self._names[number] for score, number in sorted(scored) if score < 0]

    def _score(self, terms: set[str], counts: Counter[str]) -> float:
        score, length = 0.0, 0.25 + 0.75 * counts.total() / self._mean
        for term in terms & counts.keys():
            documents = self._documents[term]
            idf = math.log(1 + (len(self._counts) - documents + 0.5) / (documents + 0.5))
            score += idf * counts[term] * 2.2 / (counts[term] + 1.2 * length)
        return score


def _terms(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.casefold())


class Meaning:
    """The static embedding of name and description alone, by cosine."""

    def __init__(self, catalog: Catalog) -> None:
        from mcp_hub.search.embedding import StaticModel, default_files

        self._names, texts = _texts(catalog)
        self._model = StaticModel(*default_files())
        self._vectors: Any = self._model.embed(texts)

    async def find(self, _: Catalog, query: str) -> Sequence[str]:
        similarities = self._vectors @ self._model.embed([query])[0]
        return [self._names[number] for number in (-similarities).argsort(kind="stable")]
