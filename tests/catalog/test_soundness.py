"""What `defect` lets through is accepted by the SDK's own types, whole lists at a time; what it refuses says why."""

import copy
from typing import Any

import fastmcp.skills
import mcp_types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.protocol.kinds import (
    KINDS,
    PROMPTS,
    RESOURCES,
    SKILLS,
    TEMPLATES,
    TOOLS,
    Kind,
    defect,
    defect_in_steps,
    drop_nulls,
    to_handshake_tool,
)

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}, "b": True}, "required": ["a"]}
ICON = {"src": "data:,", "mimeType": "image/png", "sizes": ["1x1"], "theme": "dark"}
SHARED = {"title": "T", "description": "D", "icons": [ICON], "_meta": {"x/y": 1}, "future": {"x": None}}
AUDIENCE = {"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z"}
FULL: dict[Kind, dict[str, Any]] = {
    TOOLS: {
        "name": "n",
        "inputSchema": SCHEMA,
        "outputSchema": copy.deepcopy(SCHEMA),
        "annotations": {"title": "T", "readOnlyHint": True},
        "execution": {"taskSupport": "optional"},
        **SHARED,
    },
    RESOURCES: {"uri": "x://y", "name": "n", "mimeType": "a/b", "size": 3, "annotations": AUDIENCE, **SHARED},
    TEMPLATES: {"uriTemplate": "x://{y}", "name": "n", "mimeType": "a/b", "annotations": AUDIENCE, **SHARED},
    SKILLS: {
        "uri": "skill://team/pdf/SKILL.md",
        "frontmatter": {
            "name": "pdf",
            "description": "D",
            "license": "MIT",
            "compatibility": "any",
            "allowed-tools": "a b",
            "metadata": {"version": "1"},
            "more": {"x": [1, None]},
        },
        "resources": [
            {"uri": f"skill://team/pdf/{file}", "digest": f"sha256:{'0' * 64}", "size": 3}
            for file in ("SKILL.md", "a/b.md")
        ],
        "_meta": {"x/y": 1},
    },
    PROMPTS: {"name": "n", "arguments": [{"name": "a", "description": "d", "required": True}], **SHARED},
}
TYPES: dict[Kind, Any] = {
    TOOLS: mcp_types.Tool,
    RESOURCES: mcp_types.Resource,
    TEMPLATES: mcp_types.ResourceTemplate,
    PROMPTS: mcp_types.Prompt,
    SKILLS: fastmcp.skills.Skill,
}
ODD: list[Any] = [
    None,
    7,
    -1.5,
    True,
    "",
    "text",
    [],
    [1],
    [None],
    {},
    {"a": 1},
    {"type": "array"},
    "dark",
    float("nan"),
]


def member_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every member of every object and list."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [step for key, member in members for step in [(*path, key), *member_paths(member, (*path, key))]]


def changed(item: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    copied = copy.deepcopy(item)
    inner: Any = copied
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copied


def has_known_null(kind: Kind, item: dict[str, Any]) -> bool:
    return any(value is None for key, value in item.items() if key in FULL[kind] and key != "future")


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_with_all_fields_is_valid_and_unchanged(kind: Kind) -> None:
    assert defect(kind, FULL[kind]) is None
    assert drop_nulls(kind, FULL[kind]) is FULL[kind]
    TYPES[kind].model_validate(FULL[kind])


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_every_item_without_a_defect_is_accepted_by_the_sdk(kind: Kind, data: st.DataObject) -> None:
    item = FULL[kind]
    for _ in range(data.draw(st.integers(1, 3))):
        item = changed(item, data.draw(st.sampled_from(member_paths(item))), data.draw(st.sampled_from(ODD)))
    before = copy.deepcopy(item)
    if defect(kind, item) is None:
        cleaned = drop_nulls(kind, item)
        TYPES[kind].model_validate(cleaned)
        assert not has_known_null(kind, cleaned)
        assert defect(kind, cleaned) is None
    assert repr(item) == repr(before)


OFFSET = "its annotations.lastModified is not a date, a time and its offset"
TASKS = "its execution.taskSupport is not 'forbidden' or 'optional' or 'required'"
PATHS = [
    (TOOLS, ("inputSchema", "type"), "array", "its inputSchema.type is not 'object'"),
    (TOOLS, ("inputSchema",), None, "its inputSchema is missing"),
    (TOOLS, ("inputSchema", "required"), [1], "its inputSchema.required[0] is not a text"),
    (TOOLS, ("inputSchema", "properties", "a"), "text", "its inputSchema.properties.a is not a schema"),
    (TOOLS, ("annotations", "readOnlyHint"), "yes", "its annotations.readOnlyHint is not true or false"),
    (TOOLS, ("execution", "taskSupport"), 1, TASKS),
    (TOOLS, ("icons", 0, "src"), None, "its icons[0].src is missing"),
    (TOOLS, ("title",), ["T"], "its title is not a text"),
    (RESOURCES, ("uri",), "no scheme", "its uri is not a URI with a scheme"),
    (RESOURCES, ("uri",), "x:\ud800", "its uri is not a URI with a scheme"),
    (RESOURCES, ("size",), True, "its size is not a whole number"),
    (RESOURCES, ("size",), 1.5, "its size is not a whole number"),
    (RESOURCES, ("annotations", "priority"), 2, "its annotations.priority is not between 0 and 1"),
    (RESOURCES, ("annotations", "lastModified"), "today", OFFSET),
    (TEMPLATES, ("annotations", "audience"), ["all"], "its annotations.audience[0] is not 'assistant' or 'user'"),
    (SKILLS, ("uri",), "skill://other/SKILL.md", "its uri has another name than its frontmatter"),
    (SKILLS, ("uri",), "skill://team/pdf/README.md", "its uri does not end in /SKILL.md"),
    (SKILLS, ("uri",), "skill://team/../pdf/SKILL.md", "its uri leads out of its directory"),
    (SKILLS, ("frontmatter",), None, "its frontmatter is not an object"),
    (SKILLS, ("frontmatter", "license"), None, "its frontmatter.license is not a text"),
    (SKILLS, ("frontmatter", "metadata", "version"), 1, "its frontmatter.metadata is not a mapping of texts"),
    (SKILLS, ("resources",), None, "its resources is neither a list nor 'dynamic'"),
    (SKILLS, ("resources", 1, "uri"), "skill://team/other.md", "its resources[1].uri is outside of it"),
    (SKILLS, ("resources", 1, "uri"), "skill://team/pdf/SKILL.md", "its resources[1].uri is there twice"),
    (SKILLS, ("resources", 0, "uri"), "skill://team/pdf/c.md", "its resources do not have its SKILL.md"),
    (SKILLS, ("resources", 1, "size"), True, "its resources[1].size is not a whole number"),
    (PROMPTS, ("arguments", 0), "a", "its arguments[0] is not an object"),
    (PROMPTS, ("arguments", 0, "name"), 1, "its arguments[0].name is not a text"),
]


@pytest.mark.parametrize(("kind", "path", "value", "reason"), PATHS)
def test_the_reason_for_an_invalid_item_names_the_field(
    kind: Kind, path: tuple[Any, ...], value: Any, reason: str
) -> None:
    assert defect(kind, changed(FULL[kind], path, value)) == reason


def test_nulls_in_known_fields_are_removed_and_those_in_unknown_fields_stay() -> None:
    item = changed(FULL[TOOLS], ("annotations", "readOnlyHint"), None)
    for path in (("title",), ("icons", 0, "theme"), ("inputSchema", "required"), ("outputSchema", "$schema")):
        item = changed(item, path, None)
    item["inputSchema"]["properties"]["a"]["default"] = None
    cleaned = drop_nulls(TOOLS, item)
    assert "title" not in cleaned
    assert "theme" not in cleaned["icons"][0]
    assert "required" not in cleaned["inputSchema"]
    assert "$schema" not in cleaned["outputSchema"]
    assert "readOnlyHint" not in cleaned["annotations"]
    assert cleaned["inputSchema"]["properties"]["a"] == {"type": "string", "default": None}
    assert cleaned["future"] == {"x": None}


def test_handshake_clients_see_schemas_of_objects_only() -> None:
    converted = to_handshake_tool(FULL[TOOLS])
    assert converted["inputSchema"]["properties"] == {"a": {"type": "string"}, "b": {}}
    assert converted["outputSchema"] == converted["inputSchema"]
    assert FULL[TOOLS]["inputSchema"]["properties"]["b"] is True
    assert "outputSchema" not in to_handshake_tool(changed(FULL[TOOLS], ("outputSchema", "type"), "array"))
    assert "required" not in to_handshake_tool(changed(FULL[TOOLS], ("outputSchema", "required"), None))["outputSchema"]
    assert to_handshake_tool(FULL[PROMPTS]) is FULL[PROMPTS]
    bare = {"name": "n", "inputSchema": {"type": "object"}}
    assert to_handshake_tool(bare) is bare


def test_long_lists_in_an_item_are_checked_in_many_steps() -> None:
    arguments: list[Any] = [{"name": "a"}] * 20_000
    prompt = {"name": "p", "arguments": [*arguments, {"title": "nameless"}]}
    assert len(list(defect_in_steps(PROMPTS, prompt))) >= 40
    assert defect(PROMPTS, prompt) == "its arguments[20000].name is missing"
    assert defect(PROMPTS, {"name": "p", "arguments": arguments}) is None
    assert drop_nulls(PROMPTS, {"name": "p", "arguments": arguments})["arguments"] is arguments


def test_one_invalid_member_among_many_valid_ones_is_found() -> None:
    properties: dict[str, Any] = {f"p{n}": {} for n in range(1_000)}
    tool = {"name": "t", "inputSchema": {"type": "object", "properties": {**properties, "bad": 1}}}
    assert defect(TOOLS, tool) == "its inputSchema.properties.bad is not a schema"
    tool = {"name": "t", "inputSchema": {"type": "object", "required": [*properties, None]}}
    assert defect(TOOLS, tool) == "its inputSchema.required[1000] is not a text"
