"""The estimate of tokens, against the vocabularies of two real models."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog import Catalog, CatalogSource, Item, Route
from mcp_hub.catalog.token_estimate import MAX_WINDOWS, WINDOW, estimate_tokens
from mcp_hub.protocol.kinds import RESOURCES, TOOLS
from tests.vocabularies import VOCABULARIES, count_tokens

ROOT = Path(__file__).parents[2]
ROWS = [
    {"id": row, "name": f"user {row}", "at": f"2026-01-{row % 28 + 1:02}T10:22:00Z", "score": row * 1.37}
    for row in range(99)
]
TEXTS = {
    "prose": "".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))),
    "code": "".join(path.read_text() for path in sorted((ROOT / "mcp_hub" / "policy").glob("*.py"))),
    "json": json.dumps(ROWS),
    "indented json": json.dumps(ROWS, indent=2),
    "markdown table": "\n".join(f"| {row['id']} | {row['name']} | {row['at']} | {row['score']:.2f} |" for row in ROWS),
    "csv": "\n".join(f"{row['id']},{row['name']},{row['at']},{row['score']:.2f}" for row in ROWS),
    "log": "\n".join(f"{row['at']} INFO  mcp_hub.policy: call {row['id']:08x} took 0.123 s" for row in ROWS),
    "hexadecimal": random.Random(1).randbytes(2000).hex(),
}


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("kind", TEXTS)
def test_the_estimate_is_within_a_tenth_of_what_a_real_tokenizer_counts(kind: str, vocabulary: str) -> None:
    text = TEXTS[kind]
    counted = count_tokens(vocabulary, text)
    parts = [text[start : start + WINDOW] for start in range(0, len(text), WINDOW)]
    assert sum(map(estimate_tokens, parts)) == pytest.approx(counted, rel=0.1)


def test_the_tokens_of_a_long_text_are_estimated_from_samples_of_it() -> None:
    text = TEXTS["prose"]
    long = text * (WINDOW * MAX_WINDOWS * 8 // len(text))
    parts = [long[start : start + WINDOW] for start in range(0, len(long), WINDOW)]
    assert estimate_tokens(long) == pytest.approx(sum(map(estimate_tokens, parts)), rel=0.05)


@given(text=st.text(max_size=200))
def test_a_text_costs_at_least_one_token_and_at_most_one_per_character(text: str) -> None:
    assert (estimate_tokens(text) > 0) == bool(text)
    assert estimate_tokens(text) <= len(text)


def test_random_bytes_in_base64_cost_more_than_words_of_their_length() -> None:
    noise = base64.b64encode(random.Random(1).randbytes(3000)).decode()
    assert estimate_tokens(noise) > estimate_tokens(TEXTS["prose"][: len(noise)])


def test_a_tool_costs_the_tokens_of_its_definition_and_a_resource_none() -> None:
    plain = {"name": "t", "description": "Says hello.", "inputSchema": {"type": "object"}}
    extended = {
        **plain,
        "title": "T",
        "annotations": {"readOnlyHint": True},
        "outputSchema": {"type": "object"},
        "_meta": {},
    }
    resource = {"uri": "x:y", "name": "a long name"}
    items = tuple(
        Item(Route("a", kind, name), name, wire)
        for kind, name, wire in (
            (TOOLS, "t", plain),
            (TOOLS, "u", {**extended, "name": "u"}),
            (RESOURCES, "x:y", resource),
        )
    )
    catalog = Catalog.build([CatalogSource("a", "", items)])
    tokens = [entry.tokens for entry in catalog.parts()]
    assert tokens == [tokens[0], tokens[0], 0]
    assert tokens[0] > 10
