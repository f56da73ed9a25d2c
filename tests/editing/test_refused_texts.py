"""Places that no edit is safe for, and lists: what is refused, and what others got wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_hub.codes import FILE_TOO_LARGE
from mcp_hub.config.config_files import read_document
from mcp_hub.editing import EditRefused, Syntax, get, insert, parse, put, remove
from mcp_hub.errors import ConfigError

ENTRY = {"command": "x"}


@pytest.mark.parametrize(
    ("syntax", "text", "says"),
    [
        ("json", '{"servers": null}', "is not an object"),
        ("json", '{"servers": "x"}', "is not an object"),
        ("json", '{"servers": {"hub": 1}}', "servers.hub is already there"),
        ("json", '{"a": 1, "a": 2}', "already given in line 1"),
        ("json", '{"a": 1} {"b": 2}', "is not valid JSON"),
        ("json", "{" * 200, "JSON"),
        ("yaml", "servers: &all\n  a: 1\nothers: *all\n", "cannot be edited safely"),
        ("yaml", "servers:\n  <<: &base {a: 1}\n  hub: 1\n", "is already there"),
        ("yaml", "servers: {a: 1, # one\n  b: 2}\nz: [*nothing]\n", "an alias without its anchor"),
        ("yaml", "servers: {a: {b: 1},}\n", "a last comma"),
        ("yaml", "servers: null\n", "holds a value and no entries"),
        # A line end behind the last line would become part of this text.
        ("yaml", "z: |\n  x", "cannot be edited safely"),
        ("yaml", "servers:\n\ta: 1\n", "a tab; YAML needs spaces"),
        ("yaml", "a: 1\n---\nb: 2\n", "one file holds one document"),
        ("yaml", "a: !!python/object:os.system x\n", "a tag that is not supported"),
        ("toml", "servers = {a = 1}\n", r"is an inline table; write it as \[servers\]"),
        ("toml", "servers = 1\n", "is not an object"),
        ("toml", "[[servers]]\nname = 'a'\n", "is not an object"),
        ("toml", "a = 1\na = 2\n", "is not valid TOML"),
    ],
)
def test_a_text_that_cannot_be_edited_safely_is_refused(syntax: Syntax, text: str, says: str) -> None:
    with pytest.raises(EditRefused, match=says):
        insert(text, syntax, ("servers", "hub"), ENTRY)


@pytest.mark.parametrize("depth", [40, 500, 10_000])
@pytest.mark.parametrize(
    ("syntax", "opening", "closing"),
    [
        ("json", '{"a": ', "}"),
        ("json", "[", "]"),
        ("json", "{a: ", "}"),
        ("yaml", "{a: ", "}"),
        ("yaml", "[", "]"),
        ("toml", "{a = ", "}"),
        ("toml", "[", "]"),
        ("toml", "a.", ""),
    ],
)
def test_a_text_that_is_nested_too_deeply_is_refused(
    syntax: Syntax, opening: str, closing: str, depth: int, tmp_path: Path
) -> None:
    key = {"json": '{"servers": %s}', "yaml": "servers: %s\n", "toml": "servers = %s\n"}[syntax]
    inner = opening * depth + "1" + closing * depth
    text = key % inner if closing else f"servers.{opening * depth}a = 1\n"
    with pytest.raises(EditRefused):
        insert(text, syntax, ("servers", "hub"), ENTRY)
    file = tmp_path / f"servers.{syntax}"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_document(file)
    assert caught.value.hub_code == FILE_TOO_LARGE


def test_a_null_value_is_refused_in_toml() -> None:
    with pytest.raises(EditRefused, match="TOML has no null"):
        insert("", "toml", ("servers", "hub"), {"command": None})


@pytest.mark.parametrize(
    ("syntax", "text"),
    [
        ("json", '{"mcpServers": {}, "other": {}, "empty": [], "x": ""}'),
        ("json", '{\n  // empty on purpose\n  "mcpServers": { /* none */ },\n  "other": {},\n}\n'),
        ("yaml", "mcpServers: {}\nother: {}\nempty: []\nnothing:\n"),
        ("toml", "empty = []\n[mcpServers]\n[other]\n"),
    ],
)
def test_empty_sections_of_other_entries_are_kept(syntax: Syntax, text: str) -> None:
    insertion = insert(text, syntax, ("mcpServers", "hub"), ENTRY)
    assert remove(insertion.text, syntax, ("mcpServers", "hub"), insertion.placement).text == text


@pytest.mark.parametrize(
    ("syntax", "text"),
    [
        ("yaml", "mcpServers:\n  - name: a\n    command: b # c\n  # d\nmodels: []\n"),
        ("yaml", "mcpServers:\n- name: a\n- {name: b}\nz: 1"),
        ("yaml", "mcpServers: []\n"),
        ("yaml", "mcpServers:\r\nmodels: []\r\n"),
        ("yaml", "name: x\n"),
        ("json", '{"mcpServers": [{"name": "a"}, /* b */ {"name": "c"},]}'),
        ("json", '{\n\t"mcpServers": [\n\t\t{"name": "a"}\n\t]\n}'),
        ("json", "{}"),
    ],
)
def test_an_item_is_appended_to_a_list_and_removed_again(syntax: Syntax, text: str) -> None:
    tree = parse(text, syntax).tree
    at = ("mcpServers", len(tree.get("mcpServers") or []))
    insertion = insert(text, syntax, at, {"name": "hub", "args": ["a", "b"], "env": {"A": "1"}})
    expected = [*(tree.get("mcpServers") or []), {"name": "hub", "args": ["a", "b"], "env": {"A": "1"}}]
    assert parse(insertion.text, syntax).tree == {**tree, "mcpServers": expected}
    assert remove(insertion.text, syntax, at, insertion.placement).text == text


VALUES = ["a\nb", "\na\n\n b\n", "a\r\nb", "a\u2028b\x85", "- x\n# y: z", "  \n"]


@pytest.mark.parametrize("syntax", ["json", "yaml", "toml"])
@pytest.mark.parametrize("value", VALUES)
def test_a_value_with_line_breaks_is_written_in_every_place(syntax: Syntax, value: str) -> None:
    entry = {"name": "hub", "args": [value], "env": {"A": value, value: value}}
    texts = {"json": "{}", "yaml": "a:\n  b:\n    c: 1\n", "toml": ""}
    places = [("a", "hub"), *([("servers", 0), ("servers", 0, "deep", 0)] if syntax != "toml" else [])]
    for at in places:
        insertion = insert(texts[syntax], syntax, at, entry)
        assert get(parse(insertion.text, syntax).tree, at) == entry
        assert remove(insertion.text, syntax, at, insertion.placement).text == texts[syntax]
    text = put(texts[syntax], syntax, ("a", "b", "c"), value).text
    assert parse(text, syntax).tree == {"a": {"b": {"c": value}}}
    if syntax != "toml":
        for args in ("", "args: [x]\n" if syntax == "yaml" else '{"args": ["x"]}'):
            text = insert(args or insert("", syntax, ("args", 0), "x").text, syntax, ("args", 1), value).text
            assert parse(text, syntax).tree == {"args": ["x", value]}


COMMENTED = {
    "a": "mcpServers:\n  a:\n    command: x\n    # env:\n    #   A: b\n",
    "a2": "mcpServers:\n  a:\n    command: x\n\n    # env:\n#      A: b\n",
    "list": "mcpServers:\n  - name: a\n    command: x # c\n    # env:\n",
    "flat": "mcpServers:\n- name: a\n  # env:\n",
    "crlf": "mcpServers:\r\n  a:\r\n    command: x\r\n    # env: {}\r\n",
}
AFTER = ["", "  # b:\n  #   command: y\n", "\n# other\nz: 1\n", "z: 1\n", "\n\n"]


@pytest.mark.parametrize("kind", COMMENTED)
@pytest.mark.parametrize("after", AFTER)
def test_commented_keys_stay_with_their_yaml_entry(kind: str, after: str) -> None:
    before = COMMENTED[kind]
    text = before + (after.replace("\n", "\r\n") if kind == "crlf" else after)
    tree = parse(text, "yaml").tree
    at = ("mcpServers", 1 if isinstance(tree["mcpServers"], list) else "hub")
    insertion = insert(text, "yaml", at, {"command": "y"})
    assert insertion.text.startswith(before)
    assert remove(insertion.text, "yaml", at, insertion.placement).text == text
    changed = put(insertion.text, "yaml", (*at, "enabled"), True).text
    assert changed.startswith(before)
    first = ("mcpServers", 0 if isinstance(tree["mcpServers"], list) else "a")
    assert "env" not in remove(insertion.text, "yaml", first).text


@pytest.mark.parametrize(
    ("syntax", "text", "at", "value", "after"),
    [
        ("json", '{"a": {"b": true /* c */}}', ("a", "b"), False, '{"a": {"b": false /* c */}}'),
        ("json", '{"a": [1, "x" ,3]}', ("a", 1), "y", '{"a": [1, "y" ,3]}'),
        ("yaml", "a:\n  b: yes # c\n", ("a", "b"), False, "a:\n  b: false # c\n"),
        ("yaml", "a:\n  b: 'x: y' # c\n", ("a", "b"), "no", "a:\n  b: 'no' # c\n"),
        ("yaml", "a: [x, y]\n", ("a", 1), "z, w", "a: [x, 'z, w']\n"),
        ("yaml", "a:\n- x\n", ("b",), 1, "a:\n- x\nb: 1\n"),
        ("toml", "[a]\n  b = 'x' # c\n", ("a", "b"), "y\n", '[a]\n  b = "y\\n" # c\n'),
        (
            "toml",
            "[a]\n  b = [\n 1, # ]\n 2 ]\n[c]\n",
            ("a", "d"),
            True,
            "[a]\n  b = [\n 1, # ]\n 2 ]\n  d = true\n[c]\n",
        ),
        ("toml", "# c\n[a]\n", ("b",), 1, "b = 1\n# c\n[a]\n"),
    ],
)
def test_setting_a_value_keeps_its_position(
    syntax: Syntax, text: str, at: tuple[str | int, ...], value: object, after: str
) -> None:
    assert put(text, syntax, at, value).text == after


@pytest.mark.parametrize("syntax", ["json", "yaml", "toml"])
def test_removing_a_missing_entry_is_refused(syntax: Syntax) -> None:
    with pytest.raises(EditRefused, match=r"servers\.hub is not there"):
        remove("", syntax, ("servers", "hub"))
