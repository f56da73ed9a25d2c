"""Schemas of servers that made providers refuse every request of a client, from the threads that report them."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]


def _of(**properties: Any) -> Json:
    return {"type": "object", "properties": properties}


REFUSED: Final[list[tuple[str, str, Json, list[Json]]]] = [
    ("kilocode#11950", "gemini",
     _of(issue_fields={"type": "array", "items": {
         "type": "object", "required": ["field_name", "value"],
         "properties": {"value": {"type": ["string", "number", "boolean"]}, "field_option_name": {"type": "string"}},
         "oneOf": [{"required": ["value"]}, {"required": ["field_option_name"]}], "additionalProperties": True}}),
     [{"issue_fields": [{"field_name": "a", "value": 1}]}, {"issue_fields": [{"field_name": 2, "value": "b"}]}]),
    ("opencode#11889", "gemini",
     _of(data={"type": "string", "properties": {"a": {}}, "required": ["a"]}), [{"data": "a"}, {}]),
    ("opencode#5832", "gemini", _of(nodes={"type": "array"}, values={"type": "array", "items": {"type": "array"}}),
     [{"nodes": [1, "a", None], "values": [[1], [[]]]}]),
    ("opencode#48073", "gemini", _of(languages={"type": ["array", "null"], "items": {"type": "string"}}),
     [{"languages": None}, {"languages": ["de"]}]),
    ("opencode#4512", "gemini", _of(level={"type": "integer", "enum": [0, 1, 2]}), [{"level": 0}, {"level": 2.0}]),
    ("opencode#2687", "gemini", _of(a={"anyOf": [{"type": "string"}, _of(b={"const": True})]}),
     [{"a": "b"}, {"a": {"b": True}}]),
    ("stape-mcp-server#35", "gemini", _of(age={"type": "string", "enum": ["", "1"]}), [{"age": ""}, {"age": "1"}]),
    ("gemini-cli#23382", "gemini", {"properties": {"a": {"type": "string"}}, "required": ["type"]},
     [{"type": 1}, {"type": "x", "a": "b"}]),
    ("gemini-cli#11393", "gemini",
     {"type": "object", "required": ["child"], "properties": {"child": {"$ref": "#/definitions/Child"}},
      "definitions": {"Child": {"type": "object", "properties": {"child": {"$ref": "#/definitions/Child"}}}}},
     [{"child": {"child": {"child": {"child": {}}}}}]),
    ("copilot-cli#4623", "gemini",
     _of(rows={"type": ["array", "null"], "items": {"type": ["object", "null"], "properties": {"value": True}}}),
     [{"rows": [None, {"value": [1]}]}]),
    ("copilot-cli#4835", "gemini",
     _of(levels={"type": ["array", "null"], "items": {"type": "integer"}, "enum": [[1], None]}), [{"levels": [1]}]),
    ("xum#1220", "openai",
     _of(content={"type": "string", "minLength": 1, "maxLength": 9, "examples": ["a"], "default": "b"},
         tags={"type": "array", "items": {"type": "string"}, "uniqueItems": True}), [{"content": "a", "tags": ["b"]}]),
    ("fastmcp#2464", "openai",
     _of(size={"anyOf": [{"type": "array", "minItems": 2, "maxItems": 2,
                          "prefixItems": [{"type": "number"}, {"type": "number"}]}, {"type": "null"}]}),
     [{"size": [1, 2.5]}, {"size": None}]),
    ("oh-my-pi#2784", "openai", _of(key={"type": "string", "pattern": "^(?!undefined$|null$)"}), [{"key": "abc"}]),
    ("langfuse#14785", "openai", _of(name={"type": "string", "pattern": "^[\\p{L}]+$"}), [{"name": "abc"}]),
    ("oh-my-pi#2652", "openai", _of(a={"anyOf": [{"type": "string"}, {"type": "null", "enum": ["A"]}]}), [{"a": "A"}]),
    ("google-calendar-mcp#39", "openai", {**_of(a={}, b={}), "not": {"required": ["a", "b"]}}, [{"a": 1}, {"b": 1}]),
    ("open-webui/computer#87", "openai",
     _of(f={"$ref": "#/$defs/FilterType"}), [{"f": "fit"}, {"f": 1}]),
    ("claude-code#40075", "anthropic",
     {**_of(route={"type": "string"}, file={"type": "string"}),
      "anyOf": [{"required": ["route"]}, {"required": ["file"]}]},
     [{"route": "a"}, {"file": "b"}]),
    ("huly-mcp#66", "anthropic",
     {"oneOf": [
         {**_of(kind={"const": "a"}, size={"type": "integer"}), "required": ["kind"], "additionalProperties": False},
         {**_of(kind={"const": "b"}, size={"type": "string"}), "required": ["kind"], "additionalProperties": False}]},
     [{"kind": "a", "size": 1}, {"kind": "b", "size": "x"}]),
    ("appstore-connect-mcp#1", "anthropic",
     {**_of(**{"filter[id]": {"type": "string"}, "limit": {"type": "integer"}}), "additionalProperties": False,
      "required": ["filter[id]"]}, [{"filter[id]": "a", "limit": 1}]),
    ("claude-code#586", "anthropic",
     {"$schema": "http://json-schema.org/draft-04/schema#",
      **_of(size={"type": "integer", "minimum": 0, "exclusiveMinimum": True}, at={"type": "array", "items": [{}, {}]})},
     [{"size": 1, "at": [1, "a", None]}]),
]  # fmt: skip
"""The thread, the provider that refuses the schema, the schema, and arguments that its server takes."""
