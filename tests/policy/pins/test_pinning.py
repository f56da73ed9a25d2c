"""Fingerprints: what changes one, what does not, and how a difference is told."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.protocol.kinds import PROMPTS, RESOURCES, TOOLS
from mcp_hub.security.pinning import (
    PARTS,
    differences,
    fingerprint,
    instructions_difference,
    pinned_definition,
    record_of,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(), inner, max_size=3), max_leaves=10,
)  # fmt: skip
VALUES = st.fixed_dictionaries({}, optional={part: JSON for part in PARTS[TOOLS] if part != "name"})
NAMED = VALUES.map(lambda parts: {"name": "x", **parts})


@given(tool=NAMED, part=st.sampled_from(PARTS[TOOLS][1:]), value=JSON)
def test_any_changed_part_of_an_item_is_a_pin_difference_and_nothing_else_is(tool: Any, part: str, value: Any) -> None:
    before = record_of([(TOOLS, tool)], None)
    after = {**tool, part: value}
    changes = list(differences(before, [(TOOLS, after)]))
    same = json.dumps(pinned_definition(TOOLS, tool), sort_keys=True) == json.dumps(
        pinned_definition(TOOLS, after), sort_keys=True
    )
    assert bool(changes) is not same
    if changes:
        assert part in changes[0].problem


@given(tool=NAMED)
def test_key_order_unknown_fields_and_serialisation_do_not_change_a_pin(tool: Any) -> None:
    before = record_of([(TOOLS, tool)], None)
    reordered = json.loads(json.dumps({"_meta": {"a": 1}, **dict(reversed(tool.items())), "icons": []}))
    assert list(differences(before, [(TOOLS, reordered)])) == []
    assert record_of([(TOOLS, reordered)], None).fingerprint == before.fingerprint


def test_the_fingerprint_of_the_set_changes_with_every_member() -> None:
    tools = [{"name": name, "description": "same"} for name in "abc"]
    fingerprints = {
        record_of([(TOOLS, tool) for tool in members], instructions).fingerprint
        for members, instructions in (
            (tools, None),
            (tools[:2], None),
            ([*tools[:2], {"name": "d", "description": "same"}], None),
            (tools, "instructions"),
        )
    }
    assert len(fingerprints) == 4
    assert record_of([(TOOLS, tool) for tool in reversed(tools)], None).fingerprint in fingerprints


def test_a_renamed_tool_is_reported_with_its_former_name() -> None:
    before = record_of([(TOOLS, {"name": name, "description": "same"}) for name in ("a", "b")], None)
    by_name = {
        difference.name: difference
        for difference in differences(before, [(TOOLS, {"name": "c", "description": "same"})])
    }
    assert by_name["c"].problem == "is new: what was pinned as 'a', renamed"
    assert by_name["a"].gone
    assert by_name["b"].gone


def test_an_unpinnable_item_always_differs() -> None:
    deep: Any = "x"
    for _ in range(20_000):
        deep = [deep]
    tool = {"name": "deep", "inputSchema": {"type": "object", "default": deep}}
    assert fingerprint(tool) is None
    assert record_of([(TOOLS, tool)], None).items[TOOLS] == {}
    assert [difference.problem for difference in differences(record_of([], None), [(TOOLS, tool)])] == [
        "is nested too deeply to be pinned"
    ]
    while isinstance(deep, list):  # not left to the interpreter, which would recurse
        deep = deep[0]


def test_unnamed_items_and_resources_are_never_pin_differences() -> None:
    items = [(TOOLS, {"description": "x"}), (TOOLS, "x"), (TOOLS, {"name": 5}), (RESOURCES, {"name": "x", "uri": "y:"})]
    assert list(differences(None, items)) == []
    assert [difference.name for difference in differences(None, [(PROMPTS, {"name": "p"})])] == ["p"]


def test_removed_instructions_are_not_a_pin_difference() -> None:
    before = record_of([], "be kind")
    assert instructions_difference(before, "be kind") is None
    assert instructions_difference(before, None) is None
    assert instructions_difference(before, "be mean") is not None
    assert instructions_difference(None, "be kind") is not None
    assert instructions_difference(None, "") is None
