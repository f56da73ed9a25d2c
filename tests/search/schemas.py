"""Checks of a signature and of a stub against their schema, by a parser of their own."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from mcp_hub.search.signatures import identifier_of, signature, stub
from tests.syntax import parsed_text


def parameters(text: str) -> dict[str, str]:
    """{parameter, with its question mark: type} of a signature."""
    types, part, depth, quoted, index = {}, "", 0, False, 0
    members = text[text.index("(") + 1 : -1] + ", "
    while index < len(members):
        char = members[index]
        if quoted and char == "\\":
            part += members[index : index + 2]
            index += 2
            continue
        quoted = quoted != (char == '"')
        depth += 0 if quoted else (char in "({[") - (char in ")}]")
        if char == "," and not depth and not quoted:
            name, colon, kind = re.match(r'("(?:\\.|[^"\\])*"\??|[^:]*)(:? ?)(.*)', part, re.DOTALL).groups()  # type: ignore[union-attr]
            if part:
                types[name] = kind if colon else ""
            part, index = "", index + 2
            continue
        part += char
        index += 1
    return types


def check_signature(name: str, schema: Any) -> None:
    """Every required parameter is in the signature, without a question mark, with its type."""
    text = signature(name, schema)
    assert text.startswith(f"{name}(")
    assert text.endswith(")")
    assert "\n" not in text
    types, properties = parameters(text), schema.get("properties") or {}
    for parameter in schema.get("required") or []:
        plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", parameter)
        kind = types[parameter if plain else json.dumps(parameter, ensure_ascii=False)]
        assert kind
        subschema = properties.get(parameter)
        if not isinstance(subschema, dict) or {"enum", "const", "anyOf", "oneOf", "$ref"} & set(subschema):
            continue
        if subschema.get("type") in ("string", "integer", "number", "boolean"):
            assert kind == subschema["type"], (parameter, text)
        if subschema.get("type") == "array":
            assert kind.endswith("[]"), (parameter, text)


PYTHON = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}


def check_stub(name: str, schema: Any, output: Any = None) -> None:
    """The stub is one line of Python, and has every required parameter with its type and without a default."""
    text = stub(name, schema, output)
    assert "\n" not in text
    (function,) = parsed_text(text).body
    assert isinstance(function, ast.AsyncFunctionDef)
    assert function.name == identifier_of(name)
    spec = function.args
    without = spec.args[: len(spec.args) - len(spec.defaults)]
    types = {argument.arg: ast.unparse(argument.annotation) for argument in without if argument.annotation is not None}
    if spec.kwarg is not None:
        assert isinstance(spec.kwarg.annotation, ast.Dict)
        for key, kind in zip(spec.kwarg.annotation.keys, spec.kwarg.annotation.values, strict=True):
            assert isinstance(key, ast.Constant)
            types |= {} if ast.unparse(kind).startswith("NotRequired[") else {str(key.value): ast.unparse(kind)}
    assert types.keys() == set(schema.get("required") or [])
    for parameter, kind in types.items():
        subschema = (schema.get("properties") or {}).get(parameter)
        if not isinstance(subschema, dict) or {"enum", "const", "anyOf", "oneOf", "$ref"} & set(subschema):
            continue
        if isinstance(subschema.get("type"), str) and subschema["type"] in PYTHON:
            assert kind == PYTHON[subschema["type"]], (parameter, text)
        if subschema.get("type") == "array":
            assert kind.startswith("list["), (parameter, text)
