"""Whatever a file looks like: an entry goes in without touching anything else, and comes out without a trace."""

from __future__ import annotations

import difflib
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcp_hub.editing import EditRefused, Syntax, insert, parse, put, remove
from tests.editing.written import NEW, ROOTS, TEXTS

SYNTAXES: list[Syntax] = ["json", "yaml", "toml"]


def written(data: st.DataObject, syntax: Syntax, least: int = 0) -> tuple[str, str, dict[str, Any]]:
    root = data.draw(ROOTS)
    text = data.draw(TEXTS[syntax](root, least))
    try:
        tree = parse(text, syntax).tree or {}
    except EditRefused:
        assume(False)
    return root, text, tree


@pytest.mark.parametrize("syntax", SYNTAXES)
@given(data=st.data())
def test_an_entry_that_is_inserted_and_removed_leaves_the_same_bytes(data: st.DataObject, syntax: Syntax) -> None:
    root, text, tree = written(data, syntax)
    entry = data.draw(NEW)
    insertion = insert(text, syntax, (root, "mcp-hub"), entry)
    assert insertion.tree == parse(insertion.text, syntax).tree
    assert parse(insertion.text, syntax).tree == {**tree, root: {**(tree.get(root) or {}), "mcp-hub": entry}}
    assert remove(insertion.text, syntax, (root, "mcp-hub"), insertion.placement).text == text


@pytest.mark.parametrize("syntax", SYNTAXES)
@given(data=st.data())
def test_an_insertion_only_adds_characters(data: st.DataObject, syntax: Syntax) -> None:
    root, text, _ = written(data, syntax)
    changed = insert(text, syntax, (root, "mcp-hub"), data.draw(NEW)).text
    opcodes = difflib.SequenceMatcher(None, text, changed, autojunk=False).get_opcodes()
    assert {tag for tag, *_ in opcodes} <= {"equal", "insert"}


@pytest.mark.parametrize("syntax", SYNTAXES)
@given(data=st.data())
def test_an_entry_can_be_removed_after_others_were_added(data: st.DataObject, syntax: Syntax) -> None:
    root, text, tree = written(data, syntax)
    first = insert(text, syntax, (root, "mcp-hub"), data.draw(NEW))
    both = insert(first.text, syntax, (root, "later"), {"command": "x"})
    remaining_text = remove(both.text, syntax, (root, "mcp-hub"), first.placement).text
    assert parse(remaining_text, syntax).tree == {**tree, root: {**(tree.get(root) or {}), "later": {"command": "x"}}}


@pytest.mark.parametrize("syntax", SYNTAXES)
@given(data=st.data())
def test_any_entry_of_a_file_can_be_removed_or_the_removal_is_refused(data: st.DataObject, syntax: Syntax) -> None:
    root, text, tree = written(data, syntax, least=1)
    name = data.draw(st.sampled_from(sorted(tree[root])))
    try:
        remaining = parse(remove(text, syntax, (root, name)).text, syntax).tree or {}
    except EditRefused:
        return
    expected = {key: value for key, value in tree[root].items() if key != name}
    assert {key: value for key, value in remaining.items() if key != root} == {
        k: v for k, v in tree.items() if k != root
    }
    assert (remaining.get(root) or {}) == expected


@pytest.mark.parametrize("syntax", SYNTAXES)
@given(data=st.data(), value=st.booleans())
def test_a_value_of_an_entry_is_set_or_refused_and_nothing_else_changes(
    data: st.DataObject, syntax: Syntax, value: bool
) -> None:
    root, text, tree = written(data, syntax, least=1)
    name = data.draw(st.sampled_from(sorted(tree[root])))
    try:
        changed = put(text, syntax, (root, name, "enabled"), value).text
    except EditRefused:
        return
    expected = {**tree, root: {**tree[root], name: {**(tree[root][name] or {}), "enabled": value}}}
    assert parse(changed, syntax).tree == expected
    for remark in ("# c", "# a remark", "// c", "/* c */", "# head", "# above"):
        assert changed.count(remark) == text.count(remark)
