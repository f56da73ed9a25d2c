"""Texts of results are cut where what is left can still be read: JSON, tables, prose."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog.token_estimate import cut_to_tokens, estimate_tokens
from mcp_hub.policy.long_results import head
from mcp_hub.policy.result_texts import cut_text
from mcp_hub.protocol.frames import encode

RECORDS = [{"id": number, "name": f"user {number}", "tags": ["a", "b"], "last": True} for number in range(1000)]
TEXTS = st.text(max_size=60) | st.text('"\\{}[],:\n \u00e9\U0001f600\ud83d', max_size=60)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
CONTAINERS = st.lists(VALUES, min_size=1, max_size=8) | st.dictionaries(TEXTS, VALUES, min_size=1, max_size=8)


def is_part_of(short: Any, long: Any) -> bool:
    if isinstance(long, dict):
        return all(is_part_of(short[key], long[key]) for key in short) and [*long][: len(short)] == [*short]
    if isinstance(long, list):
        return len(short) <= len(long) and all(map(is_part_of, short, long))
    if isinstance(long, str):
        return bool(short == long or (short[-1:] == "…" and long.startswith(short[:-1])))
    return bool(short == long)


@given(
    value=CONTAINERS,
    room=st.integers(1, 400),
    indent=st.sampled_from([None, 2]),
    ascii=st.booleans(),
    tokens=st.booleans(),
)
def test_json_is_cut_to_valid_json_that_fits(
    value: Any, room: int, indent: int | None, ascii: bool, tokens: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii)
    part = cut_text(text, room, cut_to_tokens if tokens else head).text
    if tokens:
        assert estimate_tokens(part) <= room
    else:
        assert len(encode(part)) - 2 <= room or len(part) == 1
    if part and len(text) > 1 and part != text[:1]:
        assert is_part_of(json.loads(part), json.loads(text))


@pytest.mark.parametrize("indent", [None, 1])
def test_a_json_list_is_cut_after_a_whole_record_and_states_the_total(indent: int | None) -> None:
    part = cut_text(json.dumps(RECORDS, indent=indent), 2000, cut_to_tokens)
    records = json.loads(part.text)
    assert records == RECORDS[: len(records)]
    assert len(records) > 30
    assert part.of == f"{len(records)} of 1,000 items"
    nested = cut_text(json.dumps({"total": 1000, "found": {"rows": RECORDS}}, indent=indent), 2000, cut_to_tokens)
    records = json.loads(nested.text)["found"]["rows"]
    assert records == RECORDS[: len(records)]
    assert nested.of == f"{len(records)} of 1,000 items of found.rows"


def test_a_long_string_in_json_is_cut_inside() -> None:
    part = cut_text(json.dumps({"title": "t", "body": "word " * 5000, "more": 1}), 100, cut_to_tokens)
    value = json.loads(part.text)
    assert value["title"] == "t"
    assert value["body"].startswith("word word")
    assert value["body"].endswith("…")


@pytest.mark.parametrize("room", range(20, 300, 7))
def test_a_markdown_table_is_cut_after_a_whole_row(room: int) -> None:
    lines = ["Users:", "", "| id | name |", "|---|---|", *(f"| {row} | user {row} |" for row in range(100))]
    part = cut_text("\n".join(lines), room, cut_to_tokens)
    cut_lines = part.text.split("\n")
    assert cut_lines == lines[: len(cut_lines)]
    assert part.of.endswith(" of 104 lines")


@pytest.mark.parametrize("room", range(30, 300, 7))
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_is_cut_after_a_whole_record(room: int, separator: str) -> None:
    rows = [
        ["id", "name", "note"],
        *([str(row), f"user {row}", "a" if row % 3 else "two\nlines"] for row in range(100)),
    ]
    text = "\n".join(separator.join(f'"{cell}"' if "\n" in cell else cell for cell in row) for row in rows)
    part = cut_text(text, room, cut_to_tokens)
    cut_rows = [*csv.reader(part.text.splitlines(keepends=True), delimiter=separator)]
    assert [[cell.replace("\r", "") for cell in row] for row in cut_rows] == rows[: len(cut_rows)]


def test_json_lines_are_cut_between_lines() -> None:
    lines = [json.dumps(record) for record in RECORDS]
    part = cut_text("\n".join(lines), 500, cut_to_tokens)
    assert part.text.split("\n") == lines[: part.text.count("\n") + 1]
    assert part.of.endswith(" of 1,000 lines")


@pytest.mark.parametrize("text", ["[link](url) " * 100, "{not json} " * 100, "plain words, and more " * 100])
def test_prose_is_cut_at_a_word_boundary(text: str) -> None:
    part = cut_text(text, 50, cut_to_tokens)
    assert part.of == ""
    assert text.startswith(part.text + " ")
    assert part.text


@pytest.mark.parametrize("name", ["C:\\\\docs \\q", "two\nlines", "\\u12"])
def test_a_text_like_json_with_a_wrong_name_is_cut_as_prose(name: str) -> None:
    text = f'{{"{name}": [{", ".join(map(str, range(1000)))}]}}'
    part = cut_text(text, 500, head)
    assert part.of == ""
    assert text.startswith(part.text)
    assert part.text


def test_a_text_within_the_limit_is_unchanged() -> None:
    assert cut_text("[1, 2]", 100, cut_to_tokens).text == "[1, 2]"
