"""How good rankings are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

FIGURES = ("recall@1", "recall@5", "recall@10", "hit@3", "nDCG@10")


def scores(ranking: Sequence[str], right: Mapping[str, int]) -> dict[str, float]:
    """The figures of one ranking: `right` has the grade of each right answer, from 1."""
    figures = {f"recall@{k}": len(set(ranking[:k]) & right.keys()) / len(right) for k in (1, 5, 10)}
    figures["hit@3"] = float(bool(set(ranking[:3]) & right.keys()))
    best = _gain(sorted(right.values(), reverse=True))
    figures["nDCG@10"] = _gain([right.get(label, 0) for label in ranking[:10]]) / best
    return figures


def _gain(grades: Sequence[int]) -> float:
    return sum((2**grade - 1) / math.log2(rank + 2) for rank, grade in enumerate(grades[:10]))
