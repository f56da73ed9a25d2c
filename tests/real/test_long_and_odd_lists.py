"""Lists that are long, and schemas and names that clients and providers stumble over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.real.client_programs import Json
from tests.real.conftest import Report
from tests.real.scripted_provider import Call
from tests.real.turns import BEHIND, DIRECT, User, listing, tool

SERVERS = 6
TOOLS = [f"change_{server}_{number}" for server in range(SERVERS) for number in range(50)]
WANTED = "change_3_17"
WORDS = "Changes something in a way that takes some words to explain. It has consequences, which are explained as well."

_NODE = {"type": "object", "properties": {"value": {"type": "string"}, "kids": {"items": {"$ref": "#/$defs/Node"}}}}
ODD: dict[str, object] = {
    "odd_no_type": {"properties": {"a": {"type": "string"}}},
    "odd_empty": {},
    "odd_root_any_of": {"anyOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}]},
    "odd_typed_any_of": {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "odd_recursion": {"type": "object", "properties": {"node": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": _NODE}},
    "odd_booleans": {"type": "object", "properties": {"any": True, "never": False}},
    "odd_enums": {"type": "object", "properties": {"e": {"enum": [1, "a", None, True]}, "c": {"const": 7}}},
    "odd_types": {"type": "object", "properties": {"x": {"type": ["string", "integer", "null"]}}},
    "odd_tuples": {"type": "object", "properties": {"t": {"type": "array", "items": [{"type": "string"}]}}},
    "odd_draft_4": {"type": "object", "properties": {"n": {"type": "number", "exclusiveMinimum": True, "minimum": 0}}},
    "odd_required": {"type": "object", "properties": {}, "required": ["ghost"]},
    "odd_property_names": {"type": "object", "properties": {"a b$c.d": {"type": "string"}, "ü": {"type": "string"}}},
    "odd_keywords": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:x",
        "type": "object",
        "properties": {"a": {"type": "string", "x-foo": 1}},
        "unevaluatedProperties": False,
        "if": {"properties": {"a": {"const": "x"}}},
        "then": {"required": ["a"]},
    },
}
LONG = ["a" * 50, "b" * 64, "c" * 100, "dots.and/slash", "with space", "uni_ü_汉", "UPPER-dash_under", "9starts", "x"]


def three_hundred(directory: Path) -> dict[str, Json]:
    return {
        f"many{server}": listing(
            directory,
            f"many{server}",
            tools=[tool(name, description=WORDS) for name in TOOLS if name.startswith(f"change_{server}_")],
        )
        for server in range(SERVERS)
    }


def test_three_hundred_tools_are_all_offered_and_can_be_called(
    user: Callable[[str], User], report: Report, tmp_path: Path
) -> None:
    servers = three_hundred(tmp_path)
    user(DIRECT).has(servers)
    user(BEHIND).has_behind_the_hub(servers)
    turns = {way: user(way).turn(Call(WANTED, {"text": "x"})) for way in (DIRECT, BEHIND)}
    last = {way: len(turn.requests) - 1 for way, turn in turns.items()}
    offered = {way: turn.offered(TOOLS, last[way]) for way, turn in turns.items()}
    called = {way: f"called {WANTED}" in "".join(turn.results) for way, turn in turns.items()}
    report("300 tools: offered", len(offered[DIRECT]), len(offered[BEHIND]))
    report("300 tools: one is called", called[DIRECT], called[BEHIND])
    assert offered[DIRECT] <= offered[BEHIND]
    assert called[BEHIND]


def test_a_tool_of_three_hundred_is_found_and_called_from_a_short_list(
    user: Callable[[str], User], report: Report, tmp_path: Path
) -> None:
    servers = three_hundred(tmp_path)
    user(BEHIND).has_behind_the_hub(servers, expose="search")
    search = Call("hub_search", {"query": WANTED.replace("_", " ")})
    call = Call("hub_call", {"tool": f"many3__{WANTED}", "arguments": {"text": "x"}})
    turn = user(BEHIND).turn(search, call)
    called = f"called {WANTED}" in "".join(turn.results)
    report("300 tools, `expose: search`: one is called", "-", called)
    assert turn.offered(["hub_search", "hub_read", "hub_call"]) == {"hub_search", "hub_read", "hub_call"}
    assert not turn.offered(TOOLS)
    assert WANTED in turn.results[0]
    assert called


def test_tools_with_odd_schemas_are_offered_and_can_be_called(
    user: Callable[[str], User], report: Report, tmp_path: Path
) -> None:
    servers = {"odd": listing(tmp_path, "odd", tools=[tool(name, schema) for name, schema in ODD.items()])}
    user(DIRECT).has(servers)
    user(BEHIND).has_behind_the_hub(servers)
    steps = [Call(name) for name in ("odd_types", "odd_tuples", "odd_recursion", "odd_empty", "odd_no_type")]
    turns = {way: user(way).turn(*steps) for way in (DIRECT, BEHIND)}
    offered = {way: turn.offered(ODD) for way, turn in turns.items()}
    called = {way: sum("called odd_" in result for result in turn.results) for way, turn in turns.items()}
    report(f"{len(ODD)} odd schemas: offered", len(offered[DIRECT]), len(offered[BEHIND]))
    report(f"{len(steps)} tools with odd schemas: called", called[DIRECT], called[BEHIND])
    assert offered[DIRECT] <= offered[BEHIND]
    assert called[DIRECT] <= called[BEHIND]
    assert offered[BEHIND] == set(ODD)


def test_tools_with_long_and_odd_names_can_be_called(
    user: Callable[[str], User], report: Report, tmp_path: Path
) -> None:
    servers = {"names": listing(tmp_path, "names", tools=[tool(name) for name in LONG])}
    user(DIRECT).has(servers)
    user(BEHIND).has_behind_the_hub(servers)
    called = {}
    for way in (DIRECT, BEHIND):
        offered = user(way).turn().mcp_tools(user(way).server_names)
        turn = user(way).turn(*[Call(name) for name in offered])
        results = "".join(turn.results)
        called[way] = {name for name in LONG if f"called {name}" in results}
    report(f"{len(LONG)} long and odd names: called", len(called[DIRECT]), len(called[BEHIND]))
    assert called[DIRECT] <= called[BEHIND]
    assert called[BEHIND] == set(LONG)
