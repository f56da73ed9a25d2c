"""What hubs tell of a row of hubs: read from whoever claims it, and counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_hub.config.ancestry import (
    HUB_KEY,
    ITSELF,
    MAX_HUBS,
    MAX_NOTE,
    MAX_NOTES,
    VARIABLE,
    Ancestry,
    HubPath,
    refusal_in,
)
from mcp_hub.errors import LeftOut, UpstreamAnswered

ID = "0123456789abcdef" * 2
CONFIGURATION = Path("/somewhere/servers.yaml")


def ancestry(path: Path | None = CONFIGURATION, mark: str = "", limit: int = 4) -> Ancestry:
    return Ancestry.of([] if path is None else [path], {VARIABLE: mark}, limit, lambda: b"a key of the user's")


@pytest.mark.parametrize(
    "said",
    [
        None, [], "hub", {}, {"hubs": None}, {"hubs": "x"}, {"hubs": [1, None, "x" * 32, ID.upper()]},
        {"hubs": [], "depth": 7},
    ],
)  # fmt: skip
def test_malformed_hub_metadata_is_ignored(said: Any) -> None:
    behind = HubPath.read({"_meta": {HUB_KEY: said}})
    assert not behind.hubs
    ancestry().admit(behind)


@pytest.mark.parametrize("depth", [None, "9", -1, 0, 1.5, True])
def test_a_non_numeric_depth_counts_as_one(depth: Any) -> None:
    assert HubPath.read({"_meta": {HUB_KEY: {"hubs": [ID], "depth": depth}}}).depth == 1


def test_notes_read_from_hub_metadata_are_few_short_and_printable() -> None:
    metadata = {"hubs": [ID], "leftOut": ["\x1b[31m" + "x" * 10_000] * 100 + [7]}
    notes = HubPath.read({"_meta": {HUB_KEY: metadata}}).notes
    assert len(notes) == MAX_NOTES
    assert all(len(note) < 2 * MAX_NOTE and note.isprintable() for note in notes)


def test_an_upstream_hub_with_too_many_chained_hubs_is_left_out() -> None:
    hubs = [f"{number:032x}" for number in range(MAX_HUBS + 10)]
    with pytest.raises(LeftOut, match="more than"):
        ancestry().admit(HubPath.read({"_meta": {HUB_KEY: {"hubs": hubs}}}))


def test_hubs_have_equal_ids_exactly_if_they_have_the_same_file() -> None:
    metadata = ancestry().describe([], [])
    with pytest.raises(LeftOut, match=ITSELF):
        ancestry().admit(HubPath.read({"_meta": {HUB_KEY: metadata}}))
    ancestry(Path("/somewhere/else.yaml")).admit(HubPath.read({"_meta": {HUB_KEY: metadata}}))


def test_hubs_without_a_file_have_different_ids() -> None:
    first, second = ancestry(None), ancestry(None)
    second.admit(HubPath.read({"_meta": {HUB_KEY: first.describe([], [])}}))
    assert not ancestry(None, first.for_children).repeated
    with pytest.raises(LeftOut):
        first.admit(HubPath.read({"_meta": {HUB_KEY: first.describe([], [])}}))


def test_a_child_recognises_its_own_file_above_it_by_any_path(tmp_path: Path) -> None:
    file, link = tmp_path / "servers.yaml", tmp_path / "link.yaml"
    file.touch()
    link.symlink_to(file)
    mark = ancestry(file).for_children
    assert ancestry(link, mark).repeated
    between = ancestry(tmp_path / "other.yaml", mark)
    assert not between.repeated
    assert ancestry(file, between.for_children).repeated
    assert not ancestry(file, "").repeated


def test_a_hub_of_several_files_is_recognised_by_each_of_them(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("one.yaml", "other.yaml", "third.yaml"))
    environ = {VARIABLE: Ancestry.of([first, second], {}, 4, lambda: b"key").for_children}
    for paths, repeated in (([first], True), ([second], True), ([third, second], True), ([third], False)):
        child = Ancestry.of(paths, environ, 4, lambda: b"key")
        assert (child.repeated, len(child.above)) == (repeated, 1)
        assert (child.refusal({"name": "mcp-hub"}) is not None) == repeated
    same = Ancestry.of([second, first], {}, 4, lambda: b"key")
    with pytest.raises(LeftOut, match=ITSELF):
        same.admit(
            HubPath.read({"_meta": {HUB_KEY: Ancestry.of([first, second], {}, 4, lambda: b"key").describe([], [])}})
        )


@pytest.mark.parametrize("mark", ["x", ":", "0" * 32, "0" * 32 + ":", "0" * 32 + ":short", "0" * 32 + ":" + "a" * 17])
def test_a_malformed_ancestry_variable_is_ignored(mark: str) -> None:
    assert ancestry(mark=mark).above == ()


def test_hubs_upstream_and_downstream_are_counted_together() -> None:
    third = ancestry(mark=f"{'0' * 32}:{'a' * 16},{'b' * 16}")
    third.admit(HubPath((ID,), 1))
    with pytest.raises(LeftOut, match="5 hubs in a row"):
        third.admit(HubPath((ID,), 2))


@pytest.mark.parametrize("data", [None, "x", {}, {HUB_KEY: None}, {HUB_KEY: []}])
def test_other_errors_of_a_server_do_not_count_as_a_refusal_by_a_hub(data: Any) -> None:
    assert refusal_in(UpstreamAnswered({"code": -32600, "message": "no", "data": data})) is None


def test_a_refusal_by_another_hub_survives_encoding_and_decoding() -> None:
    parent = ancestry()
    child = ancestry(mark=parent.for_children)
    assert child.refusal({"name": "claude"}) is None
    refusal = child.refusal({"name": "mcp-hub (via mcp-remote 0.1.30)"})
    assert refusal is not None
    answered = UpstreamAnswered({"code": refusal.code, "message": refusal.message, "data": refusal.data})
    assert str(refusal_in(answered)) == ITSELF
